"""Datasets from files: eager `load_…`, one for each format, and lazy `iter_…` for any of them.

Without types you get rows (`list[dict]`); with an input type and an expected type, a `Dataset`.
Cells of CSV without types are text. `.gz` and `.zst` files are decompressed as they are read.
A line of more than 16 MiB and more than 200 levels of nesting are refused: every function takes
`max_line_bytes=` and `max_depth=` to allow more, or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from ..errors import UsageError
from ._formats import Format, format_of
from ._reading import (
    Limits,
    admits_none,
    collector_paused,
    dataset_header,
    read_rows,
    read_samples,
)
from ._types import Dataset, Sample

__all__ = ["iter_rows", "iter_samples", "load_csv", "load_json", "load_jsonl", "load_parquet"]

InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")

_Path = Path | str
_UNTYPED = object()


def iter_rows(path: _Path, **limits: Unpack[Limits]) -> Iterator[dict[str, Any]]:
    """The objects of a file of any known suffix, one at a time."""
    return read_rows(path, **limits)


@overload
def iter_samples(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **limits: Unpack[Limits],
) -> Iterator[Sample[InputT, ExpectedT]]: ...
@overload
def iter_samples(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Iterator[Sample]: ...
def iter_samples(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Iterator[Sample]:
    """The samples of a file of any known suffix, one at a time."""
    return _samples(path, input_type, expected_type, None, limits)


@overload
def load_jsonl(path: _Path, **limits: Unpack[Limits]) -> list[dict[str, Any]]: ...
@overload
def load_jsonl(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **limits: Unpack[Limits],
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_jsonl(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Dataset: ...
def load_jsonl(
    path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED, **limits: Unpack[Limits]
) -> Any:
    """One JSON object a line, whatever the suffix: `load_jsonl("qa.jsonl", QAInput, str)`."""
    return _load(path, input_type, expected_type, "jsonl", limits)


@overload
def load_json(path: _Path, **limits: Unpack[Limits]) -> list[dict[str, Any]]: ...
@overload
def load_json(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **limits: Unpack[Limits],
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_json(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Dataset: ...
def load_json(
    path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED, **limits: Unpack[Limits]
) -> Any:
    """A JSON array of objects, or an object with such an array under `samples`; read whole.

    The `name` and `version` of such an object are those of the dataset.
    """
    return _load(path, input_type, expected_type, "json", limits)


@overload
def load_csv(path: _Path, **limits: Unpack[Limits]) -> list[dict[str, Any]]: ...
@overload
def load_csv(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **limits: Unpack[Limits],
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_csv(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Dataset: ...
def load_csv(
    path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED, **limits: Unpack[Limits]
) -> Any:
    """A table with a header (`id`, `input` or `input.question`, …); tabs if it ends in `.tsv`.

    An empty cell is the empty text for any type that admits it (`str`, `str | None`, `Any`), None
    for another that admits None, and otherwise no value: the field's default, if it has one.
    """
    format: Format = "tsv" if format_of(path) == "tsv" else "csv"
    return _load(path, input_type, expected_type, format, limits)


@overload
def load_parquet(path: _Path, **limits: Unpack[Limits]) -> list[dict[str, Any]]: ...
@overload
def load_parquet(
    path: _Path,
    input_type: type[InputT],
    expected_type: type[ExpectedT],
    **limits: Unpack[Limits],
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_parquet(
    path: _Path, input_type: Any, expected_type: Any, **limits: Unpack[Limits]
) -> Dataset: ...
def load_parquet(
    path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED, **limits: Unpack[Limits]
) -> Any:
    """A Parquet file, by row groups; nested and dotted columns fill nested types."""
    return _load(path, input_type, expected_type, "parquet", limits)


def _load(path: _Path, input_type: Any, expected_type: Any, format: Format, limits: Limits) -> Any:
    if (input_type is _UNTYPED) != (expected_type is _UNTYPED):
        raise UsageError(
            "expected both `input_type` and `expected_type`, or neither, got one - "
            "pass `Any` for a type that does not matter"
        )
    with collector_paused():
        if input_type is _UNTYPED:
            return list(read_rows(path, format=format, **limits))
        samples = _samples(path, input_type, expected_type, format, limits)
        return Dataset(samples, *dataset_header(path, format))


def _samples(
    path: _Path, input_type: Any, expected_type: Any, format: Format | None, limits: Limits
) -> Iterator[Sample]:
    required = not admits_none(expected_type)
    wanted = Sample[input_type, expected_type]
    return read_samples(path, wanted, expected_required=required, format=format, **limits)
