"""Where runs are kept: one SQLite file, which threads and processes may use at the same time.

Rules of this file:
1. What `begin`, `flush`, `finish`, `save` and `delete` have returned from survives `kill -9`; a
   loss of power may undo only what came after the last `begin` or `finish`.
2. Readers see what is committed, never a part of it.
3. Memory follows the page that is read, not the run.

The file is described in `_store_sql.py`, its rows in `_store_rows.py`.
"""

from __future__ import annotations

import difflib
import re
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from .. import serde
from ..clock import SYSTEM_CLOCK
from ..errors import SerializationError, StoreError, UsageError, shown
from ..runtime.session import Session, SessionSnapshot, SessionView
from ..secrets import logger_for, scrub, scrub_bytes, scrub_message
from ._reading import collector_paused
from ._report import EvalReport
from ._store_rows import (
    CriterionInfo,
    KeyState,
    RunManifest,
    RunRecord,
    StoredRow,
    packed,
    raw,
    row_of,
    text,
    unpacked,
    write_rows,
)
from ._store_sql import Database
from ._store_writer import Writer

__all__ = ["CriterionInfo", "KeyState", "RunManifest", "RunRecord", "RunStore", "StoredRow"]

logger = logger_for(__name__)

_STATUSES = ("complete", "interrupted", "stopped")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PAGE = 50  # rows in memory at a time
_NEAR = 5  # run ids that an error names
_LATEST = re.compile(r"latest(?:~([0-9]{1,9}))?")

_RECORDS = """
WITH listed AS (SELECT * FROM runs {where} ORDER BY created DESC, id DESC LIMIT ?)
SELECT run_id, manifest, status, note, finished, total, passed, errors, mean, tokens, cost
FROM listed LEFT JOIN (
    SELECT run, count(*) AS total, sum(passed) AS passed, sum(error) AS errors,
        avg(CASE WHEN error THEN NULL ELSE value END) AS mean,
        total(tokens) AS tokens, sum(cost) AS cost
    FROM rows WHERE run IN (SELECT id FROM listed) GROUP BY run
) ON run = id ORDER BY created DESC, id DESC
"""
_ROWS = """
SELECT position, epoch, experiment, sample, sample_digest, criteria, passed, value, result, session
FROM rows LEFT JOIN bodies ON bodies.id = body
WHERE run = ? AND (position, epoch, experiment, sample) > (?, ?, ?, ?)
ORDER BY position, epoch, experiment, sample LIMIT ?
"""
_BEFORE_ALL = (-1, 0, b"", b"")


class RunStore:
    """A file of runs. `put` returns at once; a thread of the store writes what was put.

    >>> import tempfile
    >>> with RunStore(f"{tempfile.mkdtemp()}/runs.db") as store:
    ...     store.runs()
    []

    Leaving the `with` block, or the process, writes what is still queued. A process that was
    forked off must open a store of its own: using this one there is refused.
    """

    def __init__(self, path: Path | str = ".wink/runs.db") -> None:
        self.path = Path(path)
        self._database = Database(self.path)
        self._writer: Writer[StoredRow] = Writer(partial(write_rows, self._database))
        self._known: set[str] = set()
        self._finalizer = weakref.finalize(self, _close_at_last, self._writer, self._database)

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RunStore {str(self.path)!r}>"

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, manifest: RunManifest) -> None:
        """Write down what the run is. With a `run_id` that is there already, it goes on."""
        run_id = manifest.run_id
        if scrub(run_id) != run_id:
            raise UsageError(f"expected a run id without a secret in it, got {shown(run_id)}")
        try:
            body = packed(scrub_bytes(serde.encode(manifest)))
        except SerializationError as error:
            raise UsageError(
                f"expected plain data in the manifest of {run_id!r}: {error}"
            ) from None
        with self._database.transaction(synced=True) as cursor:
            cursor.execute(
                "INSERT INTO runs (run_id, created, status, note, manifest) "
                "VALUES (?, ?, 'running', x'', ?) ON CONFLICT (run_id) DO UPDATE SET "
                "created = excluded.created, finished = NULL, status = excluded.status, "
                "note = excluded.note, manifest = excluded.manifest",
                (raw(run_id), (manifest.created_at - _EPOCH) // _MICROSECOND, body),
            )
        self._known.add(run_id)

    def put(self, row: StoredRow) -> None:
        """Queue the row; it is written as it then is, 100 ms later or at the next `flush`.

        The first row of a key stays, with three exceptions: a row replaces one that was scored by
        other `criteria`, one of another `sample_digest`, and an error whose `attempt` is lower.
        After a failed write the row is
        refused with a `StoreError`; what is queued stays there, for `flush` to try again.
        """
        self._database.check_usable()
        if (run_id := row.result.run_id) not in self._known:
            self._number(run_id)
            self._known.add(run_id)
        self._writer.put(row)

    @property
    def pending(self) -> int:
        """How many rows are queued and not committed yet."""
        return self._writer.pending

    def flush(self) -> None:
        """Commit what is queued, and return when that is done."""
        self._database.check_usable()
        self._writer.flush()

    def finish(self, run_id: str, status: str, note: str = "") -> None:
        """Say how a run ended: "complete", "interrupted" or "stopped". Flushes first."""
        if status not in _STATUSES:
            raise UsageError(f"expected one of {', '.join(_STATUSES)}, got {shown(status)}")
        self.flush()
        now = (SYSTEM_CLOCK.now() - _EPOCH) // _MICROSECOND
        number = self._number(run_id)
        with self._database.transaction(synced=True) as cursor:
            cursor.execute(
                "UPDATE runs SET status = ?, note = ?, finished = ? WHERE id = ?",
                (status, raw(scrub_message(note)), now, number),
            )

    def delete(self, run_id: str) -> None:
        """Remove a run and all its rows."""
        number = self._number(run_id)
        self._known.discard(run_id)
        with self._database.transaction() as cursor:
            cursor.execute("DELETE FROM rows WHERE run = ?", (number,))
            cursor.execute("DELETE FROM runs WHERE id = ?", (number,))

    def close(self) -> None:
        """Commit what is queued and let go of the file. Closing twice is fine."""
        if self._finalizer.detach():
            _close(self._writer, self._database)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def runs(self, limit: int | None = None) -> list[RunRecord]:
        """The runs, newest first."""
        return self._records("", (), -1 if limit is None else limit)

    def run(self, run_id: str) -> RunRecord:
        """The run with this id, or the only one whose id begins so.

        "latest" is the newest, "latest~1" the one before it.
        """
        number = self._number(run_id, guess=True)
        for record in self._records("WHERE id = ?", (number,), 1):
            return record
        raise self._unknown(run_id, [])  # deleted between the two questions

    def keys(self, run_id: str) -> dict[tuple[str, str, int], KeyState]:
        """What is stored of this very run, by experiment, sample id and epoch."""
        found = self._database.read(
            "SELECT experiment, sample, epoch, sample_digest, criteria, error, attempt, "
            "error_source FROM rows WHERE run = ?",
            (self._number(run_id),),
        )
        with self._database.reading(f"the keys of the run {run_id!r}"):
            return {
                (text(experiment), text(sample), epoch): KeyState(
                    sample_digest=text(digest),
                    criteria=text(criteria),
                    error=bool(error),
                    attempt=attempt,
                    error_source=None if source is None else text(source),
                )
                for experiment, sample, epoch, digest, criteria, error, attempt, source in found
            }

    def rows(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> Iterator[StoredRow]:
        """The rows of a run, as `run` finds it: by position, then epoch, then experiment.

        Without types, inputs and outputs come back as plain data.
        """
        number = self._number(run_id, guess=True)
        return self._pages(number, (output_type, input_type, expected_type))

    def report(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> EvalReport[Any]:
        """The report of a run, as `run` finds it, in dataset order."""
        record = self.run(run_id)
        manifest = record.manifest
        types = {
            "output_type": output_type,
            "input_type": input_type,
            "expected_type": expected_type,
        }
        with collector_paused():
            return EvalReport(
                [row.result for row in self.rows(manifest.run_id, **types)],
                manifest.run_id,
                manifest.dataset_name,
                manifest.config or None,
                record.note,
            )

    # ── sessions ────────────────────────────────────────────────────────────────────────────────

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        """Keep a session as it is now, for another process to `load`. The last one stays."""
        if isinstance(session, bytes):
            session = SessionSnapshot.from_bytes(session)
        if isinstance(session, Session):
            session = session.view()
        if not isinstance(session, SessionSnapshot):
            raise UsageError(f"expected a session or its snapshot, got {shown(session)}")
        body = packed(scrub_bytes(session.to_bytes()))
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?)", (raw(str(session_id)), body)
            )

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """The session that was saved under this id."""
        query = "SELECT body FROM sessions WHERE session_id = ?"
        what = f"the session {shown(str(session_id))}"
        found = self._database.read(query, (raw(str(session_id)),))
        if not found:
            raise StoreError(f"expected {what}, found none ({self.path}) - save it first")
        with self._database.reading(what):
            return SessionSnapshot.from_bytes(unpacked(found[0][0]))

    # ── outcomes ────────────────────────────────────────────────────────────────────────────────

    def find(self, key: str) -> bytes | None:
        """What was kept under the key, by this process or another one."""
        found = self._database.read("SELECT body FROM kept WHERE key = ?", (raw(key),))
        if not found:
            return None
        with self._database.reading(f"what is kept as {shown(key)}"):
            return unpacked(found[0][0])

    def keep(self, key: str, value: bytes) -> bytes:
        """Keep the value, unless one is there already: the one that stays."""
        with self._database.transaction() as cursor:
            cursor.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (raw(key), packed(value)))
            ((body,),) = cursor.execute("SELECT body FROM kept WHERE key = ?", (raw(key),))
        with self._database.reading(f"what is kept as {shown(key)}"):
            return unpacked(body)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _number(self, run_id: str, *, guess: bool = False) -> int:
        """The key of the run in the other tables; with `guess`, `run` says of which run."""
        start, last = raw(run_id), raw(run_id) + b"\xff"
        ids = "SELECT id, run_id FROM runs"
        found = self._database.read(f"{ids} WHERE run_id = ?", (start,))
        if guess and not found and (newest := _LATEST.fullmatch(run_id)):
            order = "ORDER BY created DESC, id DESC LIMIT 1 OFFSET ?"
            found = self._database.read(f"{ids} {order}", (int(newest[1] or 0),))
        if guess and not found:
            among = f"{ids} WHERE run_id BETWEEN ? AND ? LIMIT {_NEAR}"
            found = self._database.read(among, (start, last))
        if len(found) != 1:
            raise self._unknown(run_id, [text(name) for _, name in found])
        with self._database.reading(f"the run {run_id!r}"):
            return int(found[0][0])

    def _records(self, where: str, values: tuple[Any, ...], limit: int) -> list[RunRecord]:
        found = self._database.read(_RECORDS.format(where=where), (*values, limit))
        return [self._record(*columns) for columns in found]

    def _record(self, run_id: Any, body: Any, status: Any, *columns: Any) -> RunRecord:
        note, finished, total, passed, errors, mean, tokens, cost = columns
        with self._database.reading(f"the run {shown(run_id).removeprefix('b')}"):
            return RunRecord(
                manifest=serde.decode(unpacked(body), RunManifest),
                status=text(status),
                note=text(note),
                finished_at=None if finished is None else _EPOCH + finished * _MICROSECOND,
                total=total or 0,
                passed=passed or 0,
                errors=errors or 0,
                mean_score=mean,
                tokens=int(tokens or 0),
                cost=cost,
            )

    def _pages(self, number: int, types: tuple[Any, Any, Any]) -> Iterator[StoredRow]:
        last: tuple[Any, ...] = _BEFORE_ALL
        while page := self._database.read(_ROWS, (number, *last, _PAGE)):
            with self._database.reading("rows in their order"):
                if page[-1][:4] <= last:  # it would never end
                    raise ValueError("others")
            last = page[-1][:4]
            for columns in page:
                yield row_of(columns, types, self._database)

    def _unknown(self, run_id: str, several: list[str]) -> UsageError:
        if several:
            return UsageError(
                f"expected the id of one run, got {run_id!r}, with which several begin: "
                f"{', '.join(several)} ({self.path}) - write more of it"
            )
        newest = "SELECT run_id FROM runs ORDER BY created DESC, id DESC LIMIT 1000"
        known = [text(found) for (found,) in self._database.read(newest)]
        near = difflib.get_close_matches(run_id, known, _NEAR)
        which = "near it" if near else "the newest"
        return UsageError(
            f"expected the id of a run, got {run_id!r} - "
            + (f"{which}: {', '.join(near or known[:_NEAR])}" if known else "there are no runs")
            + f" ({self.path})"
        )


def _close(writer: Writer[StoredRow], database: Database) -> None:
    try:
        writer.close()
    finally:
        database.close()


def _close_at_last(writer: Writer[StoredRow], database: Database) -> None:
    """When nobody closed the store and it goes away, with the process or before it."""
    if database.foreign:  # the rows and the connection are those of the process that forked
        return
    try:
        _close(writer, database)
    except StoreError as error:
        logger.error("%d rows could not be stored: %s", writer.pending, error)
