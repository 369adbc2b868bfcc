"""What the tests of several neighbours need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

# OpenAI's client asks for its platform, and verifiers for the commit of an environment.
HARMLESS = {"uname", "git"}


@pytest.fixture
def connections() -> Iterator[set[str]]:
    """Yield the hosts to which this process connects, and the processes that it starts."""
    found: set[str] = set()
    listening = [True]

    def hook(event: str, arguments: Any) -> None:
        if listening and event == "socket.connect" and isinstance(arguments[1], tuple):
            found.add(arguments[1][0])
        if listening and event == "subprocess.Popen" and arguments[0] not in HARMLESS:
            found.add(f"process {arguments[0]}")

    sys.addaudithook(hook)
    yield found
    listening.clear()
