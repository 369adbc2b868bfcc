"""The scripted model, and the adapter around any model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from weakincentives import ChatMessage, TokenUsage, ToolCall
from weakincentives.adapters import (
    AsyncProviderAdapter,
    Model,
    ModelAdapter,
    ModelReply,
    ModelRequest,
    ModelSettings,
    ProviderAdapter,
    ScriptedAdapter,
    scripted_model,
)
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import EvalConfig, EvalSuite, Sample, exact_match
from weakincentives.evals.engine import prompt_agent
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate

QUESTION = Prompt(
    PromptTemplate[str](
        ns="tests",
        key="qa",
        sections=[MarkdownSection(title="Q", template="Why?", key="q")],
    )
)
REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "two words"),))


@dataclass(frozen=True)
class Verdict:
    label: str


@pytest.mark.parametrize(
    ("script_item", "message"),
    [
        ("text", ChatMessage("assistant", "text")),
        (ChatMessage("assistant", "as is"), ChatMessage("assistant", "as is")),
        (ToolCall("1", "add"), ChatMessage("assistant", tool_calls=(ToolCall("1", "add"),))),
        ([ToolCall("1", "add")], ChatMessage("assistant", tool_calls=(ToolCall("1", "add"),))),
        (Verdict("good"), ChatMessage("assistant", '{"label":"good"}')),
        ({"label": "good"}, ChatMessage("assistant", '{"label":"good"}')),
        ([1, 2], ChatMessage("assistant", "[1,2]")),
    ],
)
def test_a_script_item_becomes_a_reply(script_item: Any, message: ChatMessage) -> None:
    reply = anyio.run(scripted_model([script_item]), REQUEST)

    assert reply.message == message
    assert reply.usage is not None
    assert reply.usage.input_tokens == 2
    assert reply.finish_reason == ("tool_calls" if message.tool_calls else "stop")


def test_a_whole_reply_and_an_exception_pass_through() -> None:
    whole = ModelReply(message=ChatMessage("assistant", "x"), usage=TokenUsage(1, 1))
    model = scripted_model([whole, ProviderError("down", retryable=True)])

    assert anyio.run(model, REQUEST) is whole
    with pytest.raises(ProviderError, match="down"):
        anyio.run(model, REQUEST)
    with pytest.raises(ProviderError, match="the script has 2 replies"):
        anyio.run(model, REQUEST)


def test_a_function_may_look_at_the_request_and_may_wait() -> None:
    async def echo(request: ModelRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return request.messages[-1].content

    assert anyio.run(scripted_model(echo, latency=0.001), REQUEST).message.content == "two words"


@pytest.mark.parametrize("wrong", ["one text", b"bytes", {"a": 1}, 3, None])
def test_an_invalid_script_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected several replies or a function"):
        ScriptedAdapter(wrong)


def test_the_synchronous_api_works_from_many_threads() -> None:
    adapter: ScriptedAdapter[str] = ScriptedAdapter(str(n) for n in range(40))
    answers: list[str] = []

    def work() -> None:
        answers.extend(adapter.evaluate(QUESTION).output for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers, key=int) == [str(n) for n in range(40)]


def test_a_blocking_function_blocks_no_other_sample() -> None:
    together = threading.Barrier(8, timeout=60)

    def reply(request: ModelRequest) -> str:
        together.wait()  # until all eight samples are here
        return "done"

    samples = [Sample(str(number), {}, "done") for number in range(8)]
    agent = prompt_agent(QUESTION.template, ScriptedAdapter(reply))
    report = EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=8)).run()

    assert report.passed == 8, report.results[0].error


def test_any_model_can_be_wrapped() -> None:
    requests: list[ModelRequest] = []

    def recording(model: Model) -> Model:
        async def ask(request: ModelRequest) -> ModelReply:
            requests.append(request)
            return await model(request)

        return ask

    adapter = ScriptedAdapter[str](["a"], model="small").around(recording)

    assert adapter.evaluate(QUESTION, epoch=3).output == "a"
    assert [(r.model, r.epoch) for r in requests] == [("small", 3)]
    assert type(adapter) is ModelAdapter


def test_an_adapter_implements_the_protocols() -> None:
    adapter: ScriptedAdapter[str] = ScriptedAdapter([])

    assert isinstance(adapter, ProviderAdapter)
    assert isinstance(adapter, AsyncProviderAdapter)


def test_settings_are_plain_data() -> None:
    assert ModelSettings(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected several texts for `stop`"):
        ModelSettings(stop="end")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a mapping"):
        ModelSettings(extra=3)  # type: ignore[arg-type]
