"""Several loops in one process: started together, stopped together, watched together.

Rules of this file:
1. A signal handler does one thing that is safe anywhere: it puts the signal into a queue. A thread
   does the rest.
2. All loops are asked to stop before anybody waits for one of them.
3. A loop that crashes stops the others, and its error is raised.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, ClassVar, Protocol

from ..clock import SYSTEM_CLOCK
from ..errors import DeadlineExceededError, UsageError, shown
from ..secrets import logger_for
from .health import HealthServer, Measure
from .leases import Heartbeat
from .watchdog import Watchdog

__all__ = ["LoopGroup", "Runnable", "ShutdownCoordinator"]

logger = logger_for(__name__)

_SAME_WISH = 0.5  # seconds: a signal to the whole group of processes often comes twice
_LOOK = 0.25  # seconds: a signal just before the main thread falls asleep does not wake it
_FOR_WORK = 0.8  # of the time to end; the rest is for handing back what was not done


class Runnable(Protocol):
    """What a `LoopGroup` runs: works until it is asked to stop.

    One that also has `metrics() -> Mapping[str, float]` shows those numbers at `/metrics`.
    """

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> object:
        """Work until `shutdown`, or for so many rounds."""
        ...

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to stop, also before it runs, and wait; True where it ended in time."""
        ...

    @property
    def running(self) -> bool:
        """True while `run` runs."""
        ...

    @property
    def heartbeat(self) -> Heartbeat | None:
        """What beats while it is alive."""
        ...


class ShutdownCoordinator:
    """Calls functions once when the process is asked to end. There is one for the process.

    The first signal asks everybody to end; the second ends the process as if nobody had listened.
    """

    _current: ClassVar[ShutdownCoordinator | None] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._triggered = threading.Event()
        self._before: dict[int, Any] = {}  # the handlers that were there
        self._signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._first: float | None = None

    @classmethod
    def install(
        cls, signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)
    ) -> ShutdownCoordinator:
        """Listen to these signals, from the main thread; where that is done, the one who does."""
        if cls._current is not None:
            return cls._current
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                "expected the main thread, the only one that may listen to signals, "
                f"got {threading.current_thread().name!r}"
            )
        self = cls._current = cls()
        threading.Thread(target=self._listen, name="wink-shutdown", daemon=True).start()
        for number in signals:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    @classmethod
    def get(cls) -> ShutdownCoordinator | None:
        """The one that is installed."""
        return cls._current

    @classmethod
    def reset(cls) -> None:
        """Put the former signal handlers back, and forget everything."""
        self, cls._current = cls._current, None
        if self is not None:
            for number, handler in self._before.items():
                # None: it was set by code outside of Python, which nobody can put back.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self._signals.put(None)

    @property
    def triggered(self) -> bool:
        """True once the process was asked to end."""
        return self._triggered.is_set()

    def register(self, callback: Callable[[], object]) -> None:
        """Call this when the process is asked to end; at once where it was already."""
        with self._lock:
            self._callbacks.append(callback)
            late = self._triggered.is_set()
        if late:
            _call(callback)

    def unregister(self, callback: Callable[[], object]) -> None:
        """Call it no more. One that is not there is fine."""
        with self._lock:
            self._callbacks = [each for each in self._callbacks if each != callback]

    def trigger(self) -> None:
        """Ask everybody to end, as a signal would. Only the first time counts."""
        with self._lock:
            if self._triggered.is_set():
                return
            self._triggered.set()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            _call(callback)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Only what may interrupt anything is used here: no lock, no log.
        now = SYSTEM_CLOCK.monotonic()
        if self._first is None:
            self._first = now
            self._signals.put(number)  # may interrupt itself, unlike an Event
        elif now - self._first > _SAME_WISH:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _listen(self) -> None:
        while (number := self._signals.get()) is not None:
            logger.info("asked to end by signal %d", number)
            self.trigger()


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("a callback at shutdown failed: %r", callback)


@dataclass(slots=True, eq=False)
class _Member:
    """A loop of a group, as the group knows it."""

    name: str
    loop: Runnable
    heartbeat: Heartbeat | None
    at_work: bool = False


class LoopGroup:
    """Runs loops, each in a thread of its own, until all have ended.

    With `health_port` it serves health and metrics there; with `watchdog_threshold` the process
    dies where a loop's heartbeat is older than so many seconds.
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
                raise UsageError(f"expected loops with `run` and `shutdown`, got {shown(loop)}")
        if not self.loops or len({id(loop) for loop in self.loops}) < len(self.loops):
            raise UsageError(f"expected one loop or more, each once, got {shown(self.loops)}")
        if not shutdown_timeout >= 0:
            raise UsageError(f"expected `shutdown_timeout` >= 0, got {shown(shutdown_timeout)}")
        self._members = [
            _Member(name, loop, getattr(loop, "heartbeat", None))
            for name, loop in zip(_names(self.loops), self.loops, strict=True)
        ]
        self._timeout = shutdown_timeout
        self._threshold = watchdog_threshold
        self._watchdog: Watchdog | None = None
        if watchdog_threshold is not None:
            beating = {each.name: each.heartbeat for each in self._members if each.heartbeat}
            self._watchdog = Watchdog(
                tuple(beating.values()),
                stall_threshold=watchdog_threshold,
                check_interval=watchdog_interval or min(60.0, watchdog_threshold / 3),
                loop_names=tuple(beating),
            )
        self._health: HealthServer | None = None
        if health_port is not None:
            self._health = HealthServer(
                host=health_host, port=health_port, readiness_check=self._ready, metrics=self._count
            )
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._end: float | None = None  # until when all must have ended, once they were asked

    def __enter__(self) -> LoopGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def running(self) -> bool:
        """True while a loop runs."""
        return any(each.at_work for each in self._members)

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Where health is served."""
        return self._health.address if self._health is not None else None

    def run(
        self,
        *,
        install_signals: bool = True,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """Run all loops until each has ended; raise what one of them raised, or all of it.

        SIGTERM and SIGINT ask all to end; outside of the main thread only `shutdown` does. A loop
        that does not end in time is left behind, with a `DeadlineExceededError`: its messages come
        back when their leases end.
        """
        if self.running:
            raise UsageError("expected a group that does not run yet, got one that does")
        if self._end is not None:
            return  # it was shut down before
        options = {"visibility_timeout": visibility_timeout, "wait_time_seconds": wait_time_seconds}
        with ExitStack() as stack:
            if self._health is not None:
                stack.enter_context(self._health)
            if self._watchdog is not None:
                stack.enter_context(self._watchdog)
            if install_signals:
                stack.enter_context(_signals_to(self._ask))
            self._start(options)
            try:
                late = self._wait(None)
            except BaseException:  # such as KeyboardInterrupt, where nobody listens to signals
                self._ask()
                self._wait(None)
                raise
        self._raise(late)

    def shutdown(self, *, timeout: float | None = None) -> bool:
        """Ask all loops to end, and wait; True where all did in time. It is for good."""
        self._ask()
        return not self._wait(self._timeout if timeout is None else timeout)

    def _start(self, options: Mapping[str, float]) -> None:
        self._errors = []
        for member in self._members:
            member.at_work = True
        for member in self._members:
            threading.Thread(
                target=self._work, args=(member, options), name=member.name, daemon=True
            ).start()

    def _work(self, member: _Member, options: Mapping[str, float]) -> None:
        try:
            if self._end is None:
                member.loop.run(max_iterations=None, **options)
        except BaseException as error:
            logger.exception("the loop %s failed, so all others end", member.name)
            self._errors.append(error)
            self._ask()
        finally:
            if self._watchdog is not None and member.heartbeat is not None:
                self._watchdog.forget(member.heartbeat)
            with self._changed:
                member.at_work = False
                self._changed.notify_all()

    def _ask(self) -> None:
        """Ask every loop to end, each from a thread of its own: one that hangs stops no other."""
        with self._changed:
            if self._end is not None:
                return
            self._end = SYSTEM_CLOCK.monotonic() + self._timeout
            self._changed.notify_all()
        for member in self._members:
            threading.Thread(target=self._ask_one, args=(member,), daemon=True).start()

    def _ask_one(self, member: _Member) -> None:
        _call(lambda: member.loop.shutdown(timeout=self._timeout * _FOR_WORK))

    def _wait(self, timeout: float | None) -> list[str]:
        """Wait for the end of all; who has not ended. Without a timeout, as long as they may."""
        end = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        with self._changed:
            while self.running:
                until = self._end if end is None else end
                left = _LOOK if until is None else until - SYSTEM_CLOCK.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, _LOOK))
            return [each.name for each in self._members if each.at_work]

    def _raise(self, late: list[str]) -> None:
        errors = list(self._errors)
        if late:
            errors.append(
                DeadlineExceededError(
                    f"expected all loops to end within {self._timeout:g} s, still at work: "
                    f"{', '.join(late)} - their messages come back when their leases end"
                )
            )
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup("several loops failed", errors)

    # ── health ──────────────────────────────────────────────────────────────────────────────────

    def _ready(self) -> bool:
        """All run, none was asked to end, and each was seen alive lately."""
        return self._end is None and all(
            each.loop.running and not self._is_stale(each.heartbeat) for each in self._members
        )

    def _is_stale(self, heartbeat: Heartbeat | None) -> bool:
        if heartbeat is None or self._threshold is None:
            return False
        return heartbeat.elapsed() > self._threshold

    def _count(self) -> Iterator[Measure]:
        for each in self._members:
            labels = {"loop": each.name}
            running = int(each.loop.running)
            yield Measure("wink_loop_running", running, labels, "1 while the loop runs")
            if each.heartbeat is not None:
                age = each.heartbeat.elapsed()
                yield Measure("wink_heartbeat_age_seconds", age, labels, "since the last beat")
            metrics: Callable[[], Mapping[str, float]] = getattr(each.loop, "metrics", dict)
            for key, value in metrics().items():
                yield Measure(f"wink_{key}", value, labels)


def _names(loops: Sequence[Runnable]) -> list[str]:
    """A name for each: its own or its class, with a number where several have it."""
    given = [str(getattr(loop, "name", None) or type(loop).__name__) for loop in loops]
    many = {name for name, times in Counter(given).items() if times > 1}
    return [f"{name}-{i}" if name in many else name for i, name in enumerate(given, 1)]


@contextmanager
def _signals_to(callback: Callable[[], object]) -> Iterator[None]:
    """Have signals ask for the end, as far as this thread may; put back what was there."""
    before = ShutdownCoordinator.get()
    if before is None and threading.current_thread() is not threading.main_thread():
        logger.info("not in the main thread, so signals are left to others")
        yield
        return
    coordinator = ShutdownCoordinator.install() if before is None else before
    coordinator.register(callback)
    try:
        yield
    finally:
        coordinator.unregister(callback)
        if before is None:
            ShutdownCoordinator.reset()
