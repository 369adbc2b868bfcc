"""Limits of one attempt: time and tokens, and how much is used."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .chat import TokenUsage
from .clock import SYSTEM_CLOCK, Clock
from .errors import BudgetExceededError, DeadlineExceededError, UsageError, short_repr
from .internal.checks import whole_or_none
from .internal.wire_names import wire_name

__all__ = ["Budget", "BudgetTracker", "Deadline"]


@wire_name("wink:Deadline", "weakincentives.budget:Deadline")
@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time after which nothing more is started.

    >>> Deadline.after(60).expired
    False
    """

    expires_at: datetime
    clock: Clock = field(default=SYSTEM_CLOCK, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expires_at, datetime) or self.expires_at.tzinfo is None:
            raise UsageError(f"expected an aware datetime, got {short_repr(self.expires_at)}")

    @classmethod
    def after(cls, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(clock.now() + timedelta(seconds=seconds), clock)

    def remaining(self) -> float:
        """Return the seconds that are left; negative once it has passed."""
        return (self.expires_at - self.clock.now()).total_seconds()

    @property
    def expired(self) -> bool:
        """True once it has passed."""
        return self.remaining() <= 0

    def check(self) -> None:
        """Raise DeadlineExceededError once it has passed."""
        if self.expired:
            raise DeadlineExceededError(
                f"expected to be done by {self.expires_at.isoformat()}, exceeded it by "
                f"{-self.remaining():.1f} s"
            )


@wire_name("wink:Budget", "weakincentives.budget:Budget")
@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one attempt, at least one; using exactly the limit is allowed."""

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        limits = ("max_total_tokens", "max_input_tokens", "max_output_tokens")
        for name in limits:
            whole_or_none(self, name, least=1)
        if self.deadline is None and all(getattr(self, name) is None for name in limits):
            raise UsageError(f"expected a `Budget` with a deadline or one of {', '.join(limits)}")


@dataclass(slots=True, eq=False, repr=False)
class BudgetTracker:
    """The usage of a budget. Thread-safe."""

    budget: Budget
    _consumed: TokenUsage = field(default_factory=TokenUsage, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def consumed(self) -> TokenUsage:
        """All usage recorded so far."""
        return self._consumed

    def record(self, usage: TokenUsage) -> None:
        """Add the usage of one call."""
        with self._lock:
            self._consumed += usage

    def check(self) -> None:
        """Raise if the deadline has passed or a limit is exceeded, and say which."""
        if self.budget.deadline is not None:
            self.budget.deadline.check()
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            count = getattr(self.consumed, name) or 0
            limit = getattr(self.budget, f"max_{name}")
            if limit is not None and count > limit:
                raise BudgetExceededError(
                    f"expected at most {limit} {name.replace('_', ' ')}, used {count}"
                )
