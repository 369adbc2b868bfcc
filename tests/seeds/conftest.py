"""Every example that calls a model runs with a script, and with OpenAI's SDK on a local server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.authorities import one_authority
from tests.contrib.langsmith_fixtures import clean_langsmith
from tests.processes import TIMEOUT
from weakincentives import ToolCall, serde
from weakincentives.adapters import ModelAdapter, ModelRequest, ScriptedAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.testing import ModelServer, Reply, ServedRequest

__all__ = ["clean_langsmith", "one_authority"]


@pytest.fixture(params=["scripted", "openai"])
def adapter_replying(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ModelAdapter[Any]]]:
    """Return a function that makes an adapter with these replies, or the replies of a function.

    The function gets the text of the question. Judges run concurrently, so with several of them
    only a function can choose the reply for each.
    """
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)  # the local server needs no key
    with ExitStack() as servers:

        def make(*replies: Any) -> ModelAdapter[Any]:
            remaining = iter(replies)
            reply = replies[0] if callable(replies[0]) else lambda question: next(remaining)

            def scripted(model_request: ModelRequest) -> Any:
                return reply("\n".join(message.content for message in model_request.messages))

            def served(http_request: ServedRequest) -> str | Reply:
                contents = (message["content"] or "" for message in http_request.body["messages"])
                return _as_reply(reply("\n".join(contents)))

            if request.param == "scripted":
                return ScriptedAdapter(scripted)
            server = servers.enter_context(ModelServer(served))
            return OpenAIAdapter("gpt-4o", base_url=server.openai_base_url, timeout=TIMEOUT)

        yield make


def _as_reply(answer: Any) -> str | Reply:
    if isinstance(answer, ToolCall):
        return Reply(tool_calls=(answer,))
    return answer if isinstance(answer, str) else serde.encode(answer).decode()
