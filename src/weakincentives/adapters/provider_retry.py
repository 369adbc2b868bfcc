"""Retry model calls after transient errors, with exponential backoff and jitter.

Rules of this file:
1. Only an error leads to a retry; a call that succeeded is never repeated.
2. A permanent error is raised at once, and cancellation passes through.
3. Backoff is not part of the model's latency: the reply of the successful attempt is unchanged.
4. A model retries at one place only. `retrying` around a model that retries replaces its policy,
   and every other wrapper goes inside: a call that backs off holds no slot of a `Limiter`.
"""

from __future__ import annotations

import random as _random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from ..errors import ProviderError, UsageError, WinkError, short_repr
from ..internal.backoff import backoff_delay
from ..internal.checks import check_number, check_whole
from ..internal.slots import slot_released
from .model import Model, ModelReply, ModelRequest

# Permanent errors of the operating system. `ValueError` is one because an invalid certificate and
# an unsupported stream operation are both `OSError` and `ValueError`.
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
    """The number of attempts and the backoff between them, in seconds.

    The delay before the second attempt is random between 0 and `base_delay`; the upper bound
    doubles with each further attempt up to `max_delay`. It is never less than the service's
    `retry_after`. If the total would exceed `max_total_delay`, there is no further attempt.
    """

    max_attempts: int = 6
    base_delay: float = 0.5
    max_delay: float = 30.0
    max_total_delay: float = 120.0

    def __post_init__(self) -> None:
        check_whole(self.max_attempts, 1, "RetryPolicy.max_attempts")
        for name in ("base_delay", "max_delay", "max_total_delay"):
            check_number(getattr(self, name), f"RetryPolicy.{name}", unit="seconds", least=0)
        if self.base_delay > self.max_delay:
            raise UsageError(
                f"expected `RetryPolicy.base_delay` <= `max_delay`, got {self.base_delay} and "
                f"{self.max_delay}"
            )

    def delay(self, attempt: int, error: BaseException, chance: float) -> float:
        """Return the seconds to wait after attempt n (from 1); `chance` (0 to 1) is the jitter."""
        delay = backoff_delay(attempt, chance, base=self.base_delay, max_delay=self.max_delay)
        return max(delay, getattr(error, "retry_after", None) or 0.0)


_DEFAULT = RetryPolicy()
DEFAULT_RETRIES = _DEFAULT.max_attempts - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The argument of `on_retry`: an attempt failed, the next one starts after `delay` seconds."""

    request: ModelRequest
    attempt: int
    delay: float
    error: Exception


@dataclass(frozen=True, slots=True, eq=False)
class RetryingModel:
    """A model that retries, with the wrapper that made it."""

    model: Model
    retrying: Retrying

    def around(self, wrap: Callable[[Model], Model]) -> Model:
        """Return the model with a wrapper inside the retries; another `retrying` replaces them."""
        wrapped = wrap(self.model)
        return wrapped if isinstance(wrap, Retrying) else self.retrying(wrapped)

    async def __call__(self, request: ModelRequest) -> ModelReply:
        retrying, attempt, waited = self.retrying, 1, 0.0
        policy = retrying.policy
        while True:
            try:
                return await self.model(request)
            except Exception as error:
                transient = _is_transient(error)
                delay = policy.delay(attempt, error, retrying.random()) if transient else None
                if (
                    delay is None
                    or attempt == policy.max_attempts
                    or waited + delay > policy.max_total_delay
                ):
                    _note(error, attempt, waited, delay)
                    raise
                failed = error
            # Outside the `except`, so that this error does not become the context of the next.
            if retrying.on_retry is not None:
                retrying.on_retry(
                    Retry(request=request, attempt=attempt, delay=delay, error=failed)
                )
            del failed
            async with slot_released():
                await retrying.sleep(delay)
            waited += delay
            attempt += 1


@dataclass(frozen=True, slots=True, eq=False)
class Retrying:
    """A wrapper that makes a model retry; `retrying` returns it."""

    policy: RetryPolicy
    sleep: Callable[[float], Awaitable[object]]
    random: Callable[[], float]
    on_retry: Callable[[Retry], object] | None

    def __call__(self, model: Model) -> Model:
        """Return the model with retries; if it has some already, these replace them."""
        return RetryingModel(model.model if isinstance(model, RetryingModel) else model, self)


def retrying(
    policy: RetryPolicy = _DEFAULT,
    *,
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    random: Callable[[], float] = _random.random,
    on_retry: Callable[[Retry], object] | None = None,
) -> Retrying:
    """Return a wrapper that retries after rate limits, overload, timeouts and lost connections.

    Adapters of providers retry without it; it replaces their policy. The last error is raised
    unchanged, with a note of the number of attempts.

    >>> from weakincentives.adapters import ScriptedAdapter
    >>> busy = ProviderError("busy", retryable=True)
    >>> adapter = ScriptedAdapter([busy, "Paris"]).around(retrying(RetryPolicy(base_delay=0)))
    """
    if not isinstance(policy, RetryPolicy):
        raise UsageError(
            f"expected a `RetryPolicy`, got {short_repr(policy)} - write `.around(retrying())`"
        )
    return Retrying(policy, sleep, random, on_retry)


def with_retries(model: Model, retries: int) -> Model:
    """Return the model of a provider with this number of retries; 0 leaves it as it is."""
    check_whole(retries, 0, "retries")
    return retrying(RetryPolicy(max_attempts=retries + 1))(model) if retries else model


def _is_transient(error: Exception) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, ProviderError):
        return error.retryable
    # Our own errors are final, even those that are timeouts: `DeadlineExceededError`.
    return isinstance(error, OSError) and not isinstance(error, (WinkError, *_PERMANENT))


def _note(error: Exception, attempts: int, waited: float, delay: float | None) -> None:
    if delay is None and attempts == 1:
        return
    note = f"after {attempts} attempt{'s' if attempts > 1 else ''} and {waited:.1f} s of waiting"
    if delay is not None:
        note += f"; the next would have begun {delay:.1f} s later"
    error.add_note(note)
