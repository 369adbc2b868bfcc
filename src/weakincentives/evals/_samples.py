"""Samples and datasets: one case and its expected output, and an immutable collection of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload
from uuid import UUID

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..internal.atomic_write import write_whole
from ..internal.checks import plain_mapping, plain_text
from ..internal.frozen import frozen_generic
from ..internal.garbage import collector_paused
from ..internal.public_module import set_public_module
from ..internal.typevars import ExpectedT, InputT
from ..internal.wire_names import wire_name

if TYPE_CHECKING:
    from .datasets.reader import ReadOptions

_set = object.__setattr__
# Of a static method: in one, pyright takes the type variables of the class for unknown types.
_InputT = TypeVar("_InputT")
_ExpectedT = TypeVar("_ExpectedT")


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

    def filter(
        self, predicate: Callable[[Sample[InputT, ExpectedT]], object]
    ) -> Dataset[InputT, ExpectedT]:
        """Return the samples for which the predicate is true, as a dataset of the same name.

        >>> dataset = Dataset([Sample("1", "2+2?", "4"), Sample("2", "3*3?", "9")], name="sums")
        >>> dataset.filter(lambda sample: "+" in sample.input)
        <Dataset sums: 1 sample>
        """
        if not callable(predicate):
            raise UsageError(f"expected a function of a sample, got {short_repr(predicate)}")
        return self._with_samples(tuple(filter(predicate, self.samples)))

    def __add__(
        self, other: Dataset[_InputT, _ExpectedT]
    ) -> Dataset[InputT | _InputT, ExpectedT | _ExpectedT]:
        """Return the samples of both; if their names differ, they are joined by a plus."""
        if not isinstance(other, Dataset):
            return NotImplemented
        if shared := {sample.id for sample in self} & {sample.id for sample in other}:
            raise UsageError(
                f"expected every sample id once, got {min(shared)!r} in {self} and {other} - give "
                'one of them other ids: replace(sample, id=f"b-{sample.id}")'
            )
        samples: tuple[Sample[Any, Any], ...] = (*self.samples, *other.samples)
        return Dataset(
            samples, *map(_joined, (self.name, self.version), (other.name, other.version))
        )

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


def _joined(one: str, other: str) -> str:
    return "+".join(dict.fromkeys(filter(None, (one, other))))


def sample_line(sample: Sample[Any, Any], *, sort: bool = False) -> bytes:
    try:
        return serde.encode(sample, sort=sort) + b"\n"
    except SerializationError as error:
        raise SerializationError(f"{error} (sample {sample.id!r})") from None


set_public_module("weakincentives.evals", globals(), ("Dataset", "Sample"))
