"""The contract of a mailbox, kept on an SQS API by a real client; time is real here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.mailbox.sqs_server import running
from weakincentives.runtime.mailbox import SQSMailbox
from weakincentives.testing import MailboxContract


class TestSQS(MailboxContract):
    dedup = "none"
    ordered = False
    exact_count = False
    bounded = False
    virtual_clock = False
    lease = 1

    @pytest.fixture(autouse=True)
    def broker(self) -> None:
        self.server = running()
        self.server.reset()

    def make(self, name: str, **options: Any) -> SQSMailbox[Any]:
        return SQSMailbox(name, self.server.client, **options)
