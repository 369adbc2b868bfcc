"""Every adapter fulfils the contract, and the contract finds broken adapters."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trustme

from weakincentives import ChatMessage, Session
from weakincentives.adapters import ModelReply, PromptResponse, ScriptedAdapter
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.http import HTTPAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.budget import BudgetTracker, Deadline
from weakincentives.chat import TokenUsage
from weakincentives.errors import ProviderError
from weakincentives.prompt import Prompt, ToolContext, ToolResult, parse_output
from weakincentives.runtime import PromptExecuted, PromptRendered, ToolInvoked
from weakincentives.testing import AdapterContract, ModelServer, Reply, ServedAdapterContract
from weakincentives.testing.contracts.asking import Ask

AUTHORITY = trustme.CA()
CLIENT = ssl.create_default_context()
AUTHORITY.configure_trust(CLIENT)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


class TestScripted(AdapterContract):
    def make(self, replies: Sequence[Reply | ProviderError]) -> ScriptedAdapter[Any]:
        return ScriptedAdapter(
            reply
            if isinstance(reply, ProviderError)
            else ModelReply(
                message=ChatMessage("assistant", reply.text, reply.tool_calls),
                usage=reply.usage,
                finish_reason=reply.finish_reason,
            )
            for reply in replies
        )


# The SDK stops at `[DONE]` and leaves its generators to the garbage collector: trio warns of that.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
class TestOpenAI(ServedAdapterContract):
    key_variable = "OPENAI_API_KEY"
    streams = True

    def connect(self, server: ModelServer, **options: Any) -> OpenAIAdapter[Any]:
        return OpenAIAdapter("m", retries=0, base_url=server.openai_base_url, **options)


class TestOpenAIStreaming(TestOpenAI):
    def connect(self, server: ModelServer, **options: Any) -> OpenAIAdapter[Any]:
        return super().connect(server, **{"stream": True, **options})


class TestAnthropic(ServedAdapterContract):
    key_variable = "ANTHROPIC_API_KEY"
    streams = True

    def connect(self, server: ModelServer, **options: Any) -> AnthropicAdapter[Any]:
        return AnthropicAdapter("m", retries=0, base_url=server.anthropic_base_url, **options)


class TestAnthropicStreaming(TestAnthropic):
    def connect(self, server: ModelServer, **options: Any) -> AnthropicAdapter[Any]:
        return super().connect(server, **{"stream": True, **options})


class TestHTTP(ServedAdapterContract):
    key_variable = "OPENAI_API_KEY"

    def connect(self, server: ModelServer, **options: Any) -> HTTPAdapter[Any]:
        return HTTPAdapter(
            "m", retries=0, base_url=server.openai_base_url, verify=CLIENT, **options
        )


class TestHTTPOverTLS(TestHTTP):
    tls = server_context()


# --- a hand-written one --------------------------------------------------------------------------


class HandWritten:
    """An adapter of one method, without a base class."""

    max_turns = 10

    def __init__(self, replies: Sequence[Reply | ProviderError]) -> None:
        self._replies = iter(replies)

    def evaluate(
        self,
        prompt: Prompt[Any],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponse[Any]:
        rendered = prompt.render()
        session = session or Session()
        name, messages, usage = rendered.name, [*rendered.messages], TokenUsage()
        session.dispatch(
            PromptRendered(
                prompt_ns=rendered.ns,
                prompt_key=rendered.key,
                prompt_name=name,
                adapter="mine",
                rendered_prompt=rendered.text,
                tools=tuple(tool.name for tool in rendered.tools),
            )
        )
        try:
            for _ in range(self.max_turns):
                if deadline is not None:
                    deadline.check()
                if budget_tracker is not None:
                    budget_tracker.check()
                reply = next(self._replies)
                if isinstance(reply, ProviderError):
                    raise reply
                usage += reply.usage or TokenUsage()
                messages.append(ChatMessage("assistant", reply.text, reply.tool_calls))
                if budget_tracker is not None:
                    budget_tracker.record(reply.usage or TokenUsage())
                    budget_tracker.check()
                if not reply.tool_calls:
                    break
                messages += [self.call(rendered, call, session) for call in reply.tool_calls]
            else:
                raise ProviderError(f"no answer within {self.max_turns} turns")
            output = parse_output(reply.text, rendered.output_type)
        except Exception as error:
            session.dispatch(
                PromptExecuted(prompt_name=name, adapter="mine", usage=usage, error=str(error))
            )
            raise
        result = {"text": reply.text, "output": output}
        session.dispatch(
            PromptExecuted(prompt_name=name, adapter="mine", usage=usage, result=result)
        )
        return PromptResponse(
            prompt_name=name,
            text=reply.text,
            output=output,
            usage=usage,
            messages=tuple(messages),
            finish_reason=reply.finish_reason,
        )

    def call(self, rendered: Any, call: Any, session: Session) -> ChatMessage:
        tools = {tool.name: tool for tool in rendered.tools}
        if call.name in tools:
            result = anyio.run(tools[call.name].call, call.arguments, ToolContext(session=session))
        else:
            result = ToolResult.failed(f"there is no tool {call.name}")
        session.dispatch(
            ToolInvoked(
                prompt_name=rendered.name,
                adapter="mine",
                name=call.name,
                params=call.arguments,
                result=result.value,
                success=result.success,
                error=result.error,
                call_id=call.id,
            )
        )
        return ChatMessage("tool", result.text, tool_call_id=call.id, name=call.name)


class TestHandWritten(AdapterContract):
    def make(self, replies: Sequence[Reply | ProviderError]) -> HandWritten:
        return HandWritten(replies)


# --- what the contract finds ----------------------------------------------------------------------


class WithoutLimits(HandWritten):
    max_turns = 1000

    def evaluate(self, prompt: Prompt[Any], *, session: Any = None, **limits: Any) -> Any:
        return super().evaluate(prompt, session=session)


class WithoutEvents(HandWritten):
    def evaluate(self, prompt: Prompt[Any], *, session: Any = None, **limits: Any) -> Any:
        return super().evaluate(prompt, **limits)


class StopsAfterToolError(HandWritten):
    def call(self, rendered: Any, call: Any, session: Session) -> ChatMessage:
        message = super().call(rendered, call, session)
        if session[ToolInvoked].latest().success:  # type: ignore[union-attr]
            return message
        raise ProviderError(message.content)


class DropsMessages(HandWritten):
    def evaluate(self, prompt: Prompt[Any], **more: Any) -> Any:
        response = super().evaluate(prompt, **more)
        return replace(response, usage=TokenUsage(1, 1), messages=response.messages[-1:])


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (WithoutLimits, "a_budget_that_is_spent_ends_the_conversation"),
        (WithoutLimits, "a_deadline_that_passes_between_two_turns_ends_the_conversation"),
        (WithoutLimits, "a_model_that_calls_tools_forever_is_stopped"),
        (WithoutEvents, "a_prompt_leaves_an_event_of_its_text_and_one_of_its_answer"),
        (WithoutEvents, "a_model_that_fails_is_an_error_and_an_event"),
        (WithoutEvents, "a_tool_is_called_and_the_model_gets_its_result"),
        (WithoutEvents, "concurrent_conversations_do_not_mix"),
        (StopsAfterToolError, "results_of_one_turn_are_in_the_order_of_the_calls"),
        (DropsMessages, "a_response_has_the_whole_conversation"),
        (DropsMessages, "a_second_prompt_starts_a_new_conversation"),
        (DropsMessages, "usage_is_summed_over_turns"),
    ],
)
def test_a_broken_adapter_is_found(broken: type[HandWritten], law: str) -> None:
    class Contract(AdapterContract):
        make = staticmethod(broken)

    did_not_raise = pytest.fail.Exception
    with pytest.raises((AssertionError, ProviderError, ValueError, StopIteration, did_not_raise)):
        getattr(Contract(), f"test_{law}")(Ask("sync"))


def test_the_package_loads_without_pytest() -> None:
    code = "import weakincentives.testing, sys; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == "False", done.stderr
