"""The values of an eval: metric, score, config, sample, dataset, context, request.

All are frozen and slotted, validate themselves at construction, and go to JSON and back by
`weakincentives.serde`. A decoder fills the fields and calls `__post_init__`, so what it cannot
check by itself is checked there; `__init__` adds the other spellings. Every number is finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType, NoneType
from typing import Any, Generic
from uuid import UUID, uuid4

from ..errors import UsageError, short_repr
from ..eval_config import EvalConfig, clustered_by, config_of, endpoint_label, stops_early
from ..experiment import BASELINE, Experiment
from ..internal.checks import (
    check_whole,
    finite,
    plain_mapping,
    plain_text,
    plain_texts,
    tuple_of,
)
from ..internal.frozen import fast_init, frozen_generic
from ..internal.public_module import set_public_module
from ..internal.typevars import ExpectedT, InputT, OutputT
from ..internal.wire_names import wire_name
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._samples import Dataset, Sample

__all__ = ["PASS_MARK", "Dataset", "EvalConfig", "EvalContext", "EvalRequest"]
__all__ += ["Metric", "Sample", "Score"]
__all__ += ["clustered_by", "config_of", "endpoint_label", "stops_early"]  # of `eval_config`

_set = object.__setattr__
_NOT_GIVEN: Any = object()


# ── scores ──────────────────────────────────────────────────────────────────────────────────────

PASS_MARK = 0.5
"""A score without an explicit verdict passes from this value on."""


@wire_name("wink:Metric", "weakincentives.evals._score:Metric")
@dataclass(frozen=True, slots=True)
class Metric:
    """One named number. With weight 0 it is only tracked; above 0 it counts in the score."""

    name: str
    value: float
    weight: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.name.__class__ is not str:
            _set(self, "name", plain_text(self.name, "Metric.name"))
        if not self.name:
            raise UsageError("expected a non-empty `Metric.name`, got ''")
        _set(self, "value", finite(self.value, "Metric.value"))
        _set(self, "weight", finite(self.weight, "Metric.weight"))
        _set(self, "metadata", plain_mapping(self.metadata, "Metric.metadata"))
        if self.weight < 0:
            raise UsageError(
                f"expected `Metric.weight` >= 0, got {self.weight} for {self.name!r} - "
                "a penalty is a negative value, not a negative weight"
            )


def _as_bool(passed: Any) -> bool:
    """Return another type's bool as one: NumPy's is fine, the text "false" is not."""
    try:
        if not isinstance(passed, (str, bytes)) and passed in (True, False):
            return bool(passed)
    except Exception:  # such as an array, which cannot be compared like this
        pass
    raise UsageError(f"expected a bool for `Score.passed`, got {short_repr(passed)}")


def _text_or_empty(value: Any, where: str) -> str:
    return "" if value is None else plain_text(value, where)


def is_criterion(metric: Metric) -> bool:
    """Return whether this is the metric of a criterion: it counts, or carries a verdict."""
    return metric.weight > 0 or isinstance(metric.metadata.get("passed"), bool)


def weighted_mean(metrics: Iterable[Metric]) -> float | None:
    """Return the mean of the metrics that count, by weight; None if none counts."""
    total = weights = 0.0
    for metric in metrics:
        total += metric.value * metric.weight
        weights += metric.weight
    return total / weights if weights else None


@wire_name("wink:Score", "weakincentives.evals._score:Score")
@dataclass(frozen=True, slots=True, init=False)
class Score:
    """The verdict on one sample.

    >>> Score(metrics=[Metric("correct", 1, weight=3), Metric("brief", 0, weight=1)]).value
    0.75

    Without a `value` it is the weighted mean of the metrics (0.0 if none counts); without a
    `passed` it passes from `PASS_MARK` on. Rewards may be negative: any finite number is legal.
    """

    value: float
    passed: bool
    reason: str = ""
    metrics: tuple[Metric, ...] = ()
    criterion: str = ""

    def __init__(
        self,
        value: float | None = None,
        passed: bool | None = None,
        reason: str = "",
        metrics: Iterable[Metric] = (),
        criterion: str = "",
        *,
        rationale: str = "",
    ) -> None:
        if reason.__class__ is not str:
            reason = _text_or_empty(reason, "Score.reason")
        if rationale.__class__ is not str:
            rationale = _text_or_empty(rationale, "Score.rationale")
        if criterion.__class__ is not str:
            criterion = _text_or_empty(criterion, "Score.criterion")
        if rationale and reason and rationale != reason:
            raise UsageError("expected one of `reason` and `rationale`, got two that differ")
        if passed.__class__ not in (bool, NoneType):
            passed = _as_bool(passed)
        if metrics.__class__ is not tuple:
            metrics = tuple_of(Metric, metrics, "Score.metrics", "pass Metric(name, value)")
        for metric in metrics:
            if metric.__class__ is not Metric:
                raise UsageError(f"expected metrics in `Score.metrics`, got {short_repr(metric)}")
        is_explicit = value is not None
        value = finite(value if is_explicit else weighted_mean(metrics) or 0.0, "Score.value")
        _set(self, "value", value)
        _set(self, "passed", value >= PASS_MARK if passed is None else passed)
        _set(self, "reason", reason or rationale)
        _set(self, "metrics", metrics)
        _set(self, "criterion", criterion)
        if is_explicit and metrics:
            self.__post_init__()

    def __post_init__(self) -> None:
        mean = weighted_mean(self.metrics)
        if mean is not None and not math.isclose(self.value, mean, rel_tol=1e-9, abs_tol=1e-9):
            raise UsageError(
                f"expected `Score.value` to be {mean:g}, the weighted mean of its metrics, got "
                f"{self.value:g} - leave `value` out, or give the metrics weight 0"
            )

    @property
    def reward(self) -> float:
        """Return the value, under the name that trainers use."""
        return self.value

    @property
    def rationale(self) -> str:
        """Return the reason, under its other name."""
        return self.reason

    @property
    def parts(self) -> tuple[Score, ...]:
        """Return one score for each criterion below this one; empty if there is none.

        They are made of the metrics that count and of those that carry a verdict (`passed` in
        their metadata), as `all_of` and `any_of` make them.
        """
        return tuple(part_of(metric) for metric in self.metrics if is_criterion(metric))


def part_of(metric: Metric) -> Score:
    """Return the metric of a criterion as the score that it was."""
    # Metadata may hold anything: only a bool is a verdict, only text a reason.
    passed, reason = metric.metadata.get("passed"), metric.metadata.get("reason")
    return Score(
        metric.value,
        passed if passed.__class__ is bool else None,
        reason if isinstance(reason, str) else "",
        criterion=metric.name,
    )


# ── context and request ───────────────────────────────────────────────────────────────────────

# Shared by all contexts without a sample or a trajectory.
NO_SAMPLE: Sample[Any, Any] = Sample("", None)
NO_TRAJECTORY: Trajectory[Any] = Trajectory(metadata=MappingProxyType({}))


@fast_init
@frozen_generic
@dataclass(frozen=True, slots=True)
class EvalContext(Generic[InputT, OutputT, ExpectedT]):
    """Everything that an evaluator may look at: an evaluator is a function of it.

    >>> def brief(context: EvalContext[str, str, str]) -> Score:
    ...     return Score(len(context.output) < 20, reason=f"{len(context.output)} characters")

    The types of input, output and expected output may be left out. A new fact goes here, never into
    a signature.
    """

    adapter: Any = None
    session: SessionView | None = None
    run_id: str = ""
    sample: Sample[InputT, ExpectedT] = NO_SAMPLE
    trajectory: Trajectory[OutputT] = NO_TRAJECTORY

    @property
    def input(self) -> InputT:
        """Return the input of the sample."""
        return self.sample.input

    @property
    def output(self) -> OutputT:
        """Return the output of the agent."""
        return self.trajectory.output

    @property
    def expected(self) -> ExpectedT:
        """Return the expected output of the sample."""
        return self.sample.expected


@wire_name("wink:EvalRequest", "weakincentives.evals._types:EvalRequest")
@frozen_generic
@dataclass(frozen=True, slots=True)
class EvalRequest(Generic[InputT, ExpectedT]):
    """A request to evaluate one sample, as it is sent through a mailbox.

    A worker of another version than `expect` (`WorkerVersion`, as text) returns it to the queue.
    `request_number` counts the requests of a run in the order of its dataset, from 1; 0 is unknown.
    """

    sample: Sample[InputT, ExpectedT]
    experiment: Experiment = BASELINE
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run_id: str = ""
    epoch: int = 1
    expect: str = ""
    request_number: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.sample, Sample):
            raise UsageError(f"expected a `Sample` to evaluate, got {short_repr(self.sample)}")
        if not isinstance(self.experiment, Experiment):
            raise UsageError(f"expected an `Experiment`, got {short_repr(self.experiment)}")
        plain_texts(self, "run_id", "expect")
        check_whole(self.epoch, 1, "EvalRequest.epoch")
        check_whole(self.request_number, 0, "EvalRequest.request_number")


set_public_module("weakincentives.evals", globals(), __all__)
