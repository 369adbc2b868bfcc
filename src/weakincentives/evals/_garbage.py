"""A calmer garbage collector while runs are under way.

Python looks for garbage every few hundred new objects, and what it finds then are samples under
way: nothing to collect, and the processor's caches are cold afterwards. A higher threshold costs
little memory. What the user has set stands, before and meanwhile.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["calm_collector"]

OBJECTS = 5_000  # new ones between two looks at the young


class _Calm:
    """What several runs at once share."""

    lock = threading.Lock()
    runs = 0
    before: tuple[int, int, int] | None = None  # None where it was calm enough


@contextmanager
def calm_collector() -> Iterator[None]:
    """Fewer collections inside. Runs that overlap share it: the last to end restores what was."""
    with _Calm.lock:
        _Calm.runs += 1
        if _Calm.runs == 1:
            young, middle, old = before = gc.get_threshold()
            _Calm.before = before if 0 < young < OBJECTS else None  # 0: never, as somebody wished
            if _Calm.before:
                gc.set_threshold(OBJECTS, middle, old)
    try:
        yield
    finally:
        with _Calm.lock:
            _Calm.runs -= 1
            ours = _Calm.before and (OBJECTS, *_Calm.before[1:])
            if _Calm.runs == 0 and _Calm.before and gc.get_threshold() == ours:
                gc.set_threshold(*_Calm.before)
