"""Count what model calls use: those of the judges, apart from the agent's.

A call counts with every reply, even if its answer was unparsable, and so do calls of threads and
tasks that were started inside. An outer meter includes the calls of inner ones.

A meter also takes records of calls, such as the prompt and the answer of a judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..chat import TokenUsage


@dataclass(slots=True)
class Meter:
    """The usage and the cost of each call so far. Threads may add calls concurrently."""

    calls: list[tuple[TokenUsage | None, float | None]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    @property
    def usage(self) -> TokenUsage | None:
        """Return the tokens of all calls; None if no provider has reported any."""
        usages = [usage for usage, _ in self.calls if usage is not None]
        return sum(usages[1:], usages[0]) if usages else None

    @property
    def cost(self) -> float | None:
        """Return the cost of all calls in US dollars; None if no price is known."""
        costs = [cost for _, cost in self.calls if cost is not None]
        return sum(costs) if costs else None


_meter: ContextVar[Meter | None] = ContextVar("weakincentives.meter", default=None)


def start_meter() -> Meter:
    """Count the calls of this task from now on, until it ends."""
    meter = Meter()
    _meter.set(meter)
    return meter


@contextmanager
def metered() -> Iterator[Meter]:
    """Count the calls of the block."""
    meter = Meter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)
        for call in meter.calls:
            meter_call(*call)
        for record in meter.records:
            record_call(record)


def meter_call(usage: Any, cost: Any) -> None:
    """Add a call to the meter of the caller, if there is one.

    What a user's adapter reports may be anything: only a `TokenUsage` and a finite number count.
    """
    meter = _meter.get()
    if meter is None:
        return
    known = usage if isinstance(usage, TokenUsage) else None
    price = float(cost) if isinstance(cost, int | float) and math.isfinite(cost) else None
    if known is not None or price is not None:
        meter.calls.append((known, price))


def record_call(record: object) -> None:
    """Add a record of a call to the meter of the caller, if there is one."""
    if (meter := _meter.get()) is not None:
        meter.records.append(record)
