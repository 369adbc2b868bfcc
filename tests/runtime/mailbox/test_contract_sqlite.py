"""The contract of a mailbox, in a file; the clock is fake, so nothing sleeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weakincentives.runtime.mailbox import SqliteMailbox
from weakincentives.testing import FakeClock, MailboxContract


class TestSqlite(MailboxContract):
    @pytest.fixture(autouse=True)
    def broker(self, tmp_path: Path) -> None:
        self.clock = FakeClock()
        self.path = tmp_path / "mail.db"

    def make(self, name: str, **options: Any) -> SqliteMailbox[Any]:
        return SqliteMailbox(name, self.path, clock=self.clock, **options)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.set_back(seconds)
