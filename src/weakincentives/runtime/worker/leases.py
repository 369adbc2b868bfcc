"""Lease extension for synchronous code.

Rules of this file:
1. A lease is only ever extended, and only while its block runs.
2. No failure here reaches the work: it is logged, or reported by the `on_lost` callback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import MessageFinalizedError, ReceiptHandleExpiredError, UsageError, short_repr
from ...secrets import logger_for
from ..mailbox import MAX_VISIBILITY_TIMEOUT, Message
from .heartbeat import Heartbeat

logger = logger_for(__name__)

_ACK_GRACE_SECONDS = 0.25  # a refused extension may mean that the message was acknowledged
_JOIN_SECONDS = 1.0  # the end of a block waits this long for an extension in progress


@dataclass(frozen=True, slots=True)
class LeaseExtenderConfig:
    """Every `interval` seconds, extend a lease to at least `extension` seconds from then."""

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
                    f"`LeaseExtenderConfig.{name}`, got {short_repr(value)}"
                )
        if self.interval >= self.extension:
            raise UsageError(
                f"expected `interval` < `extension`, got {self.interval} and {self.extension} - "
                "a lease must be extended before it ends; a third is a good interval"
            )

    def for_lease(self, seconds: float) -> LeaseExtenderConfig:
        """Return the settings for a lease of that length: extended at least twice before its end.

        No extension is longer than the lease, so that the messages of a worker that crashed are
        redelivered after the visibility timeout, and not later.
        """
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise UsageError(f"expected a lease of more than 0 seconds, got {short_repr(seconds)}")
        extension = min(self.extension, seconds)
        return replace(self, interval=min(self.interval, extension / 3), extension=extension)


class LeaseExtender:
    """Extends the leases of messages while synchronous code handles them.

    One extender serves any number of messages, also concurrently.
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
        """Extend the lease of a message while the block runs.

        The lease is extended at once, since its remaining time is unknown, and then every interval.
        Each extension beats the `heartbeat`: it shows that the lease is held, not that the work
        makes progress, so a watchdog should use another one. If the lease is lost, `on_lost` is
        called once, from another thread.
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
            thread.join(_JOIN_SECONDS)

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
            before = self._clock.monotonic()
            try:
                message.extend_visibility(config.extension)
            except MessageFinalizedError:
                return
            except ReceiptHandleExpiredError:
                if stop.wait(_ACK_GRACE_SECONDS) or message.is_finalized:
                    return  # it was acknowledged at the same moment
                break
            except Exception as error:
                if self._clock.monotonic() >= end:
                    break
                logger.warning("could not extend the lease of %r, retrying: %s", message, error)
                wait = min(1.0, config.interval / 3)
            else:
                end = before + config.extension
                wait = config.interval
                if heartbeat is not None:
                    heartbeat.beat()
        else:
            return
        logger.warning("lost the lease of %r: it may be redelivered", message)
        if on_lost is not None:
            try:
                on_lost()
            except Exception:
                logger.exception("`on_lost` failed for %r", message)
