"""Try again where another try may succeed, and only there.

Rules of this file:
1. A call that succeeded is never sent again: only an error leads to another try.
2. What is permanent is raised at once, and cancellation passes through.
3. Nobody's wait is held against the model: the reply is that of the successful try, untouched.

Put it outside a `Limiter`, so that who waits for another try holds no slot meanwhile. The last
`around` is the outermost: `adapter.around(limiter).around(retrying())`.
"""

from __future__ import annotations

import math
import random as _random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from .._slots import away
from ..errors import ProviderError, UsageError, WinkError, shown
from ._model import Model, ModelReply, ModelRequest

__all__ = ["Retry", "RetryPolicy", "retrying"]

# Errors of the operating system that no second try heals. `ValueError` is among them because a
# certificate that does not hold is both, and so is an operation that a stream does not have.
_PERMANENT = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to try and how long to wait, in seconds.

    The wait before the second try is anything up to `base_delay`, and up to twice that before each
    further one, but never more than `max_delay`, nor less than the service asked for
    (`retry_after`). A wait that would bring the sum above `max_total_delay` is not begun.
    """

    max_attempts: int = 6
    base_delay: float = 0.5
    max_delay: float = 30.0
    max_total_delay: float = 120.0

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise UsageError(
                "expected a whole number >= 1 for `RetryPolicy.max_attempts`, "
                f"got {shown(self.max_attempts)}"
            )
        for name in ("base_delay", "max_delay", "max_total_delay"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
                raise UsageError(
                    f"expected seconds >= 0 for `RetryPolicy.{name}`, got {shown(value)}"
                )
        if self.base_delay > self.max_delay:
            raise UsageError(
                f"expected `RetryPolicy.base_delay` <= `max_delay`, got {self.base_delay} and "
                f"{self.max_delay}"
            )

    def delay(self, attempt: int, error: BaseException, chance: float) -> float:
        """Seconds to wait after that attempt (from 1); `chance` from 0 to 1 is the jitter."""
        longest = min(self.max_delay, self.base_delay * 2.0 ** min(attempt - 1, 64))
        asked_for = getattr(error, "retry_after", None)
        return max(longest * chance, asked_for or 0.0)


_DEFAULT = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What `on_retry` is told: this attempt failed, the next one begins after `delay` seconds."""

    request: ModelRequest
    attempt: int
    delay: float
    error: Exception


def retrying(
    policy: RetryPolicy = _DEFAULT,
    *,
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    random: Callable[[], float] = _random.random,
    on_retry: Callable[[Retry], object] | None = None,
) -> Callable[[Model], Model]:
    """A wrapper that tries again after rate limits, overload, timeouts and lost connections.

    The last error is raised as it came, with a note of how many attempts there were.

    >>> from weakincentives.adapters import ScriptedAdapter
    >>> busy = ProviderError("busy", retryable=True)
    >>> adapter = ScriptedAdapter([busy, "Paris"]).around(retrying(RetryPolicy(base_delay=0)))
    """
    if not isinstance(policy, RetryPolicy):
        raise UsageError(
            f"expected a `RetryPolicy`, got {shown(policy)} - write `.around(retrying())`"
        )

    def around(model: Model) -> Model:
        async def ask(request: ModelRequest) -> ModelReply:
            attempt, waited = 1, 0.0
            while True:
                try:
                    return await model(request)
                except Exception as error:
                    delay = policy.delay(attempt, error, random()) if _passes(error) else None
                    if (
                        delay is None
                        or attempt == policy.max_attempts
                        or waited + delay > policy.max_total_delay
                    ):
                        _note(error, attempt, waited, delay)
                        raise
                    failed = error
                # Outside the `except`, so that an error of the next try does not drag this one
                # along as its context.
                if on_retry is not None:
                    on_retry(Retry(request=request, attempt=attempt, delay=delay, error=failed))
                del failed
                async with away():
                    await sleep(delay)
                waited += delay
                attempt += 1

        return ask

    return around


def _passes(error: Exception) -> bool:
    """Whether another try may succeed."""
    if isinstance(error, ProviderError):
        return error.retryable
    # Our own errors are verdicts, also where they are timeouts: `DeadlineExceededError`.
    return isinstance(error, OSError) and not isinstance(error, (WinkError, *_PERMANENT))


def _note(error: Exception, attempts: int, waited: float, delay: float | None) -> None:
    if delay is None and attempts == 1:
        return
    note = f"after {attempts} attempt{'s' if attempts > 1 else ''} and {waited:.1f} s of waiting"
    if delay is not None:
        note += f"; the next would have begun {delay:.1f} s later"
    error.add_note(note)
