"""Parts of a run that are read without the rest of it: verdicts, keys, errors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ... import serde
from ...internal.error_details import ErrorDetails
from ..model.errors import ErrorGroup, error_groups
from ..model.result import ErrorSource
from .checksums import INTACT
from .reading import read_pages, text_key, unreadable
from .rows import decode_id, decompress, encode_id
from .run_store import RunStore

_PAGE_ROWS = 2_000  # columns without bodies are small


def passes_by_sample(store: RunStore, run_id: str) -> dict[str, tuple[int, int, str]]:
    """Return, for each sample of a run, its passes, its attempts, and its digest.

    Errors of infrastructure or of an evaluator say nothing about the agent, and do not count.
    """
    query = (
        "SELECT sample, sum(passed), count(*), max(sample_digest) FROM rows WHERE run = ? AND "
        "(error_source IS NULL OR error_source NOT IN ('infrastructure', 'evaluator')) "
        "GROUP BY +sample ORDER BY min(position)"
    )
    rows = store._database.read(query, (store._run_key(run_id),))
    return {decode_id(name): (n, total, decode_id(digest)) for name, n, total, digest in rows}


class VerdictRow(NamedTuple):
    """The verdict on a sample in one run, and the version of the agent that ran it."""

    sample: str
    passed: bool
    error: bool
    error_source: str
    digest: str
    agent_version: str


def verdict_rows(store: RunStore, run_id: str) -> Iterator[VerdictRow]:
    """Yield the verdicts of a run in order, without reading bodies."""
    database, run_key = store._database, store._run_key(run_id)
    columns = "passed, error, error_source, sample_digest, agent_version"
    for page in read_pages(database, run_key, columns, INTACT, bodies=False, size=_PAGE_ROWS):
        with database.corruption_errors("rows in their order"):
            rows = [
                VerdictRow(
                    decode_id(sample),
                    passed == 1,
                    error == 1,
                    decode_id(source) if source else "agent" if error else "",
                    decode_id(digest),
                    decode_id(version or b""),
                )
                for _, _, _, sample, passed, error, source, digest, version in page
            ]
        yield from rows


@dataclass(frozen=True, slots=True)
class _StoredError:
    """The only part of a stored result that grouping its error needs."""

    sample_id: str
    error: str | None
    error_source: ErrorSource | None = None
    error_details: ErrorDetails | None = None


def stored_error_groups(
    store: RunStore, run_id: str, keys: Container[tuple[str, str, int]]
) -> tuple[ErrorGroup, ...]:
    """Return the errors of a stored run in groups: of its rows with these keys."""
    database, columns = store._database, f"result, error_source, {INTACT}"
    pages = read_pages(database, store._run_key(run_id), columns, f"error OR NOT {INTACT}")
    rows = (row for page in pages for row in page)
    return error_groups(_stored_error(row) for row in rows if text_key(*row[1:4]) in keys)


def _stored_error(columns: Sequence[Any]) -> _StoredError:
    *_, sample, body, source, is_intact = columns
    sample_id = sample.decode("utf-8", "replace") if isinstance(sample, bytes) else str(sample)
    known: Any = decode_id(source) if is_intact and source else None
    try:
        if not is_intact:
            raise ValueError("its columns were changed")
        return replace(serde.decode(decompress(body), _StoredError), sample_id=sample_id)
    except Exception:  # changed bytes can raise anything
        lost = "this row could not be read"
        return _StoredError(sample_id, lost, known if is_intact else "infrastructure")


def passed_keys(store: RunStore, run_id: str, experiment: str) -> set[tuple[str, int]]:
    """Return the sample id and epoch of each row of an experiment that passed."""
    query = "SELECT sample, epoch FROM rows WHERE run = ? AND experiment = ? AND passed"
    rows = store._database.read(query, (store._run_key(run_id), encode_id(experiment)))
    return {(decode_id(sample), epoch) for sample, epoch in rows}


def unreadable_keys(store: RunStore, run_id: str) -> set[tuple[str, str, int]]:
    """Return the experiment, sample id and epoch of each row that cannot be read."""
    rows = unreadable(store._database, store._run_key(run_id), bodies=True)
    return {(row.experiment, row.sample_id, row.epoch) for row in rows}
