"""The progress of a submitted run: the queue and the workers as its collector last saw them.

Workers may be on other machines and write nothing into the run store; the collector does. It writes
this next to the rows, so that every process that reads the store can show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from ... import serde
from ...errors import WinkError
from ...secrets import redact_bytes
from .run_store import RunStore
from .value_keys import QUEUE_STATE

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
    store.replace(QUEUE_STATE + run_id, redact_bytes(kept))


def queue_states(store: RunStore, run_ids: Iterable[str]) -> Mapping[str, QueueState]:
    """Return the states of those runs that have one."""
    states = {}
    for key, stored in store.find_all([QUEUE_STATE + run_id for run_id in run_ids]).items():
        with suppress(WinkError):  # of another version: it is only for display
            states[key.removeprefix(QUEUE_STATE)] = serde.decode(stored, QueueState)
    return states
