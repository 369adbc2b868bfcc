"""Several loops in one process: started together, stopped together, monitored together.

Rules of this file:
1. All loops are asked to stop before any of them is waited for.
2. A loop that crashes stops the others, and its error is raised.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...clock import SYSTEM_CLOCK
from ...errors import DeadlineExceededError, UsageError, short_repr
from ...secrets import logger_for
from ..worker.heartbeat import Heartbeat
from ..worker.shutdown import call_safely, signals_to
from .health import HealthMetric, HealthServer
from .watchdog import Watchdog

logger = logger_for(__name__)

_POLL_SECONDS = 0.25  # a signal just before the main thread sleeps does not wake it
_WORK_SHARE = 0.8  # of the shutdown timeout; the rest is for releasing messages


class Runnable(Protocol):
    """A loop that a `LoopGroup` runs.

    If it also has `metrics() -> Mapping[str, float]`, `/metrics` serves those numbers.
    """

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> object:
        """Work until `shutdown`, or for some iterations."""
        ...

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop, even before it runs, and wait; return whether it ended in time."""
        ...

    @property
    def running(self) -> bool:
        """True while `run` is active."""
        ...

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The heartbeat, which beats while the loop is alive."""
        ...


@dataclass(slots=True, eq=False)
class _Member:
    """A loop of a group."""

    name: str
    loop: Runnable
    heartbeat: Heartbeat | None
    active: bool = False


class LoopGroup:
    """Runs loops, each in its own thread, until all have ended.

    With `health_port` it serves health and metrics there; with `watchdog_threshold` the process is
    killed if a loop's heartbeat is older than that many seconds.
    """

    def __init__(
        self,
        loops: Sequence[Runnable],
        *,
        shutdown_timeout: float = 30.0,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        watchdog_threshold: float | None = None,
        watchdog_interval: float | None = None,
    ) -> None:
        self.loops = tuple(loops)
        for loop in self.loops:
            if not callable(getattr(loop, "run", None)) or not hasattr(loop, "shutdown"):
                raise UsageError(
                    f"expected loops with `run` and `shutdown`, got {short_repr(loop)}"
                )
        if not self.loops or len({id(loop) for loop in self.loops}) < len(self.loops):
            raise UsageError(f"expected one loop or more, each once, got {short_repr(self.loops)}")
        if not shutdown_timeout >= 0:
            raise UsageError(
                f"expected `shutdown_timeout` >= 0, got {short_repr(shutdown_timeout)}"
            )
        self._members = [
            _Member(name, loop, getattr(loop, "heartbeat", None))
            for name, loop in zip(_names(self.loops), self.loops, strict=True)
        ]
        self._timeout = shutdown_timeout
        self._threshold = watchdog_threshold
        self._watchdog: Watchdog | None = None
        if watchdog_threshold is not None:
            heartbeats = {each.name: each.heartbeat for each in self._members if each.heartbeat}
            self._watchdog = Watchdog(
                tuple(heartbeats.values()),
                stall_threshold=watchdog_threshold,
                check_interval=watchdog_interval or min(60.0, watchdog_threshold / 3),
                loop_names=tuple(heartbeats),
            )
        self._health: HealthServer | None = None
        if health_port is not None:
            self._health = HealthServer(
                host=health_host, port=health_port, readiness_check=self._ready, metrics=self._count
            )
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._end: float | None = None  # the deadline for all loops, once they were asked to stop

    def __enter__(self) -> LoopGroup:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    @property
    def running(self) -> bool:
        """True while a loop is active."""
        return any(each.active for each in self._members)

    @property
    def health_address(self) -> tuple[str, int] | None:
        """The address of the health server."""
        return self._health.address if self._health is not None else None

    def run(
        self,
        *,
        install_signals: bool = True,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """Run all loops until each has ended; raise what they raised.

        SIGTERM and SIGINT stop all loops; outside of the main thread only `shutdown` does. A loop
        that does not end in time is abandoned, with a `DeadlineExceededError`: its messages are
        redelivered when their leases end.
        """
        if self.running:
            raise UsageError("expected a group that is not running, got one that is")
        if self._end is not None:
            return  # it was shut down
        options = {"visibility_timeout": visibility_timeout, "wait_time_seconds": wait_time_seconds}
        with ExitStack() as stack:
            if self._health is not None:
                stack.enter_context(self._health)
            if self._watchdog is not None:
                stack.enter_context(self._watchdog)
            if install_signals:
                stack.enter_context(signals_to(self._stop_all))
            self._start(options)
            try:
                late = self._wait(None)
            except BaseException:  # such as KeyboardInterrupt, without our signal handlers
                self._stop_all()
                self._wait(None)
                raise
        self._raise(late)

    def shutdown(self, *, timeout: float | None = None) -> bool:
        """Stop all loops permanently, and wait; return whether all ended in time."""
        self._stop_all()
        return not self._wait(self._timeout if timeout is None else timeout)

    def _start(self, options: Mapping[str, float]) -> None:
        self._errors = []
        for member in self._members:
            member.active = True
        for member in self._members:
            threading.Thread(
                target=self._work, args=(member, options), name=member.name, daemon=True
            ).start()

    def _work(self, member: _Member, options: Mapping[str, float]) -> None:
        try:
            if self._end is None:
                member.loop.run(max_iterations=None, **options)
        except BaseException as error:
            logger.exception("the loop %s failed, stopping all others", member.name)
            self._errors.append(error)
            self._stop_all()
        finally:
            if self._watchdog is not None and member.heartbeat is not None:
                self._watchdog.forget(member.heartbeat)
            with self._changed:
                member.active = False
                self._changed.notify_all()

    def _stop_all(self) -> None:
        """Stop every loop, each from its own thread, so that one that hangs delays no other."""
        with self._changed:
            if self._end is not None:
                return
            self._end = SYSTEM_CLOCK.monotonic() + self._timeout
            self._changed.notify_all()
        for member in self._members:
            stop = partial(member.loop.shutdown, timeout=self._timeout * _WORK_SHARE)
            threading.Thread(target=call_safely, args=(stop,), daemon=True).start()

    def _wait(self, timeout: float | None) -> list[str]:
        """Wait for all loops; return the names of those that have not ended.

        Without a timeout, wait until they were asked to stop and their time is over.
        """
        end = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        with self._changed:
            while self.running:
                until = self._end if end is None else end
                left = _POLL_SECONDS if until is None else until - SYSTEM_CLOCK.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, _POLL_SECONDS))
            return [each.name for each in self._members if each.active]

    def _raise(self, late: list[str]) -> None:
        errors = list(self._errors)
        if late:
            errors.append(
                DeadlineExceededError(
                    f"expected all loops to end within {self._timeout:g} s, still running: "
                    f"{', '.join(late)} - their messages are redelivered when their leases end"
                )
            )
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup("several loops failed", errors)

    # ── health ──────────────────────────────────────────────────────────────────────────────────

    def _ready(self) -> bool:
        """Return whether all loops run, none is stopping, and no heartbeat is stale."""
        return self._end is None and all(
            each.loop.running and not self._is_stale(each.heartbeat) for each in self._members
        )

    def _is_stale(self, heartbeat: Heartbeat | None) -> bool:
        if heartbeat is None or self._threshold is None:
            return False
        return heartbeat.elapsed() > self._threshold

    def _count(self) -> Iterator[HealthMetric]:
        for each in self._members:
            labels = {"loop": each.name}
            running = int(each.loop.running)
            yield HealthMetric("wink_loop_running", running, labels, "1 while the loop runs")
            if each.heartbeat is not None:
                age = each.heartbeat.elapsed()
                yield HealthMetric("wink_heartbeat_age_seconds", age, labels, "since the last beat")
            metrics: Callable[[], Mapping[str, float]] = getattr(each.loop, "metrics", dict)
            for key, value in metrics().items():
                yield HealthMetric(f"wink_{key}", value, labels)


def _names(loops: Sequence[Runnable]) -> list[str]:
    """Return a name for each loop: its own or its class, numbered if several share it."""
    names = [str(getattr(loop, "name", None) or type(loop).__name__) for loop in loops]
    shared = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name}-{i}" if name in shared else name for i, name in enumerate(names, 1)]
