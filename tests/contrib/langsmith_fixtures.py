"""Tests look at a server when it has got everything; runs do not wait for that."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weakincentives.contrib.langsmith import configure as langsmith

__all__ = ["clean_langsmith", "nobody", "sends_at_the_end", "sent"]

sends_at_the_end = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="this Python begins no thread when a process ends, and LangSmith's client needs one",
)


def sent() -> None:
    """Wait until LangSmith has what was traced by now, as long as the tracing has patience."""
    if langsmith._current is not None:
        langsmith._current.flush()


@contextmanager
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody else can meanwhile."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"


@pytest.fixture
def clean_langsmith(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable that a LangSmith client reads, and no tracing left behind.

    The client waits ten minutes for an answer: a slow machine is no reason to give up, and whoever
    waits for a server that hangs is found out.
    """
    from langsmith.utils import get_env_var

    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("weakincentives.contrib.langsmith.client.TIMEOUT_MS", (600_000, 600_000))
    monkeypatch.setattr("weakincentives.contrib.langsmith.sender.FLUSH_TIMEOUT_SECONDS", 600.0)
    get_env_var.cache_clear()
    yield
    langsmith.configure_wink(tracing_enabled=False).close()
    get_env_var.cache_clear()
