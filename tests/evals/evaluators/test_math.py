"""Mathematical answers: extracted from text, compared as text, and compared symbolically."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, strategies as st

from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import EvalConfig, Sample, evaluate
from weakincentives.evals.evaluators.math import (
    extract_boxed_answer,
    math_equal,
    normalized_equal,
    symbolic_equal,
    sympy_process as processes,
)

# ── boxed answers ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So it is \boxed{42}.", "42"),
        (r"\boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} and more {text}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{ a b }", "a b"),
        (r"\boxed {7}", "7"),
        ("\\boxed\n{7}", "7"),
        (r"\boxed{}", ""),
        (r"\boxed 5", "5"),
        (r"It is $\boxed 42$.", "42"),
        (r"so \boxed 5. Done", "5"),
        (r"\boxed \frac{1}{2}, as said", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1} \fbox{3}", "3"),
        (r"\boxed{x = \boxed{5}}", "5"),
        (r"\boxed{1} then cut off: \boxed{2", "1"),
        (r"\\boxed{5}", "5"),  # with a superfluous backslash
        (r"line\\\boxed{5}", "5"),
        (r"\boxed{a \\ b}", r"a \\ b"),
        ("none", None),
        ("", None),
        (r"\boxed", None),
        (r"\boxed{1", None),
        (r"\boxedwidth{1}", None),
        (r"boxed{1}", None),
        (r"} \boxed{1} {", "1"),
    ],
)
def test_the_last_box_is_the_answer(text: str, answer: str | None) -> None:
    assert extract_boxed_answer(text) == answer


@given(st.text(alphabet="\\{}boxed fx$\n", max_size=60))
def test_the_answer_of_any_text_is_part_of_it_or_none(text: str) -> None:
    answer = extract_boxed_answer(text)

    assert answer is None or answer in text
    if "{" not in text:
        assert extract_boxed_answer(text + r"\boxed{last}") == "last"


HOSTILE = ["\\boxed{", "\\boxed", "\\boxed ", "\\", "{", "}", "\\boxed{1}", "\\boxed x", " "]


@pytest.mark.parametrize("piece", HOSTILE)
def test_extraction_takes_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = (piece * size)[:size]
        return min(_cpu_seconds(lambda: extract_boxed_answer(text)) for _ in range(3))

    assert seconds(100_000) < 20 * max(seconds(10_000), 0.01)


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


# ── equal after normalization ───────────────────────────────────────────────────────────────────

EQUAL = [
    # white space, delimiters, sizes
    ("42", " 42 "),
    ("$42$", "42"),
    (r"\(42\)", "42"),
    (r"\[ 42 \]", "42"),
    ("42.", "42"),
    (r"\boxed{42}", "42"),
    ("{42}", "42"),
    (r"\left( 1, 2 \right)", "(1,2)"),
    (r"\bigl(1, 2\bigr)", "(1,2)"),
    (r"x \, y", "xy"),
    # numbers
    ("0.50", "0.5"),
    (".5", "0.5"),
    ("7.0", "7"),
    ("007", "7"),
    ("+3", "3"),
    ("-0", "0"),
    ("−3", "-3"),
    (r"\frac{1}{2}", "0.5"),
    (r"\frac12", "1/2"),
    (r"\dfrac{1}{2}", r"\tfrac12"),
    (r"\frac{1}2", r"\frac 1 2"),
    (r"\frac{2}{4}", "0.5"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"\frac{10}{4}", "2.5"),
    (r"1\frac{1}{2}", "1.5"),
    ("1 1/2", r"\frac{3}{2}"),
    (r"-1\frac12", "-1.5"),
    ("1,234", "1234"),
    ("1,234,567.50", "1234567.5"),
    ("1{,}234", "1234"),
    (r"1\,234", "1234"),
    (r"1,\!234", "1234"),
    ("12 345", "12345"),
    (r"1.5 \times 10^{3}", "1500"),
    (r"2 \cdot 10^{-2}", "0.02"),
    ("10^6", "1000000"),
    ("1.5e3", "1500"),
    # units, names
    (r"5\text{ cm}", "5"),
    (r"5\text{ cm}", "5 centimeters"),
    (r"5\text{ cm}^2", "5 square cm"),
    (r"5\,\mathrm{cm}^{2}", "5 cm^2"),
    (r"12 \text{ apples}", "12"),
    ("3 feet", r"3 \text{ ft}"),
    (r"90^\circ", "90"),
    (r"90^{\circ}", "90 degrees"),
    ("90°", r"90^\circ"),
    (r"50\%", "50"),
    ("50%", "0.5"),
    ("50 percent", r"50\%"),
    (r"\$5", "5"),
    (r"\$1,250.00", "1250 dollars"),
    ("x = 5", "5"),
    ("x=5", "x = 5.0"),
    ("f(x) = x^2", "x^{2}"),
    ("x_1 = 3", "3"),
    (r"x \in [1, 2]", "[1,2]"),
    ("y = 2x + 1", "2x+1"),
    # words
    (r"\text{Evelyn}", "Evelyn"),
    ("Even", r"\text{even}"),
    (r"\text{(B)}", "B"),
    ("(B)", "B"),
    (r"\mathrm{No}", "no"),
    # several values
    ("(1,2)", "(1.0, 2)"),
    ("(1/2, 3)", r"\left(0.5, 3\right)"),
    (r"\{1, 2\}", r"\{2,1\}"),
    (r"\{1, 1, 2\}", r"\{2, 1\}"),
    (r"\lbrace 1, 2 \rbrace", r"\{1,2\}"),
    ("1, 2", "1,2"),
    ("1 and 2", "1, 2"),
    (r"1 \text{ or } 2", "1,2"),
    ("1, 2, and 3", "1,2,3"),
    ("[0, 1)", r"\left[0, 1\right)"),
    (r"(-\infty, 3)", "(-∞,3)"),
    (r"(1,2) \cup (3,4)", r"(3,4)\cup(1,2)"),
    ("((1,2),(3,4))", "((1.0,2),(3,4))"),
    ("(1,234)", "(1, 234)"),
    # expressions
    ("x^2", "x^{2}"),
    (r"\sqrt{2}", r"\sqrt2"),
    (r"\frac{\pi}{2}", r"\dfrac{\pi}{2}"),
    (r"2 \cdot x", r"2 \times x"),
    ("2.50x", "2.5x"),
    (r"x \le 3", "x ≤ 3"),
    ("3π", r"3\pi"),
    (r"\emptyset", r"\varnothing"),
    (r"\begin{pmatrix} 1 \\ 2.0 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (42, "42"),
    (0.5, r"\frac{1}{2}"),
]
UNEQUAL = [
    ("1", "2"),
    ("-5", "5"),
    ("0.33", r"\frac{1}{3}"),
    ("0.3333333333333333", "1/3"),
    ("12", "1 2"),
    ("1", "1, 1"),
    ("1,23", "1.23"),
    ("1,234", "(1,234)"),
    ("1,234", "1, 234"),
    ("", "0"),
    ("", "5"),
    ("5 cm", "5 m"),
    (r"5\text{ cm}", r"5\text{ cm}^2"),
    (r"50\%", r"50^\circ"),
    ("0.5%", "50"),
    ("50", "0.5"),
    ("x = 5", "y = 5"),
    ("x + y = 5", "5"),
    ("x = y = 5", "5"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("(1,2)", r"\{1,2\}"),
    ("(1,2)", "1,2"),
    ("1,2,3", "3,2,1"),
    ("(1,2,3)", "(1,2)"),
    (r"\{1\}", "1"),
    (r"\{1, 2\}", r"\{1, 3\}"),
    ("[0, 1)", "[0, 1]"),
    (r"(1,2) \cup (3,4)", "(1,2)"),
    ("x + x", "2x"),
    ("x^2", "x2"),
    ("xy", "xY"),
    ("AB", "ab"),
    ("A", "B"),
    ("A", "a"),
    ("2^{10}", "1024"),
    (r"\sqrt{2}", "2"),
    (r"\sqrt{2}3", r"\sqrt{23}"),
    (r"\frac{1}{23}", r"\frac{12}{3}"),
    (r"\frac{1}{0}", "0"),
    ("1011_2", "1011"),
    ("10^6", "10^7"),
    ("Evelyn", "Eve"),
    (r"5\text{ million}", "5"),
    (r"2\text{ thousand dollars}", r"\$2"),
    (r"5\text{ or more}", "5"),
    (r"10\text{ base two}", "10"),
    ("0.333...", "0.333"),
    (r"\{" + "*".join(["10^999"] * 6) + r", 1\}", "1"),
    (None, "5"),
    ("5", None),
    (None, None),
    (None, ""),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_different_notations_are_equal(a: Any, b: Any) -> None:
    assert normalized_equal(a, b)
    assert normalized_equal(b, a)


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_different_answers_are_not_equal(a: Any, b: Any) -> None:
    assert not normalized_equal(a, b)
    assert not normalized_equal(b, a)


LATEX = st.lists(
    st.sampled_from(
        [*"0123456789xyABe.,;:+-*/^_=(){}[]<>|$%~ \n°π−", *("and", "cm", "square", "1,234")]
        + [rf"\{name}" for name in ("frac", "dfrac", "text{", "left", "right", "cup", "circ")]
        + [r"\{", r"\}", r"\%", r"\$", r"\,", r"\!", "\\\\", "\\", r"\boxed{", r"\sqrt", "10^{"]
    ),
    max_size=25,
).map("".join)
ANSWERS = st.one_of(LATEX, st.text(max_size=30), st.integers(), st.floats(), st.none())


@given(ANSWERS, ANSWERS)
def test_comparison_is_symmetric_and_never_raises(a: Any, b: Any) -> None:
    assert normalized_equal(a, b) == normalized_equal(b, a)


@given(LATEX | st.text())
def test_every_answer_equals_itself_with_and_without_dollars(text: str) -> None:
    assert normalized_equal(text, text)
    assert normalized_equal(f" ${text}$ ", text)


@given(st.fractions(), st.integers(1, 50))
def test_a_fraction_equals_its_own_expansion_and_no_other_number(value: Any, factor: int) -> None:
    numerator, denominator = value.numerator * factor, value.denominator * factor
    expanded = rf"\frac{{{numerator}}}{{{denominator}}}"

    assert normalized_equal(expanded, str(value))
    assert not normalized_equal(expanded, str(value + 1))


@pytest.mark.parametrize(
    "piece", ["(", "{", "[1,", "-", r"\frac", r"\text{", "111,", "x=", "10^", "10^9*"]
)
def test_long_answers_are_compared_quickly(piece: str) -> None:
    text = (piece * 10_000)[:10_000]

    def compare() -> None:
        assert not normalized_equal(text, text[:-1] + "q")
        assert not normalized_equal(text, text[:-6])
        assert not normalized_equal("9" * 1_000_000, "8" * 1_000_000)

    assert any(_cpu_seconds(compare) < 4 for _ in range(3))


# ── symbolically equal ──────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("x(x+1)", "x^2+x", True),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}", True),
        ("2, 1", "1, 2", True),
        ("2^{10}", "1024", True),
        ("A", "A", True),
        ("x^2", "x^3", False),
        ("A", "B", False),
        ("", "5", False),
        ("}{", "1", False),
        (None, "1", False),
        ("1", None, False),
    ],
)
async def test_symbolic_equality(a: str | None, b: str | None, equal: bool) -> None:
    assert await symbolic_equal(a, b, timeout=60) is equal


@pytest.mark.anyio
async def test_a_checking_process_that_dies_is_an_error_and_not_a_verdict() -> None:
    async def check() -> None:
        with pytest.raises(EvaluatorError, match=r"end of the checking process \(code -9\)"):
            await symbolic_equal("9^{9^{9^{9}}}", "5", timeout=600)

    for idle in processes._idle:
        idle.kill()
        idle.wait()
    async with anyio.create_task_group() as group:
        group.start_soon(check)
        await to_thread.run_sync(_wait_until, _children)
        os.kill(_children().pop(), 9)


def test_a_checking_process_that_died_before_the_request_is_an_error() -> None:
    process = processes._idle_process()
    process.kill()
    process.wait()

    assert processes._ask(process, b"[]\n", threading.Lock()) == b""
    assert process.stdin is not None
    assert process.stdin.closed


CANCELLED = """
import gc
import anyio
from anyio.lowlevel import checkpoint
from weakincentives.evals.evaluators.math import symbolic_equal

async def check():
    await symbolic_equal("x + 1", "y", timeout=60)

async def main():
    for steps in range(1, 6):  # one of them is between the start of the process and of its thread
        await symbolic_equal("x", "y", timeout=60)
        async with anyio.create_task_group() as group:
            group.start_soon(check)
            for _ in range(steps):
                await checkpoint()
            group.cancel_scope.cancel()
        gc.collect()

anyio.run(main)
"""


def test_a_check_that_is_cancelled_before_it_starts_leaves_nothing_open() -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", CANCELLED]
    process = subprocess.run(command, capture_output=True, text=True, check=True)

    assert process.stderr == ""


def _wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children() -> set[int]:
    """Return the child processes that check answers."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and processes.__name__.encode() in command:
            pids.add(int(folder.name))
    return pids


def _ticks(pid: int) -> int:
    """Return the CPU time of a process, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.anyio
async def test_a_cancelled_check_ends_its_process() -> None:
    assert not await symbolic_equal("x", "y", timeout=60)  # starts a process, which is idle now
    pid = processes._idle[-1].pid
    before = _ticks(pid)

    async with anyio.create_task_group() as group:
        group.start_soon(partial(symbolic_equal, "9^{9^{9^{9}}}", "5", timeout=600))
        await to_thread.run_sync(_wait_until, lambda: _ticks(pid) > before)  # it is working
        group.cancel_scope.cancel()

    await to_thread.run_sync(_wait_until, lambda: pid not in _children())


@pytest.mark.anyio
async def test_misuse_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a number of seconds > 0 for `timeout`"):
        await symbolic_equal("1", "2", timeout=0)


@pytest.mark.anyio
async def test_math_equal_is_an_evaluator() -> None:
    outputs = {"right": r"So \boxed{x(x + 1)}.", "plain": "x + x^2", "wrong": r"\boxed{x^2}"}
    samples = [Sample(name, name, "x^2 + x") for name in (*outputs, "none")]
    config = EvalConfig(max_concurrent=4, timeout_per_sample_ms=None)

    report = await evaluate(samples, config, math_equal, agent=outputs.get)

    assert [result.passed for result in report.results] == [True, True, False, False]
    assert [result.error_source for result in report.results] == [None, None, None, "evaluator"]
    assert report.results[2].score.reason == "expected 'x^2 + x', got 'x^2'"
    assert report.results[3].error == "expected a text or a number as output, got None"


@pytest.mark.anyio
async def test_a_check_that_hangs_times_out_and_the_next_one_works() -> None:
    async def with_timeout(output: str, expected: str) -> bool:
        return await symbolic_equal(output, expected, timeout=60 if output == "4" else 0.3)

    samples = [Sample("hang", "9^{9^{9^{9}}}", "5"), Sample("wrong", "4", "5")]
    config = EvalConfig(timeout_per_sample_ms=None)
    with anyio.fail_after(120):
        report = await evaluate(samples, config, with_timeout, agent=str.strip)

    assert [result.error_source for result in report.results] == ["evaluator", None]
    assert "got none in 0.3 s of work" in str(report.results[0].error)
    assert report.summary["errors"] == 1


def test_math_equal_can_be_called_directly() -> None:
    assert math_equal(r"\boxed{0.5}", r"\frac12").passed
    assert math_equal(4, "4").passed
    assert not math_equal("4", "5").passed


def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    code = """
import sys
sys.modules["math_verify"] = None
from weakincentives.evals.evaluators.math import math_equal
math_equal("4", "5")
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "pip install 'weakincentives-evals[math]'" in process.stderr
