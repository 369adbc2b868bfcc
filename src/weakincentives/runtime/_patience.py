"""To ask again what could not be had: for work that is done, and dear to do again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ..errors import MailboxConnectionError, MailboxError, MailboxFullError
from ..secrets import logger_for

__all__ = ["PASSING", "insist", "refusal"]

R = TypeVar("R")
logger = logger_for(__name__)

PASSING = (MailboxConnectionError, MailboxFullError)  # any other error of a mailbox stays
PATIENCE = 300.0  # seconds after which the message is handed back all the same
LEAST_PAUSE, LONGEST_PAUSE = 0.05, 30.0  # seconds between two tries


async def insist(
    call: Callable[[], Awaitable[R]],
    *away: type[Exception],
    delay: Callable[[int], float],
) -> R:
    """What the call gives; while it raises one of these, it is made again, for some minutes.

    `delay` says how many seconds to wait after the n-th try.
    """
    end, tries = anyio.current_time() + PATIENCE, 0
    while True:
        try:
            return await call()
        except away as error:
            tries += 1
            pause = min(LONGEST_PAUSE, max(LEAST_PAUSE, delay(tries)))
            if anyio.current_time() + pause >= end:
                raise
            logger.warning("trying again in %.1f s: %s", pause, error)
        await anyio.sleep(pause)


async def refusal(sending: Awaitable[None]) -> MailboxError | None:
    """Why a mailbox does not take it, however often it is tried; None where it did."""
    try:
        await sending
    except PASSING:
        raise
    except MailboxError as error:
        return error
    return None
