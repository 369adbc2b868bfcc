"""Several judges, one verdict, and how much they disagreed.

Rules of this file:
1. Every vote stays visible as a metric, and so does `disagreement`.
2. A judge that gives no verdict has not voted. Without a `quorum` that is the panel's failure; with
   one, the reason names who is missing. It never counts as a vote to fail.
3. A tie fails, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import anyio

from ..errors import EvaluatorError, UsageError, shown
from ._criterion import Criterion, criterion
from ._fold import fold
from ._score import Metric, Score
from ._types import EvalContext
from .statistics import mean

__all__ = ["Aggregate", "judge_panel"]

Aggregate = Literal["majority", "mean", "min"]

DISAGREEMENT = "disagreement"


def judge_panel(
    *judges: Callable[..., Any],
    aggregate: Aggregate = "majority",
    quorum: int | None = None,
    name: str = "panel",
) -> Criterion:
    """Several judges, asked together: `judge_panel(one_judge, another, a_third)`.

    `majority` passes where more than half of the votes do, with the mean value of that side; `mean`
    decides likewise, with the mean value of all; `min` passes where all do, with the least value.

    The metric `disagreement` is the share of votes against the verdict; for `mean` it is the spread
    of the values, greatest less least. With `quorum=k`, up to all but k judges may fail to answer.
    Judges of one model share its mistakes: mix models.
    """
    if not judges:
        raise UsageError(f"expected at least one judge for `{name}`, got none")
    if aggregate not in get_args(Aggregate):
        raise UsageError(
            f"expected an aggregate of {', '.join(get_args(Aggregate))}, got {shown(aggregate)}"
        )
    if quorum is not None and (type(quorum) is not int or not 1 <= quorum <= len(judges)):
        raise UsageError(f"expected a quorum from 1 to {len(judges)}, got {shown(quorum)}")
    panel = tuple(criterion(judge) for judge in judges)

    async def judge(context: EvalContext) -> Score:
        votes: dict[int, Score] = {}
        missing: dict[int, str] = {}

        async def ask(index: int) -> None:
            try:
                votes[index] = _own(await panel[index].ask(context))
            except Exception as error:
                missing[index] = f"{panel[index].name} ({error})"

        async with anyio.create_task_group() as group:
            for index in range(len(panel)):
                group.start_soon(ask, index)
        absent = [missing[index] for index in sorted(missing)]
        if len(votes) < (quorum or len(panel)):
            need = f", and the quorum is {quorum}" if quorum else ""
            raise EvaluatorError(
                f"expected a verdict from every judge of `{name}`, got {len(votes)} of "
                f"{len(panel)}{need} - without one: {'; '.join(absent)}"
            )
        return _verdict([votes[index] for index in sorted(votes)], aggregate, absent, name)

    return Criterion(
        name, judge, session_aware=any(each.session_aware for each in panel), is_async=True
    )


def _verdict(votes: Sequence[Score], aggregate: Aggregate, absent: list[str], name: str) -> Score:
    values = [vote.value for vote in votes]
    ayes = sum(vote.passed for vote in votes)
    passed = ayes == len(votes) if aggregate == "min" else 2 * ayes > len(votes)
    side = [vote.value for vote in votes if vote.passed is passed]
    if aggregate == "mean":
        folded = fold(votes, name, passed=lambda _: passed)
        disagreement = max(values) - min(values)
    else:
        value = min(values) if aggregate == "min" else mean(side)
        folded = fold(votes, name, value=lambda _: value, passed=lambda _: passed)
        disagreement = 1 - len(side) / len(votes)
    said = [f"{ayes} of {len(votes)} pass"]
    if aggregate != "min" and 2 * ayes == len(votes):
        said[0] += ", a tie, which fails"
    said += [f"{vote.criterion}: {vote.reason}" for vote in votes if vote.reason]
    if absent:
        said.append(f"no verdict from {'; '.join(absent)}")
    metrics = (*folded.metrics, Metric(DISAGREEMENT, disagreement))
    return replace(folded, reason="; ".join(said), metrics=metrics)


def _own(vote: Score) -> Score:
    """The vote; if it is a panel's, its disagreement is under a name that is not ours."""
    if all(metric.name != DISAGREEMENT for metric in vote.metrics):
        return vote
    theirs = f"{vote.criterion}/{DISAGREEMENT}"
    metrics = tuple(
        replace(metric, name=theirs) if metric.name == DISAGREEMENT else metric
        for metric in vote.metrics
    )
    return replace(vote, metrics=metrics)
