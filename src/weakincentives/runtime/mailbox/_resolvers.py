"""From an address in a message to the mailbox that it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from ...errors import MailboxResolutionError, UsageError, shown
from ._types import Mailbox

__all__ = ["CompositeResolver", "MailboxFactory", "MailboxResolver", "RegistryResolver"]

_KEPT = 1024  # mailboxes that a factory made; those that were not asked for the longest go first


class MailboxResolver(Protocol):
    """Finds the mailbox at an address, or raises `MailboxResolutionError`."""

    def resolve(self, identifier: str) -> Mailbox[Any]: ...


class MailboxFactory(Protocol):
    """Makes the mailbox at an address, on a back-end of its choice."""

    def create(self, identifier: str) -> Mailbox[Any]: ...


@dataclass(frozen=True, slots=True)
class CompositeResolver:
    """Known mailboxes first; others by a factory, each made once."""

    registry: Mapping[str, Mailbox[Any]] = field(default_factory=dict)
    factory: MailboxFactory | None = None
    _made: dict[str, Mailbox[Any]] = field(default_factory=dict, init=False, repr=False)
    _lock: Any = field(default_factory=Lock, init=False, repr=False, compare=False)

    def resolve(self, identifier: str) -> Mailbox[Any]:
        """The mailbox at this address."""
        if (found := self.registry.get(identifier)) is not None:
            return found
        if self.factory is None:
            known = ", ".join(sorted(self.registry)) or "none"
            raise MailboxResolutionError(
                f"expected the address of a mailbox ({known}), got {shown(identifier)}", identifier
            )
        with self._lock:
            found = self._made.pop(identifier, None)
            if found is None or found.closed:
                found = self._create(self.factory, identifier)
            self._made[identifier] = found
            while len(self._made) > _KEPT:
                self._made.pop(next(iter(self._made))).close()
        return found

    def _create(self, factory: MailboxFactory, identifier: str) -> Mailbox[Any]:
        try:
            return factory.create(identifier)
        except UsageError as error:  # no such name can be, whoever wrote it into a message
            raise MailboxResolutionError(str(error), identifier) from None

    def resolve_optional(self, identifier: str) -> Mailbox[Any] | None:
        """The mailbox at this address, or None."""
        try:
            return self.resolve(identifier)
        except MailboxResolutionError:
            return None


class RegistryResolver(CompositeResolver):
    """Known mailboxes and no others: `RegistryResolver({"answers": mailbox})`."""

    __slots__ = ()

    def __init__(self, registry: Mapping[str, Mailbox[Any]]) -> None:
        super().__init__(registry)
