"""Files of samples to objects, one at a time: `read_rows` untyped, `read_samples` typed.

1. Every defect of a file is one `DatasetError` that names file, line and `$.path`.
2. Nothing is skipped, repaired or replaced: a file loads as it is, or not at all.
3. Memory follows the longest line (for `.json`, the file) and, for samples, the number of ids.
4. The file is closed when its iterator ends, is closed or raises.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, TypeVar, Union, Unpack, cast, get_args, get_origin

import msgspec

from ... import serde
from ...errors import SerializationError, UsageError, short_repr
from .column_names import Columns, SampleColumns, is_plain_sample
from .formats import Format, Record, Source, dataset_name, format_of, json_records, jsonl_records
from .sample_records import (
    Defect,
    decode_record,
    fields_of,
    masked,
    missing_field,
    misspelt,
    plain_object,
    raw_object,
    refuse_repeated,
)
from .tabular_files import Row, csv_rows, parquet_rows
from .type_info import refuse_unfillable
from .yaml_files import yaml_records

SampleT = TypeVar("SampleT")

_TABLES = ("csv", "parquet", "tsv")

MAX_ID_BYTES = 512

_GROUND_TRUTH = b'"ground_truth"'


class Limits(TypedDict, total=False):
    """Limits of a file: the length of a line (not in `.json`), and levels of nesting."""

    max_line_bytes: int
    max_depth: int


class ReadOptions(Limits, Columns, total=False):
    """Options of a file of samples: its limits, and the columns that samples are made of."""


_COLUMNS = ("input", "expected", "id")
_DEFAULTS = Limits(max_line_bytes=16 * 1024 * 1024, max_depth=200)
_MAX_LIMIT = 2**31 - 1


def read_rows(
    path: Path | str, *, format: Format | None = None, **limits: Unpack[Limits]
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file as they are; cells of CSV are text."""
    return (row for _, row in _rows(Source.of(path, format), _all_limits(limits)))


def read_numbered_rows(path: Path | str) -> Iterator[Row]:
    """Yield the objects of a file, each with its line."""
    return _rows(Source.of(path, None), _all_limits({}))


def read_samples(
    path: Path | str,
    sample_type: type[SampleT],
    *,
    expected_required: bool = False,
    format: Format | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[SampleT]:
    """Yield the samples of a file, each decoded as `sample_type`: `Sample[QAInput, str]`."""
    given: dict[str, Any] = dict(options)
    columns = {name: given.pop(name) for name in _COLUMNS if name in given}
    names, limits = SampleColumns.of(cast(Columns, columns)), _all_limits(given, _COLUMNS)
    source = Source.of(path, format)
    refuse_unfillable(sample_type)
    decode = _either_name(serde.decoder(sample_type))
    return _samples(source, sample_type, decode, expected_required, limits, names)


def _all_limits(limits: Any, others: tuple[str, ...] = ()) -> Limits:
    for name, value in limits.items():
        if name not in _DEFAULTS:
            known = "` or `".join((*_DEFAULTS, *others))
            raise UsageError(f"expected `{known}`, got `{name}`")
        if type(value) is not int or not 0 < value <= _MAX_LIMIT:
            raise UsageError(
                f"expected a whole number from 1 to {_MAX_LIMIT:,} for `{name}`, got "
                f"{short_repr(value)}"
            )
    return {**_DEFAULTS, **limits}


class _Header(msgspec.Struct):
    name: str | None = None
    version: str | int | float | None = None


def dataset_header(path: Path | str, format: Format | None = None) -> tuple[str, str]:
    """Return name and version of a `.json` object; otherwise the file's name and "1.0".

    Errors are ignored here: reading the samples raises them. A pipe is not read, since it cannot be
    read twice.
    """
    header = _Header()
    if (format or format_of(path)) == "json" and Path(path).is_file():
        source = Source.of(path, "json")
        with suppress(Exception), source.open() as file:
            header = serde.decode(source.read_whole(file), _Header)
    name = dataset_name(path) if header.name is None else header.name
    return name, "1.0" if header.version is None else str(header.version)


def admits_none(hint: Any) -> bool:
    """Return whether None is a value of the type."""
    if isinstance(hint, TypeVar):
        return any(map(admits_none, hint.__constraints__ or (hint.__bound__ or Any,)))
    if get_origin(hint) in (Union, UnionType):
        return any(map(admits_none, get_args(hint)))
    if get_origin(hint) is Literal:
        return None in get_args(hint)
    return hint in (Any, None, NoneType, object)


def _rows(source: Source, limits: Limits) -> Iterator[Row]:
    with source.open() as file:
        if source.format in _TABLES:
            yield from _table(file, source, limits)
            return
        for line, root, data in _json(file, source, limits):
            try:
                row = decode_record(data, plain_object, limits["max_depth"])
            except Defect as defect:
                raise defect.at(source.path, line, root) from None
            yield line, row


def _samples(
    source: Source,
    sample_type: Any,
    decode: Callable[[bytes], Any],
    expected_required: bool,
    limits: Limits,
    names: SampleColumns,
) -> Iterator[Any]:
    seen: dict[str, int] = {}
    made_ids, max_depth = 0, limits["max_depth"]
    with source.open() as file:
        if source.format in _TABLES:
            rows = _table(file, source, limits, sample_type, names)
            records = _encoded(rows, source, names)
        else:
            records = _json(file, source, limits)
            decode = _arranging(decode, names, sample_type, max_depth)
        for line, root, data in records:
            try:
                sample = decode_record(data, decode, max_depth, sample_type)
                id = sample.id
                has_id = names.made_ids == made_ids
                if seen and has_id is (made_ids > 0):
                    raise _unlike_the_others(id, has_id)
                made_ids = names.made_ids
                if id in seen or not id or "\0" in id or len(id) * 4 > MAX_ID_BYTES:
                    _check_id(id, seen)
                if sample.expected is None:
                    _check_missing_expected(data, expected_required)
            except Defect as defect:
                defect.path = names.given_path(defect.path)
                raise defect.at(source.path, line, root) from defect.__cause__
            seen[id] = line
            yield sample


def _table(
    file: io.BufferedReader,
    source: Source,
    limits: Limits,
    sample_type: Any = None,
    names: SampleColumns | None = None,
) -> Iterator[Row]:
    if source.format == "parquet":
        return parquet_rows(file, source, names)
    return csv_rows(file, source, limits["max_line_bytes"], sample_type, names)


def _json(file: io.BufferedReader, source: Source, limits: Limits) -> Iterator[Record]:
    if source.format == "yaml":
        return yaml_records(file, source, limits["max_line_bytes"])
    if source.format == "json":
        return json_records(file, source, limits["max_depth"])
    return jsonl_records(file, source, limits["max_line_bytes"])


def _encoded(rows: Iterable[Row], source: Source, names: SampleColumns) -> Iterator[Record]:
    """Yield rows as JSON, so that a sample means the same in every format."""
    for line, row in rows:
        if row.get("metadata", ...) is None:
            del row["metadata"]  # a null in Parquet: no metadata
        try:
            data = serde.encode(names.complete(row))
        except SerializationError as error:
            raise Defect(str(error)).at(source.path, line) from None
        yield line, "$", data


def _either_name(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the same decoder, which accepts `ground_truth` for `expected`."""

    def decode_either(data: bytes) -> Any:
        if not (times := data.count(_GROUND_TRUTH)):
            return decode(data)
        fields = fields_of(data)
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
            message = str(error).replace("`$.expected", "`$.ground_truth", 1)
            raise msgspec.ValidationError(message) from error.__cause__

    return decode_either


def _arranging(
    decode: Callable[[bytes], Any], names: SampleColumns, sample_type: Any, max_depth: int
) -> Callable[[bytes], Any]:
    """Return the same decoder, which also takes rows whose keys are not those of a sample."""

    named = names.is_named

    def decode_arranged(data: bytes) -> Any:
        if not named and is_plain_sample(data):
            return decode(data)
        if (arranged := names.arranged(data)) is data:
            return decode(data)
        return decode_record(arranged, decode, max_depth, sample_type)

    return decode_arranged


def _unlike_the_others(id: str, has_id: bool) -> Defect:
    """Return the defect of a record that has an id, unlike those before, or lacks one."""
    if has_id:
        problem = f"expected no `id`, which the records before do not have, got {short_repr(id)}"
    else:
        problem = "expected the field `id`, which the records before have, got none"
    return Defect(f"{problem} - give every record an id, or none", "$.id")


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
            raise missing_field("expected", keys)
