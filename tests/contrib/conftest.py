"""A LangSmith on loopback, and nothing of this machine's settings for the real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from weakincentives.contrib.langsmith import configure_wink
from weakincentives.testing import LangSmithServer


@pytest.fixture
def clean_langsmith(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable that a LangSmith client reads, and no tracing left behind."""
    from langsmith.utils import get_env_var

    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_"))]:
        monkeypatch.delenv(name)
    get_env_var.cache_clear()
    yield
    configure_wink(tracing_enabled=False).close()
    get_env_var.cache_clear()


@pytest.fixture
def langsmith(clean_langsmith: None) -> Iterator[Callable[..., LangSmithServer]]:
    """Starts servers and has evals traced to the last one: `langsmith(zstd=True)`."""
    with ExitStack() as servers:

        def start(*, flush_timeout: float = 10.0, **modes: Any) -> LangSmithServer:
            server = servers.enter_context(LangSmithServer(**modes))
            configure_wink("my-evals", api_url=server.url, flush_timeout=flush_timeout)
            return server

        yield start
        configure_wink(tracing_enabled=False)
