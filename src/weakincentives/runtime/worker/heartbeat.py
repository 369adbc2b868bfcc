"""Heartbeats: they show that a worker makes progress, so that a watchdog can see one that hangs.

A worker's heartbeat beats when it receives, starts and finishes a message, and while it has none to
work on. While an agent works, only the agent's own progress counts: every call of a model and of a
tool beats the heartbeat of the worker that the code runs for, and so may a tool that takes long
(`context.beat()`), or any other code (`beat()`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...clock import SYSTEM_CLOCK, Clock
from ...secrets import logger_for

logger = logger_for(__name__)


class Heartbeat:
    """Records when a worker last made progress; thread-safe.

    >>> heartbeat = Heartbeat()
    >>> heartbeat.beat()
    >>> heartbeat.elapsed() < 60
    True
    """

    __slots__ = ("_callbacks", "_clock", "_last", "_lock")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._lock = threading.Lock()
        self._callbacks: tuple[Callable[[], object], ...] = ()  # replaced, never changed

    def beat(self) -> None:
        """Record progress, and call the callbacks."""
        self._last = self._clock.monotonic()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback of a heartbeat failed: %r", callback)

    def elapsed(self) -> float:
        """Return the seconds since the last beat, or since it was created."""
        return self._clock.monotonic() - self._last

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call a function at every beat, in the thread that beats."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Remove a callback. One that is unknown is ignored."""
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each != callback)


current_heartbeat: ContextVar[Heartbeat | None] = ContextVar(
    "weakincentives.heartbeat", default=None
)


def beat() -> None:
    """Beat the heartbeat of the worker that this code runs for; outside of any, do nothing."""
    heartbeat = current_heartbeat.get()
    if heartbeat is not None:
        heartbeat.beat()


@contextmanager
def beating(heartbeat: Heartbeat | None) -> Iterator[None]:
    """Let the code of this block beat this heartbeat; with None, the one that it has already."""
    if heartbeat is None:
        yield
        return
    token = current_heartbeat.set(heartbeat)
    try:
        yield
    finally:
        current_heartbeat.reset(token)
