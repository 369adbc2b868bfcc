"""Details of samples whose verdict changed: both outputs, the criteria, and the reasons."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives import serde
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalReport,
    EvalResult,
    RunStore,
    Sample,
    Score,
    Trajectory,
    all_of,
    compare_runs,
    contains,
    matches,
)
from weakincentives.evals.comparison import (
    CriterionFlip,
    FlipDetails,
    FlipSide,
    flip_details,
    load_baseline,
    save_baseline,
)
from weakincentives.evals.comparison.outcomes import report_outcomes
from weakincentives.evals.model import ErrorDetails
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.secrets import keep_secret

EVALUATOR = all_of(contains, matches("[.]$"))


def result(id: str, output: str, epoch: int = 1, **fields: Any) -> EvalResult[Any]:
    score = fields.pop("score", None) or EVALUATOR(output, "Paris")
    trajectory = Trajectory(output=output)
    sample = Sample(id, "Capital?", "Paris")
    return EvalResult(id, score, sample=sample, trajectory=trajectory, epoch=epoch, **fields)


BEFORE = EvalReport([result("a", "It is Paris."), result("b", "Lyon."), result("c", "Paris.")])
AFTER = EvalReport([result("a", "It is Lyon."), result("b", "Paris."), result("c", "Paris.")])
REASON = "contains: got 'It is Lyon.', expected it to contain 'Paris'"


def test_a_flip_has_both_outputs_the_criteria_and_the_reasons() -> None:
    compared = compare_runs(BEFORE, AFTER)

    broken, fixed = flip_details(compared, BEFORE, AFTER)

    assert broken == FlipDetails(
        compared.flips[0],
        FlipSide("pass", 1.0, "It is Paris.", ""),
        FlipSide("fail", 0.5, "It is Lyon.", REASON),
        (CriterionFlip("contains", True, False, "", REASON.partition(": ")[2]),),
        broken.diff,
        "Capital?",
    )
    assert [tuple(part) for part in broken.diff] == [
        ("same", "It is "),
        ("removed", "Paris"),
        ("added", "Lyon"),
        ("same", "."),
    ]
    assert fixed.flip.fixed
    assert serde.decode(serde.encode(broken), FlipDetails) == broken


def test_a_side_that_passed_has_only_the_reasons_of_criteria_that_flipped() -> None:
    def polite(output: str, expected: str) -> Score:
        return Score(float(output.endswith("!")), reason=f"ends with {output[-1]}")

    def brief(output: str, expected: str) -> Score:
        return Score(1.0, reason="it is brief")

    scores = (all_of(polite, brief)(output, "") for output in ("Paris!", "Paris."))
    before, after = (EvalReport([result("a", "Paris.", score=score)]) for score in scores)
    (change,) = flip_details(compare_runs(before, after), before, after)

    assert change.before == FlipSide("pass", 1.0, "Paris.", "polite: ends with !")
    assert change.after == FlipSide("fail", 0.5, "Paris.", "polite: ends with .")
    error = EvalReport([EvalResult("a", Score(0.0), error="gone")])
    (change,) = flip_details(compare_runs(before, error), before, error)
    assert change.before == FlipSide("pass", 1.0, "Paris.", "")


def test_only_the_requested_flips_are_read() -> None:
    compared = compare_runs(BEFORE, AFTER)

    (details,) = flip_details(compared, BEFORE, AFTER, compared.flips[1:])

    assert details.flip.sample == "b"


def test_an_error_has_a_reason_and_no_criteria() -> None:
    details = ErrorDetails("OSError", "rag.py:1 in f")
    broken = EvalResult("a", Score(0.0), error="gone", error_details=details)
    after = EvalReport([broken, *AFTER.results[1:]])

    change = flip_details(compare_runs(BEFORE, after), BEFORE, after)[0]

    assert change.after == FlipSide("error", None, "", "agent: OSError: gone")
    assert (change.criteria, change.diff) == ((), ())


def test_an_epoch_with_the_majority_verdict_represents_its_sample() -> None:
    before = EvalReport([result("a", "Paris.", epoch) for epoch in (1, 2, 3)])
    after = EvalReport([result("a", "Lyon." if n > 1 else "Paris.", n) for n in (1, 2, 3, 4)])

    (change,) = flip_details(compare_runs(before, after), before, after)

    assert change.flip.after == ("baseline", "a", 2)
    assert change.after is not None
    assert change.after.output == "Lyon."


def test_stored_runs_have_the_same_details(store: RunStore) -> None:
    from datetime import UTC, datetime

    for name, report in (("before", BEFORE), ("after", AFTER)):
        store.begin(RunManifest(run_id=name, created_at=datetime.now(UTC)))
        for position, result in enumerate(report.results):
            row = EvalResult(**{f: getattr(result, f) for f in result.__slots__} | {"run_id": name})
            store.put(StoredRow(result=row, position=position))
        store.finish(name, "complete")

    compared = compare_runs("before", "after", store=store)

    details = flip_details(compared, store, store)
    expected = flip_details(compare_runs(BEFORE, AFTER), BEFORE, AFTER)
    assert details == expected


def test_a_baseline_file_has_no_texts(tmp_path: Any) -> None:
    save_baseline(report_outcomes(BEFORE), tmp_path / "baseline.json")
    baseline = load_baseline(tmp_path / "baseline.json")

    change = flip_details(compare_runs(baseline, AFTER), None, AFTER)[0]

    assert change.before is None
    assert change.after is not None
    assert change.after.why == REASON


def test_equal_outputs_have_no_diff() -> None:
    before = EvalReport([result("a", "Paris", score=Score(1.0, reason="fine"))])
    after = EvalReport([result("a", "Paris", score=Score(0.0, reason="rude"))])

    (change,) = flip_details(compare_runs(before, after), before, after)

    assert change.diff == ()
    assert change.before is not None
    assert (change.before.why, change.criteria[0].reason_after) == ("fine", "rude")


@pytest.mark.slow
def test_long_outputs_are_truncated_and_secrets_redacted() -> None:
    keep_secret("correct-horse-battery-9")
    before = EvalReport([result("a", "Paris. " * 20_000 + ".")])
    after = EvalReport([result("a", "Lyon correct-horse-battery-9 " * 20_000 + ".")])

    (change,) = flip_details(compare_runs(before, after), before, after)

    text = serde.encode(change).decode()
    assert len(text) < 12_000
    assert "horse" not in text


def test_other_types_are_refused() -> None:
    with pytest.raises(UsageError, match="expected a report or a run store, got 'run'"):
        flip_details(compare_runs(BEFORE, AFTER), "run", AFTER)  # type: ignore[arg-type]
