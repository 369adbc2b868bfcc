"""Lanes: the messages of one group and priority, such as the requests of one run.

Messages of a higher priority are delivered first. Groups of equal priority take turns, and a lane
is first in, first out. A message names its lane in its headers, so that every mailbox that carries
headers carries it; a message without these headers is in the lane of the group "" and priority 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

from ....errors import UsageError, short_repr

GROUP_HEADER, PRIORITY_HEADER = "wink-group", "wink-priority"
MAX_PRIORITY = 1000
CANCELLED_SECONDS = 30 * 24 * 3600  # a cancellation is remembered; longer than SQS keeps messages


class Lane(NamedTuple):
    """Where a message waits in its queue."""

    group: str = ""
    priority: int = 0


_DEFAULT = Lane()
current_lane: ContextVar[Mapping[str, str]] = ContextVar(
    "weakincentives.lane", default=MappingProxyType({})
)
"""The headers of the lane of the message that this code handles, for messages that it sends."""


def check_priority(priority: object) -> int:
    """Return a priority; raise a `UsageError` if it is not a whole number in the range."""
    if type(priority) is not int or abs(priority) > MAX_PRIORITY:
        raise UsageError(
            f"expected a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY} as `priority`, got "
            f"{short_repr(priority)}"
        )
    return priority


def lane_headers(group: str, priority: int = 0) -> dict[str, str]:
    """Return the headers of a message in this lane: `send(body, headers=lane_headers("run-7"))`.

    All messages of a group can be cancelled together, see `QueueMailbox.cancel`.
    """
    headers = {GROUP_HEADER: group}
    if check_priority(priority):
        headers[PRIORITY_HEADER] = str(priority)
    return headers


def lane_of(headers: Mapping[str, str] | None) -> Lane:
    """Return the lane that the headers of a message name."""
    if not headers or (GROUP_HEADER not in headers and PRIORITY_HEADER not in headers):
        return _DEFAULT
    priority = headers.get(PRIORITY_HEADER, "0")
    try:
        number: object = int(priority)
    except (TypeError, ValueError):
        number = priority
    return Lane(headers.get(GROUP_HEADER, ""), check_priority(number))


def lane_part(headers: Mapping[str, str]) -> dict[str, str]:
    """Return only the headers that name the lane."""
    return {name: headers[name] for name in (GROUP_HEADER, PRIORITY_HEADER) if name in headers}
