"""Retries for finished work, which would be expensive to do again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio

from ...errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    StoreError,
    short_repr,
)
from ...internal.threads import in_thread
from ...secrets import logger_for

R = TypeVar("R")
logger = logger_for(__name__)

TRANSIENT = (MailboxConnectionError, MailboxFullError)  # all other mailbox errors are permanent
DEFAULT_RETRY_TIMEOUT = 300.0  # seconds; then the message returns to its queue
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 30.0  # between two attempts
MAX_STORE_ATTEMPTS = 5  # attempts, if a user's store raises an unknown error


async def retry(
    call: Callable[[], Awaitable[R]],
    *errors: type[Exception],
    delay: Callable[[int], float],
    max_attempts: int | None = None,
    timeout: float = DEFAULT_RETRY_TIMEOUT,
) -> R:
    """Return what the call returns; call again while it raises one of these errors.

    `delay` returns the seconds to wait after the n-th attempt. If the next one would begin after
    `timeout` seconds, or after `max_attempts`, the last error is raised.
    """
    end, attempts = anyio.current_time() + timeout, 0
    while True:
        try:
            return await call()
        except errors as error:
            attempts += 1
            pause = min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, delay(attempts)))
            if anyio.current_time() + pause >= end or attempts == max_attempts:
                raise
            logger.warning("retrying in %.1f s: %s", pause, error)
        await anyio.sleep(pause)


class _UnknownError(Exception):
    """A user's store raised something other than a `StoreError`."""


async def call_store(
    method: Callable[..., Any],
    *args: Any,
    delay: Callable[[int], float],
    max_attempts: int | None = None,
    timeout: float = DEFAULT_RETRY_TIMEOUT,
    abandon: bool = True,
) -> Any:
    """Return what a method of a user's store returns; it runs in a thread.

    A `StoreError` means that the store is unavailable, and is retried for `timeout` seconds. Any
    other error is retried `MAX_STORE_ATTEMPTS` times and then raised as a `StoreError`.
    `max_attempts` and `timeout` limit both.
    """

    async def attempt() -> Any:
        try:
            value = await in_thread(method, *args, abandon=abandon)
            return await value if inspect.isawaitable(value) else value
        except StoreError:
            raise
        except Exception as error:
            name = getattr(method, "__qualname__", repr(method))
            raise _UnknownError(
                f"expected `{name}` of a user's store to work, got "
                f"{type(error).__name__}: {short_repr(str(error))}"
            ) from error

    limit = max_attempts or MAX_STORE_ATTEMPTS
    again = partial(retry, delay=delay, timeout=timeout)
    known = partial(again, attempt, _UnknownError, max_attempts=limit)
    try:
        return await again(known, StoreError, max_attempts=max_attempts)
    except _UnknownError as error:
        raise StoreError(str(error)) from error.__cause__


async def permanent_failure(sending: Awaitable[None]) -> MailboxError | None:
    """Return the error that no retry can cure, or None if the message was sent.

    Raise a transient error.
    """
    try:
        await sending
    except TRANSIENT:
        raise
    except MailboxError as error:
        return error
    return None
