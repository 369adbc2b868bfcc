"""Datasets from files: eager `load_…`, one for each format, and lazy `iter_…` for any of them.

Without types you get rows (`list[dict]`); with an input type and an expected type, a `Dataset`.
Cells of CSV without types are text. `.gz` and `.zst` files are decompressed as they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from ..errors import UsageError
from ._formats import Format, dataset_name, format_of
from ._reading import admits_none, collector_paused, read_rows, read_samples
from ._types import Dataset, Sample

__all__ = ["iter_rows", "iter_samples", "load_csv", "load_json", "load_jsonl", "load_parquet"]

InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")

_Path = Path | str
_UNTYPED = object()


def iter_rows(path: _Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of any known suffix, one at a time."""
    return read_rows(path)


@overload
def iter_samples(
    path: _Path, input_type: type[InputT], expected_type: type[ExpectedT]
) -> Iterator[Sample[InputT, ExpectedT]]: ...
@overload
def iter_samples(path: _Path, input_type: Any, expected_type: Any) -> Iterator[Sample]: ...
def iter_samples(path: _Path, input_type: Any, expected_type: Any) -> Iterator[Sample]:
    """The samples of a file of any known suffix, one at a time."""
    return _samples(path, input_type, expected_type, None)


@overload
def load_jsonl(path: _Path) -> list[dict[str, Any]]: ...
@overload
def load_jsonl(
    path: _Path, input_type: type[InputT], expected_type: type[ExpectedT]
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_jsonl(path: _Path, input_type: Any, expected_type: Any) -> Dataset: ...
def load_jsonl(path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED) -> Any:
    """One JSON object a line, whatever the suffix: `load_jsonl("qa.jsonl", QAInput, str)`."""
    return _load(path, input_type, expected_type, "jsonl")


@overload
def load_json(path: _Path) -> list[dict[str, Any]]: ...
@overload
def load_json(
    path: _Path, input_type: type[InputT], expected_type: type[ExpectedT]
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_json(path: _Path, input_type: Any, expected_type: Any) -> Dataset: ...
def load_json(path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED) -> Any:
    """A JSON array of objects, or an object with such an array under `samples`; read whole."""
    return _load(path, input_type, expected_type, "json")


@overload
def load_csv(path: _Path) -> list[dict[str, Any]]: ...
@overload
def load_csv(
    path: _Path, input_type: type[InputT], expected_type: type[ExpectedT]
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_csv(path: _Path, input_type: Any, expected_type: Any) -> Dataset: ...
def load_csv(path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED) -> Any:
    """A table with a header (`id`, `input` or `input.question`, …); tabs if it ends in `.tsv`."""
    format: Format = "tsv" if format_of(path) == "tsv" else "csv"
    return _load(path, input_type, expected_type, format)


@overload
def load_parquet(path: _Path) -> list[dict[str, Any]]: ...
@overload
def load_parquet(
    path: _Path, input_type: type[InputT], expected_type: type[ExpectedT]
) -> Dataset[InputT, ExpectedT]: ...
@overload
def load_parquet(path: _Path, input_type: Any, expected_type: Any) -> Dataset: ...
def load_parquet(path: _Path, input_type: Any = _UNTYPED, expected_type: Any = _UNTYPED) -> Any:
    """A Parquet file, by row groups; nested columns fill nested types."""
    return _load(path, input_type, expected_type, "parquet")


def _load(path: _Path, input_type: Any, expected_type: Any, format: Format) -> Any:
    if (input_type is _UNTYPED) != (expected_type is _UNTYPED):
        raise UsageError(
            "expected both `input_type` and `expected_type`, or neither, got one - "
            "pass `Any` for a type that does not matter"
        )
    with collector_paused():
        if input_type is _UNTYPED:
            return list(read_rows(path, format=format))
        samples = _samples(path, input_type, expected_type, format)
        return Dataset(samples, name=dataset_name(path))


def _samples(
    path: _Path, input_type: Any, expected_type: Any, format: Format | None
) -> Iterator[Sample]:
    required = not admits_none(expected_type)
    wanted = Sample[input_type, expected_type]
    return read_samples(path, wanted, expected_required=required, format=format)
