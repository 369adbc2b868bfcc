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


class Counting:
    """A factory that notes what it made."""

    def __init__(self) -> None:
        self.made: list[InMemoryMailbox[Any]] = []

    def create(self, identifier: str) -> Mailbox[Any]:
        if identifier == "bad":
            raise UsageError("expected a good name")
        self.made.append(InMemoryMailbox(identifier))
        return self.made[-1]


def test_a_registry_finds_what_it_was_given() -> None:
    answers = InMemoryMailbox[str]("answers")
    resolver = RegistryResolver({"desk": answers})

    assert resolver.resolve("desk") is answers
    assert resolver.resolve_optional("desk") is answers


def test_a_registry_finds_nothing_else_and_says_what_there_is() -> None:
    resolver = RegistryResolver({"desk": InMemoryMailbox(), "attic": InMemoryMailbox()})

    with pytest.raises(MailboxResolutionError, match="attic, desk") as caught:
        resolver.resolve("answers")

    assert caught.value.identifier == "answers"
    assert resolver.resolve_optional("answers") is None


def test_known_mailboxes_come_before_made_ones() -> None:
    factory, desk = Counting(), InMemoryMailbox[str]("desk")
    resolver = CompositeResolver({"desk": desk}, factory)

    assert resolver.resolve("desk") is desk
    assert factory.made == []


def test_a_mailbox_is_made_once_for_all_threads() -> None:
    factory = Counting()
    resolver = CompositeResolver(factory=factory)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(resolver.resolve, ["answers"] * 100))

    assert len(factory.made) == 1
    assert all(each is factory.made[0] for each in found)


def test_a_closed_mailbox_is_created_again() -> None:
    resolver = CompositeResolver(factory=Counting())
    resolver.resolve("answers").close()

    assert not resolver.resolve("answers").closed


def test_the_least_recently_used_are_closed() -> None:
    factory = Counting()
    resolver = CompositeResolver(factory=factory)
    for number in range(1024):
        resolver.resolve(f"{number}")
    busy = resolver.resolve("0")

    resolver.resolve("one more")

    assert [mailbox.name for mailbox in factory.made if mailbox.closed] == ["1"]
    assert resolver.resolve("0") is busy


def test_an_address_that_no_mailbox_can_have_leads_nowhere() -> None:
    resolver = CompositeResolver(factory=Counting())

    with pytest.raises(MailboxResolutionError, match="a good name"):
        resolver.resolve("bad")
    assert resolver.resolve_optional("bad") is None


def test_a_factory_in_memory_makes_one_mailbox_for_one_address() -> None:
    registry: dict[str, Mailbox[Any]] = {}
    factory = InMemoryMailboxFactory(registry)

    assert factory.create("answers") is factory.create("answers") is registry["answers"]
    assert factory.create("others") is not registry["answers"]
