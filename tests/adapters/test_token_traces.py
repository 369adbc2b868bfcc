"""Token ids from a server reach the trajectory, unless they are inconsistent."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from weakincentives.adapters import HTTPAdapter, ModelAdapter, ModelSettings, OpenAIAdapter
from weakincentives.adapters.cache import ResponseCache, cached
from weakincentives.chat import ChatMessage, TokenTrace, ToolCall
from weakincentives.evals import EvalConfig, Sample, evaluate, exact_match, open_store
from weakincentives.prompt import MarkdownSection, PromptTemplate
from weakincentives.rollouts import CalculatorEnvironment, Endpoint, run_agent
from weakincentives.testing import ModelServer, Reply

# Under trio, the SDK's streams cause warnings.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

BOTH = {"logprobs": True, "return_token_ids": True}
MESSAGES = [ChatMessage("user", "What is 6 * 7?")]
WISH = ToolCall("c-1", "calculate", {"expression": "6 * 7"})
TURNS = [Reply(tool_calls=(WISH,)), Reply("It is forty-two.")]


async def traces_from(adapter: Any) -> tuple[TokenTrace, ...]:
    return (await run_agent(MESSAGES, CalculatorEnvironment(), adapter)).tokens


async def traces_over_http(extra: dict[str, Any]) -> tuple[TokenTrace, ...]:
    with ModelServer(TURNS) as server:
        return await traces_from(Endpoint("http/llama-3", server.openai_base_url, extra=extra))


async def test_each_reply_of_a_conversation_has_its_trace() -> None:
    call, answer = await traces_over_http(BOTH)

    assert len(call.prompt_ids) == 5  # What is 6 * 7?
    assert len(call.ids) == 5  # calculate {"expres sion":"6 * 7"}
    assert len(answer.ids) == 4  # It is forty-tw o.
    *before, tool = answer.prompt_ids
    assert tuple(before) == call.prompt_ids
    assert tool not in call.ids + answer.ids
    for trace in (call, answer):
        assert len(trace.logprobs) == len(trace.ids)
        assert (trace.mask, trace.policy_version) == ((), None)


async def test_ids_without_logprobs_are_a_trace() -> None:
    whole, alone = await traces_over_http(BOTH), await traces_over_http({"return_token_ids": True})

    assert [trace.ids for trace in alone] == [trace.ids for trace in whole]
    assert [trace.logprobs for trace in alone] == [(), ()]


@pytest.mark.parametrize("extra", [{}, {"logprobs": True}])
async def test_without_ids_there_is_no_trace(extra: dict[str, Any]) -> None:
    assert await traces_over_http(extra) == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_adapter_returns_the_same_traces(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ModelServer(TURNS) as server:
        url, settings = server.openai_base_url, ModelSettings(extra=BOTH)
        adapter: Any = OpenAIAdapter("m", base_url=url, settings=settings, stream=stream)
        assert await traces_from(adapter) == await traces_over_http(BOTH)


async def test_a_cached_reply_keeps_its_trace(tmp_path: Path) -> None:
    with ModelServer(TURNS) as server, ResponseCache(tmp_path / "replies.db") as cache:
        adapter: Any = HTTPAdapter(
            "m", base_url=server.openai_base_url, settings=ModelSettings(extra=BOTH)
        )
        adapter = adapter.around(cached(cache, provider="http"))
        first, again = await traces_from(adapter), await traces_from(adapter)

        assert (len(server.requests), cache.hits) == (2, 2)
    assert first == again
    assert len(first) == 2


async def test_an_evaluation_stores_what_the_server_gave(tmp_path: Path) -> None:
    samples = [Sample(str(number), f"Say {number}") for number in range(3)]
    with (
        ModelServer(lambda request: request.body["messages"][-1]["content"]) as server,
        open_store(tmp_path / "runs.db") as store,
    ):
        endpoint = Endpoint("llama-3", server.openai_base_url, extra=BOTH)
        config = EvalConfig(endpoint=endpoint, max_concurrent=3)
        report = await evaluate(samples, config, exact_match, store=store)
        rows = [row.result.trajectory for row in store.rows("latest")]

    assert rows == [result.trajectory for result in report.results]
    for trajectory in rows:
        assert trajectory is not None
        (trace,) = trajectory.tokens
        assert trace.ids == trace.prompt_ids  # it echoes the prompt
        assert len(trace.logprobs) == 2


async def test_a_prompt_has_traces_too() -> None:
    section = MarkdownSection(title="Q", template="$question", key="q")
    prompt = PromptTemplate[str](ns="demo", key="qa", sections=[section])
    with ModelServer(["Paris"]) as server:
        adapter: Any = HTTPAdapter(
            "m", base_url=server.openai_base_url, settings=ModelSettings(extra=BOTH)
        )
        sample = Sample("1", "Capital of France?", "Paris")
        report = await evaluate([sample], EvalConfig(), exact_match, agent=prompt, adapter=adapter)

    assert [len(trace.ids) for trace in report.results[0].trajectory.tokens] == [1]


# --- servers of all kinds ------------------------------------------------------------------------


@contextmanager
def serving_choice(**choice: Any) -> Iterator[str]:
    """Serve completions with additional fields in their choice; yield the URL."""
    beside = {"prompt_token_ids": choice.pop("beside", None)}
    message = {"role": "assistant", "content": "Hi"}
    first = {"index": 0, "message": message, "finish_reason": "stop", **choice}
    envelope = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps({**envelope, **beside, "choices": [first]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=[HTTPAdapter, OpenAIAdapter])
def adapter_at(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], ModelAdapter[Any]]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return lambda url: request.param("m", base_url=url)


PIECES = {"content": [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -9999.0}]}


@pytest.mark.parametrize(
    "where", [["beside"], ["prompt_token_ids"], ["beside", "prompt_token_ids"]]
)
async def test_prompt_ids_stand_beside_the_choices_or_in_them(
    where: list[str], adapter_at: Callable[[str], ModelAdapter[Any]]
) -> None:
    with serving_choice(
        token_ids=[7, 2], logprobs=PIECES, **{key: [1, 15] for key in where}
    ) as url:
        assert await traces_from(adapter_at(url)) == (TokenTrace((1, 15), (7, 2), (-0.5, -9999.0)),)


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"token_ids": [7, 2, 5], "logprobs": PIECES}, "3 or no numbers for"),
        ({"token_ids": ["H", "i"]}, r"got 'H' - at `TokenTrace.ids\[0\]`"),
        ({"token_ids": [7], "logprobs": {"content": [{"logprob": 2.5}]}}, "got 2.5 - at"),
        ({"token_ids": [7], "logprobs": {"content": [{"token": "H"}]}}, "got None - at"),
        ({"token_ids": [7], "prompt_token_ids": [-1]}, r"`TokenTrace.prompt_ids\[0\]`"),
    ],
)
async def test_inconsistent_tokens_are_dropped(
    choice: dict[str, Any],
    why: str,
    adapter_at: Callable[[str], ModelAdapter[Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving_choice(**choice) as url, caplog.at_level(logging.WARNING, "weakincentives"):
        trajectory = await run_agent(MESSAGES, None, adapter_at(url))

    assert (trajectory.output, trajectory.tokens) == ("Hi", ())
    (record,) = caplog.records
    assert re.search(f"^dropped the tokens of a reply: expected .*{why}", record.getMessage())


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": None, "logprobs": None},
        {"token_ids": [], "logprobs": {"content": None}},
        {
            "logprobs": {"tokens": ["Hi"], "token_logprobs": [-0.5]}
        },  # the format of the older completions API
        {"logprobs": PIECES},
    ],
)
async def test_no_warning_without_tokens(
    choice: dict[str, Any],
    adapter_at: Callable[[str], ModelAdapter[Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving_choice(**choice) as url:
        trajectory = await run_agent(MESSAGES, None, adapter_at(url))

    assert (trajectory.output, trajectory.tokens, caplog.records) == ("Hi", (), [])


async def test_invalid_logprobs_do_not_lose_the_reply(
    adapter_at: Callable[[str], ModelAdapter[Any]],
) -> None:
    for odd in (5, [], "no", {"content": [5]}):
        with serving_choice(logprobs=odd) as url:
            assert (await run_agent(MESSAGES, None, adapter_at(url))).output == "Hi"
