"""A verdict in numbers: metrics, and the score that they make.

Every number is finite, from construction on. A decoder fills the fields and calls
`__post_init__`; `Score.__init__` adds what may be left out, and the other spellings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from .._checks import plain_mapping
from ..errors import UsageError, shown

__all__ = ["PASS_MARK", "Metric", "Score", "finite", "is_part", "metric_of"]

PASS_MARK = 0.5
"""A score with no verdict of its own passes from this value on."""

_set = object.__setattr__


def finite(value: Any, what: str) -> float:
    """The value as a float; NaN, infinity and what is no number are refused."""
    if value.__class__ is float and math.isfinite(value):
        return value
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"expected a finite number for `{what}`, got {shown(value)}")
    return number


@dataclass(frozen=True, slots=True)
class Metric:
    """One named number. With weight 0 it is only tracked; above 0 it counts in the score."""

    name: str
    value: float
    weight: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"expected a non-empty `Metric.name`, got {self.name!r}")
        _set(self, "value", finite(self.value, "Metric.value"))
        _set(self, "weight", finite(self.weight, "Metric.weight"))
        _set(self, "metadata", plain_mapping(self.metadata, "Metric.metadata"))
        if self.weight < 0:
            raise UsageError(
                f"expected `Metric.weight` >= 0, got {self.weight} for {self.name!r} - "
                "a penalty is a negative value, not a negative weight"
            )


_slots = [vars(Metric)[name].__set__ for name in ("name", "value", "weight", "metadata")]
_set_name, _set_value, _set_weight, _set_metadata = _slots


def metric_of(name: str, value: float, weight: float, metadata: Mapping[str, Any]) -> Metric:
    """A metric out of values that a score has checked: several a sample, so the quick way."""
    metric = object.__new__(Metric)
    _set_name(metric, name)
    _set_value(metric, value)
    _set_weight(metric, weight)
    _set_metadata(metric, metadata)
    return metric


def _as_bool(passed: Any) -> bool:
    """What is neither bool nor None: NumPy's bool is fine, the text "false" is not."""
    if isinstance(passed, (str, bytes)) or passed not in (True, False):
        raise UsageError(f"expected a bool for `Score.passed`, got {shown(passed)}")
    return bool(passed)


def is_part(metric: Metric) -> bool:
    """True for the metric of a criterion: it counts, or it carries a verdict of its own."""
    return metric.weight > 0 or isinstance(metric.metadata.get("passed"), bool)


def weighted_mean(metrics: Iterable[Metric]) -> float | None:
    """The mean of the metrics that count, by weight; None where none counts."""
    total = weights = 0.0
    for metric in metrics:
        total += metric.value * metric.weight
        weights += metric.weight
    return total / weights if weights else None


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
        if rationale and reason and rationale != reason:
            raise UsageError("expected one of `reason` and `rationale`, got two that differ")
        if passed.__class__ not in (bool, NoneType):
            passed = _as_bool(passed)
        metrics = tuple(metrics)
        for metric in metrics:
            if metric.__class__ is not Metric:
                raise UsageError(f"expected metrics in `Score.metrics`, got {shown(metric)}")
        given = value is not None
        value = finite(value if given else weighted_mean(metrics) or 0.0, "Score.value")
        _set(self, "value", value)
        _set(self, "passed", value >= PASS_MARK if passed is None else passed)
        _set(self, "reason", reason or rationale)
        _set(self, "metrics", metrics)
        _set(self, "criterion", criterion)
        if given and metrics:
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
        """The value, as a trainer calls it."""
        return self.value

    @property
    def rationale(self) -> str:
        """The reason, by its other name."""
        return self.reason

    @property
    def parts(self) -> tuple[Score, ...]:
        """One score for each criterion below this one; empty where it stands alone.

        They are made of the metrics that count and of those that carry a verdict (`passed` in
        their metadata), as `all_of` and `any_of` leave them.
        """
        return tuple(
            Score(
                metric.value,
                metric.metadata.get("passed"),
                metric.metadata.get("reason", ""),
                criterion=metric.name,
            )
            for metric in self.metrics
            if is_part(metric)
        )
