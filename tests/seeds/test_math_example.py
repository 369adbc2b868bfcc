"""The script of the specification with our names, and examples/math, as real processes.

Both run locally, and remotely: on a real sshd, to which the `ssh` on PATH connects.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from math import comb
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import Completed, run_file
from tests.seeds.test_research_scripts import ANALYSIS, BASELINE
from tests.sshd import as_program, ssh_to_own_sshd
from weakincentives.evals import EvalReport
from weakincentives.evals.evaluators.math import normalized_equal
from weakincentives.evals.loaders import load_jsonl
from weakincentives.testing import ModelServer, Reply, ServedRequest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "math"
ROWS: list[dict[str, Any]] = load_jsonl(EXAMPLE / "data" / "problems.jsonl")

Run = Callable[..., Completed]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH with an `ssh` that can connect to the host `machine`."""
    home = tmp_path_factory.mktemp("ssh")
    return f"{as_program(ssh_to_own_sshd(home), home).parent}:{os.environ['PATH']}"


@pytest.fixture
def run(tmp_path: Path, path: str) -> Run:
    """Return a function that runs a Python file in a new folder."""
    settings = {
        "OPENAI_API_KEY": "none",
        "PATH": path,
        "PYTHONPATH": ":".join([str(tmp_path), *sys.path]),
        "WINK_REMOTE_HOST": "machine",
        "WINK_REMOTE_PYTHON": sys.executable,
    }
    return lambda *call, **variables: run_file(*call, cwd=tmp_path, env=settings | variables)


def boxed_answers(answer: Callable[[str], str]) -> ModelServer:
    """Return a server whose model answers the last message with a boxed result."""

    def reply(request: ServedRequest) -> Reply:
        return Reply(rf"So it is \boxed{{{answer(request.body['messages'][-1]['content'])}}}.")

    return ModelServer(reply)


# ── the script of the specification ─────────────────────────────────────────────────────────────


def sum_with_errors(problem: str) -> str:
    """Return the sum, wrong for every tenth problem, in another format than the expected text."""
    left, right = map(int, re.findall(r"\d+", problem))
    return f"{left + right + (left % 10 == 4):,}.0"


@pytest.mark.parametrize("flags", [[], ["--remote"], ["--gpu-id", "0"]])
def test_the_script_of_the_specification(flags: list[str], run: Run, tmp_path: Path) -> None:
    with boxed_answers(sum_with_errors) as server:
        files = {
            "configs/evals/math_base.py": f"""
from weakincentives.evals import EvalConfig
from weakincentives.rollouts import Endpoint

config = EvalConfig(endpoint=Endpoint("llama-3", base_url={server.openai_base_url!r}))
""",
            "experiments/evals/math_500/baseline_01_01.py": BASELINE.replace(
                "from answers import extract_boxed_answer, normalized_equal",
                "from weakincentives.evals.evaluators.math import (\n"
                "    extract_boxed_answer, normalized_equal\n)\n"
                "from weakincentives.contrib.remote import run_remote",
            ),
            "scripts/analyze_math_evals.py": ANALYSIS,
            "data/math_500.jsonl": "".join(
                f'{{"problem": "{n} + {n}", "answer": "{2 * n}", "level": {n % 5 + 1}}}\n'
                for n in range(500, 620)
            ),
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

        done = run("experiments/evals/math_500/baseline_01_01.py", *flags)

    assert (done.stdout, done.stderr, done.returncode) == ("Score: 90.00%\n", "", 0)
    assert EvalReport.load(tmp_path / "outputs/evals/math_500_baseline").summary["n"] == 100
    sliced = run("scripts/analyze_math_evals.py").stdout.splitlines()
    assert sliced[1:3] == ["=== math_500_baseline ===", "Overall: 90.00%"]
    assert sliced[7] == "  Level 5: 50.00% (n=20)"


# ── examples/math ───────────────────────────────────────────────────────────────────────────────


def test_the_example_runs_without_a_model(run: Run, tmp_path: Path) -> None:
    done = run(str(EXAMPLE / "baseline.py"))

    assert (done.stdout, done.stderr, done.returncode) == ("Score: 60.00%\n", "", 0)
    assert EvalReport.load(tmp_path / "outputs/evals/math_baseline").summary["n"] == len(ROWS)

    sliced = run(str(EXAMPLE / "analyze.py"))

    assert (sliced.stderr, sliced.returncode) == ("", 0)
    assert sliced.stdout.splitlines()[1:11] == [
        "=== math_baseline ===",
        "Overall: 60.00% (24/40 passed, 0 errors (60.0%, 95% interval 44.6% to 73.7%, n = 40))",
        "  Level 1: 100.00% (n=8)",
        "  Level 2: 87.50% (n=8)",
        "  Level 3: 87.50% (n=8)",
        "  Level 4: 12.50% (n=8)",
        "  Level 5: 12.50% (n=8)",
        "",
        "=== Failed Samples (16) ===",
        "  13: reward=0.00  What is the sum of the interior angles of a hexagon?",
    ]


def test_the_example_can_call_a_model(run: Run) -> None:
    answers = {row["problem"]: row["answer"] for row in ROWS}

    with boxed_answers(lambda problem: answers[problem.partition("\n")[0]]) as server:
        flags = ("--model", "openai/gpt-4o", "--base-url", server.openai_base_url)
        done = run(str(EXAMPLE / "baseline.py"), *flags)

    assert (done.stdout, done.stderr, done.returncode) == ("Score: 100.00%\n", "", 0)


def test_the_example_runs_on_another_machine(run: Run, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "math")

    done = run("math/baseline.py", "--remote", "--gpu-id", "1")

    assert (done.stdout, done.stderr, done.returncode) == ("Score: 60.00%\n", "", 0)
    assert (tmp_path / "outputs/evals/math_baseline/results.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--remote",), "expected a host for `run_remote`, got "),
        (("--model", "nothing"), "expected a known model, got 'nothing' - "),
    ],
)
def test_a_missing_setting_of_the_example_is_an_error_in_one_line(
    run: Run, flags: tuple[str, ...], error: str
) -> None:
    done = run(str(EXAMPLE / "baseline.py"), *flags, WINK_REMOTE_HOST="")

    assert done.returncode == 1
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") == 1


def test_analyzing_without_results_prints_the_command_to_run(run: Run) -> None:
    done = run(str(EXAMPLE / "analyze.py"))

    assert done.stderr == "no results in outputs/evals - run: python examples/math/baseline.py\n"


@cache
def correct_answers() -> list[Any]:
    """Compute the answers of all problems. Importing SymPy takes a third of a second."""
    import sympy
    from sympy import Eq, FiniteSet, Interval, Rational, S, oo, pi, sqrt, symbols

    x, y, k = symbols("x y k", real=True)
    return [
        *(17 + 26, 9 * 14, 1000 - 387, Rational(1, 2) + Rational(1, 3)),
        *(Rational(15, 100) * 80, Rational(144, 16), 2**10, 7 * 5),
        *sympy.solve(3 * x + 7 - 31),
        *sympy.solve(Eq(5 * x - 4, 2 * x + 11)),
        *(sympy.gcd(84, 126), sympy.lcm(12, 18), Rational(4 + 8 + 15 + 16 + 23 + 42, 6)),
        *((6 - 2) * 180, Rational(3, 4) / Rational(9, 16), Rational(11 - 2, 4 - 1)),
        sympy.solveset(x**2 - 5 * x + 6, x),
        *(2**20 % 7, comb(10, 3), sympy.Point(1, 1).distance(sympy.Point(4, 5))),
        *(sympy.divisor_count(360), sqrt(72)),
        Rational(sum(a + b == 7 for a in range(1, 7) for b in range(1, 7)), 36),
        sum(range(1, 100, 2)),
        *sympy.linsolve([x + y - 10, x - y - 4], x, y),
        sympy.solveset(x**2 < 9, x, S.Reals),
        sympy.summation(Rational(1, 3) ** k, (k, 0, oo)),
        len(str(sympy.factorial(100))) - len(str(sympy.factorial(100)).rstrip("0")),
        sympy.Poly((x + 2) ** 5).coeff_monomial(x**3),
        sympy.rem(x**3 - 2 * x + 5, x - 2),
        pi * Rational(6, 2) ** 2,
        int("110101", 2),
        Interval(1, oo) - FiniteSet(3),
        sum(n % 2 != 0 and n % 5 != 0 for n in range(1, 1001)),
        abs((3 + 4 * sympy.I) ** 2).expand(complex=True),
        comb(10, 5),
        sympy.expand(sum(root**3 for root in sympy.solve(x**2 - 4 * x + 1))),
        sum(map(int, str(2**15))),
        sympy.summation(1 / (k * (k + 1)), (k, 1, 99)),
        Rational(comb(6, 3), 2**6),
    ]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_every_answer_of_the_example_is_correct(number: int) -> None:
    from sympy import latex

    row, correct = [*zip(ROWS, correct_answers(), strict=True)][number]
    assert row["level"] in range(1, 6)
    assert normalized_equal(latex(correct), row["answer"]), correct
