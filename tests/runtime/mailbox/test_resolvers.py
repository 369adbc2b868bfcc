"""Addresses and the mailboxes that they mean."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from weakincentives.errors import MailboxResolutionError, UsageError
from weakincentives.runtime.mailbox import (
    CompositeResolver,
    InMemoryMailbox,
    InMemoryMailboxFactory,
    Mailbox,
    RegistryResolver,
)


class CountingFactory:
    """A factory that records the mailboxes it created."""

    def __init__(self) -> None:
        self.created: list[InMemoryMailbox[Any]] = []

    def create(self, identifier: str) -> Mailbox[Any]:
        if identifier == "bad":
            raise UsageError("expected a good name")
        self.created.append(InMemoryMailbox(identifier))
        return self.created[-1]


def test_a_registry_finds_its_mailboxes() -> None:
    answers = InMemoryMailbox[str]("answers")
    resolver = RegistryResolver({"desk": answers})

    assert resolver.resolve("desk") is answers
    assert resolver.resolve_optional("desk") is answers


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    resolver = RegistryResolver({"desk": InMemoryMailbox(), "attic": InMemoryMailbox()})

    with pytest.raises(MailboxResolutionError, match="attic, desk") as caught:
        resolver.resolve("answers")

    assert caught.value.identifier == "answers"
    assert resolver.resolve_optional("answers") is None


def test_registered_mailboxes_come_before_created_ones() -> None:
    factory, registered = CountingFactory(), InMemoryMailbox[str]("desk")
    resolver = CompositeResolver({"desk": registered}, factory)

    assert resolver.resolve("desk") is registered
    assert factory.created == []


def test_a_mailbox_is_made_once_for_all_threads() -> None:
    factory = CountingFactory()
    resolver = CompositeResolver(factory=factory)

    with ThreadPoolExecutor(8) as pool:
        mailboxes = list(pool.map(resolver.resolve, ["answers"] * 100))

    assert len(factory.created) == 1
    assert all(each is factory.created[0] for each in mailboxes)


def test_a_closed_mailbox_is_created_again() -> None:
    resolver = CompositeResolver(factory=CountingFactory())
    resolver.resolve("answers").close()

    assert not resolver.resolve("answers").closed


def test_the_least_recently_used_are_closed() -> None:
    factory = CountingFactory()
    resolver = CompositeResolver(factory=factory)
    for number in range(1024):
        resolver.resolve(f"{number}")
    busy = resolver.resolve("0")

    resolver.resolve("one more")

    assert [mailbox.name for mailbox in factory.created if mailbox.closed] == ["1"]
    assert resolver.resolve("0") is busy


def test_an_invalid_address_does_not_resolve() -> None:
    resolver = CompositeResolver(factory=CountingFactory())

    with pytest.raises(MailboxResolutionError, match="a good name"):
        resolver.resolve("bad")
    assert resolver.resolve_optional("bad") is None


def test_a_factory_in_memory_makes_one_mailbox_for_one_address() -> None:
    registry: dict[str, Mailbox[Any]] = {}
    factory = InMemoryMailboxFactory(registry)

    assert factory.create("answers") is factory.create("answers") is registry["answers"]
    assert factory.create("others") is not registry["answers"]
