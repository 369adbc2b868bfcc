"""The values of an eval: metric, score, sample, dataset, context, request, and `EvalConfig`.

All are frozen and slotted, validate themselves at construction, and go to JSON and back by
`weakincentives.serde`. A decoder fills the fields and calls `__post_init__`, so what it cannot
check by itself is checked there; `__init__` adds the other spellings. Every number is finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload
from uuid import UUID, uuid4

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..eval_config import EvalConfig, clustered_by, config_of, endpoint_label, stops_early
from ..experiment import BASELINE, Experiment
from ..internal.atomic_write import write_whole
from ..internal.checks import check_whole, finite, plain_mapping, plain_text, plain_texts, tuple_of
from ..internal.frozen import fast_init, frozen_generic
from ..internal.garbage import collector_paused
from ..internal.public_module import set_public_module
from ..internal.typevars import ExpectedT, InputT
from ..internal.wire_names import wire_name
from ..rollouts import Trajectory
from ..runtime.session import SessionView

if TYPE_CHECKING:
    from .datasets.reader import ReadOptions

__all__ = ["PASS_MARK", "Dataset", "EvalConfig", "EvalContext", "EvalRequest"]
__all__ += ["Metric", "Sample", "Score"]
__all__ += ["clustered_by", "config_of", "endpoint_label", "stops_early"]  # of `eval_config`

_set = object.__setattr__
# Of a static method: in one, pyright takes the type variables of the class for unknown types.
_InputT = TypeVar("_InputT")
_ExpectedT = TypeVar("_ExpectedT")


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


# ── samples and datasets ────────────────────────────────────────────────────────────────────────


@wire_name("wink:Sample", "weakincentives.evals._types:Sample")
@frozen_generic
@dataclass(frozen=True, slots=True, init=False)
class Sample(Generic[InputT, ExpectedT]):
    """One case: an input and the expected output, which is also called `ground_truth`."""

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
        if id.__class__ is not str:  # a decoder checks that by itself
            if not isinstance(id, str | Enum):
                raise UsageError(
                    f"expected a `str` for `Sample.id`, got `{type(id).__name__}` - "
                    "str(...) makes one"
                )
            id = plain_text(id, "Sample.id")
        if expected is not None and ground_truth is not None:
            raise UsageError(f"expected one of `expected` and `ground_truth`, got both ({id!r})")
        _set(self, "id", id)
        _set(self, "input", input)
        _set(self, "expected", ground_truth if expected is None else expected)
        _set(
            self, "metadata", plain_mapping({} if metadata is None else metadata, "Sample.metadata")
        )

    @property
    def ground_truth(self) -> ExpectedT:
        """Return the expected output, under its other name."""
        return self.expected


_ATOMS = frozenset({str, int, float, bool, bytes, complex, type(None), datetime, UUID})


def private_copy(sample: Sample[InputT, ExpectedT]) -> Sample[InputT, ExpectedT]:
    """Return a copy of the sample that shares nothing mutable with it.

    An immutable sample is returned as it is; so is one that Python cannot copy.
    """
    parts = (sample.input, sample.expected, *sample.metadata.values())
    if all(map(_is_immutable, parts)):
        return sample
    try:
        input, expected, metadata = deepcopy((sample.input, sample.expected, sample.metadata))
    except Exception:
        return sample
    return Sample(sample.id, input, expected, metadata)


def _is_immutable(value: object) -> bool:
    cls = value.__class__
    if cls in _ATOMS:
        return True
    if cls is tuple or cls is frozenset:
        return all(map(_is_immutable, cast(Iterable[object], value)))
    frozen: bool = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    return frozen and all(_is_immutable(getattr(value, f.name)) for f in fields(cast(Any, value)))


@wire_name("wink:Dataset", "weakincentives.evals._types:Dataset")
@frozen_generic
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Dataset(Generic[InputT, ExpectedT]):
    """An immutable collection of samples with unique ids.

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
        if isinstance(samples, str | Path) or not isinstance(samples, Iterable):
            raise UsageError(
                f"expected samples, got {short_repr(samples)} - put them into a list; "
                "a file is read by Dataset.load(path, str, str)"
            )
        _set(self, "samples", tuple(samples))
        _set(self, "name", name)
        _set(self, "version", version)
        self.__post_init__()

    def __post_init__(self) -> None:
        ids = {sample.id for sample in self.samples if sample.__class__ is Sample}
        if len(ids) == len(self.samples) and "" not in ids and "\0" not in "".join(ids):
            return
        first: dict[str, int] = {}
        for index, sample in enumerate(self.samples):
            if not isinstance(sample, Sample):
                raise UsageError(
                    f"expected a `Sample`, got `{type(sample).__name__}` - at `samples[{index}]`"
                    + (" - make it one: Sample(**row)" if isinstance(sample, dict) else "")
                )
            if not sample.id or "\0" in sample.id:
                raise UsageError(
                    f"expected a non-empty id without NUL, got {sample.id!r} - "
                    f"at `samples[{index}]`"
                )
            if first.setdefault(sample.id, index) != index:
                raise UsageError(
                    f"expected every sample id once, got {sample.id!r} twice - "
                    f"at `samples[{first[sample.id]}]` and `samples[{index}]`"
                )

    def __repr__(self) -> str:
        samples = "1 sample" if len(self) == 1 else f"{len(self):,} samples"
        return f"<Dataset {self.name or 'unnamed'}: {samples}>"

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample[InputT, ExpectedT]]:
        return iter(self.samples)

    @overload
    def __getitem__(self, index: int | str) -> Sample[InputT, ExpectedT]: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset[InputT, ExpectedT]: ...
    def __getitem__(
        self, index: int | str | slice
    ) -> Sample[InputT, ExpectedT] | Dataset[InputT, ExpectedT]:
        """Return a sample by position or id; for a slice, a smaller dataset of the same name."""
        if isinstance(index, slice):
            return self._with_samples(self.samples[index])
        if isinstance(index, str):
            for sample in self.samples:
                if sample.id == index:
                    return sample
            raise KeyError(f"no sample has the id {index!r}")
        return self.samples[index]

    def _with_samples(
        self, samples: tuple[Sample[InputT, ExpectedT], ...]
    ) -> Dataset[InputT, ExpectedT]:
        """Return a copy with other samples, of the same class and with the same attributes."""
        part: Dataset[InputT, ExpectedT] = object.__new__(type(self))
        for name, value in getattr(self, "__dict__", {}).items():  # a subclass has one
            _set(part, name, value)
        for each in fields(self):
            _set(part, each.name, getattr(self, each.name))
        _set(part, "samples", samples)
        return part

    @property
    def digest(self) -> str:
        """Return the content hash: equal samples in equal order have equal digests everywhere."""
        content = sha256()
        for sample in self.samples:
            content.update(sample_line(sample, sort=True))
        return content.hexdigest()

    @overload
    @staticmethod
    def load(
        path: Path | str,
        input_type: type[_InputT],
        expected_type: type[_ExpectedT],
        **options: Unpack[ReadOptions],
    ) -> Dataset[_InputT, _ExpectedT]: ...
    @overload
    @staticmethod
    def load(
        path: Path | str,
        input_type: Any = ...,
        expected_type: Any = ...,
        **options: Unpack[ReadOptions],
    ) -> Dataset[Any, Any]: ...
    @staticmethod
    def load(
        path: Path | str,
        input_type: Any = Any,
        expected_type: Any = Any,
        **options: Unpack[ReadOptions],
    ) -> Dataset[Any, Any]:
        """Load samples from a file, typed: `Dataset.load("qa.jsonl", QAInput, str)`.

        The suffix says the format (`.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet`, `.yaml`, also
        `.gz` and `.zst`). `input="question"`, `expected="answer"` and `id="nr"` name columns that
        have other names. Every defect is a `DatasetError` that names file, line and field.
        """
        sample_type = Sample[input_type, expected_type]
        from .datasets.reader import admits_none, dataset_header, read_samples

        required = not admits_none(expected_type)
        with collector_paused():
            samples = tuple(read_samples(path, sample_type, expected_required=required, **options))
        return Dataset(samples, *dataset_header(path))

    def save(self, path: Path | str) -> None:
        """Write the samples as JSONL, one a line; `Dataset.load` reads them back.

        The file appears whole or not at all. Name and version are not part of it.
        """
        path = Path(path)
        if path.suffix not in (".jsonl", ".ndjson"):
            raise UsageError(f"expected a file that ends in .jsonl, got `{path.name}`")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, map(sample_line, self.samples))


def sample_line(sample: Sample[Any, Any], *, sort: bool = False) -> bytes:
    try:
        return serde.encode(sample, sort=sort) + b"\n"
    except SerializationError as error:
        raise SerializationError(f"{error} (sample {sample.id!r})") from None


# Shared by all contexts without a sample or a trajectory.
NO_SAMPLE: Sample[Any, Any] = Sample("", None)
NO_TRAJECTORY: Trajectory[Any] = Trajectory(metadata=MappingProxyType({}))


@fast_init
@dataclass(frozen=True, slots=True)
class EvalContext:
    """Everything that an evaluator may look at; a new fact goes here, never into a signature."""

    adapter: Any = None
    session: SessionView | None = None
    run_id: str = ""
    sample: Sample[Any, Any] = NO_SAMPLE
    trajectory: Trajectory[Any] = NO_TRAJECTORY


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
