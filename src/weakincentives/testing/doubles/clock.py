"""A clock that stands still until a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...errors import UsageError


class FakeClock:
    """A `Clock` for tests: time passes by `advance`, and `set_back` changes the date alone.

    >>> clock = FakeClock()
    >>> clock.advance(1.5)
    >>> clock.monotonic()
    1.5
    """

    __slots__ = ("_elapsed", "_start")

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise UsageError(f"expected an aware `start`, got {start!r} - pass tzinfo=UTC")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0

    def monotonic(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def advance(self, seconds: float) -> None:
        """Let time pass, for `now` and `monotonic`."""
        if seconds < 0:
            raise UsageError(f"expected `seconds` >= 0, got {seconds} - time never goes back")
        self._elapsed += seconds

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back; the monotonic clock is not affected."""
        self._start -= timedelta(seconds=seconds)
