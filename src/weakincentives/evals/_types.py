"""The nouns of an eval: sample, dataset, context, request. (Scores: `_score.py`; `_config.py`.)

All are frozen and slotted, check themselves at construction, and go to JSON and back by
`weakincentives.serde`. A decoder fills the fields and calls `__post_init__`, so what it cannot
see to by itself is checked there; `__init__` adds the other spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Unpack, cast, overload
from uuid import UUID, uuid4

from .. import serde
from .._checks import plain_mapping
from .._frozen import truly_frozen
from .._typevars import ExpectedT, InputT
from ..errors import SerializationError, UsageError, shown
from ..experiment import BASELINE, Experiment
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._config import EvalConfig, check_whole
from ._files import write_whole
from ._reading import Limits, admits_none, collector_paused, dataset_header, read_samples
from ._score import PASS_MARK, Metric, Score

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

_set = object.__setattr__


@truly_frozen
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
        if not isinstance(id, str):  # a decoder has seen to that by itself
            raise UsageError(
                f"expected a `str` for `Sample.id`, got `{type(id).__name__}` - str(...) makes one"
            )
        if expected is not None and ground_truth is not None:
            raise UsageError(f"expected one of `expected` and `ground_truth`, got both ({id!r})")
        _set(self, "id", str(id))
        _set(self, "input", input)
        _set(self, "expected", ground_truth if expected is None else expected)
        _set(self, "metadata", plain_mapping(metadata or {}, "Sample.metadata"))

    @property
    def ground_truth(self) -> ExpectedT:
        """What to expect, by its other name."""
        return self.expected


@truly_frozen
@dataclass(frozen=True, slots=True, init=False, repr=False)
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
        if isinstance(samples, str | Path) or not isinstance(samples, Iterable):
            raise UsageError(
                f"expected samples, got {shown(samples)} - put them into a list; "
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
        """A sample by place or by id; for a slice, a smaller dataset of the same name."""
        if isinstance(index, slice):
            return Dataset(self.samples[index], self.name, self.version)
        if isinstance(index, str):
            for sample in self.samples:
                if sample.id == index:
                    return sample
            raise KeyError(f"no sample has the id {index!r}")
        return self.samples[index]

    @property
    def digest(self) -> str:
        """The content hash: equal samples in equal order, equal digest, on every machine."""
        content = sha256()
        for sample in self.samples:
            content.update(_line(sample, sort=True))
        return content.hexdigest()

    @overload
    @staticmethod
    def load(
        path: Path | str,
        input_type: type[InputT],
        expected_type: type[ExpectedT],
        **limits: Unpack[Limits],
    ) -> Dataset[InputT, ExpectedT]: ...
    @overload
    @staticmethod
    def load(
        path: Path | str, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
    ) -> Dataset[Any, Any]: ...
    @staticmethod
    def load(
        path: Path | str, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
    ) -> Dataset[Any, Any]:
        """Samples from a file, typed: `Dataset.load("qa.jsonl", QAInput, str)`.

        The suffix says the format (`.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet`, also `.gz` and
        `.zst`). Every defect is a `DatasetError` that names file, line and field.
        """
        sample_type = Sample[input_type, expected_type]
        required = not admits_none(expected_type)
        with collector_paused():
            samples = tuple(read_samples(path, sample_type, expected_required=required, **limits))
        return Dataset(samples, *dataset_header(path))

    def save(self, path: Path | str) -> None:
        """Write the samples as JSONL, one a line; `Dataset.load` reads them back.

        The file appears whole or not at all. Name and version are not part of it.
        """
        path = Path(path)
        if path.suffix not in (".jsonl", ".ndjson"):
            raise UsageError(f"expected a file that ends in .jsonl, got `{path.name}`")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, map(_line, self.samples))


def _line(sample: Sample[Any, Any], *, sort: bool = False) -> bytes:
    try:
        return serde.encode(sample, sort=sort) + b"\n"
    except SerializationError as error:
        raise SerializationError(f"{error} (sample {sample.id!r})") from None


# Shared by every context that has none of its own.
NO_SAMPLE: Sample[Any, Any] = Sample("", None)
NO_TRAJECTORY: Trajectory[Any] = Trajectory(metadata=MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalContext:
    """Everything that an evaluator may look at; a new fact goes here, never into a signature."""

    sample: Sample[Any, Any] = NO_SAMPLE
    trajectory: Trajectory[Any] = NO_TRAJECTORY
    session: SessionView | None = None
    adapter: Any = None
    run_id: str = ""


@truly_frozen
@dataclass(frozen=True, slots=True)
class EvalRequest(Generic[InputT, ExpectedT]):
    """A wish to have one sample evaluated, as it travels through a mailbox."""

    sample: Sample[InputT, ExpectedT]
    experiment: Experiment = BASELINE
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run_id: str = ""
    epoch: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.sample, Sample):
            raise UsageError(f"expected a `Sample` to evaluate, got {shown(self.sample)}")
        if not isinstance(self.experiment, Experiment):
            raise UsageError(f"expected an `Experiment`, got {shown(self.experiment)}")
        check_whole(self.epoch, 1, "EvalRequest.epoch")
