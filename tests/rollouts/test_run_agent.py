"""A conversation with each kind of endpoint, with tools and without."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from weakincentives.adapters import HTTPAdapter, ModelReply, ModelRequest, Price, ScriptedAdapter
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.errors import ProviderError, UsageError
from weakincentives.prompt import Prompt, Tool
from weakincentives.rollouts import CalculatorEnvironment, Endpoint, endpoint_of, run_agent
from weakincentives.runtime import (
    PromptExecuted,
    PromptRendered,
    PromptResponse,
    Session,
    ToolInvoked,
)
from weakincentives.testing import FakeClock, Fault, ModelServer, Reply

pytestmark = pytest.mark.anyio

MESSAGES = [ChatMessage("system", "Be brief."), ChatMessage("user", "What is 6 * 7?")]
WISH = ToolCall("c-1", "calculate", {"expression": "6 * 7"})


def roles(messages: Any) -> list[str]:
    return [message.role for message in messages]


# --- the four forms ------------------------------------------------------------------------------


async def test_a_name_answers_with_the_tool() -> None:
    env = CalculatorEnvironment()

    trajectory = await run_agent(MESSAGES, env, "demo/large")

    assert (trajectory.output, trajectory.stop_reason) == ("42", "stop")
    assert roles(trajectory.messages) == ["system", "user", "assistant", "tool", "assistant"]
    assert [each.result for each in env.history] == ["42"]


@pytest.mark.parametrize("form", ["endpoint", "adapter"])
async def test_the_token_counts_of_a_real_server_add_up(form: str) -> None:
    script = [
        Reply(tool_calls=(WISH,), usage=TokenUsage(10, 2)),
        Reply("42", usage=TokenUsage(20, 1)),
    ]
    with ModelServer(script) as server:
        url = server.openai_base_url
        endpoint: Any = Endpoint("http/llama-3", url, temperature=0.5, extra={"min_p": 0.1})
        if form == "adapter":
            endpoint = HTTPAdapter("llama-3", base_url=url, prices={"llama-3": Price(1e6, 0, 1e6)})
        trajectory = await run_agent(MESSAGES, CalculatorEnvironment(), endpoint)
        first, second = (request.body for request in server.requests)

    assert (trajectory.output, trajectory.usage) == ("42", TokenUsage(30, 3, 0))
    assert trajectory.cost == (33.0 if form == "adapter" else None)
    assert trajectory.latency_ms is not None
    assert [tool["function"]["name"] for tool in first["tools"]] == ["calculate"]
    assert second["messages"][-1] == {"role": "tool", "content": "42", "tool_call_id": "c-1"}
    if form == "endpoint":
        assert (first["temperature"], first["min_p"]) == (0.5, 0.1)


async def test_an_async_function_answers() -> None:
    async def policy(messages: list[ChatMessage]) -> ChatMessage:
        if messages[-1].role == "tool":
            return ChatMessage("assistant", f"It is {messages[-1].content}.")
        return ChatMessage("assistant", tool_calls=(WISH,))

    trajectory = await run_agent(MESSAGES, CalculatorEnvironment(), policy)

    assert (trajectory.output, trajectory.usage, trajectory.stop_reason) == (
        "It is 42.",
        None,
        "stop",
    )


async def test_a_sync_function_answers_in_a_thread() -> None:
    def policy(messages: list[ChatMessage]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        messages.clear()  # it is a copy
        return "42"

    trajectory = await run_agent(MESSAGES, None, policy)

    assert (trajectory.output, roles(trajectory.messages)) == (
        "42",
        ["system", "user", "assistant"],
    )


async def test_a_function_may_return_its_usage() -> None:
    reply = ModelReply(
        message=ChatMessage("assistant", "42"), usage=TokenUsage(5, 1), finish_reason="length"
    )

    trajectory = await run_agent(MESSAGES, None, lambda messages: reply)

    assert (trajectory.usage, trajectory.stop_reason) == (TokenUsage(5, 1), "length")


@pytest.mark.parametrize("reply", [None, 42, ChatMessage("user", "42")])
async def test_a_function_that_returns_no_message_is_refused(reply: Any) -> None:
    with pytest.raises(ProviderError, match="a text or an assistant's `ChatMessage`"):
        await run_agent(MESSAGES, None, lambda messages: reply)


class UserAdapter:
    """A user's adapter: it takes prompts, and calls tools by itself."""

    def evaluate(self, prompt: Prompt[Any], *, session: Any = None) -> PromptResponse[Any]:
        rendered = prompt.render()
        self.messages, self.session = rendered.messages, session
        self.tools = [tool.name for tool in rendered.tools]
        return PromptResponse(prompt.name, "42", "42", TokenUsage(3, 1))


class AsyncUserAdapter(UserAdapter):
    async def evaluate_async(self, prompt: Prompt[Any], *, session: Any = None) -> Any:
        return self.evaluate(prompt, session=session)


@pytest.mark.parametrize("kind", [UserAdapter, AsyncUserAdapter])
async def test_a_users_adapter_gets_a_prompt_of_the_messages(kind: type[UserAdapter]) -> None:
    adapter, session, transcript = kind(), Session(), []
    messages = [
        *MESSAGES,
        ChatMessage("assistant", "Er, $x?"),
        ChatMessage("user", "  Well:\n    $5 "),
    ]

    trajectory = await run_agent(
        messages, CalculatorEnvironment(), adapter, session=session, transcript=transcript
    )

    assert adapter.messages == tuple(messages)  # byte for byte
    assert (adapter.tools, adapter.session) == (["calculate"], session)
    assert trajectory.messages == (*messages, ChatMessage("assistant", "42")) == tuple(transcript)
    assert (trajectory.output, trajectory.usage) == ("42", TokenUsage(3, 1))


async def test_a_users_adapter_without_the_needed_features_is_refused() -> None:
    called = [ChatMessage("user", "?"), ChatMessage("assistant", tool_calls=(WISH,))]
    with pytest.raises(UsageError, match=r"without tool calls for `UserAdapter`.*messages\[1\]"):
        await run_agent(called, None, UserAdapter())
    with pytest.raises(UsageError, match="no `max_turns` for `UserAdapter`"):
        await run_agent(MESSAGES, None, UserAdapter(), max_turns=3)


# --- the conversation ----------------------------------------------------------------------------


async def test_a_session_records_what_happened() -> None:
    session = Session()

    await run_agent(
        MESSAGES, CalculatorEnvironment(), ScriptedAdapter([WISH, "42"]), session=session
    )

    (tool,), (executed,) = session[ToolInvoked].all(), session[PromptExecuted].all()
    (rendered,) = session[PromptRendered].all()
    assert (tool.name, tool.params, tool.result) == ("calculate", {"expression": "6 * 7"}, "42")
    assert (executed.error, rendered.tools) == (None, ("calculate",))


async def test_a_stored_episode_continues_with_its_messages() -> None:
    env = CalculatorEnvironment()
    broken = ScriptedAdapter([WISH, ProviderError("down")])
    transcript: list[ChatMessage] = []
    with pytest.raises(ProviderError, match="down"):
        await run_agent(MESSAGES, env, broken, transcript=transcript)

    env = await CalculatorEnvironment.deserialize(await env.serialize())
    trajectory = await run_agent(transcript, env, ScriptedAdapter(["42"]))

    assert roles(trajectory.messages) == ["system", "user", "assistant", "tool", "assistant"]
    assert [each.result for each in env.history] == ["42"]


async def test_the_transcript_survives_a_failing_server() -> None:
    transcript: list[ChatMessage] = []
    with ModelServer([Reply(tool_calls=(WISH,)), Fault("status", 400)]) as server:
        endpoint = Endpoint("llama-3", server.openai_base_url)
        with pytest.raises(ProviderError):
            await run_agent(MESSAGES, CalculatorEnvironment(), endpoint, transcript=transcript)

    assert roles(transcript) == ["system", "user", "assistant", "tool"]
    assert transcript[-1].content == "42"


async def test_the_transcript_and_usage_survive_a_cancellation() -> None:
    asked_again = anyio.Event()

    async def model(request: ModelRequest) -> Any:
        if request.messages[-1].role != "tool":
            return WISH
        asked_again.set()
        return await anyio.sleep_forever()

    transcript: list[ChatMessage] = []
    session = Session()

    async def run() -> None:
        adapter: Any = ScriptedAdapter(model)
        env = CalculatorEnvironment()
        await run_agent(MESSAGES, env, adapter, session=session, transcript=transcript)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await asked_again.wait()
        group.cancel_scope.cancel()

    assert roles(transcript) == ["system", "user", "assistant", "tool"]
    (executed,) = session[PromptExecuted].all()
    assert executed.error == "cancelled before it finished"
    assert executed.usage is not None


@pytest.mark.parametrize("limit_from", ["run", "endpoint"])
async def test_an_agent_that_never_answers_stops_at_max_turns(limit_from: str) -> None:
    adapter: Any = ScriptedAdapter(lambda request: WISH, max_turns=20 if limit_from == "run" else 2)
    env = CalculatorEnvironment()

    trajectory = await run_agent(
        MESSAGES, env, adapter, max_turns=2 if limit_from == "run" else None
    )

    assert (trajectory.stop_reason, trajectory.output, len(env.history)) == ("max_turns", "", 2)
    assert trajectory.usage is not None


async def test_an_epoch_reaches_the_model() -> None:
    epochs: list[int] = []

    def model(request: ModelRequest) -> str:
        epochs.append(request.epoch)
        return "42"

    await run_agent(MESSAGES, None, ScriptedAdapter(model), epoch=3)

    assert epochs == [3]


async def test_latency_excludes_waiting_for_rate_limits() -> None:
    clock, wish = FakeClock(), ToolCall("c-1", "look")

    def model(request: ModelRequest) -> ModelReply:
        clock.advance(5)
        if request.messages[-1].role == "tool":
            return ModelReply(message=ChatMessage("assistant", "done"))
        called = ChatMessage("assistant", tool_calls=(wish,))
        return ModelReply(message=called, latency_ms=1000)  # and 4 s for a rate limit

    async def look_around() -> str:
        clock.advance(2)
        return "nothing"

    class Slow:
        tools = (Tool("look", "Takes 2 s.", look_around),)

    trajectory = await run_agent(MESSAGES, Slow(), ScriptedAdapter(model), clock=clock)

    assert trajectory.latency_ms == 1000 + 2000 + 5000


# --- environments --------------------------------------------------------------------------------


async def test_tools_may_come_from_a_method() -> None:
    tools = CalculatorEnvironment().tools

    class BySync:
        def tools(self) -> Any:
            return list(tools)

    class ByAsync:
        async def tools(self) -> Any:
            return tools

    for env in (BySync(), ByAsync()):
        trajectory = await run_agent(MESSAGES, env, ScriptedAdapter([WISH, "done"]))
        assert trajectory.messages[-2].content == "42"


async def test_without_an_environment_there_are_no_tools() -> None:
    trajectory = await run_agent(MESSAGES, None, ScriptedAdapter([WISH, "sorry"]))

    assert "there is no tool `calculate`" in trajectory.messages[-2].content
    assert trajectory.output == "sorry"


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        (["calculate"], "Env.tools"),
        (CalculatorEnvironment().tools * 2, "two `calculate`"),
    ],
)
async def test_wrong_tools_are_refused(tools: Any, problem: str) -> None:
    class Env:
        pass

    env: Any = Env()
    env.tools = tools
    with pytest.raises(UsageError, match=problem):
        await run_agent(MESSAGES, env, "demo/large")


@pytest.mark.parametrize("messages", [[], "What is 6 * 7?", [{"role": "user"}], None])
async def test_messages_must_be_chat_messages(messages: Any) -> None:
    with pytest.raises(UsageError, match="message"):
        await run_agent(messages, None, "demo/large")


@pytest.mark.parametrize("turns", [0, -1, 1.5, True])
async def test_max_turns_must_be_positive(turns: Any) -> None:
    with pytest.raises(UsageError, match="`max_turns`"):
        await run_agent(MESSAGES, None, "demo/large", max_turns=turns)


async def test_one_endpoint_serves_many_concurrent_agents() -> None:
    with ModelServer(lambda request: Reply(request.body["messages"][-1]["content"])) as server:
        endpoint = endpoint_of(Endpoint("echo", server.openai_base_url))
        outputs: dict[int, str] = {}

        async def run(number: int) -> None:
            trajectory = await run_agent([ChatMessage("user", f"n{number}")], None, endpoint)
            outputs[number] = trajectory.output

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(run, number)

    assert outputs == {number: f"n{number}" for number in range(50)}


async def test_many_synchronous_functions_answer_concurrently() -> None:
    barrier = threading.Barrier(60, timeout=60)  # more than the default thread limit of anyio

    def policy(messages: list[ChatMessage]) -> str:
        barrier.wait()
        return "met"

    async with anyio.create_task_group() as group:
        for _ in range(60):
            group.start_soon(run_agent, MESSAGES, None, policy)

    assert not barrier.broken
