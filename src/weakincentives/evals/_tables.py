"""Tables to rows: CSV, TSV and Parquet, one dict a row, with the line (or row) it comes from.

A cell of CSV is text. For a typed sample, the type of its field decides what the text means:
text stays text for `str`, `"3"` is 3 for `int`, `[1, 2]` is a list for `list[int]`.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from types import NoneType
from typing import Any, TypeAlias, Union

import msgspec
from msgspec import inspect

from .. import serde
from ..errors import DatasetError, SerializationError
from ._decoding import Defect, not_utf8, problem_and_path, too_deep
from ._formats import Source, lines, optional

__all__ = ["Row", "csv_rows", "parquet_rows"]

Row: TypeAlias = tuple[int, dict[str, Any]]

_SCALARS: dict[type[inspect.Type], type] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.NoneType: NoneType,
    inspect.AnyType: object,
}
_anything = serde.decoder()


def csv_rows(
    file: io.BufferedReader, source: Source, max_bytes: int, max_depth: int, sample_type: Any = None
) -> Iterator[Row]:
    """Rows by the names in the header: all text, or shaped to be decoded as `sample_type`."""
    # The limit is the process's, so it is only ever raised; `lines` has its own.
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes))
    text = _text(file, source, max_bytes)
    delimiter = "\t" if source.format == "tsv" else ","
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] = []
    columns: list[_Column] = []
    line = 1
    try:
        for cells in reader:
            if not header and cells:
                header = cells
                columns = _columns(header, sample_type)
            elif cells:
                if len(cells) != len(header):
                    raise Defect(f"expected {len(header)} columns, got {len(cells)}")
                yield (
                    line,
                    _shaped(columns, cells) if columns else dict(zip(header, cells, strict=True)),
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"expected CSV, got: {error}", file=source.path, line=line) from None
    except Defect as defect:
        raise defect.at(source.path, line) from None
    except RecursionError:
        raise too_deep(max_depth).at(source.path, line) from None
    if not header:
        raise DatasetError("expected a header row, got an empty file", file=source.path, line=1)


def _text(file: io.BufferedReader, source: Source, max_bytes: int) -> Iterator[str]:
    for number, line in lines(file, source, max_bytes):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(line, error).at(source.path, number) from None


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a cell goes (`("input", "question")`), and the types that its text may stand for."""

    keys: tuple[str, ...]
    kinds: frozenset[type]

    def value(self, text: str) -> Any:
        """The cell as JSON data; UNSET where an empty cell means that there is nothing."""
        if str in self.kinds:
            return text
        if not text and object not in self.kinds:
            return None if NoneType in self.kinds else msgspec.UNSET
        try:
            if text.startswith(("[", "{")):
                return _anything(text.encode())
            if object in self.kinds or not self.kinds:
                return text
            wanted: Any = Union[tuple(self.kinds)]  # noqa: UP007 - known only now
            number = msgspec.convert(text, wanted, strict=False)
        except msgspec.DecodeError:
            return text  # The decoder will refuse it, and say what it expected.
        if isinstance(number, float) and not math.isfinite(number):
            raise Defect(f"expected a finite number, got `{text}`", f"$.{'.'.join(self.keys)}")
        return number


def _columns(header: list[str], sample_type: Any) -> list[_Column]:
    _refuse_repeats(header)
    if sample_type is None:
        return []
    info = inspect.type_info(sample_type)
    paths = [_path(name) for name in header]
    for path in paths:
        for parent in list(accumulate(path, lambda above, key: f"{above}.{key}"))[:-1]:
            if parent in header:
                raise Defect(
                    f"expected one of the columns `{parent}` and `{'.'.join(path)}`, got both"
                )
    return [_Column(path, frozenset(_kinds(_target(info, path)))) for path in paths]


def _refuse_repeats(names: list[str]) -> None:
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise Defect(f"expected every column once, got `{name}` {times} times")


def _path(column: str) -> tuple[str, ...]:
    keys = tuple(column.split("."))
    return keys if keys[0] in ("input", "expected", "ground_truth", "metadata") else (column,)


def _target(info: inspect.Type, path: tuple[str, ...]) -> inspect.Type:
    """The type at a path below another: of a field, or of a mapping's values."""
    if not path:
        return info
    key, *rest = path
    key = "expected" if key == "ground_truth" else key
    for part in getattr(info, "types", (info,)):
        if isinstance(part, inspect.DictType):
            return _target(part.value_type, tuple(rest))
        for field in getattr(part, "fields", ()):
            if field.encode_name == key:
                return _target(field.type, tuple(rest))
    return inspect.AnyType()


def _kinds(info: inspect.Type) -> set[type]:
    """The plain types that a cell's text may stand for; none for dates, ids and containers."""
    if isinstance(info, inspect.UnionType):
        return set().union(*map(_kinds, info.types))
    if isinstance(info, inspect.LiteralType):
        return {type(value) for value in info.values}
    if isinstance(info, inspect.EnumType):
        return {type(member.value) for member in info.cls}
    return {_SCALARS[type(info)]} if type(info) in _SCALARS else set()


def _shaped(columns: list[_Column], cells: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, text in zip(columns, cells, strict=True):
        inside = row
        for key in column.keys[:-1]:
            inside = inside.setdefault(key, {})
        if (value := column.value(text)) is not msgspec.UNSET:
            inside[column.keys[-1]] = value
    return row


def parquet_rows(file: io.BufferedReader, source: Source) -> Iterator[Row]:
    """Rows in batches, so that a file is never whole in memory; the line is the row's number."""
    arrow = optional("pyarrow")
    number = 1
    try:
        table = optional("pyarrow.parquet").ParquetFile(file)
        _refuse_repeats(table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                serde.refuse_non_finite(row)
                yield number, row
                number += 1
    except Defect as defect:
        raise defect.at(source.path, number) from None
    except SerializationError as error:
        raise Defect(*problem_and_path(error)).at(source.path, number) from None
    except (OSError, ValueError, OverflowError, arrow.ArrowException) as error:
        raise source.unreadable(error, number) from None
