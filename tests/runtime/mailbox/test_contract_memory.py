"""The contract of a mailbox, in memory."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives.runtime.mailbox import InMemoryMailbox, MemoryQueue
from weakincentives.testing import FakeClock, MailboxContract


class TestMemory(MailboxContract):
    copies = False

    @pytest.fixture(autouse=True)
    def broker(self) -> None:
        self.clock = FakeClock()
        self.first = MemoryQueue("first", self.clock)

    def make(self, name: str, **options: Any) -> InMemoryMailbox[Any]:
        return InMemoryMailbox(queue=self.first.sibling(name), **options)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.set_back(seconds)
