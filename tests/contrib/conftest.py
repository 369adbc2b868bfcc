"""A LangSmith on loopback, and nothing of this machine's settings for tracing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contrib.langsmith_sent import clean_langsmith
from tests.processes import PATIENCE, machine_variables
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.testing import LangSmithServer

__all__ = ["clean_langsmith"]


@pytest.fixture(autouse=True)
def clean_otel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that tracing reads; an exporter waits ten minutes for an answer."""
    for name in set(machine_variables()) - {"WINK_STORE"}:  # which every test has its own of
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")


@pytest.fixture
def langsmith(clean_langsmith: None) -> Iterator[Callable[..., LangSmithServer]]:
    """Starts servers and has evals traced to the last one: `langsmith(zstd=True)`."""
    with ExitStack() as servers:

        def start(*, flush_timeout: float = PATIENCE, **modes: Any) -> LangSmithServer:
            server = servers.enter_context(LangSmithServer(**modes))
            configure_wink("my-evals", api_url=server.url, flush_timeout=flush_timeout)
            return server

        yield start
        configure_wink(tracing_enabled=False)
