"""The rows of a stored run by column: what its figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import serde
from ...internal.garbage import collector_paused
from .._types import Score
from ..model.grouping import ABSENT, slice_name
from ..model.result import EvalResult, criterion_verdicts
from ..runs.table import RunTable, TableRow, known_latency
from .checksums import INTACT
from .reading import read_pages, score_of_columns, text_key
from .rows import decode_id, decompress
from .schema import Database, Storage

COUNTED = (
    "passed, error, value, latency_ms, tokens, cost, scores, sample_digest, error_source, "
    f"judge_tokens, judge_cost, {INTACT}"
)
"""The columns that `table_row` takes after those of `ORDER`."""
_PAGE_ROWS = 2_000  # columns without bodies are small


@dataclass(frozen=True, slots=True)
class _Stored:
    """The only parts of a stored result that are not in its columns."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    score: Score | None = None


_decode_scores: Callable[[bytes], dict[str, float]] = serde.decoder(dict[str, float])


def run_table(
    store: Storage, run_id: str, keys: Iterable[str] = (), *, verdicts: bool = False
) -> RunTable:
    """Return the rows of a stored run by column, with these keys of their metadata.

    Long values are read only for keys, and for the `verdicts` of the criteria. A row whose columns
    are damaged is an error of infrastructure.
    """
    return read_table(store._database, store._run_key(run_id), keys, verdicts=verdicts)


def read_table(
    database: Database, run_key: int, keys: Iterable[str] = (), *, verdicts: bool = False
) -> RunTable:
    """Return the rows of a stored run by its primary key, as `run_table` does."""
    keys = tuple(dict.fromkeys(keys))
    bodies = verdicts or bool(keys)
    pages = (
        read_pages(database, run_key, f"{COUNTED}, result")
        if bodies
        else read_pages(database, run_key, COUNTED, bodies=False, size=_PAGE_ROWS)
    )
    table = RunTable(keys=keys)
    with collector_paused():
        for page in pages:
            with database.corruption_errors("rows in their order"):
                for columns in page:
                    stored = _stored(columns[-1]) if bodies else None
                    metadata = () if stored is None else _slices(stored.metadata, keys)
                    row = table_row(columns[:16], metadata)
                    if verdicts and stored is not None and not row.error:
                        row = row._replace(verdicts=_verdicts(row, stored.score))
                    table.append(row)
                    table.unreadable += not columns[15]
    return table


def table_row(columns: Sequence[Any], metadata: tuple[str, ...] = ()) -> TableRow:
    """Return the row of stored columns."""
    _, epoch, experiment, sample, passed, error, value, latency, tokens, cost, *rest = columns
    scores, digest, source, judge_tokens, judge_cost, is_intact = rest
    if not is_intact:
        return _damaged(sample, experiment, epoch, metadata)
    known: Any = decode_id(source) if source else None
    return TableRow(
        decode_id(sample),
        epoch,
        decode_id(experiment),
        passed == 1,
        error == 1,
        value,
        known_latency(latency, known),
        tokens or None,
        cost,
        _decode_scores(scores),
        decode_id(digest),
        known,
        judge_tokens,
        judge_cost,
        metadata,
    )


def _damaged(sample: Any, experiment: Any, epoch: Any, metadata: tuple[str, ...]) -> TableRow:
    experiment, sample, epoch = text_key(epoch, experiment, sample)
    none = tuple(ABSENT for _ in metadata)
    return TableRow(
        sample, epoch, experiment, False, True, 0.0, error_source="infrastructure", metadata=none
    )


def _stored(body: Any) -> _Stored:
    try:
        return serde.decode(decompress(body), _Stored)
    except Exception:  # changed bytes can raise anything
        return _Stored()


def _slices(metadata: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(slice_name(metadata, key) for key in keys)


def _verdicts(row: TableRow, score: Score | None) -> Mapping[str, bool]:
    if score is None:
        score = score_of_columns(row.value, row.passed, row.scores)
    return criterion_verdicts(EvalResult(row.sample, score))
