"""A run and its rows as values, and how they are encoded and written.

Rules of this file:
1. One row per key `(run_id, experiment, sample_id, epoch)`. The first one stays, unless it was
   scored by other criteria, has another sample digest, is an error with a lower attempt, or fails
   its checksum.
2. A row is read back equal to what was written. What JSON cannot represent is left out, with a note
   in the result's metadata under `not_stored`; the verdict is always kept.
3. A changed byte is detected: bodies and rows carry checksums (`store/checksums.py`).
4. A row is written, or its run is reported as refused: no row is dropped without a word.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from ... import serde
from ...errors import StoreError, UsageError, short_repr
from ...internal.checks import whole
from ...internal.frozen import fast_init
from ...runtime.session import Session
from ...secrets import redact_bytes
from ..model.decision import Decision
from ..model.redacted_ids import redact_id, redact_ids
from ..model.result import EvalResult, criterion_values
from ..model.selection import Selection
from ..model.versions import CriterionInfo, WorkerVersion, add_version, judge_models
from .checksums import HEADER, READABLE, body_checksum, packed_checksum, row_checksum
from .ownership import RunClaim, run_removed
from .schema import Database
from .storable import storable

_MAX_INTEGER = 2**63 - 1  # in SQLite
_MAX_VERSIONS = 50  # of workers, in the manifest of a run
_MIN_COMPRESSED_BYTES = 1_100  # below, compressing takes more time than the space is worth
_PROBE_BYTES = 16_384
_MAX_COMPRESSED_SHARE = 0.7  # above this share of a probe, compressing is not worthwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAgent:
    """The version of an agent that ran a part of a run, and what has changed since then."""

    version: str
    changed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The description of a run, written before its first sample.

    `dataset_digest` is None if the samples are a stream, and as long as it is unknown: it is
    computed while the samples run, and added when the run ends. `planned` is None if the number of
    rows is unknown. `parent` is the run whose trajectories are scored again. Secrets are never
    stored: a command that contained one cannot be resumed as it is. `suite` is the name of the
    suite, empty if it has none.

    `agent_version` is a hash of the agent, `agent_parts` has one for each part of its code and its
    settings. `earlier_agents` are those of a run that was resumed with a changed agent (`force`).

    `quarantined` are the ids of samples that did not count when it began, `quarantine_expired`
    those that counted again because their quarantine was over. `selection` has the samples, if they
    were drawn by strata of earlier pass rates.

    `decision` is added when a rule stops the run, or has compared it with another one.

    `kind` is "run" if one process runs the samples, and "submission" if workers on `queue` do.
    Then `workers` are the versions of those whose results arrived; agent, evaluators and commit are
    those of the first. `expect` is the version that workers must have, if the run is pinned.
    """

    run_id: str
    created_at: datetime
    dataset_name: str = ""
    dataset_digest: str | None = None
    planned: int | None = None
    agent: str = ""
    agent_version: str = ""
    model: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    git_commit: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    command: tuple[str, ...] = ()
    parent: str | None = None
    kind: Literal["run", "submission"] = "run"
    queue: str = ""
    suite: str = ""
    agent_parts: Mapping[str, str] = field(default_factory=dict, hash=False)
    earlier_agents: tuple[EarlierAgent, ...] = ()
    quarantined: tuple[str, ...] = ()
    quarantine_expired: tuple[str, ...] = ()
    decision: Decision | None = None
    selection: Selection | None = None
    workers: tuple[WorkerVersion, ...] = ()
    expect: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str) or not self.run_id:
            raise UsageError(f"expected a non-empty `RunManifest.run_id`, got {self.run_id!r}")
        if self.created_at.tzinfo is None:
            raise UsageError(
                "expected a time zone in `RunManifest.created_at`, got "
                f"{self.created_at} - use datetime.now(UTC)"
            )

    @property
    def judge_models(self) -> Mapping[str, str]:
        """The model that each judge asked, by the name of its criterion."""
        return judge_models(self.criteria)


def with_workers(manifest: RunManifest, versions: Iterable[WorkerVersion]) -> RunManifest:
    """Return the manifest of a submitted run with further versions of its workers.

    If agent and evaluators were unknown so far, they are those of the first version.
    """
    workers = manifest.workers
    for version in versions:
        workers = add_version(workers, version)
    manifest = replace(manifest, workers=workers[:_MAX_VERSIONS])
    first = next((each for each in workers if each.criteria), None)
    if first is None or manifest.criteria:
        return manifest
    return described_by(manifest, first)


def described_by(manifest: RunManifest, version: WorkerVersion) -> RunManifest:
    """Return the manifest of a submitted run with what its workers run."""
    return replace(
        manifest,
        agent=version.agent,
        agent_version=version.agent_version,
        agent_parts=version.agent_parts,
        model=version.model,
        criteria=version.criteria,
        git_commit=version.git_commit,
    )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One counted row: a result, and what a resumed run needs to know about it.

    `position` is the index of the sample in the dataset, `sample_digest` a hash of the sample,
    `criteria` a fingerprint of the criteria that scored it, `session` the bytes of a snapshot,
    taken of an `unsaved_session` when the row is written, `agent_version` that of the agent which
    ran the sample. If a row could not be read, `problem` says why, and the result is an error in
    its place.
    """

    result: EvalResult[Any]
    position: int = 0
    sample_digest: str = ""
    criteria: str = ""
    session: bytes | None = None
    unsaved_session: Session | None = None
    problem: str = ""
    agent_version: str = ""

    def __post_init__(self) -> None:
        result = self.result
        if not isinstance(result, EvalResult):
            raise UsageError(
                f"expected an `EvalResult` for `StoredRow.result`, got {short_repr(result)}"
            )
        if self.position.__class__ is not int or not 0 <= self.position <= _MAX_INTEGER:
            position = whole(self.position, "StoredRow.position", least=0, maximum=_MAX_INTEGER)
            object.__setattr__(self, "position", position)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The state of the row of a key, as a resumed run needs it."""

    sample_digest: str
    criteria: str
    error: bool
    attempt: int
    error_source: str | None = None


# ── encoding ────────────────────────────────────────────────────────────────────────────────────


def encode_id(value: str) -> bytes:
    """Encode any text, lone surrogates included. Bytes sort in the order of the characters."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def decode_id(value: bytes) -> str:
    """Decode what `encode_id` encoded."""
    return value.decode("utf-8", "surrogatepass")


def compress(data: bytes) -> bytes:
    """Return `p` (plain) or `z` (zlib), a checksum, and the data."""
    kind = b"p"
    if _is_worth_compressing(data):
        kind, data = b"z", zlib.compress(data, 1)
    return b"".join((kind, packed_checksum(kind, data), data))


def _is_worth_compressing(data: bytes) -> bool:
    """Return whether zlib saves enough; for long data, by compressing a part of it.

    Compressing 5 MB takes several times as long as everything else that is done to store them.
    """
    if len(data) < 4 * _PROBE_BYTES:
        return len(data) > _MIN_COMPRESSED_BYTES
    middle = len(data) // 2
    probe = zlib.compress(data[middle : middle + _PROBE_BYTES], 1)
    return len(probe) < _MAX_COMPRESSED_SHARE * _PROBE_BYTES


def decompress(stored: bytes) -> bytes:
    """Return what `compress` was given; raise a `ValueError` if a byte has changed."""
    kind, checksum, data = stored[:1], stored[1:HEADER], memoryview(stored)[HEADER:]
    if not kind or checksum != packed_checksum(kind, data):
        raise ValueError("other bytes than their checksum says")
    return zlib.decompress(data) if kind == b"z" else bytes(data)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────

_KEY = "run, experiment, sample, epoch"
_REST = (
    "body, position, attempt, sample_digest, criteria, "
    "passed, error, error_source, value, latency_ms, tokens, cost, scores, "
    "judge_tokens, judge_cost, body_checksum, agent_version, checksum"
)
_VALUES = f"(?{', ?' * (_KEY + _REST).count(',')}, ?)"
_UPSERT = (
    f"INSERT INTO rows ({_KEY}, {_REST}) VALUES {{}} ON CONFLICT ({_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _REST.split(", "))
    + " WHERE criteria <> excluded.criteria OR sample_digest <> excluded.sample_digest "
    f"OR (error AND attempt < excluded.attempt) OR NOT {READABLE}"
)
# Many rows per statement: SQLite then does not return to Python after each.
_STATEMENTS = {
    count: (
        _UPSERT.format(", ".join([_VALUES] * count)),
        f"INSERT INTO bodies VALUES {', '.join(['(?, ?, ?)'] * count)}",
    )
    for count in (128, 64, 32, 16, 8, 4, 2, 1)
}

Written = tuple[str, tuple[Any, ...], tuple[Any, ...], bytes, bytes | None]
"""The run's id, the key after `run`, the columns after `body`, the result and the session."""

_SQLITE_TYPES = frozenset((int, float, str, bytes, type(None)))


class RefusedRuns:
    """Runs of which rows could not be written: removed, or taken over by another process.

    Such rows can never be written, and may not hold up those of other runs in the queue. Whoever
    writes the next row of the run, flushes it or finishes it gets the error.
    """

    def __init__(self) -> None:
        self._errors: dict[str, StoreError] = {}
        self._unreported: set[str] = set()

    def add(self, run_id: str, error: StoreError) -> None:
        """Remember why rows of a run were refused."""
        if run_id not in self._errors:
            self._errors[run_id] = error
            self._unreported.add(run_id)

    def forget(self, run_id: str) -> None:
        """Accept rows of a run again, since it has been begun again."""
        self._errors.pop(run_id, None)
        self._unreported.discard(run_id)

    def check(self, run_id: str | None = None) -> None:
        """Raise if rows of the run were refused; without one, if nobody was told of a refusal."""
        if run_id is None:
            run_id = next(iter(self._unreported), None)
        if (error := self._errors.get(run_id or "")) is not None:
            self._unreported.discard(run_id or "")
            raise StoreError(str(error)) from error


def write_rows(
    database: Database,
    stored: Sequence[StoredRow | Written],
    claims: Mapping[str, RunClaim],
    refused: RefusedRuns,
) -> None:
    """Write rows in one transaction.

    Rows of a run that was removed, or that another process has taken over, are `refused`.
    """
    # Encode the batch before taking the write lock; batching is also faster.
    rows = [to_columns(row) if isinstance(row, StoredRow) else row for row in stored]
    with database.transaction() as cursor:
        run_keys: dict[str, int] = {}
        for run_id in {run_id for run_id, *_ in rows}:
            find = "SELECT id FROM runs WHERE run_id = ?"
            found = cursor.execute(find, (encode_id(run_id),)).fetchone()
            try:
                if found is None:
                    raise run_removed(run_id)
                if (claim := claims.get(run_id)) is not None:
                    claim.check(cursor)
                run_keys[run_id] = found[0]
            except StoreError as error:
                refused.add(run_id, error)
        insert_rows(
            cursor, [(run_keys[run_id], *rest) for run_id, *rest in rows if run_id in run_keys]
        )


def insert_rows(cursor: sqlite3.Cursor, rows: Sequence[Any]) -> None:
    """Insert encoded rows, with the primary key of their run in place of its id."""
    ((body,),) = cursor.execute("SELECT coalesce(max(id), 0) FROM bodies").fetchall()
    start = 0
    while start < len(rows):
        count = next(size for size in _STATEMENTS if size <= len(rows) - start)
        _write_together(cursor, rows[start : start + count], body + start + 1)
        start += count


def unique_columns(run_id: str, rows: Iterable[StoredRow]) -> list[Written]:
    """Encode the rows of a run; raise if two of them have one key."""
    encoded: list[Written] = []
    first: dict[Any, int] = {}
    for index, row in enumerate(rows):
        result = row.result
        key = result.experiment_name, result.sample_id, result.epoch
        if (before := first.setdefault(key, index)) != index:
            raise UsageError(
                f"expected each sample and epoch once, got sample {result.sample_id!r}, epoch "
                f"{result.epoch:,}, again - at `results[{index}]`, first at `results[{before}]`: "
                "number repeats as epochs"
            )
        encoded.append((run_id, *to_columns(row)[1:]))
    return encoded


def _write_together(cursor: sqlite3.Cursor, rows: Sequence[Any], first: int) -> None:
    upsert, insert = _STATEMENTS[len(rows)]
    ids = range(first, first + len(rows))
    cursor.execute(
        insert,
        [
            value
            for body, (*_, result, session) in zip(ids, rows, strict=True)
            for value in (body, result, session)
        ],
    )
    cursor.execute(
        upsert,
        [
            value
            for body, (run, key, rest, *_) in zip(ids, rows, strict=True)
            for value in (run, *key, body, *rest)
        ],
    )
    if cursor.rowcount < len(rows):  # some keys keep an earlier row
        for body, (run, key, *_) in zip(ids, rows, strict=True):
            cursor.execute(
                "DELETE FROM bodies WHERE id = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE "
                "run = ? AND experiment = ? AND sample = ? AND epoch = ? AND body = ?)",
                (body, run, *key, body),
            )


def to_columns(row: StoredRow | Written) -> Written:
    """Encode a row; what JSON cannot represent is left out."""
    if not isinstance(row, StoredRow):
        return row
    try:
        return _columns(row)
    except Exception:  # user-defined types may raise anything
        return _columns(replace(row, result=storable(row.result)))


def _columns(row: StoredRow) -> Written:
    result = row.result
    trajectory = result.trajectory
    plain = serde.encode_with_nulls(result, _nones(result))
    body = redact_bytes(plain)
    experiment, sample = result.experiment_name, result.sample_id
    scores = serde.encode(criterion_values(result.score))
    if body is not plain:  # it had a secret: redact the columns too
        body = redact_bytes(serde.encode_with_nulls(redact_ids(result), _nones(result)))
        experiment, sample, scores = redact_id(experiment), redact_id(sample), redact_bytes(scores)
    key = encode_id(experiment), encode_id(sample), result.epoch
    columns: tuple[Any, ...] = (
        row.position,
        result.attempt,
        encode_id(row.sample_digest),
        encode_id(row.criteria),
        int(result.passed),
        int(result.error is not None),
        result.error_source,
        result.score.value,
        max(-_MAX_INTEGER, min(result.latency_ms, _MAX_INTEGER)),
        min(result.tokens_used, _MAX_INTEGER),
        trajectory.cost if trajectory else None,
        scores,
        min(result.judge_tokens, _MAX_INTEGER),
        result.judge_cost,
    )
    if not _SQLITE_TYPES.issuperset(map(type, columns)):
        raise TypeError("a value that is not of the type of its column")
    live = row.unsaved_session
    data = row.session if live is None else live.snapshot()
    session = None if data is None else compress(redact_bytes(data))
    stored = compress(body)
    columns = (*columns, body_checksum(stored, session), encode_id(row.agent_version))
    rest = (*columns, row_checksum(*(*key, *columns)))
    return result.run_id, key, rest, stored, session


def _nones(result: EvalResult[Any]) -> int:
    """Return how many fields of the result and its trajectory are None and so cannot be NaN."""
    fields: list[Any] = [
        *(result.error, result.error_source, result.error_details),
        *(result.judge_usage, result.judge_cost, result.made_by),
    ]
    if (t := result.trajectory) is not None:
        fields += [t.usage, t.stop_reason, t.cost]
    return fields.count(None)
