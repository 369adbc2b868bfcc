"""Time, as something that can be handed in; tests hand in `testing.FakeClock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """A steady clock for durations and a wall clock for dates."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def now(self) -> datetime:
        """The current date and time, aware and in UTC."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)


SYSTEM_CLOCK: Clock = SystemClock()
