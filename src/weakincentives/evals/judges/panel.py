"""Several judges, one verdict, and how much they disagreed.

Rules of this file:
1. Every vote is a metric, and so is `disagreement`.
2. A judge that raises has not voted. Without a `quorum` the panel raises too; with one, the reason
   names the judges that did not vote. An error never counts as a vote to fail.
3. A tie fails, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from ...errors import EvaluatorError, UsageError, short_repr
from ...internal.concurrency import for_each
from ...internal.isolation import run_isolated
from .._types import EvalContext, Metric, Score
from ..evaluators.combine import combine_scores
from ..evaluators.criteria import Criterion, EvaluatorFunction, criterion
from ..stats.basic import mean

Aggregate = Literal["majority", "mean", "min"]

DISAGREEMENT = "disagreement"


def judge_panel(
    *judges: EvaluatorFunction,
    aggregate: Aggregate = "majority",
    quorum: int | None = None,
    name: str = "panel",
) -> Criterion:
    """Ask several judges concurrently: `judge_panel(one_judge, another, a_third)`.

    `majority` passes if more than half of the votes do, with the mean value of that side; `mean`
    decides likewise, with the mean value of all; `min` passes if all do, with the least value.

    The metric `disagreement` is the share of votes against the verdict; for `mean` it is the range
    of the values. With `quorum=k`, at least k judges must vote. Judges of one model share its
    mistakes: mix models.
    """
    if not judges:
        raise UsageError(f"expected at least one judge for `{name}`, got none")
    if aggregate not in get_args(Aggregate):
        raise UsageError(
            f"expected an aggregate of {', '.join(get_args(Aggregate))}, got "
            f"{short_repr(aggregate)}"
        )
    if quorum is not None and (type(quorum) is not int or not 1 <= quorum <= len(judges)):
        raise UsageError(f"expected a quorum from 1 to {len(judges)}, got {short_repr(quorum)}")
    panel = tuple(criterion(judge) for judge in judges)

    async def evaluate(context: EvalContext) -> Score:
        votes: dict[int, Score] = {}
        failures: dict[int, str] = {}

        async def ask(index: int) -> None:
            async def vote() -> None:
                votes[index] = _without_clash(await panel[index].score(context))

            failure = await run_isolated(vote)
            if failure is not None:
                failures[index] = f"{panel[index].name} ({str(failure) or type(failure).__name__})"

        await for_each(ask, range(len(panel)))
        absent = [failures[index] for index in sorted(failures)]
        if len(votes) < (quorum or len(panel)):
            need = f", and the quorum is {quorum}" if quorum else ""
            raise EvaluatorError(
                f"expected a verdict from every judge of `{name}`, got {len(votes)} of "
                f"{len(panel)}{need} - without one: {'; '.join(absent)}"
            )
        return _verdict([votes[index] for index in sorted(votes)], aggregate, absent, name)

    return Criterion(
        name,
        evaluate,
        session_aware=any(judge.session_aware for judge in panel),
        is_async=True,
        identity=("judge_panel", 1, aggregate, quorum, panel),
        # With a quorum, some judges may fail.
        requires=() if quorum else tuple(need for judge in panel for need in judge.requires),
        adapters=tuple(adapter for judge in panel for adapter in judge.adapters),
    )


def _verdict(votes: Sequence[Score], aggregate: Aggregate, absent: list[str], name: str) -> Score:
    values = [vote.value for vote in votes]
    passes = sum(vote.passed for vote in votes)
    passed = passes == len(votes) if aggregate == "min" else 2 * passes > len(votes)
    side = [vote.value for vote in votes if vote.passed is passed]
    if aggregate == "mean":
        combined = combine_scores(votes, name, passed=lambda _: passed)
        disagreement = max(values) - min(values)
    else:
        value = min(values) if aggregate == "min" else mean(side)
        combined = combine_scores(votes, name, value=lambda _: value, passed=lambda _: passed)
        disagreement = 1 - len(side) / len(votes)
    reasons = [f"{passes} of {len(votes)} pass"]
    if aggregate != "min" and 2 * passes == len(votes):
        reasons[0] += ", a tie, which fails"
    reasons += [f"{vote.criterion}: {vote.reason}" for vote in votes if vote.reason]
    if absent:
        reasons.append(f"no verdict from {'; '.join(absent)}")
    metrics = (*combined.metrics, Metric(DISAGREEMENT, disagreement))
    return replace(combined, reason="; ".join(reasons), metrics=metrics)


def _without_clash(vote: Score) -> Score:
    """Return the vote; if it is a panel's, rename its disagreement, which would clash with ours."""
    if all(metric.name != DISAGREEMENT for metric in vote.metrics):
        return vote
    name = f"{vote.criterion}/{DISAGREEMENT}"
    metrics = tuple(
        replace(metric, name=name) if metric.name == DISAGREEMENT else metric
        for metric in vote.metrics
    )
    return replace(vote, metrics=metrics)
