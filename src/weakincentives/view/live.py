"""Server-sent events: the page hears within half a second that a run has changed.

SQLite says whether another connection has written the file, at the cost of reading one number. Only
then are the newest runs listed; the event has those whose states are new. While a run is in
progress, they are listed every two seconds anyway: a process that dies writes nothing. A heartbeat
lets the page notice a server that is gone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from .. import serde
from ..evals import RunStore
from ..evals.store import RunRecord
from ..internal.threads import in_thread
from .api import Api
from .queue_page import queue_data, states_of

_INTERVAL = 0.4
_WHILE_RUNNING = 2.0
_HEARTBEAT = 15.0
_MIN_PAUSE_FACTOR = 20.0  # the pause, in multiples of the time that listing took
_LISTED = 50  # the newest; a run in progress is one of them


async def changes(
    store: RunStore, api: Api, is_gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Yield events until the client is gone: `runs`, with the runs that are new or changed."""
    known: dict[str, tuple[Any, ...]] | None = None
    version: tuple[int, int] = (-1, 0)
    running, sent, listed, took = False, time.monotonic(), 0.0, 0.0
    yield b"retry: 1000\n\n"
    while not await is_gone():
        now = time.monotonic()
        current = await in_thread(store.data_version), api.writes
        is_due = current != version or (running and now - listed > _WHILE_RUNNING)
        if is_due and now - listed >= _MIN_PAUSE_FACTOR * took:
            version, listed = current, now
            records = (await in_thread(api.records))[:_LISTED]
            running = any(record.status == "running" for record in records)
            queues = await in_thread(states_of, store, records)
            states = {
                (run := record.manifest.run_id): (
                    *_shown_state(record),
                    queue_data(record, queues.get(run)),
                )
                for record in records
            }
            changed = [
                record
                for record in records
                if known is not None and known.get(run := record.manifest.run_id) != states[run]
            ]
            known = states
            if changed:
                data = await in_thread(lambda found: [*map(api.summary, found)], changed)
                sent = now
                yield b"event: runs\ndata: " + serde.encode(data) + b"\n\n"
            took = time.monotonic() - now
        if now - sent > _HEARTBEAT:
            sent = now
            yield b": still here\n\n"
        await anyio.sleep(_INTERVAL)


def _shown_state(record: RunRecord) -> tuple[Any, ...]:
    tags = tuple(record.manifest.tags.items())
    return record.status, record.total, record.passed, record.errors, record.note, tags
