"""How a worker works, which the configurations of all loops share."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import UsageError
from .dlq import Backoff
from .leases import LeaseExtenderConfig

__all__ = ["WorkerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How a worker works: so many messages at once, how leases are kept, how failures are spaced.

    `backoff` is the pause before a mailbox that could not be reached is asked again, and before a
    message is delivered again that could not be worked on.
    """

    max_concurrent: int = 10
    lease_extender: LeaseExtenderConfig = field(default_factory=LeaseExtenderConfig)
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if type(self.max_concurrent) is not int or self.max_concurrent < 1:
            raise UsageError(
                f"expected a whole number >= 1 for `max_concurrent`, got {self.max_concurrent!r}"
            )
