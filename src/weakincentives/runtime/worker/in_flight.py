"""Messages in flight: their leases are extended during the work; a lost lease cancels it.

So does the cancellation of the message's group, such as its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from ...errors import MailboxConnectionError, MailboxError, MessageFinalizedError
from ...secrets import logger_for
from ..mailbox import Message, QueueMailbox
from ..mailbox.core.lanes import GROUP_HEADER
from .heartbeat import Heartbeat
from .leases import LeaseExtenderConfig

logger = logger_for(__name__)

HEARTBEAT_SECONDS = 5.0
CANCELLATION_SECONDS = 2.0  # between two questions whether a group in flight is cancelled


@dataclass(slots=True, eq=False)
class InFlight:
    """A message that is being handled."""

    message: Message[Any]
    lease_end: float  # by the event loop's clock
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    lease_lost: bool = False
    started: bool = False  # the agent has received it, so this delivery counts
    finished: bool = False  # the work is done; only sending and acknowledging are left
    isolated: bool = False  # nothing else runs at the same time
    cancelled: bool = False  # with its group, so it is removed and not redelivered

    @property
    def working(self) -> bool:
        """True while the agent works on it."""
        return self.started and not self.finished


def group_of(message: Message[Any]) -> str:
    """Return the group of a message; of one that names none, the run of its body.

    Those are messages of an earlier release, of a replay, or of a user's mailbox without headers.
    """
    if message.problem is not None:
        return ""
    group = message.headers.get(GROUP_HEADER) or getattr(message.body, "run_id", "")
    return group if isinstance(group, str) else ""


class MaxDeliveriesExceeded(Exception):
    """A message was delivered too often and never finished."""

    def __init__(self, times: int) -> None:
        often = "once" if times == 1 else f"{times} times"
        super().__init__(
            f"was delivered {often} and never finished - it may crash its worker, or take "
            "longer than its lease"
        )


async def keep_leases(
    in_flight: Mapping[str, InFlight],
    requests: QueueMailbox[Any],
    config: LeaseExtenderConfig,
    heartbeat: Heartbeat,
    counts: Counter[str],
) -> None:
    """Extend leases until cancelled; beat, unless an agent works, whose progress alone counts."""
    next_time = anyio.current_time() + config.interval
    while True:
        left = next_time - anyio.current_time() if config.enabled else HEARTBEAT_SECONDS
        await anyio.sleep(min(HEARTBEAT_SECONDS, max(0.0, left)))
        if not any(each.working for each in in_flight.values()):
            heartbeat.beat()
        now = anyio.current_time()
        if not config.enabled or now < next_time:
            continue
        next_time = now + config.interval
        open_now = [each for each in in_flight.values() if not each.message.is_finalized]
        if not open_now:
            continue
        messages = [each.message for each in open_now]
        extend = partial(requests.extend_all, messages, config.extension)
        try:
            extended = await requests.run_blocking(extend)
        except MessageFinalizedError:  # finalized during the call; extend the others at once
            next_time = now
            await anyio.lowlevel.checkpoint()
            continue
        except MailboxConnectionError:
            extended = [now < each.lease_end for each in open_now]
        else:
            for each in open_now:
                each.lease_end = max(each.lease_end, now + config.extension)
        for each, still_ours in zip(open_now, extended, strict=True):
            if not still_ours and not each.message.is_finalized:
                counts["lease_lost"] += 1
                logger.warning("lost the lease of %r: cancelling its work", each.message)
                each.lease_lost = True
                each.scope.cancel()


async def watch_cancellations(
    in_flight: Mapping[str, InFlight], requests: QueueMailbox[Any], counts: Counter[str]
) -> None:
    """Cancel the work on messages whose group is cancelled, until cancelled itself."""
    while True:
        await anyio.sleep(CANCELLATION_SECONDS)
        running = [each for each in in_flight.values() if not (each.finished or each.cancelled)]
        if not (groups := {group_of(each.message) for each in running} - {""}):
            continue
        try:
            cancelled = await requests.run_blocking(partial(requests.cancelled, groups))
        except MailboxError as error:
            logger.debug("cannot see which groups are cancelled: %s", error)
            continue
        for each in running:
            if not each.finished and group_of(each.message) in cancelled:
                counts["cancelled"] += 1
                each.cancelled = True
                each.scope.cancel()
        for group in cancelled:
            logger.warning("%r is cancelled: its messages are not worked on any more", group)
