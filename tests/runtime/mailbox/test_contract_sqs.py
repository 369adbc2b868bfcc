"""The contract of a mailbox, on an SQS API by a real client; the clock is fake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.mailbox.sqs_server import running
from weakincentives.runtime.mailbox import SQSMailbox
from weakincentives.testing import FakeClock, MailboxContract


class TestSQS(MailboxContract):
    dedup = "none"
    ordered = False
    exact_count = False
    bounded = False
    lanes = False

    @pytest.fixture(autouse=True)
    def broker(self) -> None:
        self.clock = FakeClock()
        self.server = running()
        self.server.reset(self.clock)
        self.server.second = 0.1

    def make(self, name: str, **options: Any) -> SQSMailbox[Any]:
        return SQSMailbox(name, self.server.client, clock=self.clock, **options)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
