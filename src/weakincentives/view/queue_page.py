"""Runs that workers on a queue work on, as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ..clock import SYSTEM_CLOCK
from ..evals import RunStore
from ..evals.store import RunRecord
from ..evals.store.queue_state import QueueState, queue_states
from ..internal.formatting import pluralize

_STALE_SECONDS = 60.0  # without a sign of the collector, or of a worker while there is work


def states_of(store: RunStore, records: Iterable[RunRecord]) -> dict[str, QueueState]:
    """Return what the collectors of submitted runs last saw."""
    submitted = [each.manifest.run_id for each in records if each.manifest.kind == "submission"]
    return dict(queue_states(store, submitted))


def queue_data(record: RunRecord, state: QueueState | None) -> dict[str, Any] | None:
    """Return the progress of a submitted run; None for a run of one process."""
    manifest = record.manifest
    if manifest.kind != "submission":
        return None
    going, now = record.status == "running", SYSTEM_CLOCK.now()
    is_stale = going and (
        state is None or state.ended or _age(now, state.updated_at) > _STALE_SECONDS
    )
    workers = () if state is None else state.workers
    return {
        "queue": manifest.queue,
        "going": going,
        "text": _text(state, now, is_stale=is_stale) if going else "",
        "collect": f"wink eval collect {manifest.run_id}" if is_stale else "",
        "stale": is_stale,
        "workers": [
            {
                **asdict(worker),
                "silent": going
                and not is_stale
                and _age(now, worker.last_result_at) > _STALE_SECONDS,
            }
            for worker in sorted(workers, key=lambda each: each.name)
        ],
    }


def _text(state: QueueState | None, now: datetime, *, is_stale: bool) -> str:
    if state is None:
        return "submitted; no collector has run yet"
    if is_stale:
        return f"no collector is running; {state.missing:,} results are missing"
    parts = [f"{state.missing:,} to come"]
    if state.queued is not None:
        parts.append(f"{state.queued:,} queued or in flight")
    if state.resubmitted:
        parts.append(f"missing samples sent again {pluralize(state.resubmitted, 'time')}")
    if state.dead_lettered:
        parts.append(pluralize(state.dead_lettered, "dead letter"))
    idle = _age(now, state.last_result_at or state.updated_at)
    if idle > _STALE_SECONDS:
        parts.append(f"no result for {idle:.0f} s: are workers running?")
    return ", ".join(parts)


def _age(now: datetime, moment: datetime) -> float:
    return (now - moment).total_seconds()
