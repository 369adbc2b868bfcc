"""Datasets from files: eager `load_…`, one for each format, and lazy `iter_…` for any of them.

Without types you get rows (`list[dict]`); with an input type and an expected type, or with names of
columns, a `Dataset`: `load_csv("faq.csv", input="question", expected="answer", id="nr")`. Several
inputs make an object, `input=["question", "context"]`. A row without an id gets one that is made
from its content; other columns and keys become metadata. Cells of CSV without types are text.
`.gz` and `.zst` files are decompressed as they are read. A line of more than 16 MiB and more than
200 levels of nesting are rejected: every function takes `max_line_bytes=` and `max_depth=` to allow
more, or less.

`-` is standard input. It and a pipe (`<(jq ...)`) are read once, as data arrives; without a suffix,
they have one JSON object a line. A file is read up to the size that it had when it was opened.
Devices and sockets are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack, cast, overload

from ..errors import UsageError
from ..internal.garbage import collector_paused
from ._types import Dataset, Sample
from .datasets.formats import Format, format_of
from .datasets.reader import (
    Limits,
    ReadOptions,
    admits_none,
    dataset_header,
    read_rows,
    read_samples,
)

__all__ = [
    "Loader",
    "iter_rows",
    "iter_samples",
    "load_csv",
    "load_json",
    "load_jsonl",
    "load_parquet",
    "load_yaml",
]

InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")

_Path = Path | str
_UNTYPED: Any = object()


class _OtherOptions(Limits, total=False):
    expected: str
    id: str


class Loader(Protocol):
    """The signatures of every `load_…`: rows, or a `Dataset` with types or names of columns."""

    @overload
    def __call__(self, path: _Path, **limits: Unpack[Limits]) -> list[dict[str, Any]]: ...
    @overload
    def __call__(
        self, path: _Path, *, input: str | Sequence[str], **options: Unpack[_OtherOptions]
    ) -> Dataset[Any, Any]: ...
    @overload
    def __call__(
        self,
        path: _Path,
        input_type: type[InputT],
        expected_type: type[ExpectedT],
        **options: Unpack[ReadOptions],
    ) -> Dataset[InputT, ExpectedT]: ...
    @overload
    def __call__(
        self, path: _Path, input_type: Any, expected_type: Any, **options: Unpack[ReadOptions]
    ) -> Dataset: ...


def _loader(load: Callable[..., Any]) -> Loader:
    """Give a function the signatures of a loader."""
    return cast(Loader, load)


def iter_rows(path: _Path, **limits: Unpack[Limits]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with any known suffix."""
    return read_rows(path, **limits)


@overload
def iter_samples(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **options: Unpack[ReadOptions],
) -> Iterator[Sample[InputT, ExpectedT]]: ...
@overload
def iter_samples(
    path: _Path, input_type: Any, expected_type: Any, **options: Unpack[ReadOptions]
) -> Iterator[Sample]: ...
def iter_samples(
    path: _Path, input_type: Any, expected_type: Any, **options: Unpack[ReadOptions]
) -> Iterator[Sample]:
    """Yield the samples of a file with any known suffix; `options` name its columns."""
    return _samples(path, input_type, expected_type, None, options)


@_loader
def load_jsonl(
    path: _Path,
    input_type: Any = _UNTYPED,
    expected_type: Any = _UNTYPED,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load one JSON object a line, whatever the suffix: `load_jsonl("qa.jsonl", QAInput, str)`."""
    return _load(path, input_type, expected_type, "jsonl", options)


@_loader
def load_json(
    path: _Path,
    input_type: Any = _UNTYPED,
    expected_type: Any = _UNTYPED,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load a JSON array of objects, or an object with such an array under `samples`; read whole.

    The `name` and `version` of such an object are those of the dataset.
    """
    return _load(path, input_type, expected_type, "json", options)


@_loader
def load_csv(
    path: _Path,
    input_type: Any = _UNTYPED,
    expected_type: Any = _UNTYPED,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load a table with a header (`id`, `input` or `input.question`, …); tabs if it is a `.tsv`.

    An empty cell is the empty text for any type that admits it (`str`, `str | None`, `Any`), None
    for another that admits None, and otherwise no value: the field's default, if it has one.
    """
    format: Format = "tsv" if format_of(path) == "tsv" else "csv"
    return _load(path, input_type, expected_type, format, options)


@_loader
def load_parquet(
    path: _Path,
    input_type: Any = _UNTYPED,
    expected_type: Any = _UNTYPED,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load a Parquet file by row groups; nested and dotted columns fill nested types."""
    return _load(path, input_type, expected_type, "parquet", options)


@_loader
def load_yaml(
    path: _Path,
    input_type: Any = _UNTYPED,
    expected_type: Any = _UNTYPED,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load a YAML list of objects, one under `samples`, or an object a document; read whole.

    As in JSON, only `null`, `true`, `false` and decimal numbers are not texts.
    """
    return _load(path, input_type, expected_type, "yaml", options)


def _load(
    path: _Path, input_type: Any, expected_type: Any, format: Format, options: ReadOptions
) -> Any:
    if (input_type is _UNTYPED) != (expected_type is _UNTYPED):
        raise UsageError(
            "expected both `input_type` and `expected_type`, or neither, got one - "
            "pass `Any` for a type that does not matter"
        )
    with collector_paused():
        if input_type is _UNTYPED:
            if "input" not in options and not {"expected", "id"} & options.keys():
                return list(read_rows(path, format=format, **cast(Limits, options)))
            input_type = expected_type = Any
        samples = _samples(path, input_type, expected_type, format, options)
        return Dataset(samples, *dataset_header(path, format))


def _samples(
    path: _Path, input_type: Any, expected_type: Any, format: Format | None, options: ReadOptions
) -> Iterator[Sample]:
    required = not admits_none(expected_type)
    sample_type = Sample[input_type, expected_type]
    return read_samples(path, sample_type, expected_required=required, format=format, **options)
