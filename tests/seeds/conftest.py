"""Every example that asks a model runs on a script, and through OpenAI's SDK on a local server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.authorities import one_authority
from tests.contrib.langsmith_sent import clean_langsmith
from tests.processes import PATIENCE
from weakincentives import ToolCall, serde
from weakincentives.adapters import ModelAdapter, ModelRequest, ScriptedAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.testing import ModelServer, Reply, ServedRequest

__all__ = ["clean_langsmith", "one_authority"]


@pytest.fixture(params=["scripted", "openai"])
def saying(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ModelAdapter[Any]]]:
    """Makes an adapter whose model gives these replies in order, or those of a function.

    The function gets the text of the question. Judges ask at the same time, so with several of
    them only a function can know which reply is for whom.
    """
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)  # a server of one's own does without
    with ExitStack() as servers:

        def make(*replies: Any) -> ModelAdapter[Any]:
            left = iter(replies)
            reply = replies[0] if callable(replies[0]) else lambda question: next(left)

            def scripted(asked: ModelRequest) -> Any:
                return reply("\n".join(message.content for message in asked.messages))

            def served(asked: ServedRequest) -> str | Reply:
                contents = (message["content"] or "" for message in asked.body["messages"])
                return _on_the_wire(reply("\n".join(contents)))

            if request.param == "scripted":
                return ScriptedAdapter(scripted)
            server = servers.enter_context(ModelServer(served))
            return OpenAIAdapter("gpt-4o", base_url=server.openai_base_url, timeout=PATIENCE)

        yield make


def _on_the_wire(said: Any) -> str | Reply:
    if isinstance(said, ToolCall):
        return Reply(tool_calls=(said,))
    return said if isinstance(said, str) else serde.encode(said).decode()
