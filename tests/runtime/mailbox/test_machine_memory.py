"""Any order of calls to a mailbox in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from weakincentives.runtime.mailbox import InMemoryMailbox, MemoryQueue
from weakincentives.testing import FakeClock, MailboxMachine

pytestmark = pytest.mark.slow


class MemoryMachine(MailboxMachine):
    def begin(self) -> Callable[[], InMemoryMailbox[Any]]:
        self.clock = FakeClock()
        queue = MemoryQueue("orders", self.clock)
        return lambda: InMemoryMailbox(queue=queue, max_size=self.max_size)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class SmallMemoryMachine(MemoryMachine):
    max_size = 3


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=60)
TestSmallMemory = SmallMemoryMachine.TestCase
TestSmallMemory.settings = settings(max_examples=30, stateful_step_count=40)
