"""Any order of calls to a mailbox in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from weakincentives.runtime.mailbox import SqliteMailbox
from weakincentives.testing import FakeClock, MailboxMachine

pytestmark = pytest.mark.slow


class SqliteMachine(MailboxMachine):
    def begin(self) -> Callable[[], SqliteMailbox[Any]]:
        self.clock = FakeClock()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "mail.db"
        return lambda: SqliteMailbox("orders", path, max_size=self.max_size, clock=self.clock)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


class SmallSqliteMachine(SqliteMachine):
    max_size = 3


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestSmallSqlite = SmallSqliteMachine.TestCase
TestSmallSqlite.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
