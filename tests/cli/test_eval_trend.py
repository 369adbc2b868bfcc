"""`wink eval trend`: the last runs of a dataset."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.cli.stored_runs import WINK, Run, answer, folder, stored, wink
from weakincentives.evals import EvalResult, Score
from weakincentives.evals.store import CriterionInfo

__all__ = ["folder", "wink"]  # fixtures


def results(passing: int) -> list[EvalResult[Any]]:
    return [answer(f"s{k:02}", "Paris" if k < passing else "London") for k in range(40)]


def store_runs(*passing: int, **manifest_fields: Any) -> None:
    for number, each in enumerate(passing):
        run_id, minutes = f"2026010{number}-030405-aaaaaa", 60 - number
        stored(run_id, *results(each), dataset_name="qa", minutes=minutes, **manifest_fields)


def test_each_run_is_compared_with_the_one_before(wink: Run) -> None:
    store_runs(20, 21, 35)

    code, text, err = wink("trend")

    assert code == 0
    assert text.splitlines() == [
        "qa  ▁▁█  50.0% to 87.5%",
        "",
        "run              passed         rate (95%)      step      p",
        "20260100-030405   20/40  50.0% (35.2-64.8)  ▁",
        "20260101-030405   21/40  52.5% (37.5-67.1)  ▁   +2.5  1.000",
        "20260102-030405   35/40  87.5% (73.9-94.5)  █  +35.0  0.006  better",
        "",
        "rises by 18.8 points a run, 95% interval 6.4 to 31.1, p = 0.001 (3 runs, n = 40)",
        "changed between 20260101-030405-aaaaaa and 20260102-030405-aaaaaa: +36.2 points,",
        "95% interval 9.8 to 62.7, p = 0.005",
    ]
    assert "adjusted for 20 looks, as after every run" in err
    assert "wink eval compare 20260101-030405-aaaaaa 20260102-030405-aaaaaa" in err


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_it_fits_the_terminal(wink: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    store_runs(20, 30, 10, model="anthropic/claude-opus-5-20260101")

    _, text, _ = wink("trend")

    assert max(map(len, text.splitlines())) <= columns
    assert ("ago" in text) == (columns == 140)
    assert "worse" in text


def test_the_dataset_is_that_of_the_latest_run_or_the_given_one(wink: Run) -> None:
    store_runs(20, 21)
    stored("other", *results(5), dataset_name="sums")

    assert wink("trend")[1].startswith("sums")
    assert wink("trend", "--dataset", "qa", "--last", "1")[1].count("\n") == 4
    code, _, err = wink("trend", "--dataset", "nothing")
    assert code == 2
    assert "datasets with runs: sums, qa" in err


def test_runs_with_other_evaluators_are_not_compared(wink: Run) -> None:
    for number, version in enumerate("112"):
        criteria = (CriterionInfo(name="exact", version=version),)
        stored(f"r{number}", *results(10 * number), minutes=9 - number, criteria=criteria)

    _, text, err = wink("trend")

    assert text.splitlines()[-1].endswith("no match")
    assert "r2 is not compared with the run before: evaluators differ in version" in err


def test_p_values_of_several_steps_are_adjusted_with_a_note(wink: Run) -> None:
    store_runs(20, 35)
    assert "Holm" not in wink("trend")[2]

    store_runs(20, 35, 20)
    assert "note: p-values are adjusted for multiple comparisons (Holm)\n" in wink("trend")[2]


def test_json_has_the_steps(wink: Run) -> None:
    store_runs(20, 35)

    first, second = json.loads(wink("trend", "--format", "json")[1])

    assert first["step"] is None
    assert second["step"]["outcome"] == "better"
    assert second["passed"] == 35


def test_a_terminal_without_unicode_gets_ascii_bars() -> None:
    store_runs(20, 35)

    env = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run([WINK, "eval", "trend"], env=env, capture_output=True, check=True)

    assert done.stdout.decode("ascii").startswith("qa  _@  50.0% to 87.5%")


def store_declining_runs(runs: int = 6, **manifest_fields: Any) -> None:
    store_runs(*(38 - 4 * run for run in range(runs)), **manifest_fields)


def test_a_slow_decline_is_detected_though_no_single_step_is(wink: Run) -> None:
    store_declining_runs()

    _, text, err = wink("trend", "--looks", "1")

    table, sentences = text.split("\n\n")[1:]
    assert "worse" not in table
    assert sentences.startswith("falls by 10.0 points a run, 95% interval ")
    assert "p < 0.001 (6 runs, n = 40)" in sentences
    assert "if you look after every run: --looks N" in err


def test_equal_runs_have_no_trend(wink: Run) -> None:
    store_runs(20, 20, 20, 20)

    _, text, _ = wink("trend")

    assert "no trend shown: 0.0 points a run, 95% interval 0.0 to 0.0, p = 1.00" in text
    assert "changed between" not in text


def test_json_has_the_trend_with_the_latest_run(wink: Run) -> None:
    store_declining_runs()

    *earlier, latest = json.loads(wink("trend", "--format", "json")[1])

    assert [each["trend"] for each in earlier] == [None] * 5
    trend = latest["trend"]
    assert (trend["outcome"], trend["looks"], len(trend["runs"])) == ("falls", 20, 6)
    assert trend["line"]["change"] == pytest.approx(-0.1)
    assert trend["line"]["n"] == 40
    assert trend["step"]["before"] in trend["runs"]


def test_infrastructure_errors_are_left_out_of_the_trend(wink: Run) -> None:
    store_declining_runs(5)
    down = [
        EvalResult(f"s{k:02}", Score(0.0), error="503", error_source="infrastructure")
        for k in range(10)
    ]
    stored("20260109-030405-aaaaaa", *down, *results(18)[10:], dataset_name="qa")

    _, text, err = wink("trend")

    assert "(6 runs, n = 30)" in text
    assert "10 errors left out of the trend: 10 of infrastructure" in err
    assert "only 30 of 40 samples count for the trend" in err


def test_a_change_of_evaluators_starts_a_new_trend(wink: Run) -> None:
    for number, version in enumerate("11222"):
        criteria = (CriterionInfo(name="exact", version=version),)
        stored(f"r{number}", *results(20 + number), minutes=9 - number, criteria=criteria)

    _, text, err = wink("trend")

    assert "(3 runs, n = 40)" in " ".join(text.split())
    assert "2 earlier runs left out of the trend: evaluators differ in version" in err


def test_each_judge_model_has_its_own_trend(wink: Run) -> None:
    for number in range(4):
        judge = CriterionInfo(name="tone", judge={"model": f"demo/{number % 2}"})
        stored(f"r{number}", *results(20), minutes=9 - number, dataset_name="qa", criteria=(judge,))

    _, text, _ = wink("trend")

    assert "qa, judged by demo/1" in text
    assert "qa, judged by demo/0" in text


def test_samples_of_one_document_are_a_cluster(wink: Run) -> None:
    for number in range(4):
        attempts = [
            answer(
                f"s{k:02}", "Paris" if k < 30 - 5 * number else "London", metadata={"doc": k // 10}
            )
            for k in range(40)
        ]
        stored(f"r{number}", *attempts, minutes=9 - number, dataset_name="qa")

    unclustered, clustered = (
        json.loads(wink("trend", "--format", "json", *args)[1])[-1]["trend"]["line"]
        for args in ((), ("--cluster-by", "doc"))
    )

    assert (unclustered["clusters"], clustered["clusters"]) == (None, 4)
    assert unclustered["change"] == clustered["change"] == pytest.approx(-0.125)
    assert clustered["p"] > unclustered["p"]
