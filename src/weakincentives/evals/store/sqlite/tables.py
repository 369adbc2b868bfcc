"""The rows of a stored run by column: what its figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .... import serde
from ....internal.garbage import collector_paused
from ..._types import Score
from ...model.grouping import ABSENT, slice_name
from ...model.result import EvalResult, criterion_verdicts
from ...runs.table import RunTable, TableRow, known_latency
from .checksums import check_row
from .database import Database
from .encoding import decode_id, decompress
from .reading import RowsMovedError, read_pages, score_of_columns, text_key


@dataclass(frozen=True, slots=True)
class _Stored:
    """The only parts of a stored result that are not in its columns."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    score: Score | None = None


_NOTHING = _Stored()
_decode_scores: Callable[[bytes], dict[str, float]] = serde.decoder(dict[str, float])


def read_table(
    database: Database, run_key: int, keys: Iterable[str] = (), *, verdicts: bool = False
) -> RunTable:
    """Return the rows of a stored run by column, with these keys of their metadata.

    Long values are read only for keys, and for the `verdicts` of the criteria; those that cannot be
    read are counted. A row whose columns are damaged is an error of infrastructure.
    """
    keys = tuple(dict.fromkeys(keys))
    try:
        return _read_table(database, run_key, keys, verdicts=verdicts)
    except RowsMovedError:
        with database.snapshot():
            return _read_table(database, run_key, keys, verdicts=verdicts)


def _read_table(
    database: Database, run_key: int, keys: tuple[str, ...], *, verdicts: bool
) -> RunTable:
    bodies = verdicts or bool(keys)
    table = RunTable(keys=keys)
    with collector_paused():
        for page in read_pages(database, run_key, bodies=bodies):
            with database.corruption_errors("rows in their order"):
                for columns in page:
                    stored = _stored(columns) if bodies else _NOTHING
                    metadata = _slices((stored or _NOTHING).metadata, keys)
                    row = table_row(columns, metadata)
                    if verdicts and not row.error:
                        row = row._replace(verdicts=_verdicts(row, (stored or _NOTHING).score))
                    table.append(row)
                    table.unreadable += stored is None or not columns.intact
    return table


def table_row(columns: Any, metadata: tuple[str, ...] = ()) -> TableRow:
    """Return the row of stored columns."""
    if not columns.intact:
        experiment, sample, epoch = text_key(columns)
        none = tuple(ABSENT for _ in metadata)
        return TableRow(
            *(sample, epoch, experiment, False, True, 0.0),
            error_source="infrastructure",
            metadata=none,
        )
    known: Any = decode_id(columns.error_source) if columns.error_source else None
    return TableRow(
        decode_id(columns.sample),
        columns.epoch,
        decode_id(columns.experiment),
        columns.passed == 1,
        columns.error == 1,
        columns.value,
        known_latency(columns.latency_ms, known),
        columns.tokens or None,
        columns.cost,
        _decode_scores(columns.scores),
        decode_id(columns.sample_digest),
        known,
        columns.judge_tokens,
        columns.judge_cost,
        metadata,
        agent_version=decode_id(columns.agent_version or b""),
    )


def _stored(columns: Any) -> _Stored | None:
    """Return the parts of the long value of a row; None if it cannot be read."""
    try:
        check_row(columns.intact, columns.body_checksum, columns.result, columns.session)
        return serde.decode(decompress(columns.result), _Stored)
    except Exception:  # changed bytes can raise anything
        return None


def _slices(metadata: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(slice_name(metadata, key) for key in keys)


def _verdicts(row: TableRow, score: Score | None) -> Mapping[str, bool]:
    if score is None:
        score = score_of_columns(row.value, row.passed, row.scores)
    return criterion_verdicts(EvalResult(row.sample, score))
