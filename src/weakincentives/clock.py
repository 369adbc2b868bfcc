"""Clocks that can be injected; tests pass `testing.FakeClock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """A monotonic clock for durations and a wall clock for dates."""

    def monotonic(self) -> float:
        """Return seconds that never decrease; only differences are meaningful."""
        ...

    def now(self) -> datetime:
        """Return the current date and time, aware and in UTC."""
        ...


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)


SYSTEM_CLOCK: Clock = SystemClock()
