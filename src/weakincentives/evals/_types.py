"""The nouns of an eval: metric, score, sample, dataset, context, request, config.

All are frozen and slotted, check themselves at construction, and go to JSON and back by
`weakincentives.serde`. A decoder fills the fields and calls `__post_init__`, so whatever must
hold for every value is checked there; `__init__` only adds the other spellings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, cast, overload
from uuid import UUID, uuid4

from .. import serde
from .._typevars import ExpectedT, InputT
from ..errors import UsageError
from ..experiment import BASELINE, Experiment
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._reading import admits_none, collector_paused, dataset_name, read_samples

__all__ = [
    "PASS_MARK",
    "Dataset",
    "EvalConfig",
    "EvalContext",
    "EvalRequest",
    "Metric",
    "Sample",
    "Score",
]

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
        raise UsageError(f"expected a finite number for `{what}`, got {value!r}")
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


def is_part(metric: Metric) -> bool:
    """True for the metric of a criterion: it counts, or it carries a verdict of its own."""
    return metric.weight > 0 or "passed" in metric.metadata


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
        metrics = tuple(metrics)
        given = value is not None
        value = finite(value, "Score.value") if given else weighted_mean(metrics) or 0.0
        _set(self, "value", value)
        _set(self, "passed", value >= PASS_MARK if passed is None else bool(passed))
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


@dataclass(frozen=True, slots=True, init=False)
class Sample(Generic[InputT, ExpectedT]):
    """One case: an input and what to expect of it, which is `ground_truth` by another name."""

    id: str
    input: InputT
    expected: ExpectedT = cast(Any, None)
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __init__(
        self,
        id: str,
        input: InputT,
        expected: ExpectedT = cast(Any, None),
        metadata: Mapping[str, Any] | None = None,
        *,
        ground_truth: ExpectedT = cast(Any, None),
    ) -> None:
        if id.__class__ is not str:  # a decoder has seen to that by itself
            raise UsageError(f"expected a `str` for `Sample.id`, got `{type(id).__name__}`")
        if expected is not None and ground_truth is not None:
            raise UsageError(f"expected one of `expected` and `ground_truth`, got both ({id!r})")
        _set(self, "id", id)
        _set(self, "input", input)
        _set(self, "expected", ground_truth if expected is None else expected)
        _set(self, "metadata", {} if metadata is None else metadata)

    @property
    def ground_truth(self) -> ExpectedT:
        """What to expect, by its other name."""
        return self.expected


@dataclass(frozen=True, slots=True, init=False)
class Dataset(Generic[InputT, ExpectedT]):
    """An immutable collection of samples, each with an id of its own.

    >>> dataset = Dataset([Sample("1", "What is 2+2?", "4")], name="sums")
    >>> len(dataset), dataset[0].expected
    (1, '4')
    """

    samples: tuple[Sample[InputT, ExpectedT], ...]
    name: str = ""
    version: str = "1.0"

    def __init__(
        self,
        samples: Iterable[Sample[InputT, ExpectedT]],
        name: str = "",
        version: str = "1.0",
    ) -> None:
        _set(self, "samples", tuple(samples))
        _set(self, "name", name)
        _set(self, "version", version)
        self.__post_init__()

    def __post_init__(self) -> None:
        ids = {sample.id for sample in self.samples if sample.__class__ is Sample}
        if len(ids) == len(self.samples):
            return
        first: dict[str, int] = {}
        for index, sample in enumerate(self.samples):
            if not isinstance(sample, Sample):
                raise UsageError(
                    f"expected a `Sample`, got `{type(sample).__name__}` - at `samples[{index}]`"
                )
            if first.setdefault(sample.id, index) != index:
                raise UsageError(
                    f"expected every sample id once, got {sample.id!r} twice - "
                    f"at `samples[{first[sample.id]}]` and `samples[{index}]`"
                )

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample[InputT, ExpectedT]]:
        return iter(self.samples)

    @overload
    def __getitem__(self, index: int) -> Sample[InputT, ExpectedT]: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset[InputT, ExpectedT]: ...
    def __getitem__(
        self, index: int | slice
    ) -> Sample[InputT, ExpectedT] | Dataset[InputT, ExpectedT]:
        """One sample, or for a slice a smaller dataset of the same name and version."""
        if isinstance(index, slice):
            return Dataset(self.samples[index], self.name, self.version)
        return self.samples[index]

    @property
    def digest(self) -> str:
        """The content hash: equal samples in equal order, equal digest, on every machine."""
        content = sha256()
        for sample in self.samples:
            content.update(serde.encode(sample, sort=True))
            content.update(b"\n")
        return content.hexdigest()

    @overload
    @staticmethod
    def load(
        path: Path | str, input_type: type[InputT], expected_type: type[ExpectedT]
    ) -> Dataset[InputT, ExpectedT]: ...
    @overload
    @staticmethod
    def load(path: Path | str, input_type: Any, expected_type: Any) -> Dataset[Any, Any]: ...
    @staticmethod
    def load(path: Path | str, input_type: Any, expected_type: Any) -> Dataset[Any, Any]:
        """Samples from a file, typed: `Dataset.load("qa.jsonl", QAInput, str)`.

        The suffix says the format (`.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet`, also `.gz` and
        `.zst`). Every defect is a `DatasetError` that names file, line and field.
        """
        sample_type = Sample[input_type, expected_type]
        required = not admits_none(expected_type)
        with collector_paused():
            samples = tuple(read_samples(path, sample_type, expected_required=required))
        return Dataset(samples, name=dataset_name(path))

    def save(self, path: Path | str) -> None:
        """Write the samples as JSONL, one a line; `Dataset.load` reads them back."""
        with Path(path).open("wb") as file:
            file.writelines(serde.encode(sample) + b"\n" for sample in self.samples)


NO_SAMPLE: Sample[Any, Any] = Sample("", None)
NO_TRAJECTORY: Trajectory[Any] = Trajectory()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalContext:
    """Everything that an evaluator may look at; a new fact goes here, never into a signature."""

    sample: Sample[Any, Any] = NO_SAMPLE
    trajectory: Trajectory[Any] = NO_TRAJECTORY
    session: SessionView | None = None
    adapter: Any = None
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class EvalRequest(Generic[InputT, ExpectedT]):
    """A wish to have one sample evaluated, as it travels through a mailbox."""

    sample: Sample[InputT, ExpectedT]
    experiment: Experiment = BASELINE
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run_id: str = ""
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """How a run is carried out. It holds no callables and no secrets, so it can be stored.

    `config["max_concurrent"]` reads a field too, as it does on a stored report's configuration.
    """

    max_concurrent: int = 1
    timeout_per_sample_ms: int | None = 30_000
    max_retries: int = 0
    stop_on_error: bool = False
    max_samples: int | None = None
    epochs: int = 1
    experiment_name: str = BASELINE.name
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(
                    f"expected a whole number >= {least} for `EvalConfig.{name}`, got {value!r}"
                )

    def __getitem__(self, name: str) -> Any:
        if name not in (known := [f.name for f in fields(self)]):
            raise KeyError(f"expected one of {', '.join(known)}, got {name!r}")
        return getattr(self, name)


_LEAST = {
    "max_concurrent": 1,
    "timeout_per_sample_ms": 1,
    "max_retries": 0,
    "max_samples": 0,
    "epochs": 1,
}
_OPTIONAL = {"timeout_per_sample_ms", "max_samples"}
