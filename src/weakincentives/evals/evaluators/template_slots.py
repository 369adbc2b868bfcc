"""What a judge may see of an attempt, by name: `context`, `messages`, `metadata.topic`, ...

    input, output, expected   of the sample and the agent; one field: `output.answer`
    context                   what was retrieved: in the metadata of the trajectory or the sample
    metadata                  of the sample; one key: `metadata.topic`
    messages, transcript      the conversation, with tool calls and their results

Rules of this file:
1. A name is checked when the judge is made.
2. A missing value is an `EvaluatorError` that says so, never an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ... import serde
from ...chat import ChatMessage
from ...errors import EvaluatorError, UsageError, short_repr
from .._types import EvalContext

Source = str | Callable[[EvalContext], Any]
"""The name of something that a judge sees, or a function of the attempt that returns it."""
Sees = str | Iterable[str] | Mapping[str, Source]
"""Names of what a judge sees, or a mapping of your own names to their sources."""

_WHOLE = ("messages", "transcript")  # without fields
_WITH_FIELDS = ("input", "output", "expected", "context", "metadata")
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.A)
_MISSING = object()
_ADVICE = {
    "context": "return Trajectory(output=..., metadata={'context': ...}) from the agent, set "
    "Sample.metadata['context'], or pass sees={'context': function}",
    "messages": "return Trajectory(messages=..., output=...) from the agent",
    "metadata": "set Sample.metadata",
}


def sources_of(sees: Sees) -> dict[str, Source]:
    """Return where each name comes from; raise UsageError for an unknown one."""
    names = [sees] if isinstance(sees, str) else sees
    sources = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    for name, source in sources.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"expected names for `sees`, got {short_repr(name)}")
        if not callable(source):
            check_name(source, "sees")
    return sources


def check_name(name: Any, where: str, own: Iterable[str] = ()) -> None:
    """Raise UsageError unless this is the name of something that a judge can see."""
    root, _, rest = name.partition(".") if isinstance(name, str) else ("", "", "")
    if (root in _WITH_FIELDS or (root in _WHOLE and not rest)) and _NAME.fullmatch(name):
        return
    known = ", ".join([*own, *_WITH_FIELDS, *_WHOLE])
    raise UsageError(
        f"expected one of {known}, or a field such as output.answer or metadata.topic, for "
        f"`{where}`, got {short_repr(name)} - pass sees={{name: function}} for something else"
    )


def value_of(source: Source, context: EvalContext, judge: str) -> Any:
    """Return what the source is in this attempt; raise EvaluatorError if there is nothing."""
    if callable(source):
        name = getattr(source, "__name__", "a function")
        try:
            value = source(context)
        except Exception as error:
            raise EvaluatorError(
                f"the judge `{judge}` sees what `{name}` returns, and it raised "
                f"{type(error).__name__}: {error}"
            ) from error
        missing, source = value is None, f"what `{name}` returns"
    else:
        value = _named_value(source, context)
        # That there is no reference answer, or no output, is something that a judge may see.
        optional = source in ("input", "output", "expected")
        missing = value is _MISSING or (value is None and not optional)
        source = f"`{source}`"
    if not missing:
        return value
    root = source.strip("`").partition(".")[0].replace("transcript", "messages")
    advice = f" - {_ADVICE[root]}" if root in _ADVICE else ""
    raise EvaluatorError(
        f"the judge `{judge}` sees {source}, and sample {context.sample.id!r} has none{advice}"
    )


def _named_value(name: str, context: EvalContext) -> Any:
    sample, trajectory = context.sample, context.trajectory
    root, *path = name.split(".")
    if root in _WHOLE:
        return [_turn(message) for message in trajectory.messages] or _MISSING
    if root == "context":
        value = _field(trajectory.metadata, root)
        if value is _MISSING or value is None:
            value = _field(sample.metadata, root)
    elif root == "metadata":
        if not path:
            return sample.metadata or _MISSING
        value = sample.metadata if path[0] in sample.metadata else trajectory.metadata
    else:
        value = trajectory.output if root == "output" else getattr(sample, root)
    for field in path:
        value = _field(value, field)
    return value


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, _MISSING)
    return getattr(value, name, _MISSING)


def _turn(message: ChatMessage) -> dict[str, Any]:
    """Return a message without its empty parts and ids."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    parts = {"role": message.role, "name": message.name, "content": message.content}
    return {name: part for name, part in {**parts, "tool_calls": calls}.items() if part}


def text_of(value: Any) -> str:
    """Return text as it is, and everything else as JSON."""
    return value if isinstance(value, str) else serde.encode(value).decode()
