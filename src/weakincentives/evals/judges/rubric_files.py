"""Rubrics as data, in the form of Synth AI: criteria with weights, some of them required.

The fields are those of synth-ai-core 0.3.0; how Synth's service judges them could not be verified.
An outcome rubric rates the outcome of an attempt; an event rubric rates each reply of the model by
itself. Both are judged by `llm_rubric`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
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

Aggregation = Literal["sum", "mean", "weighted_sum", "weighted_mean", "custom", "inherit"]


@dataclass(frozen=True, slots=True)
class RubricExample:
    """An output and its score on a criterion, from 0 to the criterion's `scale_max`."""

    content: str
    expected_score: float
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class RubricCriterion:
    """One criterion. If it is required and fails, the whole rubric fails.

    `scale_max` is the highest score of the `examples`, 1 if it is None; values are in 0..1 anyway.
    """

    id: str
    description: str
    weight: float = 1.0
    required: bool = False
    scale_max: float | None = None
    examples: tuple[RubricExample, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "description"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise UsageError(
                    f"expected a text for `{name}` of a criterion, got {short_repr(text)}"
                )
        if finite(self.weight, f"weight of {self.id!r}") <= 0:
            raise UsageError(f"expected a weight > 0 for {self.id!r}, got {self.weight}")
        if finite(self.top_score, f"scale_max of {self.id!r}") <= 0:
            raise UsageError(f"expected `scale_max` > 0 for {self.id!r}, got {self.scale_max}")
        object.__setattr__(self, "examples", tuple(self.examples))
        for example in self.examples:
            if not 0 <= example.expected_score <= self.top_score:
                raise UsageError(
                    f"expected scores from 0 to {self.top_score:g} in the examples of {self.id!r}, "
                    f"got {example.expected_score:g} - set `scale_max`"
                )

    @property
    def top_score(self) -> float:
        """The highest score of an example."""
        return 1.0 if self.scale_max is None else self.scale_max


@dataclass(frozen=True, slots=True)
class Rubric:
    """Criteria and the goal that they are about. Weights need not add up to 1."""

    criteria: tuple[RubricCriterion, ...]
    version: str = "1.0"
    goal_text: str | None = ""
    aggregation: Aggregation = "weighted_sum"
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

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
        """The weight of each criterion; with the aggregation `sum` or `mean`, all are 1."""
        equal = self.aggregation in ("sum", "mean")
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
    criteria = data["criteria"]
    examples = [example for each in criteria for example in each.get("examples", ())]
    _refuse_unknown(Rubric, "a rubric", [data], where)
    _refuse_unknown(RubricCriterion, "criteria", criteria, where)
    _refuse_unknown(RubricExample, "examples", examples, where)
    return rubric


def _refuse_unknown(
    kind: type[Any], what: str, objects: Iterable[Mapping[str, Any]], where: str
) -> None:
    """Raise if an object has a field that we would ignore."""
    known = [each.name for each in fields(kind)]
    for key in (key for each in objects for key in each if key not in known):
        raise UsageError(
            f"expected no field `{key}` in {what}, got it - known: {', '.join(known)}{where}"
        )


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
    passes. The metric `total` is the sum of the weighted values.
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
    criteria = {
        each.id: f"{each.description}{goal}{_examples_text(each, scale)}"
        for each in rubric.criteria
    }
    return llm_rubric(adapter, criteria, scale=scale, weights=rubric.weights, name=name)


def _examples_text(criterion: RubricCriterion, scale: Scale) -> str:
    """Return the examples with the label of the scale that is nearest to their score."""
    values = scale.values
    lowest, highest = min(values.values()), max(values.values())
    text = ""
    for example in criterion.examples:
        value = lowest + (highest - lowest) * example.expected_score / criterion.top_score
        label = min(values, key=lambda each: abs(values[each] - value))
        why = f" ({example.explanation})" if example.explanation else ""
        text += f" Rated {json.dumps(label)}: {json.dumps(example.content)}{why}."
    return text


def _identity(rubric: Rubric) -> dict[str, Any]:
    """Return what verdicts depend on; rubrics without examples keep their fingerprint by this."""
    data: dict[str, Any] = serde.plain(rubric)
    del data["metadata"]
    for each in data["criteria"]:
        if not each["examples"]:
            del each["examples"], each["scale_max"]
    return data


def _named(
    kind: str, rubric: Rubric, inner: Criterion, pass_mark: float, name: str
) -> Callable[[Callable[..., Any]], Criterion]:
    identity = (inner, _identity(rubric), finite(pass_mark, "pass_mark"))
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
