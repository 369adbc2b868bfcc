"""Record what an agent does while a sample runs, from outside: model calls, tools, messages.

Rules of this file:
1. A model call has the whole conversation so far as its input. A message that several calls have in
   common is in the trajectory once.
2. A tool that ran belongs to the tool call of a message: the one with its id, or else the next one
   with its name and arguments. Without one, a message is made up for it.
3. Memory is bounded: what exceeds a limit is left out, logged, and counted in the metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from .. import serde
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..runtime.events import CallSpan
from ..secrets import logger_for
from .trajectory import Trajectory

logger = logger_for(__name__)

MAX_ITEMS = 10_000  # spans and calls of `record` for one attempt
MAX_CHARACTERS = 50_000_000  # total length of their texts


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A span that ended: what `spans` reads of it. Times are in nanoseconds."""

    id: int
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model. Times are in seconds, on any clock that all items of a recording share."""

    start: float
    end: float
    input: tuple[ChatMessage, ...] = ()
    output: tuple[ChatMessage, ...] = ()
    usage: TokenUsage | None = None
    cost: float | None = None
    model: str | None = None
    stop_reason: str | None = None
    error: str | None = None

    @property
    def span(self) -> CallSpan:
        """Return the call without its messages. `record.usage` has no duration."""
        return CallSpan(
            kind="model",
            name=self.model or "model",
            start=self.start,
            ms=(self.end - self.start) * 1000 or None,
            usage=self.usage,
            cost=self.cost,
            stop_reason=self.stop_reason,
            error=self.error,
        )


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool that ran. `id` is the id of the tool call, if it is known."""

    start: float
    end: float
    name: str
    arguments: Mapping[str, Any]
    result: str = ""
    error: str | None = None
    id: str | None = None

    @property
    def span(self) -> CallSpan:
        """Return the call without its arguments and its result."""
        return CallSpan(
            kind="tool",
            name=self.name,
            start=self.start,
            ms=(self.end - self.start) * 1000,
            error=self.error,
            call_id=self.id,
        )


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message of the conversation."""

    start: float
    message: ChatMessage


Item = ModelCall | ToolRun | RecordedMessage


@dataclass(slots=True, eq=False)
class Recording:
    """The recording of one attempt. Any thread may add to it, until it is closed."""

    items: list[Item] = field(default_factory=list)
    spans: list[SpanRecord] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)  # the parent of every span; 0: none
    left_out: int = 0
    closed: bool = False
    _characters: int = 0

    def has_room(self, characters: int = 0) -> bool:
        """Count a new item; return whether it can be kept."""
        if self.closed:
            return False
        self._characters += characters
        count = len(self.items) + len(self.spans)
        if count < MAX_ITEMS and self._characters <= MAX_CHARACTERS:
            return True
        if not self.left_out:
            logger.warning("an agent recorded too much for one sample; the rest is left out")
        self.left_out += 1
        return False


current_recording: ContextVar[Recording | None] = ContextVar(
    "weakincentives.recording", default=None
)
"""The recording of the agent that the caller is part of."""


def recorded_trajectory(
    items: Iterable[Item], output: Any = None, *, left_out: int = 0
) -> Trajectory[Any]:
    """Return the trajectory of an agent that returned this output and did these things."""
    ordered = sorted(items, key=lambda item: item.start)
    calls = [item for item in ordered if isinstance(item, ModelCall)]
    transcript = _Transcript()
    for item in ordered:
        if isinstance(item, ModelCall):
            transcript.add_conversation(item)
        elif isinstance(item, RecordedMessage):
            transcript.add_message(item)
    for item in ordered:
        if isinstance(item, ToolRun):
            transcript.add_tool(item)
    usages = [call.usage for call in calls if call.usage is not None]
    costs = [call.cost for call in calls if call.cost is not None]
    has_unknown_cost = any(call.usage is not None and call.cost is None for call in calls)
    models = [call.model for call in calls if call.model]
    metadata: dict[str, Any] = {"model": models[-1]} if models else {}
    if left_out:
        metadata["not_recorded"] = left_out
    return Trajectory(
        transcript.messages(),
        output,
        usage=sum(usages[1:], usages[0]) if usages else None,
        cost=sum(costs) if costs and not has_unknown_cost else None,
        metadata=metadata,
        tool_errors=transcript.tool_errors,
        calls=tuple(item.span for item in ordered if not isinstance(item, RecordedMessage)),
    )


class _Transcript:
    """The messages of all model calls, each once, with the time of each."""

    def __init__(self) -> None:
        self.tool_errors: dict[str, str] = {}
        self._messages: list[tuple[float, int, ChatMessage]] = []
        self._counts: Counter[Any] = Counter()
        self._open: list[ToolCall] = []  # calls without a run that belongs to them
        self._calls: dict[str, str] = {}  # the name of the tool by the id of the call
        self._answered: set[str] = set()

    def messages(self) -> tuple[ChatMessage, ...]:
        """Return the messages in the order of their times."""
        return tuple(message for _, _, message in sorted(self._messages, key=lambda m: m[:2]))

    def add_conversation(self, call: ModelCall) -> None:
        """Add the messages of a model call that are not there yet."""
        seen: Counter[Any] = Counter()
        for time, messages in ((call.start, call.input), (call.end, call.output)):
            for message in messages:
                key = _key(message)
                seen[key] += 1
                if seen[key] > self._counts[key]:
                    self._counts[key] += 1
                    self._add(time, message)

    def add_message(self, item: RecordedMessage) -> None:
        """Add a message, even if an equal one is there."""
        self._counts[_key(item.message)] += 1
        self._add(item.start, item.message)

    def add_tool(self, run: ToolRun) -> None:
        """Note how a tool ran; add the messages that no model call has shown."""
        call = self._call_of(run)
        if call is None:
            call = ToolCall(self._new_id(run.id), run.name, run.arguments)
            self._add(run.start, ChatMessage("assistant", "", (call,)))
        if call in self._open:
            self._open.remove(call)
        if run.error is not None:
            self.tool_errors[call.id] = run.error
        if call.id not in self._answered:
            text = run.result or run.error or ""
            message = ChatMessage("tool", text, tool_call_id=call.id, name=run.name)
            self._add(run.end, message)

    def _add(self, time: float, message: ChatMessage) -> None:
        message = self._with_ids(message)
        self._messages.append((time, len(self._messages), message))
        self._open += message.tool_calls
        self._calls.update((call.id, call.name) for call in message.tool_calls)
        if message.tool_call_id is not None:
            self._answered.add(message.tool_call_id)

    def _with_ids(self, message: ChatMessage) -> ChatMessage:
        """Return the message with ids of tool calls, which some providers leave out."""
        if any(not call.id for call in message.tool_calls):
            calls = []
            for call in message.tool_calls:
                calls.append(call if call.id else replace(call, id=self._new_id(None)))
                self._calls[calls[-1].id] = call.name
            return replace(message, tool_calls=tuple(calls))
        if message.role != "tool" or message.tool_call_id is not None:
            return message
        waiting = (id for id in self._calls if id not in self._answered)
        named = (id for id in waiting if message.name in (None, self._calls[id]))
        return replace(message, tool_call_id=next(named, None))

    def _call_of(self, run: ToolRun) -> ToolCall | None:
        if run.id is not None:
            return next((call for call in self._open if call.id == run.id), None)
        same_name = [call for call in self._open if call.name == run.name]
        same = [call for call in same_name if call.arguments == run.arguments]
        return next(iter(same or same_name), None)

    def _new_id(self, known: str | None) -> str:
        if known is not None and known not in self._calls:
            return known
        number = len(self._calls) + 1
        while f"call_{number}" in self._calls:
            number += 1
        return f"call_{number}"


def _key(message: ChatMessage) -> Any:
    calls = tuple(
        (call.id, call.name, serde.encode(call.arguments, sort=True)) for call in message.tool_calls
    )
    return message.role, message.content, calls, message.tool_call_id
