"""Fixtures for the tests with packages of other projects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

# OpenAI's client runs `uname` for its platform, verifiers runs `git` for an environment's commit.
ALLOWED_PROGRAMS = {"uname", "git"}


@pytest.fixture
def connections() -> Iterator[set[str]]:
    """Yield the hosts to which this process connects, and the processes that it starts."""
    contacts: set[str] = set()
    listening = [True]

    def hook(event: str, arguments: Any) -> None:
        if listening and event == "socket.connect" and isinstance(arguments[1], tuple):
            contacts.add(arguments[1][0])
        if listening and event == "subprocess.Popen" and arguments[0] not in ALLOWED_PROGRAMS:
            contacts.add(f"process {arguments[0]}")

    sys.addaudithook(hook)
    yield contacts
    listening.clear()
