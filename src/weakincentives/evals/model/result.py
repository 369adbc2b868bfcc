"""`EvalResult`: the outcome of one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, get_args

from ... import serde
from ...chat import TokenUsage
from ...errors import UsageError, short_repr
from ...experiment import BASELINE
from ...internal.checks import (
    finite,
    instance_or_none,
    plain_metadata,
    plain_texts,
    tuple_of,
    whole,
)
from ...internal.error_details import ErrorDetails, with_type
from ...internal.frozen import fast_init, frozen_generic
from ...internal.typevars import OutputT
from ...internal.wire_names import wire_name
from ...rollouts import Trajectory
from .._types import Sample, Score, is_criterion
from .judge_calls import JudgeCall
from .versions import WorkerVersion

ErrorSource = Literal["agent", "evaluator", "infrastructure"]
JUDGE_USAGE = ("judge_tokens", "judge_cost")
"""Metrics of a judge's score that a result has as `judge_usage` and `judge_cost` too."""
_SOURCES = (None, *get_args(ErrorSource))
_MAX_INTEGER = 2**63 - 1  # in the run store


@wire_name("wink:EvalResult", "weakincentives.evals._report:EvalResult")
@frozen_generic
@fast_init
@dataclass(frozen=True, slots=True)
class EvalResult(Generic[OutputT]):
    """The outcome of one sample: a score, or an error and its source.

    A result with an error has a score of 0.0, which no mean includes. If the evaluator failed, the
    trajectory is kept, so that it can be scored again. `error` is the plain message,
    `error_details` has the type of the exception, its place and its traceback. `judge_usage` and
    `judge_cost` (in US dollars) are what its judges used; what the agent used is in the trajectory.
    `judge_calls` are the prompts of its judges, and their answers. `worker` is the process that ran
    the sample, as `host:pid`, `made_by` the version of agent and evaluators that it runs, and
    `request_number` that of the request, if the result came over a queue.
    """

    sample_id: str
    score: Score
    latency_ms: int = 0
    error: str | None = None
    sample: Sample[Any, Any] | None = None
    trajectory: Trajectory[OutputT] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    experiment_name: str = BASELINE.name
    epoch: int = 1
    run_id: str = ""
    attempt: int = 1
    error_source: ErrorSource | None = None
    error_details: ErrorDetails | None = None
    judge_usage: TokenUsage | None = None
    judge_cost: float | None = None
    # Provenance, not outcome: two results may differ in these and be equal.
    judge_calls: tuple[JudgeCall, ...] = field(default=(), compare=False)
    worker: str = field(default="", compare=False)
    made_by: WorkerVersion | None = field(default=None, compare=False)
    request_number: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sample_id, str) or not isinstance(self.score, Score):
            raise UsageError(
                "expected a `str` and a `Score` for `sample_id` and `score`, got "
                f"{short_repr(self.sample_id)} and {short_repr(self.score)}"
            )
        if (  # a cheap test first: there is a result for each sample
            self.error is not None
            or self.error_source is not None
            or self.error_details is not None
            or self.sample_id.__class__ is not str
            or self.experiment_name.__class__ is not str
            or self.run_id.__class__ is not str
            or self.worker.__class__ is not str
        ):
            texts = ("sample_id", "experiment_name", "run_id", "worker")
            plain_texts(self, *texts, or_none=("error", "error_source"))
            instance_or_none(self, "error_details", ErrorDetails, "pass ErrorDetails(type)")
        if self.latency_ms.__class__ is not int:
            milliseconds = round(finite(self.latency_ms, "EvalResult.latency_ms"))
            object.__setattr__(self, "latency_ms", milliseconds)
        for name, number in (
            ("epoch", self.epoch),
            ("attempt", self.attempt),
            ("request_number", self.request_number),
        ):
            if number.__class__ is not int or not 0 <= number <= _MAX_INTEGER:
                number = whole(number, f"EvalResult.{name}", least=0, maximum=_MAX_INTEGER)
                object.__setattr__(self, name, number)
        if self.sample.__class__ is not Sample:
            instance_or_none(self, "sample", Sample, "pass Sample(id, input)")
        if self.trajectory.__class__ is not Trajectory:
            instance_or_none(self, "trajectory", Trajectory, "pass Trajectory(output=...)")
        if self.metadata.__class__ is not dict or self.metadata:
            plain_metadata(self)
        if self.judge_usage is not None:
            instance_or_none(self, "judge_usage", TokenUsage, "pass TokenUsage(input, output)")
        if self.judge_cost is not None:
            object.__setattr__(self, "judge_cost", finite(self.judge_cost, "EvalResult.judge_cost"))
        if self.judge_calls.__class__ is not tuple or self.judge_calls:
            advice = "pass JudgeCall(judge, messages, answer)"
            calls = tuple_of(JudgeCall, self.judge_calls, "EvalResult.judge_calls", advice)
            object.__setattr__(self, "judge_calls", calls)
        if self.made_by is not None:
            instance_or_none(self, "made_by", WorkerVersion, "pass EvalLoop.version")
        if self.error_source not in _SOURCES:
            raise UsageError(
                f"expected one of {_SOURCES} for `error_source`, got "
                f"{short_repr(self.error_source)}"
            )

    @property
    def success(self) -> bool:
        """Whether there is no error; the sample may have failed."""
        return self.error is None

    @property
    def passed(self) -> bool:
        """Whether there is no error and the score passes."""
        return self.error is None and self.score.passed

    @property
    def error_message(self) -> str:
        """The error with the name of its type: `ZeroDivisionError: division by zero`."""
        return "" if self.error is None else with_type(self.error, self.error_details)

    @property
    def output(self) -> OutputT | None:
        """The output of the agent."""
        return self.trajectory.output if self.trajectory else None

    @property
    def agent_tokens(self) -> int | None:
        """Input and output tokens of the agent; None if unknown. Those of judges do not count."""
        usage = self.trajectory.usage if self.trajectory else None
        return usage.total_tokens if usage else None

    @property
    def tokens_used(self) -> int:
        """`agent_tokens`, with 0 if they are unknown, so that they can be summed."""
        return self.agent_tokens or 0

    @property
    def cost(self) -> float | None:
        """Cost of the agent in US dollars; None if unknown. That of judges does not count."""
        return self.trajectory.cost if self.trajectory else None

    @property
    def judge_tokens(self) -> int:
        """Input and output tokens of the judges; 0 if there are none, or unknown."""
        return self.judge_usage.total_tokens if self.judge_usage else 0

    @property
    def scores(self) -> tuple[Score, ...]:
        """The score of each criterion, or the only score; empty after an error."""
        return () if self.error is not None else self.score.parts or (self.score,)

    @property
    def aggregate_score(self) -> float:
        """The value of the score; 0.0 after an error."""
        return self.score.value if self.success else 0.0


def with_sample_types(
    result: EvalResult[Any], input_type: Any, expected_type: Any
) -> EvalResult[Any]:
    """Return the result with the input and expected output of its sample as these types."""
    if (sample := result.sample) is None or input_type is expected_type is Any:
        return result
    typed = replace(
        sample,
        input=serde.convert(sample.input, input_type),
        expected=serde.convert(sample.expected, expected_type),
    )
    return replace(result, sample=typed)


def criterion_values(score: Score) -> dict[str, float]:
    """Return the value of each criterion by name; a score without parts counts as one criterion."""
    values = {metric.name: metric.value for metric in score.metrics if is_criterion(metric)}
    return values or {score.criterion or "score": score.value}


def criterion_verdicts(result: EvalResult[Any]) -> dict[str, bool]:
    """Return whether each criterion passed, by name; none after an error."""
    if result.error is not None:
        return {}
    return {each.criterion or "score": each.passed for each in (result.score, *result.score.parts)}
