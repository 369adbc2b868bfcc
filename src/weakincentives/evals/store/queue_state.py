"""The progress of a submitted run: the queue and the workers as its collector last saw them.

Workers may be on other machines and write nothing into the run store; the collector does. It writes
this next to the rows, so that every process that reads the store can show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ... import serde
from ...errors import WinkError
from ...secrets import redact_bytes
from .rows import compress, decode_id, decompress, encode_id
from .run_store import RunStore
from .values import QUEUE_STATE

_MAX_WORKERS = 200  # stored; those with the newest results


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker, by its results: their number, how many are errors, and when the last arrived."""

    name: str
    results: int
    errors: int
    last_result_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The queue as a collector saw it at `updated_at`.

    `queued` are requests that wait or are being worked on; None if that is unknown. `missing`
    results are still to come. `resubmitted` is how often missing requests were sent again since the
    last new result. `ended`: the collector has ended, and results stay in the queue.
    """

    updated_at: datetime
    missing: int
    queued: int | None = None
    resubmitted: int = 0
    dead_lettered: int = 0
    last_result_at: datetime | None = None
    ended: bool = False
    workers: tuple[WorkerState, ...] = ()


def save_queue_state(store: RunStore, run_id: str, state: QueueState) -> None:
    """Store the state of a run's queue in place of the last one."""
    newest = sorted(state.workers, key=lambda worker: worker.last_result_at, reverse=True)
    kept = serde.encode(replace(state, workers=tuple(newest[:_MAX_WORKERS])))
    with store._database.transaction() as cursor:
        cursor.execute(
            "INSERT OR REPLACE INTO kept VALUES (?, ?)",
            (encode_id(QUEUE_STATE + run_id), compress(redact_bytes(kept))),
        )


def queue_states(store: RunStore, run_ids: Iterable[str]) -> Mapping[str, QueueState]:
    """Return the states of those runs that have one."""
    keys = [encode_id(QUEUE_STATE + run_id) for run_id in run_ids]
    if not keys:
        return {}
    marks = ", ".join("?" * len(keys))
    found = store._database.read(f"SELECT key, body FROM kept WHERE key IN ({marks})", keys)
    states = {}
    for key, body in found:
        try:
            states[decode_id(key)[len(QUEUE_STATE) :]] = serde.decode(decompress(body), QueueState)
        except (WinkError, ValueError):  # damaged, or of another version: it is only for display
            continue
    return states
