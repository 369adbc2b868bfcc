"""The run store: one SQLite file of runs, which threads and processes may use at the same time.

Theory of operation
-------------------
A run is one row of the table `runs`: its manifest, status, note and owner. A result is one row of
`rows`, with the columns that are counted (verdict, value, tokens), and one of `bodies`, with the
compressed JSON of the result and the session. Counting and listing therefore never read a body.
`store/schema.py` defines the tables, `store/rows.py` encodes rows, `store/reading.py` decodes them.

Writing. `put` appends a row to a queue in memory and returns. One writer thread per store
(`store/writer.py`) commits the queue every 100 ms, up to 1,000 rows per transaction, with a few
multi-row upserts. The key of a row is (run, experiment, sample, epoch), and the first row of a key
wins, so a redelivered result changes nothing; `put` lists the exceptions.

Back-pressure. The queue is bounded in bytes and in time, not in rows. A row of 64 KB or more is
never queued: its caller encodes and commits it. When 2 MB are queued, or a row waits for 0.25 s,
`behind` asks callers to `flush`. After a failed commit nothing is lost: the queue is kept, the next
`put` raises, and `flush` tries again. Rows of a run that was removed, or that another process took
over, can never be committed: they leave the queue, and every further call for that run raises.

Completeness. `finish` compares the stored rows with what was settled or planned, and then reads
them by a new connection: a run is only reported as complete if another process finds it so.

Durability. `begin` and `finish` are synchronous to the disk, everything else survives the death
of the process but may be lost with the power since the last of the two.

Checksums. A row carries a checksum of its columns and one of its body; `tallies` holds the sums of
a run's rows, kept by triggers (`store/checksums.py`). A row that was changed on disk is read as an
error in its place, a run whose rows do not add up is "damaged", and `resume` runs such samples
again.

Ownership. A process that runs a run claims it: a kernel lock on its machine, and a heartbeat for
other machines (`store/ownership.py`). A second process is refused; the run of a dead one can be
taken over. Every commit of an owner checks that it still is one.

Migrations. `PRAGMA user_version` counts the migrations that a file has had. Opening it applies the
missing ones in one transaction; a file of a newer version, or of another program, is refused.

Forks. SQLite's locks do not survive a fork. Connections are closed before and reopened after it in
the parent; the child has to open its own store.

Rules of this file:
1. What `begin`, `flush`, `finish`, `save`, `tag` and `delete` have returned from survives
   `kill -9`.
2. Readers see what is committed, never a part of it.
3. Memory follows the page that is read, not the run.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from ... import serde
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import SerializationError, StoreError, UsageError, short_repr
from ...internal.closing import Closing
from ...internal.garbage import collector_paused
from ...runtime.session import Session, SessionSnapshot, SessionView
from ...secrets import logger_for, redact, redact_bytes, redact_message
from ..model.decision import Decision
from ..model.versions import CriterionInfo, WorkerVersion
from ..runs.figures import Figures
from ..runs.report import EvalReport
from .checksums import INTACT
from .corrections import corrections_of
from .default_path import default_store_path
from .ownership import RunClaim
from .reading import PLAIN, read_rows
from .records import (
    STATUSES,
    RunRecord,
    StopReason,
    find_named,
    list_names,
    microseconds,
    read_manifest,
    read_records,
    tally_again,
)
from .removal import erase, erase_what_is_left, remove_run
from .row_size import approximate_size
from .rows import (
    KeyState,
    RefusedRuns,
    RunManifest,
    StoredRow,
    compress,
    decode_id,
    decompress,
    encode_id,
    insert_rows,
    to_columns,
    unique_columns,
    with_workers,
    write_rows,
)
from .schema import RUN_CHECKSUM, Database
from .stored_figures import stored_figures
from .values import OutcomeStore, SessionStore
from .writer import Writer

__all__ = ["CriterionInfo", "KeyState", "RunManifest", "RunRecord", "RunStore", "StoredRow"]

logger = logger_for(__name__)

_MAX_LISTED = 5  # run ids in an error message
_LATEST = re.compile(r"latest(?:~([0-9]{1,9}))?")
_NAMED = re.compile(r"(suite|tag):(.+?)(?:~([0-9]{1,9}))?", re.DOTALL)

_SET_CHECKSUM = f"UPDATE runs SET checksum = {RUN_CHECKSUM} WHERE run_id = ?"


class RunStore(Closing):
    """A file of runs. `put` returns at once; a thread of the store writes the rows.

    >>> import tempfile
    >>> with RunStore(f"{tempfile.mkdtemp()}/runs.db") as store:
    ...     store.runs()
    []

    Leaving the `with` block, or the process, writes what is still queued. `sessions` keeps sessions
    by id, and `outcomes` the first value of each key. A forked process has to open its own store.
    """

    def __init__(self, path: Path | str | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = default_store_path() if path is None else Path(path)
        self._clock = clock
        self._database = Database(self.path)
        erase_what_is_left(self._database)
        self._claims: dict[str, RunClaim] = {}
        self._refused = RefusedRuns()
        commit = partial(write_rows, self._database, claims=self._claims, refused=self._refused)
        self._writer: Writer[StoredRow] = Writer(commit, approximate_size, to_columns)
        self._known_runs: set[str] = set()
        self.sessions = SessionStore(self._database)
        self.outcomes = OutcomeStore(self._database)
        self._finalizer = weakref.finalize(
            self, _close_at_exit, self._writer, self._database, self._refused
        )

    def __repr__(self) -> str:
        return f"<RunStore {str(self.path)!r}>"

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def claim(self, run_id: str, *, new: bool = False) -> RunClaim:
        """Claim a run for this process alone, until the claim is released.

        Raise a `UsageError` if another process or task runs it or, with `new`, if it is stored. If
        its process is on another machine, watch for up to 30 seconds whether that one is alive.
        """
        self._database.check_usable()
        stored_id = encode_id(run_id)
        return RunClaim(self._database, run_id, stored_id, new=new, clock=self._clock)

    def begin(self, manifest: RunManifest, claim: RunClaim | None = None) -> None:
        """Store the manifest of a run; a run that is stored already is continued.

        The run belongs to the owner of the `claim`; without one it has no owner.
        """
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
        """Queue a row; it is written within 100 ms, or by the next `flush`.

        A row of 64 KB or more is on disk when this returns; in async code, use `offer`.
        The first row of a key stays, with four exceptions: a row replaces one that was scored by
        other `criteria`, one with another `sample_digest`, an error with a lower `attempt`, and one
        that fails its checksum. After a failed write this raises a `StoreError`; the queue is kept,
        and `flush` tries again. It also raises one once rows of the run were refused, because the
        run was removed or another process took it over.
        """
        if not self.offer(row):
            self._writer.write(row)
            self._refused.check(row.result.run_id)

    def offer(self, row: StoredRow) -> bool:
        """Queue a row and return True; return False if it is large, to be `put` in a thread."""
        self._database.check_usable()
        if (run_id := row.result.run_id) not in self._known_runs:
            self._run_key(run_id)
            self._known_runs.add(run_id)
        self._refused.check(run_id)
        return self._writer.offer(row)

    @property
    def pending(self) -> int:
        """The number of rows that are queued and not committed yet."""
        return self._writer.pending

    def behind(self, max_rows: int) -> bool:
        """Return whether to `flush`: `max_rows` rows or 2 MB are queued, or one for 0.25 s."""
        return self._writer.behind(max_rows)

    def flush(self, run_id: str | None = None) -> None:
        """Commit the queued rows before returning.

        Raise a `StoreError` if rows were refused (of the run, if one is given), because their run
        was removed or another process took it over.
        """
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
        """Flush, then store how a run ended: "complete", "interrupted", "stopped" or
        "cancelled".

        If fewer rows are stored than results were `settled` or, for a "complete" run, than were
        planned, the run is "interrupted", and a `StoreError` is raised. One is also raised if a new
        connection to the file does not find the rows, because it was removed, replaced or cut.
        `decision` is what the rule that stopped the run had found, `dataset_digest` the content
        hash of its dataset.
        """
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
            manifest = self._change_manifest(
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
        """Store runs that ended elsewhere, each with its rows and a note, in one transaction.

        All of them are stored, or nothing. A run without a note is "complete" and needs as many
        rows as were planned; with a note, which says what is missing, it is "interrupted". Raise a
        `UsageError` if two rows of a run have one key, or if one of the runs is stored already.
        """
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
                insert_rows(cursor, [(run_key, *rest) for _, *rest in rows])
                stored, planned = tally_again(cursor, run_key), manifest.planned or 0
                if stored < max(len(rows), 0 if note else planned):
                    raise StoreError(
                        f"expected {max(len(rows), planned):,} results of the run {run_id!r} in "
                        f"the store, got {stored:,} ({self.path}) - nothing is stored"
                    )
                status = "interrupted" if note else "complete"
                _set_finished(cursor, run_id, (status, note, "", now))
        for manifest, _, rows, _ in encoded:
            self._check_anew(manifest.run_id, len(rows), now)

    def delete(self, run_id: str) -> bool:
        """Remove a run with its rows and labels; raise a `UsageError` while a process runs it.

        Return whether no text of it is left in the files of the store. If not, another process was
        reading: what is left is in the write-ahead log, and the next one that opens the store
        removes it.
        """
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

    def tag(
        self, run_id: str, tags: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> RunManifest:
        """Set tags of a stored run and `remove` others by key; return its manifest."""
        run_key = self._run_key(run_id, prefix=True)

        def tagged(manifest: RunManifest) -> RunManifest:
            kept = {key: text for key, text in manifest.tags.items() if key not in set(remove)}
            return replace(manifest, tags={**kept, **(tags or {})})

        with self._database.transaction(synced=True) as cursor:
            manifest = self._change_manifest(cursor, run_key, tagged)
            cursor.execute(_SET_CHECKSUM, (encode_id(manifest.run_id),))
        return manifest

    def add_workers(self, run_id: str, versions: Iterable[WorkerVersion]) -> None:
        """Add the versions of workers to the manifest of a submitted run."""
        run_key, added = self._run_key(run_id), tuple(versions)
        with self._database.transaction(synced=True) as cursor:
            self._change_manifest(cursor, run_key, lambda old: with_workers(old, added))
            cursor.execute(_SET_CHECKSUM, (encode_id(run_id),))

    def _change_manifest(
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
        """Commit the queued rows and close the file. Closing twice is fine."""
        if self._finalizer.detach():
            _close(self._writer, self._database, self._refused)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def runs(self, limit: int | None = None) -> list[RunRecord]:
        """Return the runs, newest first."""
        return read_records(self._database, limit=-1 if limit is None else limit)

    def run(self, run_id: str) -> RunRecord:
        """Return the run with this id, or the only one whose id begins with it.

        "latest" is the newest, "latest~1" the one before it; "suite:NAME" and "tag:KEY=VALUE" are
        the newest of that suite and with that tag, "suite:NAME~1" the one before it.
        """
        run_key = self._run_key(run_id, prefix=True)
        for record in read_records(self._database, "WHERE id = ?", (run_key,)):
            return record
        raise self._unknown(run_id, [])  # deleted between the two queries

    def keys(self, run_id: str) -> dict[tuple[str, str, int], KeyState]:
        """Return the state of each stored key of a run: experiment, sample id and epoch."""
        stored = self._database.read(
            "SELECT experiment, sample, epoch, sample_digest, criteria, error, attempt, "
            f"error_source FROM rows WHERE run = ? AND {INTACT}",
            (self._run_key(run_id),),
        )
        with self._database.corruption_errors(f"the keys of the run {run_id!r}"):
            return {
                (decode_id(experiment), decode_id(sample), epoch): KeyState(
                    sample_digest=decode_id(digest),
                    criteria=decode_id(criteria),
                    error=bool(error),
                    attempt=attempt,
                    error_source=None if source is None else decode_id(source),
                )
                for experiment, sample, epoch, digest, criteria, error, attempt, source in stored
            }

    def rows(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> Iterator[StoredRow]:
        """Yield the rows of a run (see `run` for its id) by position, epoch and experiment.

        Without types, inputs and outputs come back as plain data. A row that cannot be read comes
        back as an error in its place, with the reason in `StoredRow.problem`.
        """
        types = output_type, input_type, expected_type
        run_key = self._run_key(run_id, prefix=True)
        return read_rows(self._database, run_key, PLAIN if types == PLAIN else types)

    def report(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> EvalReport[Any]:
        """Return the report of a run (see `run` for its id), in dataset order."""
        record = self.run(run_id)
        manifest, complete = record.manifest, record.status == "complete"
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
                record.note or ("" if complete else f"the run is {record.status}"),
                corrections=corrections_of(self, manifest),
                quarantined=manifest.quarantined,
                decision=manifest.decision,
                selection=manifest.selection,
                mixed=record.mixed,
            )

    def figures(self, run_id: str, *, confidence: float = 0.95) -> Figures:
        """Return the figures of a run (see `run` for its id), with intervals of this confidence."""
        return stored_figures(self, self.run(run_id), confidence=confidence)

    # ── a session store and an outcome store, as `EvalLoop` and `MainLoop` take them ─────────────

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        """Save a session: `sessions.save`."""
        self.sessions.save(session_id, session)

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """Return a saved session: `sessions.load`."""
        return self.sessions.load(session_id)

    def find(self, key: str) -> bytes | None:
        """Return the value of a key: `outcomes.find`."""
        return self.outcomes.find(key)

    def keep(self, key: str, value: bytes) -> bytes:
        """Store the value of a key, unless it has one: `outcomes.keep`."""
        return self.outcomes.keep(key, value)

    # ── internal ────────────────────────────────────────────────────────────────────────────────

    def _run_key(self, run_id: str, *, prefix: bool = False) -> int:
        """Return the primary key of a run; with `prefix`, accept what `run` accepts."""
        start, end = encode_id(run_id), encode_id(run_id) + b"\xff"
        select = "SELECT id, run_id FROM runs"
        matches = self._database.read(f"{select} WHERE run_id = ?", (start,))
        if prefix and not matches and (latest := _LATEST.fullmatch(run_id)):
            order = "ORDER BY created DESC, id DESC LIMIT 1 OFFSET ?"
            matches = self._database.read(f"{select} {order}", (int(latest[1] or 0),))
        if prefix and not matches and (named := _NAMED.fullmatch(run_id)):
            matches = find_named(self._database, named[1], named[2], int(named[3] or 0))
        if prefix and not matches:
            between = f"{select} WHERE run_id BETWEEN ? AND ? LIMIT {_MAX_LISTED}"
            matches = self._database.read(between, (start, end))
        if len(matches) != 1:
            with self._database.corruption_errors("the ids of the runs"):
                several = [decode_id(name) for _, name in matches]
            raise self._unknown(run_id, several)
        with self._database.corruption_errors(f"the run {run_id!r}"):
            return int(matches[0][0])

    def _unknown(self, run_id: str, several: list[str]) -> UsageError:
        if several:
            return UsageError(
                f"expected the id of one run, got {run_id!r}, the beginning of several: "
                f"{', '.join(several)} ({self.path}) - give more characters of it"
            )
        newest = "SELECT run_id FROM runs ORDER BY created DESC, id DESC LIMIT 1000"
        with self._database.corruption_errors(f"the run {run_id!r}"):
            known = [decode_id(stored_id) for (stored_id,) in self._database.read(newest)]
            if run_id in known:
                raise ValueError("its id is missing in the index")
            if not known and self._database.read("SELECT 1 FROM rows LIMIT 1"):
                raise ValueError("there are rows, but no runs")
        if named := _NAMED.fullmatch(run_id):
            there = list_names(self._database, named[1])[:_MAX_LISTED]
            hint = f"there are: {', '.join(there)}" if there else f"no run has a {named[1]}"
            return UsageError(f"expected a run with {run_id!r}, found none - {hint} ({self.path})")
        near = difflib.get_close_matches(run_id, known, _MAX_LISTED)
        names = ", ".join(near or known[:_MAX_LISTED])
        hint = f"{'near it' if near else 'the newest'}: {names}" if known else "there are no runs"
        return UsageError(f"expected the id of a run, got {run_id!r} - {hint} ({self.path})")


def _manifest_body(manifest: RunManifest) -> bytes:
    run_id = manifest.run_id
    if redact(run_id) != run_id:
        raise UsageError(f"expected a run id without a secret in it, got {short_repr(run_id)}")
    try:
        return compress(redact_bytes(serde.encode(manifest)))
    except SerializationError as error:
        raise UsageError(f"expected plain data in the manifest of {run_id!r}: {error}") from None


def _insert_run(
    cursor: sqlite3.Cursor, manifest: RunManifest, body: bytes, claim: RunClaim | None
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
