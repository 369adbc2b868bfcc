"""Records of runs, as lists show them: status, counts, times.

Rules of this file:
1. Counts are computed from the rows; a row that fails its checksum counts as an error.
2. A run whose rows do not add up to its tally is "damaged", and its note says so.
3. A run whose process died is "interrupted", not "running" forever. Whether a process on another
   machine died cannot be seen at once: the note of a "running" run says when it was last heard of.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from .... import serde
from ....errors import StoreError, short_repr
from ...runs.figures import run_figures
from ..manifest import RunManifest
from ..run_record import RunRecord, StopReason, mark_damaged, scope_of
from .checksums import INTACT
from .database import Database
from .encoding import decode_id, decompress, encode_id
from .ownership import Owner, is_alive, local_time, owner_of
from .schema import RUN_CHECKSUM, TALLY
from .tables import read_table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Return a time in microseconds since 1970, as it is stored."""
    return (moment - _EPOCH) // _MICROSECOND


# Rows under the negative key of their run are set aside: see `placement.py`.
_SET_ASIDE = """FROM rows AS aside WHERE aside.run = -id AND NOT EXISTS (
        SELECT 1 FROM rows WHERE rows.run = id AND rows.experiment = aside.experiment
        AND rows.sample = aside.sample AND rows.epoch = aside.epoch)"""
_RECORDS = f"""
WITH listed AS (SELECT * FROM runs {{where}} ORDER BY created DESC, id DESC LIMIT ?)
SELECT id, run_id, manifest, status, note, stop_reason, finished, owner, heartbeat, active,
    listed.checksum IS NULL OR listed.checksum = {RUN_CHECKSUM},
    (SELECT count(*) {_SET_ASIDE}), (SELECT count(*) {_SET_ASIDE} AND aside.epoch = 1),
    tallies.count, tallies.passed, tallies.errors, tallies.figures, tallies.checksums,
    actual.count, actual.passed, actual.errors, actual.figures, actual.checksums
FROM listed LEFT JOIN tallies ON tallies.run = id LEFT JOIN (
    SELECT run, {TALLY} FROM rows WHERE run IN (SELECT id FROM listed) GROUP BY run
) AS actual ON actual.run = id ORDER BY created DESC, id DESC
"""


def read_records(
    database: Database, where: str = "", values: Sequence[Any] = (), limit: int = -1
) -> list[RunRecord]:
    """Return the runs that match the condition, newest first."""
    runs = database.read(_RECORDS.format(where=where), (*values, limit))
    return [_record(database, *columns) for columns in runs]


def _recount(database: Database, run_key: int, record: RunRecord) -> RunRecord:
    """Return the record with its rows counted one by one: damaged ones are errors."""
    scope = scope_of(record)
    table = read_table(database, run_key, scope.keys)
    found = run_figures(table, scope)
    return replace(
        record,
        total=found.total,
        passed=found.passed,
        errors=found.error_count,
        quarantined=found.quarantined,
        quarantined_rows=found.quarantined_rows,
        damaged=table.unreadable,
    )


def find_run_key(database: Database, run_id: str) -> int | None:
    """Return the primary key of a run; None if there is no such run."""
    query = (  # the index alone, if it is damaged, could lead to another run
        "SELECT id FROM runs NOT INDEXED WHERE id IN (SELECT id FROM runs WHERE run_id = ?1) "
        "AND run_id = ?1"
    )
    for (key,) in database.read(query, (encode_id(run_id),)):
        with database.corruption_errors(f"the run {run_id!r}"):
            return int(key)
    return None


def tally_again(cursor: sqlite3.Cursor, run_key: int) -> int:
    """Correct the tally of a run, if all its rows are intact; return how many there are."""
    sums = f"SELECT ?, {TALLY} FROM rows WHERE run = ?"
    actual = cursor.execute(sums, (run_key, run_key)).fetchone()
    written = cursor.execute("SELECT * FROM tallies WHERE run = ?", (run_key,)).fetchone()
    damaged = f"SELECT 1 FROM rows WHERE run = ? AND NOT {INTACT} LIMIT 1"
    if actual != written and not cursor.execute(damaged, (run_key,)).fetchall():
        cursor.execute("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?, ?)", actual)
    return int(actual[1])


def check_rows(database: Database, run_key: int, run_id: str) -> None:
    """Raise a `StoreError` if the rows of a run are not all there, as they were written."""
    with database.snapshot():
        written = database.read(
            "SELECT count, passed, errors, figures, checksums, 0 FROM tallies WHERE run = ?",
            (run_key,),
        )
        actual = database.read(
            f"SELECT {TALLY}, coalesce(sum(NOT {INTACT}), 0) FROM rows WHERE run = ?", (run_key,)
        )
    if written != actual:
        raise StoreError(
            f"expected the rows of run {run_id} as they were written, got {actual[0][0]:,} with "
            f"{actual[0][-1]:,} changed ({database.path}) - the file is damaged: keep a copy of "
            "it, then resume the run"
        )


def _versions(database: Database, run_key: int) -> tuple[Counter[str], Counter[str]]:
    """Return the number of rows by each version of the agent, and by each of the evaluators.

    The first to run a sample comes first.
    """
    query = (
        "SELECT CAST(coalesce(agent_version, x'') AS BLOB) AS version, "
        "CAST(criteria AS BLOB), count(*) FROM rows "
        "WHERE run = ? AND (error_source IS NOT 'infrastructure' OR version <> x'') "
        "GROUP BY 1, 2 ORDER BY min(body)"
    )
    agents, evaluators = Counter[str](), Counter[str]()
    for version, criteria, count in database.read(query, (run_key,)):
        agents[version.decode("utf-8", "replace")] += count  # a damaged row is reported elsewhere
        evaluators[criteria.decode("utf-8", "replace")] += count
    return agents, evaluators


def read_manifest(data: bytes) -> RunManifest:
    """Return a stored manifest; of a submission by an earlier version, with its queue."""
    manifest = serde.decode(data, RunManifest)
    if manifest.command[2:3] == ("submit",) and b'"kind":' not in data:  # by an earlier version
        queue = manifest.command[manifest.command.index("--queue") + 1]
        return replace(manifest, kind="submission", queue=queue)
    return manifest


def _status_of(owner: Owner, alive: bool | None, heartbeat: int | None) -> tuple[str, str]:
    """Return the status and the note of a run that its owner has not finished."""
    if alive is False:
        return "interrupted", f"process {owner.pid} on {owner.host} ended before the run did"
    if alive or heartbeat is None:
        return "running", ""
    # Whether it still runs takes 30 seconds to find out, and its clock may differ from ours.
    last = f"last heartbeat {local_time(heartbeat)} by its clock"
    return "running", f"process {owner.pid} on {owner.host}, {last}"


def _record(database: Database, run_key: Any, run_id: Any, body: Any, *columns: Any) -> RunRecord:
    status, note, stop_reason, finished, owner, heartbeat, active, *rest = columns
    is_intact, *rest = rest
    (not_counted, samples), written = rest[:2], rest[2:7]
    actual = [value or 0 for value in rest[7:]]
    with database.corruption_errors(f"the run {short_repr(run_id).removeprefix('b')}"):
        if not is_intact:
            raise ValueError("other values than their checksum says")
        manifest, status, note = read_manifest(decompress(body)), decode_id(status), decode_id(note)
        finished_at = None if finished is None else _EPOCH + finished * _MICROSECOND
        process = owner_of(owner) if status == "running" else None
        if process is not None:
            alive = is_alive(database.absolute, run_id, process)
            status, note = _status_of(process, alive, heartbeat)
        seconds = None
        if active is not None:
            seconds = active / 1e6
        elif finished_at is not None:  # workers ran it, or an earlier release
            seconds = (finished_at - manifest.created_at).total_seconds()
        versions, by_criteria = Counter[str](), Counter[str]()
        if manifest.earlier_agents or manifest.kind == "submission":
            versions, by_criteria = _versions(database, run_key)
        record = RunRecord(
            manifest=manifest,
            status=status,
            note=note,
            stop_reason=cast(StopReason, decode_id(stop_reason)),
            finished_at=finished_at,
            active_seconds=seconds,
            total=actual[0],
            passed=actual[1],
            errors=actual[2],
            not_counted=not_counted,
            not_counted_samples=samples,
            agent_versions=versions,
            criteria_versions=by_criteria if manifest.kind == "submission" else {},
        )
    if written != actual:
        record = _recount(database, run_key, record)
        rows = max(written[0] or 0, record.stored)
        return mark_damaged(record, rows - record.stored + record.damaged, rows)
    if not scope_of(record).counts_every_row:
        return _recount(database, run_key, record)
    return record
