"""The contract of an adapter, as a suite that your own tests inherit.

Rules of this file:
1. Every test runs with `evaluate` and with `evaluate_async`, under asyncio and trio: `ask` is each
   of them.
2. A test needs nothing but `make`: it scripts the model, and checks the outcome.
3. No test waits for time to pass: clocks are advanced, and tools do what has to happen between two
   turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from ...budget import Budget, BudgetTracker, Deadline
from ...chat import ChatMessage, TokenUsage, ToolCall
from ...errors import BudgetExceededError, DeadlineExceededError, OutputParseError, ProviderError
from ...prompt import Tool
from ...runtime.agent.provider import PromptResponse
from ...runtime.events import PromptExecuted, PromptRendered, ToolInvoked
from ...runtime.session import Session
from ..doubles.clock import FakeClock
from ..servers.script import Reply
from .asking import ADD, DIVIDE, Ask, SumAnswer, calls, failed_once, prompt_for, sum_call, tokens

MANY_TURNS = 200  # more than any adapter should take
CONCURRENT = 8

ScriptedReply = Reply | ProviderError


class AdapterContract:
    """The contract of a `ProviderAdapter`: inherit it, and define how to make yours.

        class TestMine(AdapterContract):
            def make(self, replies):
                return MyAdapter(model_that_says(replies))

    Tests of `evaluate_async` are skipped for an adapter that has none. For an adapter on HTTP,
    inherit `ServedAdapterContract`.
    """

    def make(self, replies: Sequence[ScriptedReply]) -> Any:
        """Return a new adapter whose model gives these replies in order, and raises the errors.

        A reply has `text` and `tool_calls`; its `usage` and `finish_reason` are None if they do not
        matter.
        """
        raise NotImplementedError(f"define `make(self, replies)` in {type(self).__name__}")

    @pytest.fixture(params=["sync", "asyncio", "trio"])
    def ask(self, request: pytest.FixtureRequest) -> Ask:
        """Return each way to call an adapter."""
        return Ask(request.param)

    # --- answers -----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("output_type", "text", "output"),
        [
            (str, "five", "five"),
            (str, '{"value": 5}', '{"value": 5}'),
            (SumAnswer, '{"value": 5}', SumAnswer(5)),
            (list[SumAnswer], '[{"value": 5}, {"value": 6}]', [SumAnswer(5), SumAnswer(6)]),
            (list[str], '["five"]', ["five"]),
        ],
        ids=["text", "text-like-json", "dataclass", "list-of-dataclass", "list-of-text"],
    )
    def test_text_and_structured_output_are_equal(
        self, ask: Ask, output_type: Any, text: str, output: Any
    ) -> None:
        response = ask(self.make([Reply(text)]), prompt_for(output_type))

        assert (response.text, response.output) == (text, output)

    def test_a_response_has_the_whole_conversation(self, ask: Ask) -> None:
        prompt = prompt_for()
        reply = Reply("five", usage=TokenUsage(7, 2), finish_reason="length")

        response = ask(self.make([reply]), prompt)

        assert response.prompt_name == "Maths"
        assert response.messages == (*prompt.render().messages, ChatMessage("assistant", "five"))
        assert tokens(response.usage) == (7, 2)
        assert response.finish_reason == "length"
        assert response.latency_ms is None or response.latency_ms >= 0

    def test_a_prompt_leaves_an_event_of_its_text_and_one_of_its_answer(self, ask: Ask) -> None:
        session, prompt = Session(), prompt_for(SumAnswer, ADD)

        response = ask(self.make([Reply('{"value": 5}')]), prompt, session=session)

        (rendered,), (executed,) = session[PromptRendered].all(), session[PromptExecuted].all()
        assert (rendered.prompt_ns, rendered.prompt_key) == ("contract", "maths")
        assert (rendered.rendered_prompt, rendered.tools) == (prompt.render().text, ("add",))
        assert executed.error is None
        assert executed.result == {"text": '{"value": 5}', "output": {"value": 5}}
        assert executed.usage == response.usage
        assert {rendered.prompt_name, executed.prompt_name} == {"Maths"}
        assert executed.adapter == rendered.adapter != ""

    def test_a_model_that_fails_is_an_error_and_an_event(self, ask: Ask) -> None:
        session = Session()
        busy = ProviderError("too busy", retryable=True, retry_after=3.0, status=429)

        with pytest.raises(ProviderError, match="too busy") as caught:
            ask(self.make([busy]), prompt_for(), session=session)

        error = caught.value
        assert (error.retryable, error.retry_after, error.status) == (True, 3.0, 429)
        assert "too busy" in str(failed_once(session).error)

    def test_a_reply_that_does_not_fit_is_an_error_and_an_event(self, ask: Ask) -> None:
        session = Session()

        with pytest.raises(OutputParseError):
            ask(self.make([Reply("about five")]), prompt_for(SumAnswer), session=session)

        failed_once(session)

    def test_a_second_prompt_starts_a_new_conversation(self, ask: Ask) -> None:
        adapter = self.make([calls(sum_call()), Reply("five"), Reply("six")])
        first, second = prompt_for(str, ADD), prompt_for(text="3 + 3?")

        _, response = ask.each(adapter, [(first, {}), (second, {})])

        assert isinstance(response, PromptResponse)
        assert response.messages == (*second.render().messages, ChatMessage("assistant", "six"))

    # --- tools -------------------------------------------------------------------------------

    def test_a_tool_is_called_and_the_model_gets_its_result(self, ask: Ask) -> None:
        session = Session()
        adapter = self.make([calls(sum_call()), Reply('{"value": 5}')])

        response = ask(adapter, prompt_for(SumAnswer, ADD), session=session)

        assert response.output == SumAnswer(5)
        turn, result, _ = response.messages[-3:]
        assert turn.tool_calls == (sum_call(),)
        assert (result.role, result.tool_call_id) == ("tool", "call_1")
        assert result.content == "the sum is 5"
        (event,) = session[ToolInvoked].all()
        assert (event.name, event.call_id, event.params) == ("add", "call_1", {"a": 2, "b": 3})
        assert (event.success, event.error, event.result) == (True, None, "the sum is 5")
        assert event.prompt_name == "Maths"

    def test_tools_are_called_turn_after_turn_even_without_a_session(self, ask: Ask) -> None:
        adapter = self.make(
            [calls(sum_call(id="1")), calls(sum_call(id="2", a=1, b=1)), Reply("done")]
        )

        response = ask(adapter, prompt_for(str, ADD))

        texts = ["the sum is 5", "", "the sum is 2", "done"]
        assert [message.content for message in response.messages[2:]] == texts

    def test_results_of_one_turn_are_in_the_order_of_the_calls(self, ask: Ask) -> None:
        session = Session()
        tool_calls = (
            sum_call(id="1"),
            sum_call("nothing", "2"),
            sum_call("divide", "3"),
            sum_call(id="4", a=1, b=1),
        )

        response = ask(
            self.make([calls(*tool_calls), Reply("done")]),
            prompt_for(str, ADD, DIVIDE),
            session=session,
        )

        assert [event.call_id for event in session[ToolInvoked]] == ["1", "2", "3", "4"]
        assert [event.success for event in session[ToolInvoked]] == [True, False, True, True]
        results = [message for message in response.messages if message.role == "tool"]
        assert [message.tool_call_id for message in results] == ["1", "2", "3", "4"]

    @pytest.mark.parametrize(
        ("tool_call", "reason"),
        [
            (sum_call("subtract"), "subtract"),
            (sum_call("divide", a=1, b=0), "zero"),
            (sum_call(a=1), "b"),
            (sum_call(a=1, b="2"), "int"),
            (sum_call(a=1, b=2, c=3), "c"),
        ],
        ids=["unknown-tool", "raises", "missing", "wrong-type", "unknown-argument"],
    )
    def test_a_failed_call_is_reported_and_the_conversation_continues(
        self, ask: Ask, tool_call: ToolCall, reason: str
    ) -> None:
        session = Session()
        adapter = self.make([calls(tool_call), Reply("sorry")])

        response = ask(adapter, prompt_for(str, ADD, DIVIDE), session=session)

        assert response.output == "sorry"
        (event,) = session[ToolInvoked].all()
        assert (event.name, event.params) == (tool_call.name, tool_call.arguments)
        assert not event.success
        assert reason in str(event.error)
        assert reason in response.messages[-2].content

    def test_a_model_that_calls_tools_forever_is_stopped(self, ask: Ask) -> None:
        session = Session()
        adapter = self.make([calls(sum_call(id=str(turn))) for turn in range(MANY_TURNS)])

        with pytest.raises(ProviderError):
            ask(adapter, prompt_for(str, DIVIDE), session=session)

        assert 0 < len(session[ToolInvoked]) < MANY_TURNS
        failed_once(session)

    # --- limits ------------------------------------------------------------------------------

    def test_usage_is_summed_over_turns(self, ask: Ask) -> None:
        session, tracker = Session(), BudgetTracker(Budget(max_total_tokens=37))
        turns = [calls(sum_call(), usage=TokenUsage(10, 5)), Reply("five", usage=TokenUsage(20, 2))]

        response = ask(
            self.make(turns), prompt_for(str, ADD), session=session, budget_tracker=tracker
        )

        assert tokens(response.usage) == tokens(tracker.consumed) == (30, 7)
        assert [event.usage for event in session[PromptExecuted]] == [response.usage]

    def test_a_budget_that_is_spent_ends_the_conversation(self, ask: Ask) -> None:
        session, tracker = Session(), BudgetTracker(Budget(max_total_tokens=14))
        turns = [calls(sum_call(), usage=TokenUsage(10, 5)), Reply("five")]

        with pytest.raises(BudgetExceededError):
            ask(self.make(turns), prompt_for(str, ADD), session=session, budget_tracker=tracker)

        assert tokens(tracker.consumed) == tokens(failed_once(session).usage) == (10, 5)
        assert len(session[ToolInvoked]) == 0

    @pytest.mark.parametrize("of_budget", [False, True], ids=["deadline", "deadline-of-budget"])
    def test_no_call_is_made_after_the_deadline(self, ask: Ask, of_budget: bool) -> None:
        session, late = Session(), Deadline.after(-1)
        limit: dict[str, Any] = {"deadline": late}
        if of_budget:
            limit = {"budget_tracker": BudgetTracker(Budget(deadline=late))}
        asked = [(prompt_for(), {"session": session, **limit}), (prompt_for(), {})]

        refused, response = ask.each(self.make([Reply("five")]), asked)

        assert isinstance(refused, DeadlineExceededError)
        assert isinstance(response, PromptResponse), "the reply went to the call that was too late"
        failed_once(session)

    def test_a_deadline_that_passes_between_two_turns_ends_the_conversation(self, ask: Ask) -> None:
        session, clock = Session(), FakeClock()
        nap = Tool[None, None](name="nap", description="Sleep.", handler=lambda: clock.advance(61))
        adapter = self.make([calls(ToolCall("1", "nap")), Reply("five")])

        with pytest.raises(DeadlineExceededError):
            ask(
                adapter,
                prompt_for(str, nap),
                session=session,
                deadline=Deadline.after(60, clock=clock),
            )

        assert [event.success for event in session[ToolInvoked]] == [True]
        failed_once(session)

    # --- concurrency -------------------------------------------------------------------------

    def test_concurrent_conversations_do_not_mix(self, ask: Ask) -> None:
        tool_calls = [ToolCall(f"call_{n}", "who") for n in range(CONCURRENT)]
        adapter = self.make([*map(calls, tool_calls), *[Reply("done")] * CONCURRENT])
        sessions = [Session() for _ in range(CONCURRENT)]
        asked = [
            (prompt_for(str, _name_tool(n), text=f"I am {n}"), {"session": session})
            for n, session in enumerate(sessions)
        ]

        responses = ask.each(adapter, asked, at_once=True)

        made: list[str | None] = []
        for n, (response, session) in enumerate(zip(responses, sessions, strict=True)):
            assert isinstance(response, PromptResponse)
            assert (response.messages[0].content, response.text) == (f"I am {n}", "done")
            results = [each for each in response.messages if each.role == "tool"]
            assert {each.content for each in results} <= {f"it is {n}"}
            ids = [each.call_id for each in session[ToolInvoked]]
            assert ids == [each.tool_call_id for each in results]
            made += ids
        assert sorted(map(str, made)) == [each.id for each in tool_calls]

    def test_cancelling_passes_through(self, ask: Ask) -> None:
        session = Session()
        adapter = self.make([calls(ToolCall("1", "stop")), Reply("went on")])

        async def cancelled() -> bool:
            with anyio.CancelScope() as scope:

                async def stop() -> None:
                    scope.cancel()
                    await anyio.sleep_forever()

                tool = Tool[None, None](name="stop", description="Stop.", handler=stop)
                await adapter.evaluate_async(prompt_for(str, tool), session=session)
            return scope.cancelled_caught

        assert ask.run(adapter, cancelled)
        assert [event.success for event in session[ToolInvoked]] == [False]


def _name_tool(n: int) -> Tool[None, str]:
    return Tool[None, str](name="who", description="Who asks?", handler=lambda: f"it is {n}")
