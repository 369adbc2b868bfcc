"""A watchdog: kills the process when a worker hangs, and logs why.

A thread that hangs cannot be stopped, so the process ends as if it had crashed: its leases end,
other workers continue, and the supervisor restarts it. Choose a threshold longer than the longest
work between two heartbeats: a call of a model or a tool, or a sample if the agent is a function.
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

from ...errors import UsageError, short_repr
from ...secrets import logger_for
from ..worker.heartbeat import Heartbeat

logger = logger_for(__name__)

_LOG_TIMEOUT_SECONDS = 2.0  # the thread that hangs may hold the lock of the log


def kill_this_process(stalled: Sequence[str] = ()) -> None:
    """Kill this process at once, as a crash would."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


class Watchdog:
    """Checks heartbeats every `check_interval` seconds, in a background thread.

    If one is older than `stall_threshold` seconds, it is logged with the stacks of all threads, and
    `on_stall` is called with its name, once until it beats again. The default `on_stall` also kills
    a process whose worker holds Python's lock, such as in an endless regular expression.
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
                f"got {short_repr(check_interval)} and {short_repr(stall_threshold)}"
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
        self._reported: set[str] = set()
        self._on_stall = on_stall
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start watching. Every heartbeat beats first: its age so far means nothing."""
        if self._thread is not None:
            return
        self._watched = self._all
        for _, heartbeat in self._watched:
            heartbeat.beat()
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="wink-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Calling it twice is harmless."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._interval)

    def forget(self, heartbeat: Heartbeat) -> None:
        """Ignore a heartbeat until the next `start`: its loop has ended."""
        self._watched = tuple(each for each in self._watched if each[1] is not heartbeat)

    def check(self) -> tuple[str, ...]:
        """Check once; return the names that have stalled. Call `on_stall` with the new ones."""
        ages = {name: heartbeat.elapsed() for name, heartbeat in self._watched}
        stalled = tuple(name for name, age in ages.items() if age > self._threshold)
        new = tuple(name for name in stalled if name not in self._reported)
        self._reported = set(stalled)
        if new:
            self._log({name: ages[name] for name in new})
            try:
                self._on_stall(new)
            except Exception:
                logger.exception("`on_stall` failed")
        return stalled

    def _watch(self) -> None:
        kills = self._on_stall is kill_this_process
        try:
            while True:
                if kills:
                    _exit_after(self._threshold + self._interval + _LOG_TIMEOUT_SECONDS)
                if self._stop.wait(self._interval):
                    return
                self.check()
        finally:
            if kills:
                faulthandler.cancel_dump_traceback_later()

    def _log(self, ages: dict[str, float]) -> None:
        """Log in another thread: the process must end even if the log blocks."""
        thread = threading.Thread(target=_write_log, args=(ages, self._threshold), daemon=True)
        thread.start()
        thread.join(_LOG_TIMEOUT_SECONDS)


def _write_log(ages: dict[str, float], threshold: float) -> None:
    names = ", ".join(f"{name} ({age:.1f} s)" for name, age in ages.items())
    logger.critical("no heartbeat for more than %g s: %s\n%s", threshold, names, _stacks())


def _stacks() -> str:
    """Return the stacks of all threads; by a file, since a full pipe would block."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def _exit_after(seconds: float) -> None:
    """Kill the process unless this is called again in time; works without Python's lock."""
    try:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)
    except (AttributeError, io.UnsupportedOperation, RuntimeError, ValueError):
        logger.warning("no standard error to write to: a hang in native code is not detected")
