"""A local LangSmith server, and no tracing settings from the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contrib.langsmith_fixtures import clean_langsmith
from tests.processes import TIMEOUT, machine_variables
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.testing import LangSmithServer

__all__ = ["clean_langsmith"]


@pytest.fixture(autouse=True)
def clean_otel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables that tracing reads; let an exporter wait ten minutes for a response."""
    for name in set(machine_variables()) - {"WINK_STORE"}:  # each test has its own
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")


@pytest.fixture
def langsmith(clean_langsmith: None) -> Iterator[Callable[..., LangSmithServer]]:
    """Return a function that starts a server and traces evals to it: `langsmith(zstd=True)`."""
    with ExitStack() as servers:

        def start(*, flush_timeout: float = TIMEOUT, **modes: Any) -> LangSmithServer:
            server = servers.enter_context(LangSmithServer(**modes))
            configure_wink("my-evals", api_url=server.url, flush_timeout=flush_timeout)
            return server

        yield start
        configure_wink(tracing_enabled=False)
