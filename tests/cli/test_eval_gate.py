"""`wink eval gate`: one rule, one exit code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_runs import Run, answer, broken, folder, stored, wink
from weakincentives.evals import EvalResult, Score
from weakincentives.evals.evaluators.combine import combine_scores
from weakincentives.evals.store import CriterionInfo

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
        ("good", (), 0, "PASS: not shown to be worse (+25.0 points, n = 40)"),
        ("near", (), 0, "PASS: not shown to be worse"),
        ("bad", (), 1, "FAIL: with 95% confidence worse (-25.0 points, n = 40)"),
        ("bad", ("--rule", "no-regression", "--margin", "30"), 0, "PASS: not shown to be worse by"),
        ("near", ("--margin", "15"), 0, "PASS: with 95% confidence at most 15 points worse"),
        ("near", ("--margin", "2"), 5, "INCONCLUSIVE: it may be up to 4.0 points worse; the"),
        ("bad", ("--margin", "2"), 1, "FAIL: with 95% confidence worse, by at least 15.6 points;"),
        ("good", ("--rule", "better"), 0, "PASS: with 95% confidence better (+25.0 points"),
        ("good", ("--rule", "better", "--margin", "20"), 5, "INCONCLUSIVE: it may or may not be"),
        ("near", ("--rule", "better"), 5, "INCONCLUSIVE: it may or may not be better (+2.5"),
        ("bad", ("--rule", "better"), 1, "FAIL: with 95% confidence not better (-25.0 points"),
    ],
)
def test_a_rule_decides_and_is_printed(
    wink: Run, run: str, options: tuple[str, ...], code: int, rule: str
) -> None:
    got, text, _ = wink("gate", run, "--baseline", "mid", *options)

    assert got == code
    assert f"exit {code}: {rule}" in " ".join(text.split())
    assert text.count("exit ") == 1


def store_two_criteria(name: str, brief: int, correct: int) -> None:
    """Store a run with two criteria; `brief` and `correct` are how many samples pass each."""
    scores = [
        combine(Score(float(k < brief), criterion="brief"), Score(float(k < correct)))
        for k in range(40)
    ]
    stored(name, *(EvalResult(f"s{k:02}", score) for k, score in enumerate(scores)))


def combine(*scores: Score) -> Score:
    return combine_scores(
        [replace(score, criterion=score.criterion or "correct") for score in scores], "all"
    )


def test_a_criterion_is_compared_with_the_baseline(wink: Run) -> None:
    store_two_criteria("old", brief=30, correct=20)
    store_two_criteria("new", brief=10, correct=20)
    wink("baseline", "old", "-o", "old.json")

    for baseline in ("old", "old.json"):
        args = ["gate", "new", "--baseline", baseline, "--metric"]
        code, text, _ = wink(*args, "brief")
        assert code == 1
        assert "B is worse in brief: -0.500, 90% interval -0.6" in " ".join(text.split())
        assert "FAIL: with 95% confidence worse in brief (-0.500, n = 40)" in " ".join(text.split())
        assert wink(*args, "correct")[0] == 0
        code, _, err = wink(*args, "nothing")
        assert code == 2
        assert "expected one of passed, score, brief, correct" in err


def test_a_margin_of_time_is_in_its_own_unit(wink: Run) -> None:
    stored("slow", *(replace(result, latency_ms=70 + k) for k, result in enumerate(results(20))))
    args = ["gate", "slow", "--baseline", "mid", "--metric", "latency_ms"]

    assert wink(*args)[0] == 1
    assert wink(*args, "--rule", "no-regression", "--margin", "100")[0] == 0
    code, text, _ = wink(*args, "--margin", "20")
    assert code == 1
    output = " ".join(text.split())
    assert "worse in latency_ms, by at least 66.39 ms; the margin is 20 ms" in output


def test_with_epochs_the_verdict_and_the_interval_have_the_same_bound(wink: Run) -> None:
    for name, failing in (("before", 0), ("after", 12)):
        rows = (
            answer(f"s{k:02}", "London" if k < failing + epoch % 2 else "Paris", epoch=epoch)
            for k in range(40)
            for epoch in (1, 2, 3)
        )
        stored(name, *rows)

    code, text, _ = wink("gate", "after", "--baseline", "before", "--margin", "35")

    assert code == 1
    output = " ".join(text.split())
    match = re.search(r"interval -(\S+) to .* by up to (\S+) points;", output)
    assert match is not None, output
    assert match[1] == match[2]


def test_an_inconclusive_gate_prints_how_many_samples_would_decide(wink: Run) -> None:
    code, text, _ = wink("gate", "near", "--baseline", "mid", "--margin", "2")

    assert code == 5
    assert "about 810 samples would decide, if nothing has changed" in " ".join(text.split())


def test_a_baseline_file_gives_the_same_verdict_as_its_run(wink: Run) -> None:
    code, text, err = wink("baseline", "mid", "-o", "evals/qa.json")
    assert (code, text) == (0, "")
    facts = "20/40 passed, 0 errors, less than a day old"
    assert err == f"baseline of mid ({facts}): evals/qa.json\n"

    for run, code in (("good", 0), ("bad", 1)):
        by_file = wink("gate", run, "--baseline", "evals/qa.json")
        assert by_file[0] == code
        assert by_file[1] == wink("gate", run, "--baseline", "mid")[1]


def test_a_gate_never_changes_its_baseline(wink: Run) -> None:
    wink("baseline", "mid", "-o", "base.json")
    before = Path("base.json").read_text()

    assert wink("gate", "good", "--baseline", "base.json")[0] == 0
    code, _, err = wink("gate", "good", "--baseline", "base.json", "--save-baseline", "base.json")

    assert code == 2
    assert "use `wink eval baseline good -o base.json`" in err
    assert Path("base.json").read_text() == before


def test_a_baseline_is_replaced_only_on_request_and_the_old_one_is_named(wink: Run) -> None:
    stored("old", *results(20), minutes=3 * 24 * 60 + 5)
    wink("baseline", "old", "-o", "base.json")

    code, _, err = wink("baseline", "good", "-o", "base.json")
    assert code == 2
    assert "base.json, the baseline of old (20/40 passed, 0 errors, 3 days old) - --replace" in err
    code, _, err = wink("baseline", "good", "-o", "base.json", "--replace")
    assert code == 0
    assert "replaces old (20/40 passed, 0 errors, 3 days old)" in err
    assert json.loads(Path("base.json").read_text())["name"] == "good"
    Path("notes.json").write_text("{}")
    assert wink("baseline", "good", "-o", "notes.json", "--replace")[0] == 2
    assert Path("notes.json").read_text() == "{}"


def test_a_baseline_of_several_runs_prints_their_names_and_ages(wink: Run) -> None:
    stored("first", *results(20), minutes=10 * 24 * 60 + 5)
    wink("baseline", "first", "mid", "near", "-o", "base.json")

    code, text, _ = wink("gate", "bad", "--baseline", "base.json")

    assert code == 1
    output = " ".join(text.split())
    assert "first + mid + near 61/120 passed, 0 errors, 3 runs, 10 days old" in output
    assert "FAIL: with 95% confidence worse (-25.8 points, n = 120)" in output


@pytest.mark.parametrize(
    ("pooled", "why"),
    [
        (("mid", "mid"), "expected different runs to pool, got mid twice"),
        (("mid", "short"), "datasets differ: 20 of the samples are only in mid"),
        (("strict", "judged"), "evaluators differ in version: polite is 1 and 2"),
    ],
)
def test_only_comparable_runs_are_pooled(wink: Run, pooled: tuple[str, ...], why: str) -> None:
    stored("short", *results(10, 20))
    for name, version in (("strict", "1"), ("judged", "2")):
        stored(name, *results(20), criteria=(CriterionInfo(name="polite", version=version),))

    code, _, err = wink("baseline", *pooled, "-o", "base.json")

    assert code == 2
    assert why in err
    assert not Path("base.json").exists()


def unavailable(number: int) -> EvalResult[Any]:
    return replace(broken(f"s{number:02}", "503"), error_source="infrastructure")


def test_infrastructure_errors_are_left_out_and_both_counts_are_printed(wink: Run) -> None:
    stored("outage", *(unavailable(n) for n in range(4)), *results(20)[4:])

    code, text, _ = wink("gate", "outage", "--baseline", "mid")

    assert code == 0
    output = " ".join(text.split())
    assert "36 of 40 compared; 4 left out: 4 infrastructure errors in outage" in output
    assert "not shown to be worse (0.0 points, n = 36)" in output
    _, _, err = wink("compare", "mid", "outage")
    assert "note: 36 of 40 compared; 4 left out: 4 infrastructure errors in outage" in err


@pytest.mark.parametrize("down", [5, 40])
def test_a_provider_that_is_down_is_neither_a_failure_nor_a_pass(wink: Run, down: int) -> None:
    stored("outage", *(unavailable(n) for n in range(down)), *results(20)[down:])

    code, text, _ = wink("gate", "outage", "--baseline", "mid")

    assert code == 3
    assert f"outage has too many errors of infrastructure: {down} of 40 are errors" in (
        " ".join(text.split())
    )
    code, text, _ = wink("gate", "outage", "--baseline", "mid", "--max-error-rate", "1")
    assert code == (0 if down == 5 else 3)


def test_errors_of_the_agent_are_failures(wink: Run) -> None:
    stored("errors", *results(20)[10:], *(broken(f"s{n:02}") for n in range(10)))

    code, text, err = wink("gate", "errors", "--baseline", "mid", "--max-error-rate", "0")

    assert code == 1
    assert "FAIL: with 95% confidence worse (-25.0 points, n = 40)" in " ".join(text.split())
    assert "errors of the agent count as not passed: 0 in mid, 10 in errors" in err


def test_errors_on_hard_samples_give_a_caution(wink: Run) -> None:
    stored("hard", *results(20)[:36], *(unavailable(n) for n in range(36, 40)))
    stored("base", *results(36))

    _, _, err = wink("gate", "hard", "--baseline", "base")

    assert "caution: the samples with errors in hard are harder than the others (0.0% and" in err


def test_a_run_of_another_dataset_is_refused(wink: Run) -> None:
    stored("more", *results(30, 50))
    wink("baseline", "mid", "-o", "base.json")

    code, text, _ = wink("gate", "more", "--baseline", "base.json")

    assert code == 3
    assert "datasets differ: 10 of the samples are only in more (--force judges" in (
        " ".join(text.split())
    )
    assert wink("gate", "more", "--baseline", "base.json", "--force")[0] == 0


def test_runs_that_cannot_be_compared_get_no_verdict(wink: Run) -> None:
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


def test_json_has_the_exit_code_and_the_rule(wink: Run) -> None:
    code, text, _ = wink("gate", "bad", "--baseline", "mid", "--format", "json")

    data = json.loads(text)
    assert (data["exit_code"], data["rule"], data["margin"]) == (code, "no-regression", 0)
    assert data["comparisons"][0]["outcome"] == "worse"


def test_wrong_usage_is_one_line(wink: Run) -> None:
    Path("torn.json").write_text('{"format": "wink-base')
    for args, why in (
        (("mid",), "expected --baseline RUN or FILE"),
        (("mid", "--baseline", "good", "--confidence", "0.5"), "expected a `confidence` above"),
        (("mid", "--baseline", "good", "--rule", "non-inferior"), "expected --margin POINTS"),
        (("mid", "--baseline", "torn.json"), "expected a baseline, as `wink eval baseline RUN"),
        (("mid", "--baseline", "nowhere"), "expected the id of a run"),
    ):
        code, text, err = wink("gate", *args)
        assert (code, text) == (2, "")
        assert err.startswith(f"wink: {why}")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("run", "options", "output"),
    [
        ("half", (), "half is not complete: interrupted, 40 of 80 rows"),
        ("empty", (), "empty has no results"),
        (
            "faulty",
            (),
            "faulty has too many errors of infrastructure: 1 of 2 are errors (50.0%), "
            "--max-error-rate allows 10.0%",
        ),
    ],
)
def test_an_incomplete_empty_or_faulty_run_cannot_be_a_baseline(
    wink: Run, folder: Path, run: str, options: tuple[str, ...], output: str
) -> None:
    stored("half", *results(20), status="interrupted", planned=80)
    stored("empty")
    stored("faulty", answer("a"), unavailable(1))

    code, text, err = wink("baseline", run, "-o", "base.json", *options)

    assert (code, text, err) == (3, "", f"exit 3: no baseline: {output}\n")
    assert not (folder / "base.json").exists()
