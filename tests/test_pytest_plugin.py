"""Evals as tests: items, thresholds, one run in the store; in one process and with pytest-xdist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.processes import machine_variables
from weakincentives import evals
from weakincentives.evals import open_store

pytest_plugins = ["pytester"]

CAPITALS = """\
{"id": "fr", "input": "France", "expected": "Paris"}
{"id": "jp", "input": "Japan", "expected": "Tokyo"}
{"id": "de", "input": "Germany", "expected": "Berlin"}
{"id": "it", "input": "Italy", "expected": "Rome"}
"""
HEAD = """
import pytest
from weakincentives.evals import *

KNOWN = {"France": "Paris", "Japan": "Tokyo", "Germany": "Bonn", "Italy": "Rome"}
"""
SHARE = """
@pytest.mark.wink_eval(dataset="capitals.jsonl", evaluator=exact_match, fail_under=%s)
def test_capitals(country):
    return KNOWN[country]
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture(scope="module", autouse=True)
def names_are_loaded() -> None:
    """Import what HEAD imports: `pytester` unloads the imports of its sessions."""
    for name in evals.__all__:
        getattr(evals, name)


@pytest.fixture(autouse=True)
def no_store_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*machine_variables(), "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def pytest_on(pytester: pytest.Pytester) -> Run:
    """Return a function that runs pytest with the plugin on a file with these tests."""
    (pytester.path / "capitals.jsonl").write_text(CAPITALS)

    def run(tests: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(test_qa=HEAD + tests)
        words = ("-p", "weakincentives.pytest_plugin", "-p", "no:cacheprovider", *words)
        if "-n" in words:
            words = ("-p", "xdist", *words)
        quiet = (
            "ignore::pytest.PytestAssertRewriteWarning"  # this process may have imported the plugin
        )
        return pytester.runpytest_inprocess("-W", quiet, *words)

    return run


def stored(path: Path) -> list[str]:
    """Return the outcome of each run of a store."""
    with open_store(path / ".wink" / "runs.db") as store:
        return [
            f"{run.manifest.dataset_name} {run.status} {run.passed}/{run.total}"
            for run in reversed(store.runs())
        ]


processes = pytest.mark.parametrize("words", [[], ["-n", "2"]], ids=["one", "xdist"])


# ── items and thresholds ────────────────────────────────────────────────────────────────────────


@processes
def test_every_sample_is_an_item_and_so_is_the_pass_rate(
    pytest_on: Run, pytester: pytest.Pytester, words: list[str]
) -> None:
    result = pytest_on(SHARE % 0.9, "-v", "--junitxml=out.xml", *words)

    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=1)
    text = result.stdout.str()
    for name in ("fr", "jp", "it"):
        assert f"test_capitals[{name}]" in text
    assert "MISSED (0)" in text
    assert "1 failed, 3 passed, 1 missed" in text
    verdict = (
        "3/4 passed, 95% interval 30.1% to 95.4%, n = 4: "
        "FAIL: 75.0% passed, less than 90%, though the rate may be 90% or more"
    )
    result.stdout.fnmatch_lines(
        [
            "*test_capitals?fail_under=0.9?*",
            verdict,
            "*= evals =*",
            f"test_qa.py::test_capitals: {verdict}",
            "  de: score 0 does not pass: exact_match: got 'Bonn', expected 'Berlin'",
            "  run *",
            "FAILED test_qa.py::test_capitals?fail_under=0.9? - 3/4 passed*",
        ]
    )
    assert stored(pytester.path) == ["capitals complete 3/4"]
    names = {case.get("name") for case in ElementTree.parse("out.xml").iter("testcase")}
    assert "test_capitals[fail_under=0.9]" in names


@processes
def test_a_sufficient_pass_rate_passes_and_prints_its_interval(
    pytest_on: Run, words: list[str]
) -> None:
    result = pytest_on(SHARE % 0.75, *words)

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*3/4 passed, 95% interval 30.1% to 95.4%, n = 4: "
            "PASS: 75.0% passed, at least 75%, though the rate may be below 75%"
        ]
    )


def test_with_a_confidence_the_one_sided_bound_must_be_high_enough(pytest_on: Run) -> None:
    result = pytest_on(SHARE % "0.2, confidence=0.9" + SHARE % "0.75, confidence=0.9")

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*: INCONCLUSIVE: 75.0% passed, and the rate may be above or below 75%: with 90%*",
        ]
    )

    assert pytest_on(SHARE % "0.2, confidence=0.9").ret == 0


def test_without_a_threshold_every_sample_must_pass(pytest_on: Run) -> None:
    result = pytest_on(SHARE % None)

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_capitals?de?*",
            "score 0 does not pass: exact_match: got 'Bonn', expected 'Berlin'",
            "every sample must pass, since there is no `fail_under`",
            "input: 'Germany'",
        ]
    )


@processes
def test_epochs_are_items_and_count_as_one_sample(
    pytest_on: Run, pytester: pytest.Pytester, words: list[str]
) -> None:
    rule = "config=EvalConfig(stop_at_width=0.9)"  # has no effect here: all items run
    result = pytest_on(SHARE % f"0.5, epochs=3, {rule}", "-v", *words)

    assert result.ret == 0
    assert "test_capitals[fr#1]" in result.stdout.str()
    assert "test_capitals[it#3]" in result.stdout.str()
    result.stdout.fnmatch_lines(
        ["*: 9/12 passed, 95% interval *, n = 12 in 4 samples: PASS: *the rate may*"]
    )
    assert stored(pytester.path) == ["capitals complete 9/12"]


def test_an_error_fails_its_item_with_its_traceback(
    pytest_on: Run, pytester: pytest.Pytester
) -> None:
    tests = SHARE.replace("return KNOWN[country]", "return {'France': 'Paris'}[country]") % 0.1
    result = pytest_on(tests)

    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines([">       return {'France': 'Paris'}?country?", "E  *KeyError: *"])
    result.stdout.fnmatch_lines(
        ["*: 1/4 passed, *, 3 errors: PASS: *, though the rate may be below 10%"]
    )
    with open_store(pytester.path / ".wink" / "runs.db") as store:
        assert store.runs()[0].errors == 3


# ── what can be marked ──────────────────────────────────────────────────────────────────────────


def test_an_agent_may_be_async_a_method_with_fixtures_and_parametrized(
    pytest_on: Run, pytester: pytest.Pytester
) -> None:
    tests = """
@pytest.fixture
def known():
    return KNOWN

@pytest.mark.wink_eval("capitals.jsonl", contains, fail_under=0.5)
@pytest.mark.parametrize("mark", ["!", "?"])
class TestIt:
    async def test_capitals(self, sample, known, mark):
        return known[sample.input] + mark
"""
    result = pytest_on(tests)

    assert result.ret == 0
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(
        ["test_qa.py::TestIt::test_capitals (mark='!'): 3/4*", "*(mark='?'): 3/4*"]
    )
    assert stored(pytester.path) == ["capitals complete 3/4"] * 2


@processes
def test_a_function_may_return_a_suite(
    pytest_on: Run, pytester: pytest.Pytester, words: list[str]
) -> None:
    tests = """
@pytest.mark.wink_eval(fail_under=0.5, epochs=2)
def test_suite():
    samples = [Sample("a", "France", "Paris"), Sample("b", "Japan", "Kyoto")]
    return EvalSuite(KNOWN.get, Dataset(samples, name="two"), exact_match)
"""
    result = pytest_on(tests, *words)

    assert result.ret == 0
    result.assert_outcomes(passed=3)
    assert "2 missed" in result.stdout.str()
    assert stored(pytester.path) == ["two complete 2/4"]


def test_timeouts_and_retries_are_those_of_the_config(pytest_on: Run) -> None:
    tests = """
import anyio
calls = []

@pytest.mark.wink_eval([Sample("a", 1, 1)], config=EvalConfig(timeout_per_sample_ms=50))
async def test_slow(given):
    await anyio.sleep_forever()

@pytest.mark.wink_eval([Sample("a", 1, 2)], config=EvalConfig(max_retries=1))
def test_second(given):
    calls.append(given)
    if len(calls) < 2:
        raise OSError("busy")
    return len(calls)
"""
    result = pytest_on(tests)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*TimeoutError: timed out after *"])


def test_only_selected_items_are_judged(pytest_on: Run, pytester: pytest.Pytester) -> None:
    result = pytest_on(SHARE % 1.0, "-k", "fr or jp")

    assert result.ret == 0
    assert stored(pytester.path) == ["capitals complete 2/2"]


def test_a_skipped_sample_is_reported_as_missing(pytest_on: Run, pytester: pytest.Pytester) -> None:
    tests = SHARE.replace("return", "country == 'Italy' and pytest.skip('later')\n    return")
    result = pytest_on(tests % 0.6)

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*: 2/3 passed, *, 1 of 4 without a result: PASS: *the rate may*"])
    assert stored(pytester.path) == ["capitals stopped 2/3"]


@processes
def test_a_session_that_stops_early_judges_nothing(
    pytest_on: Run, pytester: pytest.Pytester, words: list[str]
) -> None:
    tests = SHARE % 0.9 + "\n@pytest.mark.wink_eval('capitals.jsonl')\ndef test_b(x): 1 / 0"
    result = pytest_on(tests, "-x", *words)

    assert result.ret in (1, 2)
    assert "[fail_under=0.9]" not in result.stdout.str()
    assert [run.split()[1] for run in stored(pytester.path)] == ["interrupted"] * 2


# ── the store ───────────────────────────────────────────────────────────────────────────────────


def test_results_are_whole_in_the_store(pytest_on: Run, pytester: pytest.Pytester) -> None:
    tests = """
from weakincentives.runtime import Session, ToolInvoked

@pytest.mark.wink_eval([Sample("\\ud800", 1, 1)])
def test_odd(given):
    session = Session()
    session.dispatch(ToolInvoked(name="search", params={}, result="\\udfff"))
    return Trajectory(output=1), session

@pytest.mark.wink_eval([Sample("o", 1, 1)], lambda output, expected: True)
def test_object(given):
    return object()
"""
    result = pytest_on(tests)

    result.assert_outcomes(passed=2)
    with open_store(pytester.path / ".wink" / "runs.db") as store:
        newest, oldest = store.runs()
        (odd,) = store.rows(oldest.manifest.run_id)
        (bare,) = store.rows(newest.manifest.run_id)
    assert (odd.result.sample_id, odd.result.output) == ("\ud800", 1)
    assert odd.session is not None
    assert odd.sample_digest
    assert oldest.manifest.tags == {"pytest": "test_qa.py::test_odd"}
    assert (bare.result.passed, bare.result.output) == (True, None)


def test_the_store_follows_the_option(pytest_on: Run, pytester: pytest.Pytester) -> None:
    pytest_on(SHARE % 0.5, "--wink-store", "elsewhere.db")
    assert (pytester.path / "elsewhere.db").exists()

    result = pytest_on(SHARE % 0.5, "--wink-no-store")
    assert result.ret == 0
    assert "run " not in result.stdout.str().partition("= evals =")[2]
    assert not (pytester.path / ".wink").exists()


def test_a_store_that_cannot_be_written_changes_no_outcome(
    pytest_on: Run, pytester: pytest.Pytester
) -> None:
    (pytester.path / ".wink").write_text("a file")
    result = pytest_on(SHARE % 0.5)

    assert result.ret == 0
    result.stdout.fnmatch_lines(["not stored: *"])


# ── what is wrong ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mark", "signature", "error"),
    [
        ("dataset='no.jsonl'", "x", "no.jsonl"),
        ("'capitals.jsonl', failunder=1", "x", "unexpected keyword argument 'failunder'"),
        ("'capitals.jsonl', fail_under=80", "x", "`fail_under` between 0 and 1, got 80"),
        ("'capitals.jsonl', fail_under=0", "x", "to let nothing fail, pass `record_only=True`"),
        (
            "'capitals.jsonl', fail_under=1, record_only=True",
            "x",
            "expected one of `fail_under` and",
        ),
        ("'capitals.jsonl', fail_under=1, confidence=0.5", "x", "`confidence` between 0.5 and 1"),
        ("'capitals.jsonl', confidence=0.9", "x", "expected `fail_under` with `confidence`"),
        ("'capitals.jsonl'", "", "expected a parameter that takes the input of a sample"),
        ("'capitals.jsonl', epochs=0", "x", "expected a whole number >= 1"),
        ("'capitals.jsonl', timeout=0", "x", "expected a number > 0 for `EvalConfig.timeout`"),
        ("'capitals.jsonl', max_samples=0", "x", "expected at least one sample, got none"),
        ("[]", "x", "expected at least one sample, got none"),
        ("", "x", "expected a function without parameters that returns an `EvalSuite`"),
        ("", "", "expected an `EvalSuite` from the function, got None"),
    ],
)
def test_a_wrong_mark_is_reported_in_one_line(
    pytest_on: Run, mark: str, signature: str, error: str
) -> None:
    result = pytest_on(f"@pytest.mark.wink_eval({mark})\ndef test_it({signature}): pass")

    assert result.ret == 2
    result.stdout.fnmatch_lines([f"*wink_eval: *{error}* - test_qa.py::test_it*"])
    assert "Traceback" not in result.stdout.str()


def test_it_is_loaded_only_if_asked_and_loads_nothing_heavy(pytester: pytest.Pytester) -> None:
    assert "wink" not in pytester.runpytest_subprocess("--help").stdout.str()

    code = "import weakincentives.pytest_plugin, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "openai", "anthropic", "rich", "weakincentives.evals"}


def test_tests_without_the_mark_are_not_changed(pytest_on: Run, pytester: pytest.Pytester) -> None:
    result = pytest_on("def test_plain(): pass")

    assert result.ret == 0
    assert "= evals =" not in result.stdout.str()
    assert not (pytester.path / ".wink").exists()


# ── concurrency ─────────────────────────────────────────────────────────────────────────────────

MEETING = """
import asyncio, threading
from pathlib import Path
meeting = threading.Barrier(4, timeout=60)
config = EvalConfig(max_concurrent=4, timeout_per_sample_ms=None)
samples = [Sample(str(n), n, n) for n in range(8)]

def meet(number):
    meeting.wait()
    return number

@pytest.fixture(scope="module")
def shared():
    return 0
@pytest.fixture
def own():
    return 0
"""
MEETINGS = {
    "function": "def test_it(number): return meet(number)",
    "async": "async def test_it(number): return await asyncio.to_thread(meet, number)",
    "shared fixture": "def test_it(number, shared): return meet(number) + shared",
    "parametrized": """
@pytest.mark.parametrize("x", [1, 2])
def test_it(number, x): return meet(number)
""",
}


@pytest.mark.parametrize("how", MEETINGS)
def test_the_concurrency_is_that_of_the_config(
    pytest_on: Run, pytester: pytest.Pytester, how: str
) -> None:
    mark = "@pytest.mark.wink_eval(dataset=samples, config=config)\n"

    result = pytest_on(MEETING + mark + MEETINGS[how], "-v")

    count = 16 if how == "parametrized" else 8
    result.assert_outcomes(passed=count)
    assert result.stdout.str().count("PASSED") == count
    assert stored(pytester.path) == ["test_it complete 8/8"] * (count // 8)


def test_the_samples_of_a_suite_run_concurrently(pytest_on: Run) -> None:
    suite = "@pytest.mark.wink_eval()\ndef test_suite():\n    return suite\n"
    definition = "suite = EvalSuite(meet, Dataset(samples), exact_match, config=config)\n"

    pytest_on(MEETING + definition + suite).assert_outcomes(passed=8)


COUNTING = """
import asyncio
from pathlib import Path
samples = [Sample(str(n), n, n) for n in range(20)]

def note(what):
    with open("notes.txt", "a") as notes:
        notes.write(f"{what}\\n")

@pytest.mark.wink_eval(dataset=samples, config=EvalConfig(max_concurrent=3))
async def test_it(number%s):
    note(f"began {number}")
    try:
        if number != 1:
            await asyncio.sleep(0.01 if number < 1 else 60)
    finally:
        note(f"ended {number}")
    return None if number < 2 else number
"""


def notes_of(path: Path) -> list[str]:
    return (path / "notes.txt").read_text().splitlines()


def test_a_session_that_stops_early_starts_no_more_samples_and_ends_those_that_run(
    pytest_on: Run, pytester: pytest.Pytester
) -> None:
    result = pytest_on(COUNTING % "", "-x")

    result.assert_outcomes(failed=1)
    notes = notes_of(pytester.path)
    began = [note for note in notes if note.startswith("began")]
    assert began == ["began 0", "began 1", "began 2"]  # two more would also have failed
    assert sorted(notes) == sorted([*began, *(note.replace("began", "ended") for note in began)])


def test_only_selected_samples_run(pytest_on: Run, pytester: pytest.Pytester) -> None:
    pytest_on(COUNTING % "", "-k", "[0] or [1]").assert_outcomes(failed=2)

    assert sorted(notes_of(pytester.path)) == ["began 0", "began 1", "ended 0", "ended 1"]


def test_with_processes_every_sample_runs_once(pytest_on: Run, pytester: pytest.Pytester) -> None:
    tests = (COUNTING % "").replace("60", "0.01")

    pytest_on(tests, "-n", "2").assert_outcomes(passed=18, failed=2)

    began = [note for note in notes_of(pytester.path) if note.startswith("began")]
    assert sorted(began) == sorted(f"began {number}" for number in range(20))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (", own", "the scope of the fixture `own` is a function"),
        (", tmp_path", "the scope of the fixture `tmp_path` is a function"),
    ],
)
def test_samples_with_function_fixtures_run_one_at_a_time_with_a_notice(
    pytest_on: Run, pytester: pytest.Pytester, what: str, why: str
) -> None:
    fixture = "@pytest.fixture\ndef own():\n    return 0\n"

    result = pytest_on(fixture + (COUNTING % what).replace("60", "0.01"))

    result.assert_outcomes(passed=18, failed=2)
    result.stdout.fnmatch_lines([f"  one sample at a time: {why}"])
    notes = notes_of(pytester.path)
    assert [note.split()[1] for note in notes[::2]] == [note.split()[1] for note in notes[1::2]]


def test_each_item_reports_its_own_time(pytest_on: Run) -> None:
    result = pytest_on((COUNTING % "").replace("60", "0.01"), "--junitxml=out.xml")

    result.assert_outcomes(passed=18, failed=2)
    times = [float(case.get("time", 0)) for case in ElementTree.parse("out.xml").iter("testcase")]
    assert len(times) == 20
    assert all(time > 0 for time in times)


INTERRUPTED = """
import asyncio
samples = [Sample(str(n), n, n) for n in range(9)]
begun = []

@pytest.mark.wink_eval(dataset=samples, config=EvalConfig(max_concurrent=3))
async def test_it(number):
    begun.append(number)
    try:
        if len(begun) == 3:
            import _thread
            _thread.interrupt_main()
        await asyncio.sleep(60)
    finally:
        print(f"ended {number}")
"""


def test_ctrl_c_ends_all_samples_that_run(pytest_on: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_qa=HEAD + INTERRUPTED)

    result = pytester.runpytest_subprocess("-s", "-p", "weakincentives.pytest_plugin", "test_qa.py")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert sorted(re.findall(r"ended \d", result.stdout.str())) == ["ended 0", "ended 1", "ended 2"]
    assert "Task was destroyed" not in result.stderr.str()


# ── recording only ──────────────────────────────────────────────────────────────────────────────

RECORDED = """
@pytest.mark.wink_eval(dataset="capitals.jsonl", evaluator=exact_match, record_only=True)
def test_capitals(country):
    return KNOWN[country] if country != "Italy" else 1 / 0
"""


@processes
def test_an_eval_that_only_records_fails_nothing(
    pytest_on: Run, pytester: pytest.Pytester, words: list[str]
) -> None:
    result = pytest_on(RECORDED, "-v", *words)

    assert result.ret == 0
    text = result.stdout.str()
    assert "2 passed, 2 missed" in text
    assert "MISSED (0)" in text
    assert "MISSED (error)" in text
    assert "test_capitals: 2/4 passed" in text
    assert stored(pytester.path) == ["capitals complete 2/4"]
