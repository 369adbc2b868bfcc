"""Messages in hand, and their leases: extended while the work lasts; one that is lost ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from ..errors import MailboxConnectionError, MessageFinalizedError
from ..secrets import logger_for
from .leases import Heartbeat, LeaseExtenderConfig
from .mailbox import Message, QueueMailbox

__all__ = ["Flight", "Overdelivered", "keep_leases", "only_one"]

logger = logger_for(__name__)

BEAT = 5.0  # seconds between signs of life


@dataclass(slots=True, eq=False)
class Flight:
    """A message that is being handled."""

    message: Message[Any]
    until: float  # when its lease ends, by the event loop's clock
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    lost: bool = False
    worked: bool = False  # only telling is left
    alone: bool = False  # nothing else is worked on beside it


class Overdelivered(Exception):
    """A message that no delivery finished."""

    def __init__(self, times: int) -> None:
        super().__init__(
            f"was delivered {times} times and never finished - it may end its worker, or take "
            "longer than its lease"
        )


async def keep_leases(
    flights: Mapping[str, Flight],
    requests: QueueMailbox[Any],
    config: LeaseExtenderConfig,
    heartbeat: Heartbeat,
    counts: Counter[str],
) -> None:
    """Give signs of life and extend leases, until cancelled."""
    next_time = anyio.current_time() + config.interval
    while True:
        left = next_time - anyio.current_time() if config.enabled else BEAT
        await anyio.sleep(min(BEAT, max(0.0, left)))
        heartbeat.beat()
        now = anyio.current_time()
        if not config.enabled or now < next_time:
            continue
        next_time = now + config.interval
        in_hand = [flight for flight in flights.values() if not flight.message.is_finalized]
        if not in_hand:
            continue
        messages = [flight.message for flight in in_hand]
        try:
            kept = await requests.aside(partial(requests.extend_all, messages, config.extension))
        except MessageFinalizedError:  # meanwhile; the others have their turn at once
            next_time = now
            await anyio.lowlevel.checkpoint()
            continue
        except MailboxConnectionError:
            kept = [now < flight.until for flight in in_hand]
        else:
            for flight in in_hand:
                flight.until = max(flight.until, now + config.extension)
        for flight, still_ours in zip(in_hand, kept, strict=True):
            if not still_ours and not flight.message.is_finalized:
                counts["lease_lost"] += 1
                logger.warning("the lease of %r is lost: its work ends", flight.message)
                flight.lost = True
                flight.scope.cancel()


def only_one(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error in a group that has one, so that callers can catch it by its type."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
