"""`wink eval` in GitHub Actions writes a step summary and annotations; elsewhere it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stored_runs import answer, broken, folder, stored
from weakincentives.cli import main
from weakincentives.evals import EvalResult, Score, open_store
from weakincentives.evals.reporting.github import annotation, summary
from weakincentives.evals.store.find_rows import worst
from weakincentives.evals.store.overview import overview

__all__ = ["folder"]  # a fixture

SUMS = """
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match
samples = [Sample(str(n), n, n if n < 3 else "<b>|@team\\n::error::x") for n in range(4)]
suite = EvalSuite(lambda n: n, Dataset(samples, name="sums, all"), exact_match, name="sums, all")
"""


@pytest.fixture
def step_summary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the step summary file of GitHub Actions, with one line in it."""
    (folder / "sums.py").write_text(SUMS)
    (folder / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    return folder / "summary.md"


def annotations(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert not [line for line in out.splitlines() if line.startswith("::")]  # stdout is for data
    return [line for line in err.splitlines() if line.startswith("::")]


def test_a_failed_gate_writes_a_summary_and_an_error(
    step_summary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", "--fail-under", "0.9", "--format", "json"]) == 1

    text = step_summary.read_text()
    assert text.startswith("before\n\n### ❌ sums, all\n")
    assert "**3/4 passed, 0 errors (75.0%, 95% interval 30.1% to 95.4%, n = 4)**" in text
    assert "exit 1: FAIL: 75.0% passed, --fail-under requires 90.0%" in text
    assert "| exact_match | 0.750 |" in text
    assert "<details><summary>Worst samples</summary>" in text
    assert annotations(capsys) == [
        "::error title=sums%2C all%3A exit 1::"
        "FAIL: 75.0%25 passed, --fail-under requires 90.0%25%0A"
        "3/4 passed, 0 errors (75.0%25, 95%25 interval 30.1%25 to 95.4%25, n = 4)"
    ]


def test_a_gate_that_may_have_passed_by_luck_is_a_warning(
    step_summary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", "--fail-under", "0.7"]) == 0

    assert "### ✅ sums, all" in step_summary.read_text()
    (note,) = annotations(capsys)
    assert note.startswith(
        "::warning title=sums%2C all::the gate holds, but the rate may be below 70.0%25%0A3/4"
    )


def test_without_a_gate_there_is_no_annotation(
    step_summary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py"]) == 0
    assert main(["eval", "resume"]) == 0

    assert step_summary.read_text().count("### ✅") == 2
    assert annotations(capsys) == []


@pytest.mark.parametrize("name", ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"])
def test_outside_of_github_actions_nothing_is_written(
    step_summary: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.delenv(name)

    assert main(["eval", "run", "sums.py", "--fail-under", "0.9"]) == 1
    assert step_summary.read_text() == "before\n"
    assert annotations(capsys) == []


def test_a_summary_that_cannot_be_written_does_not_change_the_exit_code(
    step_summary: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step_summary.parent))

    assert main(["eval", "run", "sums.py"]) == 0
    (note,) = annotations(capsys)
    assert note.startswith("::warning title=sums%2C all::the summary could not be written: ")


def test_hostile_text_is_neither_markup_nor_a_workflow_command(folder: Path) -> None:
    hostile = "<img src=x>|\n::error::x `a` </details> [x](http://a.b)"
    stored("run", answer(hostile, "Lyon"), broken("b", hostile), dataset_name=hostile)
    with open_store() as store:
        text = summary(overview(store, "run"), worst(store, "run"), code=1, rule=hostile)

    assert "<img" not in text.replace("\\<img", "")
    assert text.count("\n</details>\n") == 1
    assert not any(line.startswith("::") for line in text.splitlines())
    assert annotation("error", hostile, hostile).count("\n") == 0


def test_the_summary_has_epochs_and_reasons(folder: Path) -> None:
    wrong = EvalResult("fr", Score(0.25, False, "got Lyon"), epoch=2)
    stored("run", wrong, config={"epochs": 2})
    with open_store() as store:
        text = summary(overview(store, "run"), worst(store, "run"), code=0, rule="none")

    assert "| fr#2 | fail | score 0.25 does not pass: got Lyon |" in text


def two_runs(before: int, after: int) -> None:
    for minutes, (name, passing) in enumerate([("old", before), ("new", after)]):
        results = (answer(f"s{n:02}", "Paris" if n < passing else "Rome") for n in range(40))
        stored(name, *results, dataset_name="qa", minutes=5 - minutes)


@pytest.mark.parametrize(("after", "code"), [(20, 0), (5, 1)])
def test_the_summary_of_a_gate_has_its_rule_and_verdict(
    step_summary: Path, capsys: pytest.CaptureFixture[str], after: int, code: int
) -> None:
    two_runs(20, after)

    assert main(["eval", "gate", "new", "--baseline", "old"]) == code
    text = step_summary.read_text()
    assert (
        f"### {'✅❌'[code]} qa: no-regression\n\nexit {code}: {('PASS', 'FAIL')[code]}: " in text
    )
    assert "| A | old | - | 20/40 passed, 0 errors | 50.0% (37.4-62.6) |" in text
    assert [note[:50] for note in annotations(capsys)] == [
        "::error title=qa%3A no-regression%3A exit 1::FAIL:"
    ][:code]


def test_a_gate_that_cannot_be_judged_is_an_error(
    step_summary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(20, 20)
    stored("half", answer("s00"), dataset_name="qa", status="interrupted")

    assert main(["eval", "gate", "half", "--baseline", "old", "--format", "json"]) == 3
    assert "exit 3: cannot be judged: half is not complete" in step_summary.read_text()
    (note,) = annotations(capsys)
    assert note.endswith("::cannot be judged: half is not complete: interrupted, 1 rows")


@pytest.mark.parametrize(
    ("after", "level"), [(30, "notice"), (5, "warning"), (20, "")], ids=["better", "worse", "same"]
)
def test_a_comparison_is_in_the_summary_and_a_difference_is_annotated(
    step_summary: Path, capsys: pytest.CaptureFixture[str], after: int, level: str
) -> None:
    two_runs(20, after)

    assert main(["eval", "compare", "old", "new", "--format", "json"]) == 0
    assert "### qa\n" in step_summary.read_text()
    assert "A difference is claimed if p is small enough" in step_summary.read_text()
    assert [note.partition(" title=qa::B is ")[0] for note in annotations(capsys)] == [
        f"::{level}" for _ in filter(None, [level])
    ]


def test_markdown_for_a_pull_request_has_the_interval(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored("run", answer("a"), answer("b", "Lyon"))

    assert main(["eval", "export", "run", "--format", "md"]) == 0
    headline = capsys.readouterr().out.splitlines()[2]
    assert headline == "**1/2 passed, 0 errors (50.0%, 95% interval 9.5% to 90.5%, n = 2)**"


def test_run_writes_junit_xml(folder: Path) -> None:
    (folder / "sums.py").write_text(SUMS)

    assert main(["eval", "run", "sums.py", "-o", "out.junit.xml", "-o", "out.md"]) == 0
    assert (folder / "out.junit.xml").read_text().startswith("<?xml")
    assert (folder / "out.md").read_text().startswith("# sums, all\n")
