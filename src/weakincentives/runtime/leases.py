"""Leases that last as long as the work, and heartbeats that say a worker is alive.

Rules of this file:
1. A lease is only ever extended, and only while its block runs.
2. Nothing that goes wrong here reaches the work: it is logged, or told to `on_lost`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import MessageFinalizedError, ReceiptHandleExpiredError, UsageError, shown
from ..secrets import logger_for
from .mailbox import MAX_VISIBILITY_TIMEOUT, Message

__all__ = ["Heartbeat", "LeaseExtender", "LeaseExtenderConfig"]

logger = logger_for(__name__)

_GRACE = 0.25  # seconds in which a refused extension may turn out to be an acknowledged message
_LEAVE = 1.0  # seconds that the end of a block waits for an extension that is on its way


class Heartbeat:
    """When a worker was last seen alive; any thread may beat and look.

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
        """Say that the worker is alive, and call who asked to hear it."""
        self._last = self._clock.monotonic()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback of a heartbeat failed: %r", callback)

    def elapsed(self) -> float:
        """Seconds since the last beat; before the first one, since it was made."""
        return self._clock.monotonic() - self._last

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call this at every beat, in the thread that beats."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Call it no more. One that is not there is fine."""
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each != callback)


@dataclass(frozen=True, slots=True)
class LeaseExtenderConfig:
    """Every `interval` seconds, let a lease last at least `extension` seconds from then."""

    interval: float = 60.0
    extension: float = 300.0
    enabled: bool = True

    def __post_init__(self) -> None:
        for name in ("interval", "extension"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value <= MAX_VISIBILITY_TIMEOUT:
                raise UsageError(
                    f"expected seconds > 0 and <= {MAX_VISIBILITY_TIMEOUT:,} for "
                    f"`LeaseExtenderConfig.{name}`, got {shown(value)}"
                )
        if self.interval >= self.extension:
            raise UsageError(
                f"expected `interval` < `extension`, got {self.interval} and {self.extension} - "
                "a lease must be extended before it ends; a third is a good interval"
            )

    def for_lease(self, seconds: float) -> LeaseExtenderConfig:
        """The same for messages leased for so long: extended at least twice before the end.

        No extension is longer than the lease, so that the message of a worker that died is back
        after its visibility timeout, and not later.
        """
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise UsageError(f"expected a lease of more than 0 seconds, got {shown(seconds)}")
        extension = min(self.extension, seconds)
        return replace(self, interval=min(self.interval, extension / 3), extension=extension)


class LeaseExtender:
    """Keeps leases while synchronous code works on messages, or waits.

    One extender serves any number of messages, also at the same time.
    """

    def __init__(
        self, config: LeaseExtenderConfig | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.config = LeaseExtenderConfig() if config is None else config
        self._clock = clock

    @contextmanager
    def attach(
        self,
        message: Message[Any],
        heartbeat: Heartbeat | None = None,
        on_lost: Callable[[], object] | None = None,
    ) -> Iterator[None]:
        """Keep the lease of a message for as long as the block runs.

        The lease is extended at once, since nobody knows how much of it is left, and then every
        interval. Each extension beats the `heartbeat`: it says that the lease is held, not that
        the work goes on, so it should not be the one that a watchdog looks at. A lease that is
        lost is told to `on_lost`, once, from another thread.
        """
        if not self.config.enabled:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(
            target=self._keep,
            args=(message, heartbeat, on_lost, stop),
            name=f"wink-lease-{message.id}",
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_LEAVE)

    def _keep(
        self,
        message: Message[Any],
        heartbeat: Heartbeat | None,
        on_lost: Callable[[], object] | None,
        stop: threading.Event,
    ) -> None:
        config = self.config
        end = self._clock.monotonic() + config.extension
        wait = 0.0
        while not stop.wait(wait):
            asked = self._clock.monotonic()
            try:
                message.extend_visibility(config.extension)
            except MessageFinalizedError:
                return
            except ReceiptHandleExpiredError:
                if stop.wait(_GRACE) or message.is_finalized:
                    return  # refused because it was acknowledged at the same moment
                break
            except Exception as error:
                if self._clock.monotonic() >= end:
                    break
                logger.warning("could not extend the lease of %r, trying again: %s", message, error)
                wait = min(1.0, config.interval / 3)
            else:
                end = asked + config.extension
                wait = config.interval
                if heartbeat is not None:
                    heartbeat.beat()
        else:
            return
        logger.warning("lost the lease of %r: somebody else may work on it", message)
        if on_lost is not None:
            try:
                on_lost()
            except Exception:
                logger.exception("`on_lost` failed for %r", message)
