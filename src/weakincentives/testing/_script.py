"""What a `ModelServer` is told to say: replies, faults, and who is asked for the next one."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from .._checks import plain_texts, tuple_of
from ..chat import TokenUsage, ToolCall
from ..errors import UsageError, shown

__all__ = [
    "Fault",
    "Reply",
    "Script",
    "ServedRequest",
    "arguments",
    "pieces",
    "recognised",
    "tokens_of",
    "usage_of",
]

FaultKind = Literal["status", "hang", "reset", "close", "malformed", "truncated", "garbage"]

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request as it came: `number` counts from 1, `body` is the JSON or None if it was none.

    Header names are in lower case, and the values of those that carry keys are masked.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answers: text, tool calls, or both, `delay` seconds after it was asked.

    The `finish_reason` may be OpenAI's word or Anthropic's: each endpoint says it in its own.
    Tokens that `usage` does not give are counted as words, at least one.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    delay: float = 0.0
    model: str | None = None

    def __post_init__(self) -> None:
        plain_texts(self, "text", or_none=("finish_reason", "model"))
        advice = "pass ToolCall(id, name, arguments)"
        _set(self, "tool_calls", tuple_of(ToolCall, self.tool_calls, "Reply.tool_calls", advice))
        if not isinstance(self.usage, TokenUsage | None):
            raise UsageError(f"expected `TokenUsage` for `Reply.usage`, got {shown(self.usage)}")
        _seconds(self.delay, "Reply.delay")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong instead of a reply.

    - `status`: an error answer with `status`, `message` and, if given, a `Retry-After` header
    - `hang`: no answer until the server or the client closes the connection
    - `reset`: the connection is reset (RST), as by a crashed peer
    - `close`: the connection is closed without an answer
    - `malformed`: 200 with JSON that breaks off
    - `truncated`: the connection closes in the middle of the answer
    - `garbage`: an answer that is not HTTP

    >>> Fault("status", 429, retry_after=1.5)
    Fault(kind='status', status=429, retry_after=1.5, message='a scripted fault')
    """

    kind: FaultKind
    status: int = 500
    retry_after: float | None = field(default=None, kw_only=True)
    message: str = field(default="a scripted fault", kw_only=True)

    def __post_init__(self) -> None:
        plain_texts(self, "message")
        if self.kind not in get_args(FaultKind):
            known = ", ".join(f"`{kind}`" for kind in get_args(FaultKind))
            raise UsageError(f"expected one of {known} for `Fault.kind`, got {shown(self.kind)}")
        if not isinstance(self.status, int) or not 400 <= self.status <= 599:
            raise UsageError(f"expected 400 to 599 for `Fault.status`, got {shown(self.status)}")
        if self.retry_after is not None:
            _seconds(self.retry_after, "Fault.retry_after")


def _seconds(value: object, where: str) -> None:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"expected seconds >= 0 for `{where}`, got {shown(value)}")


Answer: TypeAlias = str | Reply | Fault
Script: TypeAlias = Sequence[Answer] | Callable[[ServedRequest], Answer]


def recognised(script: Script, *, repeat: bool) -> Callable[[ServedRequest], Reply | Fault | None]:
    """The function that has the answer to a request, or None when the script is used up."""
    if callable(script):
        if inspect.iscoroutinefunction(script):
            raise UsageError(
                f"expected a plain function as `script`, got {shown(script)} - it runs on the "
                "server's thread; to answer late, return Reply(..., delay=seconds)"
            )
        return lambda request: _answer(script(request), "what the script returned")
    if isinstance(script, str) or not isinstance(script, Sequence):
        raise UsageError(
            "expected a sequence of `str`, `Reply` and `Fault`, or a function, as `script`, "
            f"got {shown(script)} - pass one reply as [reply]"
        )
    replies = [_answer(item, f"`script[{index}]`") for index, item in enumerate(script)]
    if repeat and not replies:
        raise UsageError("expected a reply to repeat, got an empty `script`")
    left: Iterator[Reply | Fault] = cycle(replies) if repeat else iter(replies)
    return lambda request: next(left, None)


def _answer(given: Answer, where: str) -> Reply | Fault:
    if isinstance(given, str):
        return Reply(given)
    if isinstance(given, Reply | Fault):
        return given
    raise UsageError(f"expected `str`, `Reply` or `Fault` as {where}, got {shown(given)}")


def usage_of(request: ServedRequest, reply: Reply) -> tuple[int, int, int]:
    """Input, output and cached tokens: as the reply gives them, else counted as words."""
    given = reply.usage or TokenUsage()
    asked, said = given.input_tokens, given.output_tokens
    if asked is None:
        asked = max(1, _words(request.body["messages"]) + _words(request.body.get("system")))
    if said is None:
        calls = (f"{call.name} {arguments(call)}" for call in reply.tool_calls)
        said = max(1, sum(map(_words, calls), _words(reply.text)))
    return asked, said, given.cached_tokens or 0


def _words(value: object) -> int:
    """Words in a text, or in the texts of messages and of their blocks."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, list):
        return sum(map(_words, value))
    if isinstance(value, dict):
        return _words(value.get("content")) + _words(value.get("text"))
    return 0


def arguments(call: ToolCall) -> str:
    """The JSON text of a tool call's arguments."""
    return msgspec.json.encode(call.arguments).decode()


def pieces(text: str) -> list[str]:
    """The text in parts of about a token, as a stream sends it."""
    return re.findall(r"\s*\S{1,8}|\s+", text)


def tokens_of(reply: Reply) -> list[str]:
    """What the model says in parts of about a token, the names and arguments of tools included."""
    calls = (part for call in reply.tool_calls for part in (call.name, *pieces(arguments(call))))
    return [*pieces(reply.text), *calls]
