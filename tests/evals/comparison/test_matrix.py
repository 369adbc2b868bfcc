"""Several runs side by side, sample by sample."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives.errors import UsageError
from weakincentives.evals import EvalReport, EvalResult, Score
from weakincentives.evals.comparison import count_kinds, sample_matrix
from weakincentives.evals.comparison.outcomes import RunOutcomes, report_outcomes


def run(**samples: str) -> RunOutcomes:
    """Return a run; letters are epochs: pass, fail, error (agent), infrastructure error."""
    results: list[EvalResult[Any]] = []
    for name, letters in samples.items():
        for epoch, letter in enumerate(letters, 1):
            source: Any = {"e": "agent", "i": "infrastructure"}.get(letter)
            score = Score(float(letter == "p"))
            error = None if source is None else "broken"
            results.append(EvalResult(name, score, epoch=epoch, error=error, error_source=source))
    return report_outcomes(EvalReport(results))


def names(runs: list[RunOutcomes], kind: Any) -> list[str]:
    return [row.sample for row in sample_matrix(runs, kind)]


def test_samples_are_sorted_by_their_change() -> None:
    runs = [run(a="p", b="f", c="f", d="p", e="p"), run(a="f", b="p", c="e", d="p")]
    assert names(runs, "broken") == ["a"]
    assert names(runs, "fixed") == ["b"]
    assert names(runs, "failing") == ["c"]
    assert names(runs, "different") == ["a", "b"]
    assert names(runs, "all") == [*"abcde"]
    assert count_kinds(sample_matrix(runs)) == {
        "different": 2,
        "broken": 1,
        "fixed": 1,
        "failing": 1,
        "all": 5,
    }
    assert sample_matrix(runs)[-1].sides[1] is None


def test_half_of_the_epochs_decide_and_the_key_is_an_epoch_with_that_verdict() -> None:
    (row,) = sample_matrix([run(a="fp"), run(a="ffp")])
    assert [side and side.passed for side in row.sides] == [True, False]
    assert [side and side.key[2] for side in row.sides] == [2, 1]
    assert "broken" in row.kinds


def test_infrastructure_errors_have_no_verdict() -> None:
    runs = [run(a="p", b="f"), run(a="i", b="i")]
    assert names(runs, "broken") == names(runs, "failing") == names(runs, "different") == []
    side = sample_matrix(runs)[0].sides[1]
    assert side is not None
    assert (side.attempts, side.passed) == (0, None)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a kind of samples"):
        sample_matrix([run(a="p")], "new")  # type: ignore[arg-type]
