"""The contract of an adapter on HTTP, tested with a real server.

Rules of this file:
1. Every test holds for every wire format: it looks for a text, not for its place in the JSON.
2. A failure is a `ProviderError` that says whether a retry may help. An adapter that retries by
   itself is connected without retries: each test counts its calls.
"""

from __future__ import annotations

import ssl
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import anyio
import msgspec
import pytest

from ...adapters import ModelSettings
from ...budget import Deadline
from ...chat import TokenUsage
from ...errors import DeadlineExceededError, ProviderError
from ...runtime.agent.provider import PromptResponse
from ...runtime.events import ToolInvoked
from ...runtime.session import Session
from ..servers.edited_server import (
    EditedServer,
    broken_argument_events,
    broken_arguments,
    half,
    half_and_an_error,
)
from ..servers.model_server import ModelServer
from ..servers.script import Fault, Reply, Script
from .adapter import AdapterContract, ScriptedReply
from .asking import ADD, Ask, Call, SumAnswer, calls, failed_once, prompt_for, sum_call

KEY = "the-key-of-the-contract"
SHORT_TIMEOUT = 0.1  # seconds, for a response that never comes
CONCURRENT = 20
UNICODE = "Zürich 🚲 \u2028 日本 \x00 \\ \"'</script> e\u0301\n\ttail"
# The server streams up to 8 characters of a word, with the white space before it, as one event.
LARGE = (" " * 9_993 + "größer.") * 100
WRONG_SHAPES: list[Any] = [None, [], {}, 42, "five", {"choices": None, "content": None}]


def _served(reply: ScriptedReply) -> Reply | Fault:
    if isinstance(reply, Reply):
        return reply
    return Fault("status", reply.status or 500, retry_after=reply.retry_after, message=str(reply))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in JSON data, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


class ServedAdapterContract(AdapterContract):
    """The contract of an adapter on HTTP: inherit it, and define how to connect yours.

        class TestMine(ServedAdapterContract):
            key_variable = "MY_API_KEY"

            def connect(self, server, **options):
                url = server.openai_base_url
                return MyAdapter("some-model", base_url=url, retries=0, **options)

    `key_variable` is the environment variable that has the key, None if no key is sent; `streams`
    is True if there is an option `stream=True`; `tls` makes the server use https.
    """

    key_variable: str | None = None
    streams = False
    tls: ssl.SSLContext | None = None

    def connect(self, server: ModelServer, **options: Any) -> Any:
        """Return a new adapter for this server.

        The options are `timeout` in seconds, `max_turns`, `settings` (a `ModelSettings`) and, if it
        `streams`, `stream`.
        """
        raise NotImplementedError(f"define `connect(self, server)` in {type(self).__name__}")

    def make(self, replies: Sequence[ScriptedReply]) -> Any:
        """Return an adapter for a server that gives these replies."""
        return self.connect(self.serve([_served(each) for each in replies]))

    def serve(self, script: Script, **edits: Any) -> ModelServer:
        """Start a server that runs until the end of the test."""
        return self._servers.enter_context(EditedServer(script, tls=self.tls, **edits))

    @pytest.fixture(autouse=True)
    def _serving(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        if self.key_variable is not None:
            monkeypatch.setenv(self.key_variable, KEY)
        with ExitStack() as self._servers:
            yield

    def failure(self, ask: Ask, fault: Fault, **options: Any) -> ProviderError:
        """Return the error for a fault; the adapter calls once, and works afterwards."""
        server, session = self.serve([fault, "five"]), Session()
        asked = [(prompt_for(), {"session": session}), (prompt_for(), {})]

        error, response = ask.each(self.connect(server, **options), asked)

        assert isinstance(error, ProviderError)
        assert isinstance(response, PromptResponse), f"after the fault: {response!r}"
        assert len(server.requests) == 2
        failed_once(session)
        return error

    # --- failures ----------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["malformed", "truncated", "close", "reset", "garbage"])
    def test_a_broken_response_is_retryable(self, ask: Ask, kind: Any) -> None:
        assert self.failure(ask, Fault(kind)).retryable

    @pytest.mark.parametrize("body", WRONG_SHAPES, ids=repr)
    def test_an_answer_of_the_wrong_shape_is_a_providers_error(self, ask: Ask, body: Any) -> None:
        event = b"data: %b\n\n" % msgspec.json.encode(body)
        server = self.serve(["five"], whole=lambda _: body, events=lambda *_: [event])
        session = Session()

        with pytest.raises(ProviderError):
            ask(self.connect(server), prompt_for(), session=session)

        failed_once(session)

    @pytest.mark.parametrize("status", [429, 500, 503, 529])
    def test_a_busy_service_is_retryable(self, ask: Ask, status: int) -> None:
        error = self.failure(ask, Fault("status", status, message="too busy"))

        assert (error.retryable, error.retry_after, error.status) == (True, None, status)
        assert "too busy" in str(error)

    @pytest.mark.parametrize("status", [429, 503])
    def test_retry_after_is_reported(self, ask: Ask, status: int) -> None:
        error = self.failure(ask, Fault("status", status, retry_after=1.5))

        assert (error.retryable, error.retry_after, error.status) == (True, 1.5, status)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_a_refusal_is_not_retryable(self, ask: Ask, status: int) -> None:
        error = self.failure(ask, Fault("status", status, message="not like this"))

        assert (error.retryable, error.status) == (False, status)
        assert "not like this" in str(error)

    def test_a_server_that_hangs_is_given_up_in_time(self, ask: Ask) -> None:
        session = Session()
        adapter = self.connect(self.serve([Fault("hang")]), timeout=SHORT_TIMEOUT)

        with pytest.raises(ProviderError) as caught:
            ask(adapter, prompt_for(), session=session)

        assert (caught.value.retryable, caught.value.status) == (True, None)
        failed_once(session)

    def test_a_deadline_ends_the_wait_for_an_answer(self, ask: Ask) -> None:
        session, adapter = Session(), self.connect(self.serve([Fault("hang")]))

        with pytest.raises(DeadlineExceededError):
            ask(adapter, prompt_for(), session=session, deadline=Deadline.after(SHORT_TIMEOUT))

        failed_once(session)

    def test_an_unreachable_server_is_retryable(self, ask: Ask) -> None:
        server = self.serve([])
        server.close()

        with pytest.raises(ProviderError) as caught:
            ask(self.connect(server), prompt_for())

        assert (caught.value.retryable, caught.value.status) == (True, None)

    def test_cancelling_ends_a_call_and_leaves_the_adapter_whole(self, ask: Ask) -> None:
        server = self.serve([Fault("hang"), "five"])
        adapter = self.connect(server)

        async def cancelled() -> Any:
            async with anyio.create_task_group() as group:
                group.start_soon(adapter.evaluate_async, prompt_for())
                while not server.requests:  # noqa: ASYNC110 - it is another thread
                    await anyio.sleep(0.001)
                group.cancel_scope.cancel()
            return await adapter.evaluate_async(prompt_for())

        assert ask.run(adapter, cancelled).output == "five"

    # --- the key -----------------------------------------------------------------------------

    def test_the_key_of_the_environment_is_sent(self, ask: Ask) -> None:
        self._needs_key()
        server = self.serve(["five"], require_key=KEY)

        assert ask(self.connect(server), prompt_for()).output == "five"

    def test_an_error_for_a_refused_key_names_its_variable(self, ask: Ask) -> None:
        self._needs_key()
        server = self.serve(["five"], require_key="another")

        with pytest.raises(ProviderError) as caught:
            ask(self.connect(server), prompt_for())

        assert (caught.value.retryable, caught.value.status) == (False, 401)
        assert str(self.key_variable) in str(caught.value)

    @pytest.mark.parametrize(
        "fault",
        [
            *(Fault("status", status, message=f"bad: {KEY}") for status in (400, 401, 429, 500)),
            *(Fault(kind, message=f"{KEY} " * 9) for kind in ("malformed", "truncated")),
        ],
        ids=lambda fault: f"{fault.kind}-{fault.status}",
    )
    def test_no_error_holds_the_key(self, ask: Ask, fault: Fault) -> None:
        self._needs_key()
        session, adapter = Session(), self.connect(self.serve([fault]))

        with pytest.raises(ProviderError) as caught:
            ask(adapter, prompt_for(), session=session)

        assert KEY not in "".join(traceback.format_exception(caught.value))
        assert KEY not in repr((caught.value, adapter, failed_once(session)))

    def _needs_key(self) -> None:
        if self.key_variable is None:
            pytest.skip("this adapter sends no API key")

    # --- requests ----------------------------------------------------------------------------

    def test_the_result_of_a_tool_reaches_the_model(self, ask: Ask) -> None:
        server = self.serve(
            [calls(sum_call(id="first")), calls(sum_call(id="next", a=1, b=1)), "done"]
        )

        ask(self.connect(server), prompt_for(str, ADD))

        first, second, third = (request.body for request in server.requests)
        for before, after in ((first, second), (second, third)):
            assert after["messages"][: len(before["messages"])] == before["messages"]
            assert after["tools"] == before["tools"]
        texts = [*_texts([third["messages"], third["tools"]])]
        assert (texts.count("first"), texts.count("next")) == (2, 2)  # in the call and the result
        assert {"the sum is 5", "the sum is 2", "Add two numbers."} <= {*texts}

    def test_settings_reach_the_wire(self, ask: Ask) -> None:
        server = self.serve(["five"])
        settings = ModelSettings(max_tokens=99, stop=("END",), extra={"user": "ann"})

        ask(self.connect(server, settings=settings), prompt_for())

        sent = server.requests[0].body
        assert 99 in sent.values()
        assert ["END"] in sent.values()
        assert sent["user"] == "ann"

    def test_a_temperature_is_sent_even_to_a_service_that_refuses_it(self, ask: Ask) -> None:
        server = self.serve(["five"])

        with suppress(ProviderError):
            ask(self.connect(server, settings=ModelSettings(temperature=0.25)), prompt_for())

        assert server.requests[0].body["temperature"] == 0.25

    def test_what_is_not_set_is_not_sent(self, ask: Ask) -> None:
        server = self.serve(["five"])

        ask(self.connect(server), prompt_for())

        known = {"temperature", "top_p", "seed", "stop", "stop_sequences", "tools"}
        assert known & server.requests[0].body.keys() == set()

    def test_max_turns_limits_the_requests(self, ask: Ask) -> None:
        server = self.serve([calls(sum_call(id=str(turn))) for turn in range(9)])

        with pytest.raises(ProviderError, match="3"):
            ask(self.connect(server, max_turns=3), prompt_for(str, ADD))

        assert len(server.requests) == 3

    # --- responses ---------------------------------------------------------------------------

    @pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
    def test_the_finish_reason_has_one_vocabulary(self, ask: Ask, reason: str) -> None:
        reply = Reply("five", finish_reason=reason)

        assert ask(self.make([reply]), prompt_for()).finish_reason == reason

    def test_usage_model_and_time_are_those_of_the_service(self, ask: Ask) -> None:
        reply = Reply("five", usage=TokenUsage(9, 2, 4), model="m-2", delay=0.02)

        response = ask(self.make([reply]), prompt_for())

        assert (response.usage, response.model) == (TokenUsage(9, 2, 4), "m-2")
        assert response.latency_ms is not None
        assert response.latency_ms >= 20

    @pytest.mark.parametrize("text", [UNICODE, LARGE], ids=["unicode", "large"])
    def test_texts_arrive_as_they_are(self, ask: Ask, text: str) -> None:
        server = self.serve([text])

        response = ask(self.connect(server), prompt_for(text=f"<{text}>"))

        assert response.output == text
        assert f"<{text}>" in [*_texts(server.requests[0].body)]

    def test_broken_arguments_are_a_refused_call(self, ask: Ask) -> None:
        script: list[Any] = [calls(sum_call()), "sorry"]
        server = self.serve(script, whole=broken_arguments, events=broken_argument_events)
        session = Session()

        response = ask(self.connect(server), prompt_for(str, ADD), session=session)

        assert response.output == "sorry"
        assert [event.success for event in session[ToolInvoked]] == [False]
        assert len(server.requests) == 2

    # --- connections -------------------------------------------------------------------------

    def test_connections_are_reused(self, ask: Ask) -> None:
        server = self.serve(["five"] * 5)

        ask.each(self.connect(server), [(prompt_for(), {})] * 5)

        assert (len(server.requests), server.connections) == (5, 1)

    def test_concurrent_responses_go_to_the_right_callers(self, ask: Ask) -> None:
        server = self.serve(
            lambda request: next(text for text in _texts(request.body) if text.startswith("I am "))
        )
        asked: list[Call] = [(prompt_for(text=f"I am {n}"), {}) for n in range(CONCURRENT)]

        responses = ask.each(self.connect(server), asked, at_once=True)

        outputs = [getattr(response, "output", response) for response in responses]
        assert outputs == [f"I am {n}" for n in range(CONCURRENT)]

    # --- streams -----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("output_type", "replies"),
        [
            (str, [Reply(UNICODE, usage=TokenUsage(9, 2, 4), finish_reason="length", model="m-2")]),
            (list[SumAnswer], [Reply('[{"value": 5}]')]),
            (
                SumAnswer,
                [calls(sum_call(id="1"), sum_call(id="2", a=1, b=1)), Reply('{"value": 5}')],
            ),
            (str, [Reply("I add.", (sum_call(),)), Reply("five")]),
        ],
        ids=["text", "structured", "tools", "text-and-tool"],
    )
    def test_a_streamed_response_equals_the_whole_one(
        self, ask: Ask, output_type: Any, replies: Any
    ) -> None:
        self._needs_streams()
        server, prompt = self.serve([*replies, *replies]), prompt_for(output_type, ADD)

        whole, streamed = (
            ask(self.connect(server, stream=stream), prompt) for stream in (False, True)
        )

        assert server.requests[-1].body["stream"] is True
        for name in ("output", "text", "messages", "usage", "finish_reason", "model"):
            assert getattr(streamed, name) == getattr(whole, name)

    @pytest.mark.parametrize("kind", ["malformed", "truncated"])
    def test_a_broken_stream_is_retryable(self, ask: Ask, kind: Any) -> None:
        self._needs_streams()

        assert self.failure(ask, Fault(kind, message="a long answer"), stream=True).retryable

    @pytest.mark.parametrize("events", [half, half_and_an_error])
    def test_a_stream_that_ends_early_is_an_error(self, ask: Ask, events: Any) -> None:
        self._needs_streams()
        session, server = Session(), self.serve(["two and three is five"], events=events)

        with pytest.raises(ProviderError) as caught:
            ask(self.connect(server, stream=True), prompt_for(), session=session)

        assert caught.value.retryable
        assert events is half or "too busy to go on" in str(caught.value)
        failed_once(session)

    def _needs_streams(self) -> None:
        if not self.streams:
            pytest.skip("this adapter does not stream")
