"""From a signal to an orderly end: loops stop, and their messages return to their queues.

A signal handler does one thing that is safe anywhere: it puts the signal into a queue. A thread
does the rest.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ...secrets import logger_for

logger = logger_for(__name__)

_DUPLICATE_SIGNAL_SECONDS = 0.5  # a signal to a process group often arrives twice


class ShutdownCoordinator:
    """Calls callbacks once when the process is asked to end. There is one per process.

    The first signal calls them; the second has its default effect.
    """

    _current: ClassVar[ShutdownCoordinator | None] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._triggered = threading.Event()
        self._previous: dict[int, Any] = {}  # the earlier signal handlers
        self._signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._first: float | None = None

    @classmethod
    def install(
        cls, signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)
    ) -> ShutdownCoordinator:
        """Handle these signals, and return the coordinator; call it in the main thread."""
        if cls._current is not None:
            return cls._current
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                "expected the main thread, the only one that may handle signals, "
                f"got {threading.current_thread().name!r}"
            )
        self = cls._current = cls()
        threading.Thread(target=self._listen, name="wink-shutdown", daemon=True).start()
        for number in signals:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    @classmethod
    def get(cls) -> ShutdownCoordinator | None:
        """Return the installed coordinator."""
        return cls._current

    @classmethod
    def reset(cls) -> None:
        """Restore the earlier signal handlers, and forget the callbacks."""
        self, cls._current = cls._current, None
        if self is not None:
            for number, handler in self._previous.items():
                # None: it was set outside of Python and cannot be restored.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self._signals.put(None)

    @property
    def triggered(self) -> bool:
        """True once the process was asked to end."""
        return self._triggered.is_set()

    def register(self, callback: Callable[[], object]) -> None:
        """Call a function when the process is asked to end; at once if it was already."""
        with self._lock:
            self._callbacks.append(callback)
            late = self._triggered.is_set()
        if late:
            call_safely(callback)

    def unregister(self, callback: Callable[[], object]) -> None:
        """Remove a callback. One that is unknown is ignored."""
        with self._lock:
            self._callbacks = [each for each in self._callbacks if each != callback]

    def trigger(self) -> None:
        """Call the callbacks, as a signal would. Only the first time counts."""
        with self._lock:
            if self._triggered.is_set():
                return
            self._triggered.set()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            call_safely(callback)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A signal handler may interrupt anything: no lock, no log.
        now = SYSTEM_CLOCK.monotonic()
        if self._first is None:
            self._first = now
            self._signals.put(number)  # reentrant, unlike an Event
        elif now - self._first > _DUPLICATE_SIGNAL_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _listen(self) -> None:
        while (number := self._signals.get()) is not None:
            logger.info("shutting down after signal %d", number)
            self.trigger()


def call_safely(callback: Callable[[], object]) -> None:
    """Call a function; log what it raises."""
    try:
        callback()
    except Exception:
        logger.exception("a shutdown callback failed: %r", callback)


@contextmanager
def signals_to(
    callback: Callable[[], object], signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """Let signals call a function, if this thread may; restore the earlier handlers."""
    installed = ShutdownCoordinator.get()
    if installed is None and threading.current_thread() is not threading.main_thread():
        logger.info("not in the main thread, so signals are not handled")
        yield
        return
    coordinator = ShutdownCoordinator.install(signals) if installed is None else installed
    coordinator.register(callback)
    try:
        yield
    finally:
        coordinator.unregister(callback)
        if installed is None:
            ShutdownCoordinator.reset()


@contextmanager
def sigterm_to(callback: Callable[[], object]) -> Iterator[None]:
    """Let SIGTERM call a function in place of ending the process at once.

    Only if this is the main thread and nothing else handles the signal.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with signals_to(callback, [signal.SIGTERM]):
            yield
    else:
        yield
