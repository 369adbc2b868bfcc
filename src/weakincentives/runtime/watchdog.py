"""A watchdog: where a worker no longer shows that it is alive, the process ends and leaves why.

A stuck thread honours no request, so the process dies as by a crash: leases end, other workers go
on, and whatever started the process starts it again. Choose a threshold longer than the longest
piece of work between two beats.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from ..errors import UsageError, shown
from ..secrets import logger_for
from .leases import Heartbeat

__all__ = ["Watchdog", "kill_this_process"]

logger = logger_for(__name__)

_LAST_WORDS = 2.0  # seconds for the log: whoever is stuck may hold its lock


def kill_this_process(stalled: Sequence[str] = ()) -> None:
    """End this process at once, as a crash would."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


class Watchdog:
    """Looks at heartbeats every `check_interval` seconds, from a thread of its own.

    One that is older than `stall_threshold` seconds is logged with the stacks of all threads, and
    its name is told to `on_stall`, once until it beats again. With the default `on_stall` a worker
    that holds Python's lock, such as in an endless regular expression, ends the process too.
    """

    def __init__(
        self,
        heartbeats: Sequence[Heartbeat],
        *,
        stall_threshold: float = 720.0,
        check_interval: float = 60.0,
        loop_names: Sequence[str] | None = None,
        on_stall: Callable[[Sequence[str]], object] = kill_this_process,
    ) -> None:
        if not 0 < check_interval < stall_threshold:
            raise UsageError(
                "expected 0 < `check_interval` < `stall_threshold`, "
                f"got {shown(check_interval)} and {shown(stall_threshold)}"
            )
        if loop_names is None:
            loop_names = [f"loop-{number}" for number in range(len(heartbeats))]
        if len(loop_names) != len(heartbeats):
            raise UsageError(
                f"expected a name for each of {len(heartbeats)} heartbeats, got {len(loop_names)}"
            )
        self._threshold = stall_threshold
        self._interval = check_interval
        self._all = tuple(zip(loop_names, heartbeats, strict=True))
        self._watched = self._all
        self._told: set[str] = set()
        self._on_stall = on_stall
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Watch from now on. Every heartbeat beats first: who waited to be started is not stuck."""
        if self._thread is not None:
            return
        self._watched = self._all
        for _, heartbeat in self._watched:
            heartbeat.beat()
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="wink-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no more. Twice is fine."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._interval)

    def forget(self, heartbeat: Heartbeat) -> None:
        """Watch this one no more until the next `start`: its loop has ended."""
        self._watched = tuple(each for each in self._watched if each[1] is not heartbeat)

    def check(self) -> tuple[str, ...]:
        """Look once: the names of those that have stalled. `on_stall` hears of the new ones."""
        ages = {name: heartbeat.elapsed() for name, heartbeat in self._watched}
        stalled = tuple(name for name, age in ages.items() if age > self._threshold)
        new = tuple(name for name in stalled if name not in self._told)
        self._told = set(stalled)
        if new:
            self._speak({name: ages[name] for name in new})
            try:
                self._on_stall(new)
            except Exception:
                logger.exception("`on_stall` failed")
        return stalled

    def _watch(self) -> None:
        guarded = self._on_stall is kill_this_process
        try:
            while True:
                if guarded:
                    _die_after(self._threshold + self._interval + _LAST_WORDS)
                if self._stop.wait(self._interval):
                    return
                self.check()
        finally:
            if guarded:
                faulthandler.cancel_dump_traceback_later()

    def _speak(self, ages: dict[str, float]) -> None:
        """Log in a thread of its own: the end must come even where nobody can write a log."""
        thread = threading.Thread(target=_log, args=(ages, self._threshold), daemon=True)
        thread.start()
        thread.join(_LAST_WORDS)


def _log(ages: dict[str, float], threshold: float) -> None:
    who = ", ".join(f"{name} ({age:.1f} s)" for name, age in ages.items())
    logger.critical("no heartbeat for more than %g s: %s\n%s", threshold, who, _stacks())


def _stacks() -> str:
    """Where every thread is. By way of a file, since a pipe that is full would hold us all."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def _die_after(seconds: float) -> None:
    """End the process unless this is called again in time; needs no Python to run."""
    try:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)
    except (AttributeError, io.UnsupportedOperation, RuntimeError, ValueError):
        logger.warning("no standard error to write to: a worker in native code is not watched")
