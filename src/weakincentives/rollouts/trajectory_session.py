"""The session of an agent that left a trajectory and no session.

Rules of this file:
1. It is derived from the trajectory alone, which is stored and sent with every result. So an
   evaluator sees the same events live, from another process and in a run stored a month ago.
2. Missing information is an error, never an empty slice: without messages, it
   is unknown which tools were called.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar, get_origin
from uuid import UUID

from .. import serde
from ..chat import ChatMessage, ToolCall
from ..errors import SerializationError, UnsuitableAgentError
from ..runtime.events import PromptExecuted, ToolInvoked
from ..runtime.session import SliceSnapshot
from .trajectory import Trajectory

T = TypeVar("T")

DERIVED_SLICES = (ToolInvoked, PromptExecuted, ChatMessage)
# A trajectory has no ids and times of events. These are the same in every process.
_ID, _TIME = UUID(int=0), datetime.fromtimestamp(0, UTC)


class TrajectorySession:
    """A read-only `SessionView` of a trajectory: its tool calls, its usage, cost and time.

    There is a `ToolInvoked` for every tool call in the messages, with the result that followed,
    one `PromptExecuted` with the totals, and the messages as `ChatMessage`.

    >>> call = ToolCall("1", "search", {"query": "wink"})
    >>> messages = [ChatMessage("assistant", "", [call]), ChatMessage("tool", "3 hits", (), "1")]
    >>> [event.result for event in TrajectorySession(Trajectory(messages))[ToolInvoked].all()]
    ['3 hits']
    """

    __slots__ = ("trajectory",)

    def __init__(self, trajectory: Trajectory[Any]) -> None:
        self.trajectory = trajectory

    # Otherwise Python would try `session[0]`, `session[1]`, ...
    __iter__ = None
    __contains__ = None

    @property
    def session_id(self) -> UUID:
        """The id of every session that is derived."""
        return _ID

    def __getitem__(self, wanted: type[T]) -> SliceSnapshot[T]:
        cls: Any = get_origin(wanted) or wanted
        if cls is PromptExecuted:
            return SliceSnapshot((_executed(self.trajectory),))  # type: ignore[arg-type]
        if cls not in DERIVED_SLICES:
            known = ", ".join(f"`{each.__name__}`" for each in DERIVED_SLICES)
            raise UnsuitableAgentError(
                f"expected an agent with a session to read `{getattr(cls, '__name__', cls)}` from, "
                f"got one that left a trajectory, which gives {known} only - return "
                "(trajectory, session) from the agent"
            )
        messages = self.trajectory.messages
        if not messages:
            raise UnsuitableAgentError(
                "expected a trajectory with messages, got none, so the tool calls are unknown - "
                "return Trajectory(messages=...) from the agent, instrument it, or call "
                "`record.tool(...)` (docs/agents.md)"
            )
        items: Any = messages if cls is ChatMessage else tuple(_invoked(self.trajectory))
        return SliceSnapshot(items)

    def __repr__(self) -> str:
        return f"TrajectorySession({self.trajectory!r})"


def _executed(trajectory: Trajectory[Any]) -> PromptExecuted:
    replies = [m.content for m in trajectory.messages if m.role == "assistant"]
    model = trajectory.metadata.get("model")
    return PromptExecuted(
        result={"text": replies[-1] if replies else None, "output": trajectory.output},
        model=model if isinstance(model, str) else None,
        usage=trajectory.usage,
        cost=trajectory.cost,
        latency_ms=trajectory.latency_ms,
        calls=tuple(call for call in trajectory.calls if call.kind == "model"),
        created_at=_TIME,
        event_id=_ID,
    )


def _invoked(trajectory: Trajectory[Any]) -> Iterator[ToolInvoked]:
    calls: list[tuple[ToolCall, str | None]] = []
    unanswered: list[int] = []
    for message in trajectory.messages:
        for call in message.tool_calls:
            unanswered.append(len(calls))
            calls.append((call, None))
        if message.role != "tool":
            continue
        found = _answered_call(message, [(index, calls[index][0]) for index in unanswered])
        if found is not None:
            unanswered.remove(found)
            calls[found] = calls[found][0], message.content
        elif message.name:  # the call itself is not in the messages
            calls.append((ToolCall(message.tool_call_id or "", message.name), message.content))
    for number, (call, text) in enumerate(calls):
        yield ToolInvoked(
            name=call.name,
            params=call.arguments,
            result=_parsed(text),
            error=trajectory.tool_errors.get(call.id),
            rendered_output=text or "",
            call_id=call.id,
            created_at=_TIME,
            event_id=UUID(int=number + 1),
        )


def _answered_call(message: ChatMessage, open_calls: list[tuple[int, ToolCall]]) -> int | None:
    """Return the call that a tool message answers: by its id or, if it has none, by its name."""
    id, name = message.tool_call_id, message.name
    if id is not None:
        return next((index for index, call in open_calls if call.id == id), None)
    return next((index for index, call in open_calls if name in (None, call.name)), None)


def _parsed(text: str | None) -> Any:
    """Return a JSON object or list as data, so that its `success` can be read; else the text."""
    if text is None or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return serde.decode(text.encode())
    except (SerializationError, UnicodeEncodeError):
        return text
