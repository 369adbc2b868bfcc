"""`SqliteRunStore`: runs in one SQLite file, which threads and processes may use at the same time.

Theory of operation
-------------------
A run is one row of the table `runs`: its manifest, status, note and owner. A result is one row of
`rows`, with the columns that are counted (verdict, value, tokens), and one of `bodies`, with the
compressed JSON of the result and the session. Counting and listing therefore never read a body.
`columns.py` declares the columns, `schema.py` the tables; `rows.py` encodes rows, `reading.py`
decodes them.

Writing. `put` appends a row to a queue in memory and returns. One writer thread per store
(`store/writer.py`) commits the queue every 100 ms, up to 1,000 rows per transaction, with a few
multi-row upserts.

Back-pressure. The queue is bounded in bytes and in time, not in rows. A row of 64 KB or more is
never queued: its caller encodes and commits it. When 2 MB are queued, or a row waits for 0.25 s,
`behind` asks callers to `flush`.

Durability. `begin` and `finish` are synchronous to the disk, everything else survives the death
of the process but may be lost with the power since the last of the two.

Checksums. A row carries a checksum of its columns and one of its body; `tallies` holds the sums of
a run's rows, kept by triggers (`checksums.py`). A row that was changed on disk is read as an
error in its place, a run whose rows do not add up is "damaged", and `resume` runs such samples
again.

Ownership. A process that runs a run claims it: a kernel lock on its machine, and a heartbeat for
other machines (`ownership.py`).

Migrations. `PRAGMA user_version` counts the migrations that a file has had. Opening it applies the
missing ones in one transaction; a file of a newer version, or of another program, is refused.

Forks. SQLite's locks do not survive a fork. Connections are closed before and reopened after it in
the parent; the child has to open its own store.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from .... import serde
from ....clock import SYSTEM_CLOCK, Clock
from ....errors import SerializationError, StoreError, UsageError, short_repr
from ....secrets import logger_for, redact, redact_bytes, redact_message
from ...model.decision import Decision
from ...runs.figures import Figures, run_figures
from ...runs.table import RunTable
from ..base_store import BaseRunStore
from ..browse import RunBrowser
from ..deaths import Deaths
from ..manifest import RunManifest
from ..row_size import approximate_size
from ..run_record import STATUSES, RunRecord, StopReason, scope_of
from ..run_store import RowKind, RunClaim
from ..stored_row import KeyState, RowKey, StoredRow
from ..writer import RefusedRuns, Writer
from . import placement
from .checksums import INTACT
from .columns import ORDER, RowColumns
from .database import Database
from .encoding import compress, decode_id, decompress, encode_id
from .kept_figures import kept_figures
from .ownership import SqliteRunClaim, lock_path, read_deaths
from .people import SqlitePeopleRecords
from .reading import (
    IN_ORDER,
    PLAIN,
    columns_of,
    lost_row,
    read_parts,
    read_rows,
    to_row,
    unreadable_keys,
)
from .records import (
    check_rows,
    find_run_key,
    microseconds,
    read_manifest,
    read_records,
    tally_again,
)
from .removal import erase, erase_what_is_left, remove_run
from .rows import insert_rows, to_columns, unique_columns, write_rows
from .schema import RUN_CHECKSUM
from .tables import read_table
from .values import SqliteValues

T = TypeVar("T")

logger = logger_for(__name__)

# A row whose columns are damaged is an error, whatever they say.
_KINDS: Mapping[RowKind, str] = {
    "passed": f"passed AND {INTACT}",
    "failed": f"NOT passed AND NOT error AND {INTACT}",
    "errors": f"(error OR NOT {INTACT})",
}
_MAX_VALUES = 500  # in one query
_SET_CHECKSUM = f"UPDATE runs SET checksum = {RUN_CHECKSUM} WHERE run_id = ?"
_STATES = """
SELECT id, run_id, status, note, stop_reason, finished, manifest, count, passed, errors, figures,
checksums FROM runs LEFT JOIN tallies ON tallies.run = id ORDER BY created DESC, id DESC
"""


class SqliteRunStore(SqliteValues, BaseRunStore):
    """A file of runs. `put` returns at once; a thread of the store writes the rows.

    >>> import tempfile
    >>> with SqliteRunStore(f"{tempfile.mkdtemp()}/runs.db") as store:
    ...     store.runs()
    []

    Leaving the `with` block, or the process, writes what is still queued. A forked process has to
    open its own store.
    """

    def __init__(self, path: Path | str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path)
        self._clock = clock
        self._database = Database(self.path)
        erase_what_is_left(self._database)
        self._claims: dict[str, SqliteRunClaim] = {}
        self._refused = RefusedRuns()
        commit = partial(write_rows, self._database, claims=self._claims, refused=self._refused)
        self._writer: Writer[StoredRow] = Writer(commit, approximate_size, to_columns)
        self._known_runs: set[str] = set()
        self.people = SqlitePeopleRecords(self._database)
        self._finalizer = weakref.finalize(
            self, _close_at_exit, self._writer, self._database, self._refused
        )

    @property
    def location(self) -> str:
        return str(self.path)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def claim(self, run_id: str, *, new: bool = False) -> SqliteRunClaim:
        self._database.check_usable()
        stored_id = encode_id(run_id)
        return SqliteRunClaim(self._database, run_id, stored_id, new=new, clock=self._clock)

    def begin(self, manifest: RunManifest, claim: RunClaim | None = None) -> None:
        if not isinstance(claim, SqliteRunClaim | None):
            raise UsageError(f"expected a claim of {self!r}, got {short_repr(claim)}")
        run_id, body = manifest.run_id, _manifest_body(manifest)
        with self._database.transaction(synced=True) as cursor:
            if claim is not None:
                claim.check_new(cursor) if claim.new else claim.check(cursor)
                self._claims[run_id] = claim
            _insert_run(cursor, manifest, body, claim)
            if claim is not None:
                claim.begin(cursor)
        self._refused.forget(run_id)
        self._known_runs.add(run_id)

    def put(self, row: StoredRow) -> None:
        if not self.offer(row):
            self._writer.write(row)
            self._refused.check(row.result.run_id)

    def offer(self, row: StoredRow) -> bool:
        self._database.check_usable()
        if (run_id := row.result.run_id) not in self._known_runs:
            self._run_key(run_id)
            self._known_runs.add(run_id)
        self._refused.check(run_id)
        return self._writer.offer(row)

    @property
    def pending(self) -> int:
        return self._writer.pending

    def behind(self, max_rows: int) -> bool:
        return self._writer.behind(max_rows)

    def flush(self, run_id: str | None = None) -> None:
        self._database.check_usable()
        self._writer.flush()
        self._refused.check(run_id)

    def finish(
        self,
        run_id: str,
        status: str,
        note: str = "",
        stop_reason: StopReason = "",
        *,
        settled: int = 0,
        decision: Decision | None = None,
        dataset_digest: str | None = None,
    ) -> None:
        if status not in STATUSES:
            raise UsageError(f"expected one of {', '.join(STATUSES)}, got {short_repr(status)}")
        self.flush(run_id)
        now = microseconds(self._clock.now())
        run_key, claim = self._run_key(run_id), self._claims.get(run_id)
        facts = {"decision": decision, "dataset_digest": dataset_digest}
        known: dict[str, Any] = {name: fact for name, fact in facts.items() if fact is not None}
        with self._database.transaction(synced=True) as cursor:
            if claim is not None:
                claim.check(cursor)
            stored = tally_again(cursor, run_key)
            manifest = self._with_manifest(
                cursor, run_key, lambda old: replace(old, **known) if known else old
            )
            planned = manifest.planned or 0 if status == "complete" else 0
            expected = max(settled, planned)
            if stored < expected:
                status, note = "interrupted", f"{stored:,} of {expected:,} results are stored"
                stop_reason = ""
            _set_finished(cursor, run_id, (status, note, stop_reason, now))
        if stored < expected:
            raise StoreError(
                f"expected {expected:,} results of the run {run_id!r} in the store, got {stored:,} "
                f"({self.path}) - the run is stored as interrupted: resume it, or run it again"
            )
        self._check_anew(run_id, stored, None if claim is None else now)

    def _check_anew(self, run_id: str, stored: int, finished: int | None) -> None:
        """Raise if another process would not find the rows of a run in the file.

        A run without an owner may have been begun again by another collector: it has no `finished`.
        """
        lost = "the file was removed, replaced or cut while it was in use: run again"
        expected = f"expected the {stored:,} results of the run {run_id!r} to be in {self.path}"
        try:
            rows = self._database.read_anew(
                "SELECT finished, (SELECT count(bodies.id) FROM rows LEFT JOIN bodies "
                "ON bodies.id = body WHERE run = runs.id) FROM runs WHERE run_id = ?",
                (encode_id(run_id),),
            )
        except StoreError as error:
            raise StoreError(f"{expected}, but: {error} - {lost}") from error
        found = rows[0][1] if rows and finished in (None, rows[0][0]) else 0
        if found < stored:
            raise StoreError(f"{expected}, but a new connection finds {found:,} - {lost}")

    def add(self, runs: Iterable[tuple[RunManifest, Iterable[StoredRow], str]]) -> None:
        # Encoded before the file is locked, and one run at a time: memory has one run uncompressed.
        encoded = [
            (manifest, _manifest_body(manifest), unique_columns(manifest.run_id, rows), note)
            for manifest, rows, note in runs
        ]
        now = microseconds(self._clock.now())
        with self._database.transaction(synced=True) as cursor:
            for manifest, body, rows, note in encoded:
                run_id = manifest.run_id
                find = "SELECT id FROM runs WHERE run_id = ?"
                if cursor.execute(find, (encode_id(run_id),)).fetchall():
                    raise UsageError(f"expected a new run id, got {run_id!r}, which is stored")
                _insert_run(cursor, manifest, body, None)
                ((run_key,),) = cursor.execute(find, (encode_id(run_id),)).fetchall()
                insert_rows(cursor, {run_id: run_key}, rows)
                stored = tally_again(cursor, run_key)
                expected = max(len(rows), 0 if note else manifest.planned or 0)
                if stored < expected:
                    raise StoreError(
                        f"expected {expected:,} results of the run {run_id!r} in "
                        f"the store, got {stored:,} ({self.path}) - nothing is stored"
                    )
                status = "interrupted" if note else "complete"
                _set_finished(cursor, run_id, (status, note, "", now))
        for manifest, _, rows, _ in encoded:
            self._check_anew(manifest.run_id, len(rows), now)

    def delete(self, run_id: str) -> bool:
        self._writer.flush()
        run_key = self._run_key(run_id)
        try:
            claim = self.claim(run_id)
        except UsageError as error:
            raise UsageError(f"{error} - only then can it be removed") from None
        try:
            self._known_runs.discard(run_id)
            remove_run(self._database, run_id, run_key)
        finally:
            claim.release()
        return erase(self._database)

    def change_manifest(
        self, run_id: str, change: Callable[[RunManifest], RunManifest]
    ) -> RunManifest:
        run_key = self._run_key(run_id)
        with self._database.transaction(synced=True) as cursor:
            manifest = self._with_manifest(cursor, run_key, change)
            cursor.execute(_SET_CHECKSUM, (encode_id(run_id),))
        return manifest

    def _with_manifest(
        self, cursor: sqlite3.Cursor, run_key: int, change: Callable[[RunManifest], RunManifest]
    ) -> RunManifest:
        select = "SELECT manifest, run_id FROM runs WHERE id = ?"
        body, run_id = cursor.execute(select, (run_key,)).fetchone()
        with self._database.corruption_errors(f"the run {run_id!r}"):
            manifest = change(before := read_manifest(decompress(body)))
        if manifest is before:
            return manifest
        body = compress(redact_bytes(serde.encode(manifest)))
        cursor.execute("UPDATE runs SET manifest = ? WHERE id = ?", (body, run_key))
        return manifest

    def close(self) -> None:
        if self._finalizer.detach():
            _close(self._writer, self._database, self._refused)

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def run_ids(self, start: str = "", *, limit: int | None = None, skip: int = 0) -> list[str]:
        first = encode_id(start)
        of, values = (
            ("WHERE run_id BETWEEN ? AND ?", (first, first + b"\xff")) if start else ("", ())
        )
        query = f"SELECT run_id FROM runs {of} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?"
        found = self._database.read(query, (*values, -1 if limit is None else limit, skip))
        with self._database.corruption_errors("the ids of the runs"):
            return [decode_id(stored_id) for (stored_id,) in found]

    def unknown_run(self, name: str, several: Iterable[str] = ()) -> UsageError:
        database = self._database
        with database.snapshot(), database.corruption_errors(f"the run {name!r}"):
            known = self.run_ids()
            if name in known and find_run_key(database, name) is None:
                raise ValueError("its id is missing in the index")
            if not known and database.read("SELECT 1 FROM rows LIMIT 1"):
                raise ValueError("there are rows, but no runs")
        return super().unknown_run(name, several)

    def manifests(self, limit: int | None = None) -> Iterator[RunManifest]:
        query = "SELECT run_id, manifest FROM runs ORDER BY created DESC, id DESC LIMIT ?"
        for run_id, body in self._database.read(query, (-1 if limit is None else limit,)):
            with self._database.corruption_errors(
                f"the run {short_repr(run_id).removeprefix('b')}"
            ):
                manifest = read_manifest(decompress(body))
            yield manifest

    def runs(
        self, limit: int | None = None, *, ids: Collection[str] | None = None
    ) -> list[RunRecord]:
        limit = -1 if limit is None else limit
        if ids is None:
            return read_records(self._database, limit=limit)
        where = f"WHERE run_id IN ({', '.join('?' * len(ids))})"
        return read_records(self._database, where, [*map(encode_id, ids)], limit)

    def states(self) -> Mapping[str, Hashable]:
        with self._database.corruption_errors("the ids of the runs"):
            return {decode_id(row[1]): _state(row) for row in self._database.read(_STATES)}

    def row_state(self, run_id: str) -> Hashable:
        query = "SELECT count, passed, errors, figures, checksums FROM tallies WHERE run = ?"
        return tuple(self._database.read(query, (self._run_key(run_id),)))

    def data_version(self) -> int:
        return int(self._database.read("PRAGMA data_version")[0][0])

    def figures(self, run: str | RunRecord, *, confidence: float = 0.95) -> Figures:
        record = self.run(run) if isinstance(run, str) else run
        scope, run_id = scope_of(record, confidence=confidence), record.manifest.run_id

        def compute() -> Figures:
            return run_figures(self.table(run_id, scope.keys), scope)

        if record.damaged or record.status == "running":
            return compute()
        return kept_figures(self._database, self._run_key(run_id), scope, compute)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def rows(
        self,
        run_id: str,
        *kinds: RowKind,
        samples: Collection[str] | None = None,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> Iterator[StoredRow]:
        types = output_type, input_type, expected_type
        types = PLAIN if types == PLAIN else types
        run_key, where = self._run_key(self.find_run(run_id)), _where(kinds)
        if samples is None:
            lost = "errors" in kinds
            return read_rows(self._database, run_key, types, where, with_lost=lost)
        return self._rows_of(run_key, types, where, samples)

    def _rows_of(
        self, run_key: int, types: tuple[Any, Any, Any], where: str, samples: Collection[str]
    ) -> Iterator[StoredRow]:
        """Yield the rows of samples: a part of the samples at a time."""
        chosen = sorted({encode_id(sample) for sample in samples})
        places: list[tuple[Any, ...]] = []
        for start in range(0, len(chosen), _MAX_VALUES):
            some = chosen[start : start + _MAX_VALUES]
            query = (
                f"SELECT {ORDER} FROM {IN_ORDER} WHERE run = ? AND sample IN "
                f"({', '.join('?' * len(some))}) AND ({where})"
            )
            places += self._database.read(query, (run_key, *some))
        select = (
            f"SELECT {columns_of('rows')} FROM rows LEFT JOIN bodies ON bodies.id = body "
            f"WHERE run = ? AND ({ORDER}) = (?, ?, ?, ?)"
        )
        with self._database.corruption_errors("rows in their order"):
            places.sort()
        for place in places:
            found = [*map(RowColumns._make, self._database.read(select, (run_key, *place)))]
            for columns in found or [lost_row(*place)]:
                yield to_row(columns, self._database, run_key, types)

    def row(self, run_id: str, experiment: str, sample_id: str, epoch: int) -> StoredRow | None:
        if epoch.bit_length() > 63:  # SQLite has no such number
            return None
        query = (
            f"SELECT {columns_of('rows')} FROM rows LEFT JOIN bodies ON bodies.id = body "
            "WHERE run = ? AND experiment = ? AND sample = ? AND epoch = ?"
        )
        run_key = self._run_key(run_id)
        key = encode_id(experiment), encode_id(sample_id), epoch
        for columns in self._database.read(query, (run_key, *key)):
            return to_row(RowColumns._make(columns), self._database, run_key)
        # There is none, or the index is damaged.
        return super().row(run_id, experiment, sample_id, epoch)

    def table(self, run_id: str, keys: Iterable[str] = (), *, verdicts: bool = False) -> RunTable:
        return read_table(self._database, self._run_key(run_id), keys, verdicts=verdicts)

    def parts(
        self, run_id: str, cls: type[T], *kinds: RowKind
    ) -> Iterator[tuple[RowKey, T | None]]:
        lost = "errors" in kinds
        run_key, where = self._run_key(run_id), _where(kinds)
        return read_parts(self._database, run_key, cls, where, with_lost=lost)

    def unreadable(self, run_id: str) -> set[RowKey]:
        return unreadable_keys(self._database, self._run_key(run_id))

    def check_rows(self, run_id: str) -> None:
        check_rows(self._database, self._run_key(run_id), run_id)

    def browser(self) -> RunBrowser:
        from .browse import SqliteRunBrowser  # here: runs do not need it

        return SqliteRunBrowser(self, self._database)

    # ── resuming ────────────────────────────────────────────────────────────────────────────────

    def keys(self, run_id: str) -> dict[RowKey, KeyState]:
        return placement.counted_keys(self._database, self._run_key(run_id))

    def stored_keys(self, run_id: str) -> Sequence[KeyState]:
        return placement.read_keys(self._database, self._run_key(run_id))

    def move_rows(self, run_id: str, places: Iterable[tuple[KeyState, int | None]]) -> None:
        placement.move_rows(self._database, self._run_key(run_id), places)

    def drop_damaged(self, run_id: str) -> None:
        placement.drop_damaged(self._database, self._run_key(run_id))

    def deaths(self, run_id: str) -> Mapping[tuple[bytes, int], Deaths]:
        return read_deaths(self._database, self._run_key(run_id))

    def in_flight_file(self, run_id: str) -> Path | None:
        return lock_path(self.path, encode_id(run_id))

    def _run_key(self, run_id: str) -> int:
        """Return the primary key of a run."""
        if (key := find_run_key(self._database, run_id)) is None:
            raise self.unknown_run(run_id)
        return key


def _where(kinds: Iterable[RowKind]) -> str:
    return " OR ".join(_KINDS[kind] for kind in kinds) or "1"


def _state(row: Sequence[Any]) -> Hashable:
    manifest = row[6]
    digest = blake2b(manifest, digest_size=8).digest() if isinstance(manifest, bytes) else manifest
    return (row[0], *row[2:6], digest, *row[7:])


def _manifest_body(manifest: RunManifest) -> bytes:
    run_id = manifest.run_id
    if redact(run_id) != run_id:
        raise UsageError(f"expected a run id without a secret in it, got {short_repr(run_id)}")
    try:
        return compress(redact_bytes(serde.encode(manifest)))
    except SerializationError as error:
        raise UsageError(f"expected plain data in the manifest of {run_id!r}: {error}") from None


def _insert_run(
    cursor: sqlite3.Cursor, manifest: RunManifest, body: bytes, claim: SqliteRunClaim | None
) -> None:
    stored_id = encode_id(manifest.run_id)
    owner = (None, None) if claim is None else claim.columns
    cursor.execute(
        "INSERT INTO runs (run_id, created, status, note, manifest, owner, heartbeat, "
        "active) VALUES (?, ?, 'running', x'', ?, ?, ?, ?) "
        "ON CONFLICT (run_id) DO UPDATE SET "
        "created = excluded.created, finished = NULL, status = excluded.status, "
        "note = excluded.note, stop_reason = '', manifest = excluded.manifest, "
        "owner = excluded.owner, heartbeat = excluded.heartbeat, "
        "active = coalesce(active, finished - created, excluded.active)",
        (
            *(stored_id, microseconds(manifest.created_at), body, *owner),
            None if claim is None else 0,
        ),
    )
    cursor.execute(_SET_CHECKSUM, (stored_id,))


def _set_finished(cursor: sqlite3.Cursor, run_id: str, end: tuple[str, str, str, int]) -> None:
    status, note, stop_reason, now = end
    cursor.execute(
        "UPDATE runs SET status = ?, note = ?, stop_reason = ?, finished = ? WHERE run_id = ?",
        (status, encode_id(redact_message(note)), stop_reason, now, encode_id(run_id)),
    )
    cursor.execute(_SET_CHECKSUM, (encode_id(run_id),))


def _close(writer: Writer[StoredRow], database: Database, refused: RefusedRuns) -> None:
    try:
        writer.close()
    finally:
        database.close()
    refused.check()


def _close_at_exit(writer: Writer[StoredRow], database: Database, refused: RefusedRuns) -> None:
    """Close a store that was not closed, when it is collected or the process exits."""
    if database.opened_before_fork:  # the rows and the connection belong to the parent process
        return
    try:
        _close(writer, database, refused)
    except StoreError as error:
        logger.error("%s rows could not be stored: %s", writer.pending or "some", error)
