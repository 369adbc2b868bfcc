"""Tables to rows: CSV, TSV and Parquet, one dict a row, with the line (or row) it comes from.

For a sample, a dotted column (`input.question`) fills a nested field. A cell of CSV is text, and
the type of its field decides what the text means: text stays text for `str`, `"3"` is 3 for `int`,
`[1, 2]` is a list for `list[int]`.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from types import NoneType
from typing import Any, TypeAlias, Union

import msgspec
from msgspec import inspect

from ... import serde
from ...errors import DatasetError, SerializationError
from .column_names import SampleColumns, add_metadata
from .formats import Source, lines, optional
from .sample_records import Defect, explain, not_utf8
from .type_info import allowed_values, types_at

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
    file: io.BufferedReader,
    source: Source,
    max_bytes: int,
    sample_type: Any = None,
    names: SampleColumns | None = None,
) -> Iterator[Row]:
    """Yield rows by the names in the header: all text, or nested to be decoded as `sample_type`.

    `names` are the columns whose place in a sample differs from their name.
    """
    # The limit is global, so it is never lowered; `lines` has its own.
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
                columns = _columns(header, sample_type, names or SampleColumns())
            elif cells:
                if len(cells) != len(header):
                    raise Defect(f"expected {len(header)} columns, got {len(cells)}")
                yield (
                    line,
                    _row(columns, cells) if columns else dict(zip(header, cells, strict=True)),
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"expected CSV, got: {error}", file=source.path, line=line) from None
    except Defect as defect:
        raise defect.at(source.path, line) from None
    except RecursionError as error:
        raise explain(error).at(source.path, line) from None
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
    """Where a cell goes (`("input", "question")`), and what its text may stand for."""

    keys: tuple[str, ...]
    kinds: set[type]  # Empty for dates, ids and containers.
    empty: Any

    def value(self, text: str) -> Any:
        """Return the cell as JSON data; UNSET if an empty cell means that there is no value."""
        if not text:
            return self.empty
        if str in self.kinds:
            return text
        try:
            if text.startswith(("[", "{")):
                return _anything(text.encode())
            if object in self.kinds or not self.kinds:
                return text
            wanted: Any = Union[tuple(self.kinds)]  # noqa: UP007 - known only now
            number = msgspec.convert(text, wanted, strict=False)
        except msgspec.DecodeError:
            return text  # the decoder will reject it, with a message
        if isinstance(number, float) and not math.isfinite(number):
            raise Defect(f"expected a finite number, got `{text}`", f"$.{'.'.join(self.keys)}")
        return number


def _columns(header: list[str], sample_type: Any, names: SampleColumns) -> list[_Column]:
    _refuse_repeats("column", header)
    if sample_type is None:
        return []
    names.check_header(header, _hint(header))
    paths = _paths(header, names)
    whole = inspect.type_info(sample_type)  # once: it is as slow as everything else about a column
    return [_column(path, types_at(whole, path)) for path in paths]


def _hint(header: list[str]) -> str:
    if len(header) == 1:
        for separator, words in ((";", "`;`"), ("\t", "tabs"), (",", "`,`")):
            if separator in header[0]:
                return f" - is it separated by {words}?"
    return ""


def _column(path: tuple[str, ...], types: list[inspect.Type]) -> _Column:
    types = types or [inspect.AnyType()]
    values = allowed_values(types)
    scalars = {_SCALARS[type(info)] for info in types if type(info) in _SCALARS}
    kinds = scalars.union(map(type, values))
    empty: Any = None if NoneType in kinds else msgspec.UNSET
    if scalars & {str, object} or "" in values:
        empty = ""
    return _Column(path, kinds, empty)


def _refuse_repeats(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise Defect(f"expected every {what} once, got `{name}` {times} times")


def _paths(header: list[str], names: SampleColumns) -> list[tuple[str, ...]]:
    """Return the path of each column in a sample."""
    named = {name: path for name in header if (path := names.path_of(name)) is not None}
    own = {name: tuple(name.split(".")) for name in header if name not in named}
    columns = own.keys()
    for path in own.values():
        for parent in list(accumulate(path, lambda above, key: f"{above}.{key}"))[:-1]:
            if parent in columns:
                raise Defect(
                    f"expected one of the columns `{parent}` and `{'.'.join(path)}`, got both"
                )
    return [named.get(name) or own[name] for name in header]


def _row(columns: list[_Column], cells: list[str]) -> dict[str, Any]:
    pairs = ((column.keys, column.value(text)) for column, text in zip(columns, cells, strict=True))
    return _nested(pairs)


def _nested(pairs: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for keys, value in pairs:
        inside = row
        for key in keys[:-1]:
            inside = inside.setdefault(key, {})
        if value is msgspec.UNSET:
            continue
        if keys == ("metadata",) and "metadata" in row:
            others, row["metadata"] = row["metadata"], value
            for name, other in others.items():
                add_metadata(row, name, other)
        elif keys[0] == "metadata" and (inside.__class__ is not dict or keys[-1] in inside):
            add_metadata(row, keys[-1], value)  # the column `metadata` came first
        else:
            inside[keys[-1]] = value
    return row


def parquet_rows(
    file: io.BufferedReader, source: Source, names: SampleColumns | None
) -> Iterator[Row]:
    """Yield rows, read in batches; the line is the row's number. With `names`, nest them."""
    arrow = optional("pyarrow")
    number = 1
    try:
        table = optional("pyarrow.parquet").ParquetFile(file)
        schema = table.schema_arrow
        _refuse_repeats("column", schema.names)
        if names is not None:
            names.check_header(schema.names)
        paths = [] if names is None else _paths(schema.names, names)
        with_maps = {field.name: field.type for field in schema if "map<" in str(field.type)}
        for batch in table.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                for name, kind in with_maps.items():
                    row[name] = _unpaired(row[name], kind)
                if names is not None:
                    row = _nested(zip(paths, row.values(), strict=True))
                serde.refuse_non_finite(row)
                yield number, row
                number += 1
    except Defect as defect:
        raise defect.at(source.path, number) from None
    except SerializationError as error:
        raise explain(error).at(source.path, number) from None
    except (OSError, ValueError, OverflowError, arrow.ArrowException) as error:
        raise source.unreadable(error, number) from None


def _unpaired(value: Any, kind: Any) -> Any:
    """Return a value of pyarrow with dicts for maps with text keys, which it returns as pairs."""
    if isinstance(value, dict):
        return {field.name: _unpaired(value[field.name], field.type) for field in kind}
    if not isinstance(value, list):
        return value
    if not hasattr(kind, "key_type"):
        return [_unpaired(item, kind.value_type) for item in value]
    pairs = [(key, _unpaired(item, kind.item_type)) for key, item in value]
    if "string" not in str(kind.key_type):
        return pairs
    _refuse_repeats("key of a map", (key for key, _ in pairs))
    return dict(pairs)
