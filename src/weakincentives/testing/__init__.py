"""Real parts for your tests: sessions with a known past, and time that you move yourself."""

from ._clock import FakeClock
from ._sessions import session_with

__all__ = ["FakeClock", "session_with"]
