"""Details of samples whose verdict changed: outputs, criteria and reasons of both runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import UsageError, short_repr
from ...internal.escaping import as_text
from ...internal.matching import ANSWER_STEPS, Work
from ...internal.text_differences import DiffPart, word_diff
from ...secrets import shorten
from ..model.explain import FailedCriterion, why_failed
from ..model.redacted_ids import redact_id
from ..model.result import EvalResult
from ..runs.report import EvalReport
from ..store.run_store import RunStore
from .outcomes import RunOutcomes
from .run_comparison import Flip, RowKey, RunComparison

MAX_OUTPUT_CHARS = 2_000
_MAX_REASON_CHARS = 1_000
_MAX_INPUT_CHARS = 80

Source = EvalReport[Any] | RunStore | None


@dataclass(frozen=True, slots=True)
class FlipSide:
    """A sample in one of the runs; `why` is its `contrast_reason`."""

    verdict: Literal["pass", "fail", "error"]
    value: float | None
    output: str
    why: str


@dataclass(frozen=True, slots=True)
class CriterionFlip:
    """A criterion whose verdict changed: whether it passed, and the reasons, in both runs."""

    criterion: str
    before: bool
    after: bool
    reason_before: str = ""
    reason_after: str = ""


@dataclass(frozen=True, slots=True)
class FlipDetails:
    """A flip with the texts of both runs; a side is None if its run has no texts, as for a
    baseline.

    `diff` has what changed in the output, word by word; it is empty if the outputs are equal, and
    not `compared` if that would have taken too much work: then one is removed, the other added.
    `input` is the beginning of the sample's input, for samples whose id says nothing.
    """

    flip: Flip
    before: FlipSide | None
    after: FlipSide | None
    criteria: tuple[CriterionFlip, ...] = ()
    diff: tuple[DiffPart, ...] = ()
    input: str = ""
    compared: bool = True


def flip_details(
    comparison: RunComparison,
    before: Source,
    after: Source,
    flips: Iterable[Flip] | None = None,
    work: Work | None = None,
) -> tuple[FlipDetails, ...]:
    """Return the details of flips: of all, or of those given.

    `before` and `after` are where the texts of the runs are: the reports that were compared, or the
    stores of the runs. None stands for a baseline, which has no texts. All outputs are compared
    within one amount of `work`.
    """
    sides = results_of(comparison.before, before), results_of(comparison.after, after)
    chosen = comparison.flips if flips is None else flips
    work = work or Work(ANSWER_STEPS)
    return tuple(
        _details(flip, sides[0](flip.before), sides[1](flip.after), work) for flip in chosen
    )


def results_of(run: RunOutcomes, source: Source) -> Callable[[RowKey], EvalResult[Any] | None]:
    if source is None:
        return lambda key: None
    if isinstance(source, EvalReport):
        found = {
            (result.experiment_name, redact_id(result.sample_id), result.epoch): result
            for result in source.results
        }
        return found.get
    if not hasattr(source, "row"):
        raise UsageError(f"expected a report or a run store, got {short_repr(source)}")
    store = source

    def from_store(key: RowKey) -> EvalResult[Any] | None:
        row = store.row(run.run_id, *key) if run.run_id else None
        return None if row is None else row.result

    return from_store


def _details(
    flip: Flip, before: EvalResult[Any] | None, after: EvalResult[Any] | None, work: Work
) -> FlipDetails:
    criteria: tuple[CriterionFlip, ...] = ()
    diff: tuple[DiffPart, ...] = ()
    if before is not None and after is not None:
        criteria = tuple(_criteria(before, after))
        if before.trajectory is not None and after.trajectory is not None:
            diff = word_diff(as_text(before.output), as_text(after.output), work)
    sample = next((each.sample for each in (after, before) if each and each.sample), None)
    text = "" if sample is None else shorten(as_text(sample.input), _MAX_INPUT_CHARS)
    sides = _side(before, after), _side(after, before)
    return FlipDetails(flip, *sides, criteria, diff, text, not work.exhausted)


def contrast_reason(result: EvalResult[Any], other: EvalResult[Any] | None) -> str:
    """Return why a result failed; if it passed, the reasons for what the other one failed."""
    if result.error is not None or not result.passed:
        return why_failed(result)
    flipped = () if other is None else _criteria(other, result)
    passed = (FailedCriterion(c.criterion, c.reason_after) for c in flipped if c.after)
    return "; ".join(str(criterion) for criterion in passed if criterion.reason)


def _side(result: EvalResult[Any] | None, other: EvalResult[Any] | None) -> FlipSide | None:
    if result is None:
        return None
    return FlipSide(
        "error" if result.error is not None else "pass" if result.passed else "fail",
        None if result.error is not None else result.score.value,
        shorten(as_text(result.output), MAX_OUTPUT_CHARS),
        shorten(contrast_reason(result, other), _MAX_REASON_CHARS),
    )


def _criteria(before: EvalResult[Any], after: EvalResult[Any]) -> Iterator[CriterionFlip]:
    """Yield the criteria whose verdict changed; an error has no verdicts."""
    new = {score.criterion: score for score in after.scores}
    for a in before.scores:
        b = new.get(a.criterion)
        if b is not None and a.passed is not b.passed:
            reasons = (shorten(score.reason, _MAX_REASON_CHARS) for score in (a, b))
            yield CriterionFlip(a.criterion, a.passed, b.passed, *reasons)
