"""Helpers for tests with a LangSmith server: flush the traces, clean settings, a closed port."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weakincentives.contrib.langsmith import configure as langsmith

__all__ = ["clean_langsmith", "closed_port", "flush_langsmith", "needs_threads_at_exit"]

needs_threads_at_exit = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="this Python starts no threads at exit, and LangSmith's client needs one",
)


def flush_langsmith() -> None:
    """Wait until LangSmith has received all traces so far, or the flush timeout ends."""
    if langsmith._current is not None:
        langsmith._current.flush()


@contextmanager
def closed_port() -> Iterator[str]:
    """Reserve a port on which no server listens; yield its URL."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


@pytest.fixture
def clean_langsmith(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset the variables that a LangSmith client reads; turn tracing off after the test.

    Timeouts are ten minutes: a slow machine does not fail a test, and a test that waits for a
    hanging server is noticed.
    """
    from langsmith.utils import get_env_var

    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(
        "weakincentives.contrib.langsmith.langsmith_client.TIMEOUT_MS", (600_000, 600_000)
    )
    monkeypatch.setattr("weakincentives.contrib.langsmith.sender.FLUSH_TIMEOUT_SECONDS", 600.0)
    get_env_var.cache_clear()
    yield
    langsmith.configure_wink(tracing_enabled=False).close()
    get_env_var.cache_clear()
