"""From synchronous code into async code: one event loop, in a thread of its own.

An HTTP client keeps its connections on the loop on which it made them, so every synchronous call
goes to the same loop, which is started by the first one and ends with the process.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

__all__ = ["run_blocking"]

T = TypeVar("T")

_lock = threading.Lock()
_portal: BlockingPortal | None = None


def run_blocking(call: Callable[[], Awaitable[T]]) -> T:
    """Wait for what the call gives. It blocks its thread: never call it from an event loop."""
    global _portal
    with _lock:
        if _portal is None:
            starting = start_blocking_portal()
            _portal = starting.__enter__()
            atexit.register(starting.__exit__, None, None, None)
    return _portal.call(call)
