"""Signals; and a `KeyboardInterrupt` with a message, which ends a script without a traceback.

The latter is not a subclass: Python ends a process with the signal, as a shell expects after
Ctrl-C, only for a `KeyboardInterrupt` itself.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

_MARK = "_weakincentives_one_line"


@contextmanager
def handled_signals(handle: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Call `handle` with each of these signals; outside of the main thread, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, lambda number, _: handle(number)) for each in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keyboard_interrupt(message: str) -> KeyboardInterrupt:
    """Return the error. If nothing catches it, Python and IPython print the message alone."""
    error = KeyboardInterrupt(message)
    setattr(error, _MARK, True)
    error._render_traceback_ = lambda: [message]  # type: ignore[attr-defined]  # for IPython
    if not isinstance(sys.excepthook, _OneLineHook):
        sys.excepthook = _OneLineHook(sys.excepthook)
    return error


class _OneLineHook:
    """Prints the message of such an error, and leaves other errors to the hook before it."""

    def __init__(self, other: Callable[..., object]) -> None:
        self._other = other

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if getattr(error, _MARK, False):
            sys.stderr.write(f"{error}\n")
        else:
            self._other(kind, error, traceback)
