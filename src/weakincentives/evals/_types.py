"""The values of an eval: metric, score, config, sample, dataset, context, request.

All are frozen and slotted, validate themselves at construction, and go to JSON and back by
`weakincentives.serde`. A decoder fills the fields and calls `__post_init__`, so what it cannot
check by itself is checked there; `__init__` adds the other spellings. Every number is finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType, NoneType
from typing import Any, Generic, Literal
from uuid import UUID, uuid4

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..experiment import BASELINE, Experiment
from ..internal.checks import (
    check_whole,
    checked_options,
    finite,
    plain_mapping,
    plain_text,
    plain_texts,
    tuple_of,
)
from ..internal.frozen import fast_init, frozen_generic
from ..internal.names import display_name
from ..internal.public_module import set_public_module
from ..internal.typevars import ExpectedT, InputT, OutputT
from ..internal.wire_names import wire_name
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._samples import Dataset, Sample

__all__ = ["PASS_MARK", "Dataset", "EvalConfig", "EvalContext", "EvalRequest"]
__all__ += ["Metric", "Sample", "Score"]

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


# ── configuration ───────────────────────────────────────────────────────────────────────────────


def endpoint_label(endpoint: Any) -> str:
    """Return a label for an endpoint: the name of its model or function, never a key."""
    if isinstance(endpoint, str):
        return endpoint
    model, provider = getattr(endpoint, "model", None), getattr(endpoint, "name", None)
    if isinstance(model, str):
        return f"{provider}/{model}" if isinstance(provider, str) else str(endpoint)
    return display_name(endpoint)


DEFAULT_CONCURRENCY = 8
"""How many samples run at the same time unless a configuration says otherwise."""


@dataclass(frozen=True, slots=True, init=False)
class EvalConfig:
    """How a run is carried out.

    `timeout` is how many seconds a sample may take, its evaluators included. The default is None:
    no timeout, since it would throw away what a slow agent has done; a sample that runs unusually
    long is logged as a warning. It can also be given and read in milliseconds:
    `timeout_per_sample_ms`, which wins over `timeout`.

    `endpoint` is the model for `evaluate`: a name (`"openai/gpt-4o"`), an `Endpoint`, an adapter,
    or an async function of messages. The `max_total_...` are budgets for the whole run: once one is
    used up, no further sample is started, and the run can be resumed.

    `stop_at_width` stops a run once the interval of its pass rate is at most that wide (0.1 is ten
    points). `stop_against` stops it once the rate is shown to be above or below that one: the rate
    of this dataset, or of all samples like it (`decide_for="population"`). `against`, a run in the
    store, stops it once it is shown to be better or worse than that run. Then the samples of a
    dataset are run in a random order, from `seed`: see docs/statistics.md.

    `choose_by` are runs in the store: `max_samples` samples are drawn, by strata of their pass
    rates in those runs, and the pass rate of the whole dataset is estimated from them.

    `cluster_by` is a key of the samples' metadata. Samples with the same value, such as questions
    about one document, are not independent: the interval of the pass rate takes that into account.

    `config["max_concurrent"]` reads a field too, as it does on a stored report's configuration.
    """

    max_concurrent: int = DEFAULT_CONCURRENCY
    timeout: float | None = None
    max_retries: int = 0
    stop_on_error: bool = False
    max_samples: int | None = None
    epochs: int = 1
    experiment_name: str = BASELINE.name
    seed: int = 0
    endpoint: Any = None
    max_total_tokens: int | None = None
    max_total_cost: float | None = None
    max_total_seconds: float | None = None
    stop_at_width: float | None = None
    stop_against: float | None = None
    cluster_by: str | None = None
    decide_for: Literal["dataset", "population"] = "dataset"
    against: str | None = None
    choose_by: tuple[str, ...] = ()

    @checked_options
    def __init__(
        self,
        max_concurrent: int = DEFAULT_CONCURRENCY,
        *,
        timeout: float | None = None,
        max_retries: int = 0,
        stop_on_error: bool = False,
        max_samples: int | None = None,
        epochs: int = 1,
        experiment_name: str = BASELINE.name,
        seed: int = 0,
        endpoint: Any = None,
        max_total_tokens: int | None = None,
        max_total_cost: float | None = None,
        max_total_seconds: float | None = None,
        stop_at_width: float | None = None,
        stop_against: float | None = None,
        cluster_by: str | None = None,
        decide_for: Literal["dataset", "population"] = "dataset",
        against: str | None = None,
        choose_by: tuple[str, ...] = (),
        timeout_per_sample_ms: int | None = _NOT_GIVEN,
    ) -> None:
        values = dict(locals())
        if timeout_per_sample_ms is not _NOT_GIVEN:
            if timeout_per_sample_ms is not None:
                check_whole(timeout_per_sample_ms, 1, "EvalConfig.timeout_per_sample_ms")
            values["timeout"] = _seconds(timeout_per_sample_ms)
        for name in self.__slots__:
            _set(self, name, values[name])
        self.__post_init__()

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                check_whole(value, minimum, f"EvalConfig.{name}")
        for name in ("timeout", "max_total_cost", "max_total_seconds"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise UsageError(
                    f"expected a number > 0 for `EvalConfig.{name}`, got {short_repr(limit)}"
                )
        for name in ("stop_at_width", "stop_against"):
            share = getattr(self, name)
            if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
                raise UsageError(
                    f"expected a share above 0, at most 1, for `EvalConfig.{name}`, got "
                    f"{short_repr(share)}"
                )
        if self.decide_for not in _DECIDE_FOR:
            raise UsageError(
                f"expected one of {', '.join(_DECIDE_FOR)} for `EvalConfig.decide_for`, got "
                f"{short_repr(self.decide_for)}"
            )
        _set(
            self, "choose_by", tuple_of(str, self.choose_by, "EvalConfig.choose_by", "give a tuple")
        )
        if self.choose_by and stops_early(self):
            raise UsageError("expected `EvalConfig.choose_by` or a rule to stop early, got both")
        if self.against is not None and (self.stop_at_width or self.stop_against):
            raise UsageError(
                "expected one rule to stop early, got `EvalConfig.against` and another one"
            )
        for name, (kind, words) in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                given = short_repr(getattr(self, name))
                raise UsageError(f"expected {words} for `EvalConfig.{name}`, got {given}")
        if self.cluster_by is not None:
            if not isinstance(self.cluster_by, str) or not self.cluster_by:
                raise UsageError(
                    "expected a key of the metadata for `EvalConfig.cluster_by`, got "
                    f"{short_repr(self.cluster_by)}"
                )
            if stops_early(self):
                raise UsageError(
                    "expected `EvalConfig.cluster_by` or a rule to stop early, got both - "
                    "stopping early takes samples that are independent"
                )

    @property
    def timeout_per_sample_ms(self) -> int | None:
        """Return the timeout in milliseconds."""
        return None if self.timeout is None else max(1, round(self.timeout * 1000))

    def stored(self) -> EvalConfig:
        """Return the config as plain data: with a label for its endpoint."""
        if self.endpoint is None or isinstance(self.endpoint, str):
            return self
        return replace(self, endpoint=endpoint_label(self.endpoint))

    def __iter__(self) -> Iterator[str]:
        return iter(self.__slots__)

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__ and name != _MILLISECONDS:
            raise KeyError(f"expected one of {', '.join(self)}, got {name!r}")
        return getattr(self, name)


_MILLISECONDS = "timeout_per_sample_ms"
_MINIMUMS = {
    "max_concurrent": 1,
    "max_retries": 0,
    "max_samples": 0,
    "epochs": 1,
    "seed": 0,
    "max_total_tokens": 1,
}
_OPTIONAL = {"max_samples", "max_total_tokens"}
_STOPPING_RULES = ("stop_at_width", "stop_against", "against")
_DECIDE_FOR = ("dataset", "population")
_KINDS: Mapping[str, tuple[Any, str]] = {
    "stop_on_error": (bool, "a bool"),
    "experiment_name": (str, "a `str`"),
    "against": (str | None, "the id of a run"),
}
_V1_FIELDS = {"max_concurrent", "timeout", "max_retries", "stop_on_error"}


def _seconds(milliseconds: Any) -> Any:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if is_number else milliseconds


def stops_early(config: EvalConfig | Mapping[str, Any]) -> bool:
    """Return whether a configuration, or the stored form of one, has an early-stopping rule."""
    return any(name in config and config[name] is not None for name in _STOPPING_RULES)


def clustered_by(config: EvalConfig | Mapping[str, Any]) -> str | None:
    """Return the `cluster_by` of a configuration, or of the stored form of one."""
    if "cluster_by" not in config:
        return None
    key: str | None = config["cluster_by"]
    return key


def config_of(mapping: Any) -> EvalConfig | dict[str, Any]:
    """Return a mapping with the fields of an `EvalConfig` as one; any other as it is."""
    if not isinstance(mapping, Mapping):
        raise UsageError(
            f"expected an `EvalConfig` or a mapping for `config`, got {short_repr(mapping)}"
        )
    fields = dict(mapping)
    if _MILLISECONDS in fields:  # written by an earlier version
        fields.setdefault("timeout", _seconds(fields.pop(_MILLISECONDS)))
    # The first four are always there; a file of an earlier version may lack the others.
    if _V1_FIELDS <= set(fields) <= set(EvalConfig.__slots__):
        if fields.get("stop_against") is not None:
            fields.setdefault("decide_for", "population")  # as in all runs of earlier versions
        try:
            return serde.convert(fields, EvalConfig)
        except SerializationError as error:
            raise UsageError(f"expected a usable configuration: {error}") from None
    return dict(mapping)


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
    """

    sample: Sample[InputT, ExpectedT]
    experiment: Experiment = BASELINE
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run_id: str = ""
    epoch: int = 1
    expect: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.sample, Sample):
            raise UsageError(f"expected a `Sample` to evaluate, got {short_repr(self.sample)}")
        if not isinstance(self.experiment, Experiment):
            raise UsageError(f"expected an `Experiment`, got {short_repr(self.experiment)}")
        plain_texts(self, "run_id", "expect")
        check_whole(self.epoch, 1, "EvalRequest.epoch")


set_public_module("weakincentives.evals", globals(), __all__)
set_public_module("weakincentives.evals.engine", globals(), ("clustered_by", "stops_early"))
