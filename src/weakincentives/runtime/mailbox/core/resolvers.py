"""From the reply address in a message to its mailbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, Protocol

from ....errors import MailboxResolutionError, UsageError, short_repr
from ....internal.frozen import frozen_generic
from ....internal.typevars import BodyT
from .types import Mailbox

_MAX_CACHED = 1024  # mailboxes made by a factory; the least recently used is closed first


class MailboxResolver(Protocol):
    """Returns the mailbox at an address, or raises `MailboxResolutionError`."""

    def resolve(self, identifier: str) -> Mailbox[Any]: ...


class MailboxFactory(Protocol):
    """Creates the mailbox at an address, on some back-end."""

    def create(self, identifier: str) -> Mailbox[Any]: ...


@frozen_generic
@dataclass(frozen=True, slots=True)
class CompositeResolver(Generic[BodyT]):
    """Looks in a registry first; creates other mailboxes by a factory, each once."""

    registry: Mapping[str, Mailbox[Any]] = field(default_factory=dict)
    factory: MailboxFactory | None = None
    _made: dict[str, Mailbox[Any]] = field(default_factory=dict, init=False, repr=False)
    _lock: Any = field(default_factory=Lock, init=False, repr=False, compare=False)

    def resolve(self, identifier: str) -> Mailbox[Any]:
        """Return the mailbox at this address."""
        if (mailbox := self.registry.get(identifier)) is not None:
            return mailbox
        if self.factory is None:
            known = ", ".join(sorted(self.registry)) or "none"
            raise MailboxResolutionError(
                f"expected the address of a mailbox ({known}), got {short_repr(identifier)}",
                identifier,
            )
        with self._lock:
            mailbox = self._made.pop(identifier, None)
            if mailbox is None or mailbox.closed:
                try:
                    mailbox = self.factory.create(identifier)
                except UsageError as error:  # an address in a message is data, not misuse
                    raise MailboxResolutionError(str(error), identifier) from None
            self._made[identifier] = mailbox
            while len(self._made) > _MAX_CACHED:
                self._made.pop(next(iter(self._made))).close()
        return mailbox

    def resolve_optional(self, identifier: str) -> Mailbox[Any] | None:
        """Return the mailbox at this address, or None."""
        try:
            return self.resolve(identifier)
        except MailboxResolutionError:
            return None


class RegistryResolver(CompositeResolver[BodyT]):
    """Looks in a registry only: `RegistryResolver({"answers": mailbox})`."""

    __slots__ = ()

    def __init__(self, registry: Mapping[str, Mailbox[Any]]) -> None:
        super().__init__(registry)
