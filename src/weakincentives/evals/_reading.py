"""Files of samples to objects, one at a time: `read_rows` untyped, `read_samples` typed.

1. Every defect of a file is one `DatasetError` that names file, line and `$.path`.
2. Nothing is skipped, repaired or replaced: a file loads as it is, or not at all.
3. Memory follows the longest line (for `.json`, the file) and, for samples, the number of ids.
4. The file is closed when its iterator ends, is closed or raises.
"""

from __future__ import annotations

import gc
import io
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, TypeVar, Union, Unpack, get_args, get_origin

import msgspec

from .. import serde
from ..errors import SerializationError, UsageError, shown
from ._decoding import (
    Defect,
    decode_record,
    masked,
    missing,
    misspelt,
    problem_and_path,
    raw_object,
    refuse_repeated,
)
from ._formats import (
    Format,
    Record,
    Source,
    dataset_name,
    format_of,
    json_records,
    jsonl_records,
)
from ._shapes import refuse_unfillable
from ._tables import Row, csv_rows, parquet_rows

__all__ = [
    "Limits",
    "admits_none",
    "collector_paused",
    "dataset_header",
    "problem_and_path",
    "read_rows",
    "read_samples",
]

SampleT = TypeVar("SampleT")

_TABLES = ("csv", "parquet", "tsv")

MAX_ID_BYTES = 512

_GROUND_TRUTH = b'"ground_truth"'
_plain_object = serde.decoder(dict[str, Any])


class Limits(TypedDict, total=False):
    """What a file may ask for: the length of a line (not of `.json`), and levels of nesting."""

    max_line_bytes: int
    max_depth: int


_DEFAULTS = Limits(max_line_bytes=16 * 1024 * 1024, max_depth=200)
_HIGHEST = 2**31 - 1


def read_rows(
    path: Path | str, *, format: Format | None = None, **limits: Unpack[Limits]
) -> Iterator[dict[str, Any]]:
    """The objects of a file as they are; cells of CSV are text."""
    return _rows(Source.of(path, format), _all_limits(limits))


def read_samples(
    path: Path | str,
    sample_type: type[SampleT],
    *,
    expected_required: bool = False,
    format: Format | None = None,
    **limits: Unpack[Limits],
) -> Iterator[SampleT]:
    """The samples of a file, each decoded as `sample_type`: `Sample[QAInput, str]`."""
    source = Source.of(path, format)
    refuse_unfillable(sample_type)
    decode = _either_name(serde.decoder(sample_type))
    return _samples(source, sample_type, decode, expected_required, _all_limits(limits))


def _all_limits(given: Limits) -> Limits:
    for name, value in given.items():
        if name not in _DEFAULTS:
            raise UsageError(f"expected `{'` or `'.join(_DEFAULTS)}`, got `{name}`")
        if type(value) is not int or not 0 < value <= _HIGHEST:
            raise UsageError(
                f"expected a whole number from 1 to {_HIGHEST:,} for `{name}`, got {shown(value)}"
            )
    return {**_DEFAULTS, **given}


class _Header(msgspec.Struct):
    name: str | None = None
    version: str | int | float | None = None


def dataset_header(path: Path | str, format: Format | None = None) -> tuple[str, str]:
    """Name and version: those that a `.json` object has, or the file's name and "1.0".

    A file that cannot be read has none of its own: reading its samples says what is wrong.
    """
    header = _Header()
    if (format or format_of(path)) == "json":
        with suppress(Exception), Source.of(path, "json").open() as file:
            header = serde.decode(file.read().removeprefix(BOM_UTF8), _Header)
    name = dataset_name(path) if header.name is None else header.name
    return name, "1.0" if header.version is None else str(header.version)


def admits_none(wanted: Any) -> bool:
    """Whether None is a value of the type."""
    if isinstance(wanted, TypeVar):
        return any(map(admits_none, wanted.__constraints__ or (wanted.__bound__ or Any,)))
    if get_origin(wanted) in (Union, UnionType):
        return any(map(admits_none, get_args(wanted)))
    if get_origin(wanted) is Literal:
        return None in get_args(wanted)
    return wanted in (Any, None, NoneType, object)


def _rows(source: Source, limits: Limits) -> Iterator[dict[str, Any]]:
    with source.open() as file:
        if source.format in _TABLES:
            for _, row in _table(file, source, limits):
                yield row
            return
        for line, root, data in _json(file, source, limits):
            try:
                row = decode_record(data, _plain_object, limits["max_depth"])
            except Defect as defect:
                raise defect.at(source.path, line, root) from None
            yield row


def _samples(
    source: Source,
    sample_type: Any,
    decode: Callable[[bytes], Any],
    expected_required: bool,
    limits: Limits,
) -> Iterator[Any]:
    seen: dict[str, int] = {}
    max_depth = limits["max_depth"]
    with source.open() as file:
        if source.format in _TABLES:
            records = _encoded(_table(file, source, limits, sample_type), source)
        else:
            records = _json(file, source, limits)
        for line, root, data in records:
            try:
                sample = decode_record(data, decode, max_depth, sample_type)
                id = sample.id
                if id in seen or not id or "\0" in id or len(id) * 4 > MAX_ID_BYTES:
                    _check_id(id, seen)
                if sample.expected is None:
                    _check_missing_expected(data, expected_required)
            except Defect as defect:
                raise defect.at(source.path, line, root) from defect.__cause__
            seen[id] = line
            yield sample


def _table(
    file: io.BufferedReader, source: Source, limits: Limits, sample_type: Any = None
) -> Iterator[Row]:
    if source.format == "parquet":
        return parquet_rows(file, source, nested=sample_type is not None)
    return csv_rows(file, source, limits["max_line_bytes"], sample_type)


def _json(file: io.BufferedReader, source: Source, limits: Limits) -> Iterator[Record]:
    if source.format == "json":
        return json_records(file, source, limits["max_depth"])
    return jsonl_records(file, source, limits["max_line_bytes"])


def _encoded(rows: Iterable[Row], source: Source) -> Iterator[Record]:
    """Rows as JSON, so that a sample means the same in every format."""
    for line, row in rows:
        if row.get("metadata", ...) is None:
            del row["metadata"]  # A null of Parquet: no metadata here.
        try:
            data = serde.encode(row)
        except SerializationError as error:
            raise Defect(str(error)).at(source.path, line) from None
        yield line, "$", data


def _either_name(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """The same decoder, to which `ground_truth` is another name for `expected`."""

    def decode_either(data: bytes) -> Any:
        if not (times := data.count(_GROUND_TRUTH)):
            return decode(data)
        try:
            fields = raw_object(data)
        except msgspec.DecodeError:
            fields = _plain_object(data)  # Slower, and reads lone surrogates.
        if times > 1:
            refuse_repeated(_GROUND_TRUTH, data)
        if "ground_truth" not in fields:
            return decode(data)
        if "expected" in fields:
            problem = "expected one of `expected` and `ground_truth`, got both"
            raise Defect(problem, "$.ground_truth")
        fields["expected"] = fields.pop("ground_truth")
        try:
            return decode(serde.encode(fields))
        except msgspec.ValidationError as error:
            own_words = str(error).replace("`$.expected", "`$.ground_truth", 1)
            raise msgspec.ValidationError(own_words) from error.__cause__

    return decode_either


def _check_id(id: str, seen: dict[str, int]) -> None:
    if id in seen:
        raise Defect(f"expected every id once, got {id!r} again, first in line {seen[id]}", "$.id")
    if not id or "\0" in id:
        raise Defect(f"expected a non-empty id without NUL, got {id!r}", "$.id")
    if (size := len(id.encode("utf-8", "surrogatepass"))) > MAX_ID_BYTES:
        raise Defect(f"expected an id of at most {MAX_ID_BYTES} bytes, got {size:,}", "$.id")


def _check_missing_expected(data: bytes, required: bool) -> None:
    if required or b'"expected"' not in data:
        keys = raw_object(masked(data)).keys()
        if required or misspelt("expected", keys):
            raise missing("expected", keys)


class _Pauses:
    """How many loads have the garbage collector paused, and whether it ran before the first."""

    lock = threading.Lock()
    count = 0
    was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside: it would look at every kept sample over and over.

    Loads in several threads share one pause, so that none restores what another still needs.
    """
    with _Pauses.lock:
        if _Pauses.count == 0:
            _Pauses.was_enabled = gc.isenabled()
            gc.disable()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if _Pauses.count == 0 and _Pauses.was_enabled:
                if gc.get_freeze_count() == 0:
                    # What was loaded stays for a while: put it with the old objects, unsearched.
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
