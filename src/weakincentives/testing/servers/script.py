"""The script of a `ModelServer`: replies, faults, or a function that returns them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ...chat import TokenUsage, ToolCall
from ...errors import UsageError, short_repr
from ...internal.checks import check_number, plain_texts, tuple_of

FaultKind = Literal["status", "hang", "reset", "close", "malformed", "truncated", "garbage"]

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One received request: `number` counts from 1, `body` is the JSON, or None if it was none.

    Header names are in lower case, and the values of headers with keys are masked.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the model: text, tool calls, or both, `delay` seconds after the request.

    The `finish_reason` may be OpenAI's or Anthropic's: each endpoint translates it to its own.
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
            raise UsageError(
                f"expected `TokenUsage` for `Reply.usage`, got {short_repr(self.usage)}"
            )
        check_number(self.delay, "Reply.delay", unit="seconds", least=0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure instead of a reply.

    - `status`: an error response with `status`, `message` and, if given, a `Retry-After` header
    - `hang`: no response until the server or the client closes the connection
    - `reset`: the connection is reset (RST), as by a crashed peer
    - `close`: the connection is closed without a response
    - `malformed`: 200 with JSON that breaks off
    - `truncated`: the connection closes in the middle of the response
    - `garbage`: a response that is not HTTP

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
            raise UsageError(
                f"expected one of {known} for `Fault.kind`, got {short_repr(self.kind)}"
            )
        if not isinstance(self.status, int) or not 400 <= self.status <= 599:
            raise UsageError(
                f"expected 400 to 599 for `Fault.status`, got {short_repr(self.status)}"
            )
        if self.retry_after is not None:
            check_number(self.retry_after, "Fault.retry_after", unit="seconds", least=0)


ScriptItem: TypeAlias = str | Reply | Fault
Script: TypeAlias = Sequence[ScriptItem] | Callable[[ServedRequest], ScriptItem]


def next_reply_of(
    script: Script, *, repeat: bool
) -> Callable[[ServedRequest], Reply | Fault | None]:
    """Return a function that returns the reply to a request, or None after the last one."""
    if callable(script):
        if inspect.iscoroutinefunction(script):
            raise UsageError(
                f"expected a plain function as `script`, got {short_repr(script)} - it runs on the "
                "server's thread; to reply late, return Reply(..., delay=seconds)"
            )
        return lambda request: _reply(script(request), "what the script returned")
    if isinstance(script, str) or not isinstance(script, Sequence):
        raise UsageError(
            "expected a sequence of `str`, `Reply` and `Fault`, or a function, as `script`, "
            f"got {short_repr(script)} - pass one reply as [reply]"
        )
    replies = [_reply(item, f"`script[{index}]`") for index, item in enumerate(script)]
    if repeat and not replies:
        raise UsageError("expected a reply to repeat, got an empty `script`")
    left: Iterator[Reply | Fault] = cycle(replies) if repeat else iter(replies)
    return lambda request: next(left, None)


def _reply(item: ScriptItem, where: str) -> Reply | Fault:
    if isinstance(item, str):
        return Reply(item)
    if isinstance(item, Reply | Fault):
        return item
    raise UsageError(f"expected `str`, `Reply` or `Fault` as {where}, got {short_repr(item)}")


def reply_usage(request: ServedRequest, reply: Reply) -> tuple[int, int, int]:
    """Return input, output and cached tokens: the reply's, or else counted as words."""
    usage = reply.usage or TokenUsage()
    input, output = usage.input_tokens, usage.output_tokens
    if input is None:
        names = ("messages", "system", "input", "instructions")
        input = max(1, sum(_words(request.body.get(name)) for name in names))
    if output is None:
        calls = (f"{call.name} {arguments(call)}" for call in reply.tool_calls)
        output = max(1, sum(map(_words, calls), _words(reply.text)))
    return input, output, usage.cached_tokens or 0


def _words(value: object) -> int:
    """Count the words in a text, or in the texts of messages and their blocks."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, list):
        return sum(map(_words, value))
    if isinstance(value, dict):
        return sum(_words(value.get(name)) for name in ("content", "text", "output"))
    return 0


def arguments(call: ToolCall) -> str:
    """Return the arguments of a tool call as JSON."""
    return msgspec.json.encode(call.arguments).decode()


def pieces(text: str) -> list[str]:
    """Split a text into parts of about a token, as a stream sends it."""
    return re.findall(r"\s*\S{1,8}|\s+", text)


def tokens_of(reply: Reply) -> list[str]:
    """Split a reply into parts of about a token, names and arguments of tools included."""
    calls = (part for call in reply.tool_calls for part in (call.name, *pieces(arguments(call))))
    return [*pieces(reply.text), *calls]
