"""Rubrics as data, in the form of Synth AI: criteria with weights, some of them required.

An outcome rubric rates the outcome of an attempt; an event rubric rates each reply of the model by
itself. Both are judged by `llm_rubric`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from ... import serde
from ...chat import ChatMessage
from ...errors import EvaluatorError, SerializationError, UsageError, short_repr
from ...internal.checks import finite
from .._judge import RATINGS, JudgeModel, Scale
from .._types import PASS_MARK, EvalContext, Metric, Sample, Score
from ..evaluators.criteria import Criterion, built_in
from .rubric import llm_rubric

Aggregation = Literal["sum", "weighted_sum", "custom", "inherit"]


@dataclass(frozen=True, slots=True)
class RubricCriterion:
    """One criterion. If it is required and fails, the whole rubric fails."""

    id: str
    description: str
    weight: float = 1.0
    required: bool = False

    def __post_init__(self) -> None:
        for name in ("id", "description"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise UsageError(
                    f"expected a text for `{name}` of a criterion, got {short_repr(text)}"
                )
        if finite(self.weight, f"weight of {self.id!r}") < 0:
            raise UsageError(f"expected a weight >= 0 for {self.id!r}, got {self.weight}")


@dataclass(frozen=True, slots=True)
class Rubric:
    """Criteria and the goal that they are about. Weights need not add up to 1."""

    criteria: tuple[RubricCriterion, ...]
    version: str = "1.0"
    goal_text: str = ""
    aggregation: Aggregation = "weighted_sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "criteria", tuple(self.criteria))
        ids = [each.id for each in self.criteria]
        if not ids or len(set(ids)) < len(ids):
            raise UsageError(
                f"expected criteria with different ids, got {', '.join(ids) or 'none'}"
            )
        if self.aggregation not in get_args(Aggregation):
            raise UsageError(
                f"expected one of {', '.join(get_args(Aggregation))} as `aggregation`, got "
                f"{short_repr(self.aggregation)}"
            )
        if self.aggregation == "custom":
            raise UsageError(
                "expected `sum` or `weighted_sum` as `aggregation`, got `custom`, which is code - "
                "combine the criteria with `weighted`"
            )

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each criterion; with the aggregation `sum`, all are 1."""
        equal = self.aggregation == "sum"
        return {each.id: 1.0 if equal else each.weight for each in self.criteria}


def load_rubric(source: Path | str | Mapping[str, Any]) -> Rubric:
    """Return the rubric of a JSON file, or of data that was read from one.

    >>> load_rubric({"criteria": [{"id": "tone", "description": "Polite", "weight": 2}]}).weights
    {'tone': 2.0}
    """
    data: Any = source
    where = ""
    if not isinstance(source, Mapping):
        where = f" ({source})"
        try:
            data = json.loads(Path(source).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"expected a rubric as a JSON file: {error}{where}") from None
    try:
        rubric: Rubric = serde.convert(data, Rubric)
    except SerializationError as error:
        raise UsageError(f"expected a rubric: {error}{where}") from None
    return rubric


def outcome_rubric(
    rubric: Rubric,
    adapter: JudgeModel = None,
    *,
    scale: Scale = RATINGS,
    pass_mark: float = PASS_MARK,
    name: str = "outcome_rubric",
) -> Criterion:
    """Have a model rate the output on every criterion of a rubric, in one call.

    The value is the weighted mean. It passes from `pass_mark` on, if every required criterion
    passes. The metric `total` is the sum of the weighted values, as Synth reports it.
    """
    inner = _judge_of(rubric, adapter, scale, name)

    async def judge(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        return _with_required(await inner.score(context), rubric, pass_mark)

    return _named("outcome_rubric", rubric, inner, pass_mark, name)(judge)


def event_rubric(
    rubric: Rubric,
    adapter: JudgeModel = None,
    *,
    scale: Scale = RATINGS,
    pass_mark: float = PASS_MARK,
    name: str = "event_rubric",
) -> Criterion:
    """Have a model rate each reply of the trajectory on a rubric: one call for each reply.

    The value is the mean over the replies; it passes if every reply does. The metrics `event_1`,
    `event_2`, ... have the value of each, with its verdict.
    """
    inner = _judge_of(rubric, adapter, scale, name)

    async def judge(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        from ...internal.concurrency import gather

        replies = [each for each in context.trajectory.messages if each.role == "assistant"]
        if not replies:
            raise EvaluatorError(
                "expected a trajectory with the model's messages to rate, got none - return a "
                "`Trajectory`"
            )
        contexts = [
            replace(context, trajectory=replace(context.trajectory, output=_event(reply)))
            for reply in replies
        ]
        scores = await gather(partial(inner.score, each) for each in contexts)
        rated = [_with_required(score, rubric, pass_mark) for score in scores]
        metrics = [
            Metric(
                f"event_{number}", each.value, 1.0, {"passed": each.passed, "reason": each.reason}
            )
            for number, each in enumerate(rated, 1)
        ]
        failed = [f"event {n}: {each.reason}" for n, each in enumerate(rated, 1) if not each.passed]
        return Score(None, not failed, "; ".join(failed[:3]), metrics, name)

    return _named("event_rubric", rubric, inner, pass_mark, name)(judge)


def _judge_of(rubric: Rubric, adapter: Any, scale: Scale, name: str) -> Criterion:
    goal = f" The goal of the task: {rubric.goal_text}" if rubric.goal_text else ""
    criteria = {each.id: f"{each.description}{goal}" for each in rubric.criteria}
    return llm_rubric(adapter, criteria, scale=scale, weights=rubric.weights, name=name)


def _named(
    kind: str, rubric: Rubric, inner: Criterion, pass_mark: float, name: str
) -> Callable[[Callable[..., Any]], Criterion]:
    identity = (inner, serde.plain(rubric), finite(pass_mark, "pass_mark"))
    return built_in(kind, 1, *identity, label=name, blocking=True, adapters=inner.adapters)


def _event(reply: ChatMessage) -> str:
    calls = [f"{call.name}({json.dumps(dict(call.arguments))})" for call in reply.tool_calls]
    return "\n".join(filter(None, [reply.content, *calls]))


def _with_required(score: Score, rubric: Rubric, pass_mark: float) -> Score:
    values = {metric.name: metric for metric in score.metrics}
    failed = [
        each.id
        for each in rubric.criteria
        if each.required and values[each.id].metadata.get("passed") is False
    ]
    weights = rubric.weights
    total = sum(values[name].value * weight for name, weight in weights.items())
    reason = f"required: {', '.join(failed)}; {score.reason}" if failed else score.reason
    passed = not failed and score.value >= pass_mark
    return replace(
        score, passed=passed, reason=reason, metrics=(*score.metrics, Metric("total", total))
    )
