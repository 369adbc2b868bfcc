"""`record`: report what an agent does, if it is not instrumented.

from weakincentives.evals import record

def agent(question: str) -> str:
    with record.tool("search", query=question) as call:
        call.result = search(question)
    reply = model(question, call.result)
    record.usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
    return reply.text
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...chat import ChatMessage, Role, TokenUsage
from ...errors import UsageError, short_repr
from ...internal.checks import check_number
from ...internal.public_module import set_public_module
from ...rollouts.recording import (
    Item,
    ModelCall,
    RecordedMessage,
    ToolRun,
    current_recording,
)
from ...rollouts.spans import text_or_json
from ...runtime.events import ToolInvoked

__all__ = ["Recorder", "ToolRecord", "record"]


class ToolRecord:
    """A tool that is running. Set `result`; set `error` if it failed without an exception."""

    __slots__ = ("error", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.error: str | None = None


class Recorder:
    """Records what an agent does for its sample. Outside of a sample, it does nothing.

    It works in async agents, in synchronous ones, and in what they call. In a thread that the agent
    starts itself, run the code in a copy of the agent's context: `copy_context().run(fn)`.
    """

    __slots__ = ()

    @contextmanager
    def tool(self, name: str, /, **arguments: Any) -> Iterator[ToolRecord]:
        """Record a call of a tool. An exception inside marks it as failed, and passes through."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"expected the name of a tool, got {short_repr(name)}")
        call, start = ToolRecord(), time.time()
        try:
            yield call
        except BaseException as error:
            call.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            # The event converts values to JSON data, and reads `success` of a result.
            event = ToolInvoked(name=name, params=arguments, result=call.result, error=call.error)
            result = "" if event.result is None else text_or_json(event.result)
            error_text = None if event.success else event.error or "the tool reported a failure"
            _add(ToolRun(start, time.time(), name, event.params, result, error_text))

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        cost: float | None = None,
        model: str | None = None,
        seconds: float | None = None,
        stop_reason: str | None = None,
    ) -> None:
        """Record the tokens and the cost, in US dollars, of a model call; several add up.

        `seconds` is how long the call took, if it has just ended. Without it, that time is unknown,
        and a part of the rest.
        """
        counts = (input_tokens, output_tokens, cached_tokens)
        usage = None if counts == (None, None, None) else TokenUsage(*counts)
        if seconds is not None:
            check_number(seconds, "record.usage(seconds=...)", unit="seconds", least=0)
        end = time.time()
        start = end - (seconds or 0)
        call = ModelCall(start, end, usage=usage, cost=cost, model=model, stop_reason=stop_reason)
        _add(call)

    def message(self, role: Role, content: str) -> None:
        """Record a message of the conversation."""
        _add(RecordedMessage(time.time(), ChatMessage(role, content)))

    def spans(self, tracer_provider: Any = None) -> None:
        """Record the spans of a tracer provider that is not the global one of OpenTelemetry.

        Without an argument: of the global one, which is created if there is none.
        """
        from .span_processor import watch

        watch(tracer_provider)


def _add(item: Item) -> None:
    recording = current_recording.get()
    if recording is not None and recording.has_room():
        recording.items.append(item)


record = Recorder()

set_public_module("weakincentives.evals", globals(), __all__)
