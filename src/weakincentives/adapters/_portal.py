"""From synchronous code into async code: one event loop, in a thread of its own.

An HTTP client keeps its connections on the loop on which it made them, so every synchronous call
goes to one loop, which is started by the first one and ends with the process.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio import from_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

__all__ = ["run_blocking"]

T = TypeVar("T")

_lock = threading.Lock()
_portal: BlockingPortal | None = None


def run_blocking(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait for what the call gives. It blocks its thread: never call it from an event loop.

    A thread that works for an event loop is answered by that loop, whose connections and limits
    the call then shares.
    """
    global _portal
    try:
        from_thread.check_cancelled()
    except RuntimeError:  # no loop waits for this thread
        pass
    else:
        return from_thread.run(call)
    with _lock:
        if _portal is None:
            starting = start_blocking_portal()
            _portal = starting.__enter__()
            atexit.register(starting.__exit__, None, None, None)
    answer: T = _portal.call(call)
    return answer
