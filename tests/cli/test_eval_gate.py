"""`wink eval gate`: one rule, one exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_runs import Run, answer, broken, folder, stored, wink
from weakincentives.evals import CriterionInfo, EvalResult

__all__ = ["folder", "wink"]  # fixtures


def results(passing: int, n: int = 40) -> list[EvalResult[Any]]:
    return [answer(f"s{k:02}", "Paris" if k < passing else "London") for k in range(n)]


@pytest.fixture(autouse=True)
def runs(folder: Path) -> None:
    for name, passing in (("mid", 20), ("good", 30), ("near", 21), ("bad", 10)):
        stored(name, *results(passing), dataset_name="qa")


@pytest.mark.parametrize(
    ("run", "options", "code", "rule"),
    [
        ("good", (), 0, "no-regression holds: it asks for a run that is not shown to be worse"),
        ("near", (), 0, "no-regression holds"),
        ("bad", (), 1, "no-regression fails"),
        ("bad", ("--rule", "no-regression", "--margin", "30"), 0, "no-regression holds"),
        ("near", ("--margin", "15"), 0, "non-inferior holds"),
        ("near", ("--margin", "5"), 1, "non-inferior fails"),
        ("good", ("--rule", "better"), 0, "better holds"),
        ("good", ("--rule", "better", "--margin", "20"), 1, "better fails"),
        ("near", ("--rule", "better"), 1, "better fails"),
    ],
)
def test_a_rule_decides_and_is_printed(
    wink: Run, run: str, options: tuple[str, ...], code: int, rule: str
) -> None:
    got, text, _ = wink("gate", run, "--baseline", "mid", *options)

    assert got == code
    assert f"exit {code}: {rule}" in text
    assert text.count("exit ") == 1


@pytest.mark.parametrize(("run", "open"), [("near", True), ("bad", False)])
def test_what_too_few_samples_leave_open_says_so(wink: Run, run: str, open: bool) -> None:
    code, text, _ = wink("gate", run, "--baseline", "mid", "--margin", "5")

    assert code == 1
    said = "nor is it shown to be worse: more samples decide (wink eval power --effect 5)"
    assert (said in " ".join(text.split())) is open


def test_a_baseline_file_is_as_good_as_its_run(wink: Run) -> None:
    code, text, said = wink("gate", "mid", "--save-baseline", "evals/qa.json")
    assert (code, text) == (0, "")
    assert said == "baseline of mid (20/40 passed, 0 errors): evals/qa.json\n"

    for run, code in (("good", 0), ("bad", 1)):
        by_file = wink("gate", run, "--baseline", "evals/qa.json")
        assert by_file[0] == code
        assert by_file[1] == wink("gate", run, "--baseline", "mid")[1]


def test_a_new_baseline_is_written_only_where_the_rule_holds(wink: Run) -> None:
    wink("gate", "bad", "--baseline", "mid", "--save-baseline", "base.json")
    assert not Path("base.json").exists()
    wink("gate", "good", "--baseline", "mid", "--save-baseline", "base.json")
    assert json.loads(Path("base.json").read_text())["name"] == "good"


def test_errors_count_as_not_passed_and_may_be_too_many(wink: Run) -> None:
    stored("errors", *results(20)[10:], *(broken(f"s{n:02}") for n in range(10)))

    assert wink("gate", "errors", "--baseline", "mid")[0] == 1
    code, text, _ = wink("gate", "errors", "--baseline", "mid", "--max-error-rate", "10%")
    assert code == 3
    assert "cannot be judged: 10 of 40 are errors, --max-error-rate allows 10.0%" in text


def test_what_cannot_be_judged_is_not_judged(wink: Run) -> None:
    stored("half", *results(10), status="interrupted", planned=80)
    for name in ("one", "two"):
        stored(name, *results(20), criteria=(CriterionInfo(name=name),))
    stored("empty")

    for run, baseline, why in (
        ("half", "mid", "half is not complete: interrupted, 40 of 80 rows"),
        ("one", "two", "evaluators differ: two and one (--force judges anyway)"),
        ("mid", "empty", "empty has no results"),
    ):
        code, text, _ = wink("gate", run, "--baseline", baseline)
        assert code == 3
        assert f"exit 3: cannot be judged: {why}" in " ".join(text.split())
    assert wink("gate", "one", "--baseline", "two", "--force")[0] == 0


def test_data_has_the_code_and_the_rule(wink: Run) -> None:
    code, text, _ = wink("gate", "bad", "--baseline", "mid", "--format", "json")

    data = json.loads(text)
    assert (data["exit_code"], data["rule"], data["margin"]) == (code, "no-regression", 0)
    assert data["comparisons"][0]["outcome"] == "worse"


def test_what_is_wrong_is_said_in_a_line(wink: Run) -> None:
    Path("torn.json").write_text('{"format": "wink-base')
    for words, why in (
        (("mid",), "expected --baseline RUN or FILE"),
        (("mid", "--save-baseline", "x", "--margin", "1"), "expected --baseline with --rule"),
        (("mid", "--baseline", "good", "--rule", "non-inferior"), "expected --margin POINTS"),
        (("mid", "--baseline", "torn.json"), "expected a baseline, as `wink eval gate RUN"),
        (("mid", "--baseline", "nowhere"), "expected the id of a run"),
    ):
        code, text, said = wink("gate", *words)
        assert (code, text) == (2, "")
        assert said.startswith(f"wink: {why}")
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("run", "options", "told"),
    [
        ("half", (), "half is not complete: interrupted, 40 of 80 rows"),
        ("empty", (), "empty has no results"),
        ("faulty", ("--max-error-rate", "0"), "1 of 2 are errors, --max-error-rate allows 0.0%"),
    ],
)
def test_what_no_run_could_be_held_to_is_no_baseline(
    wink: Run, folder: Path, run: str, options: tuple[str, ...], told: str
) -> None:
    stored("half", *results(20), status="interrupted", planned=80)
    stored("empty")
    stored("faulty", answer("a"), broken("b"))

    code, text, said = wink("gate", run, "--save-baseline", "base.json", *options)

    assert (code, text, said) == (3, "", f"exit 3: no baseline: {told}\n")
    assert not (folder / "base.json").exists()
