"""`wink eval trend`: the last runs of a dataset."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.cli.stored_runs import WINK, Run, answer, folder, stored, wink
from weakincentives.evals import CriterionInfo, EvalResult

__all__ = ["folder", "wink"]  # fixtures


def results(passing: int) -> list[EvalResult[Any]]:
    return [answer(f"s{k:02}", "Paris" if k < passing else "London") for k in range(40)]


def history(*passing: int, **about: Any) -> None:
    for number, each in enumerate(passing):
        run_id, minutes = f"2026010{number}-030405-aaaaaa", 60 - number
        stored(run_id, *results(each), dataset_name="qa", minutes=minutes, **about)


def test_each_step_is_judged(wink: Run) -> None:
    history(20, 21, 35)

    code, text, said = wink("trend")

    assert code == 0
    assert text.splitlines() == [
        "qa  ▁▁█  50% to 88%",
        "",
        "run              agent  passed   rate (95%)      step       p",
        "20260100-030405  -       20/40  50% (35-65)  ▁",
        "20260101-030405  -       21/40  52% (37-67)  ▁   +2.5   1.000",
        "20260102-030405  -       35/40  88% (74-95)  █  +35.0  <0.001  better",
    ]
    assert "wink eval compare 20260101-030405-aaaaaa 20260102-030405-aaaaaa" in said


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_it_fits_the_terminal(wink: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    history(20, 30, 10, model="anthropic/claude-opus-5-20260101")

    _, text, _ = wink("trend")

    assert max(map(len, text.splitlines())) <= columns
    assert ("ago" in text) == (columns == 140)
    assert "worse" in text


def test_it_is_about_the_dataset_of_the_latest_run_or_the_one_named(wink: Run) -> None:
    history(20, 21)
    stored("other", *results(5), dataset_name="sums")

    assert wink("trend")[1].startswith("sums")
    assert wink("trend", "--dataset", "qa", "--last", "1")[1].count("\n") == 4
    code, _, said = wink("trend", "--dataset", "nothing")
    assert code == 2
    assert "datasets with runs: sums, qa" in said


def test_runs_by_other_evaluators_are_no_step(wink: Run) -> None:
    for number, version in enumerate("112"):
        criteria = (CriterionInfo(name="exact", version=version),)
        stored(f"r{number}", *results(10 * number), minutes=9 - number, criteria=criteria)

    _, text, said = wink("trend")

    assert text.splitlines()[-1].endswith("no match")
    assert "r2 is not compared with the one before: evaluators differ in version" in said


def test_p_values_of_several_steps_are_adjusted_and_say_so(wink: Run) -> None:
    history(20, 35)
    assert "Holm" not in wink("trend")[2]

    history(20, 35, 20)
    assert (
        "note: p is raised (after Holm): several steps are looked at together\n" in wink("trend")[2]
    )


def test_data_has_the_steps(wink: Run) -> None:
    history(20, 35)

    first, second = json.loads(wink("trend", "--format", "json")[1])

    assert first["step"] is None
    assert second["step"]["outcome"] == "better"
    assert second["passed"] == 35


def test_a_terminal_without_bars_gets_others() -> None:
    history(20, 35)

    env = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run([WINK, "eval", "trend"], env=env, capture_output=True, check=True)

    assert done.stdout.decode("ascii").startswith("qa  _@  50% to 88%")
