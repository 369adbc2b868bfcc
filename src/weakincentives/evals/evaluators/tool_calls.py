"""How well a model calls tools: what K2 Vendor Verifier measures, on any trajectory.

A reply is the model's response to the messages of the input; the replies of an agent's later turns
count in the rates of calls, and the first one gives the finish reason. The tools are given, or in
the sample: `tools` in its input or its metadata, as in a request of Chat Completions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ... import serde
from ...chat import ChatMessage, ToolCall
from ...errors import EvaluatorError, UsageError, short_repr
from ...rollouts import Trajectory
from .._types import Metric, Sample, Score
from .criteria import Criterion, built_in
from .schemas import schema_checker

FinishClass = Literal["stop", "tool_calls", "others"]
Tools = Sequence[Mapping[str, Any]]
_NO_SCHEMA = "{}"  # K2 Vendor Verifier counts every call of such a tool as invalid


@dataclass(frozen=True, slots=True)
class ToolCallFacts:
    """The facts about the tool calls of one attempt.

    `valid` says for each reply with the finish reason `tool_calls` whether it has calls, and all of
    them fit their schemas. `problems` says what is wrong with which call.
    """

    finish_reason: str
    calls: int = 0
    malformed: int = 0
    valid: tuple[bool, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def finish_class(self) -> FinishClass:
        """`stop`, `tool_calls`, or `others`."""
        if self.finish_reason == "tool_calls":
            return "tool_calls"
        return "stop" if self.finish_reason == "stop" else "others"


def tool_call_facts(
    trajectory: Trajectory[Any], sample: Sample[Any, Any], tools: Tools | None = None
) -> ToolCallFacts:
    """Return the facts about the tool calls of an attempt."""
    replies = _replies(trajectory, sample)
    schemas = _schemas(_tools_of(sample) if tools is None else tools)
    valid: list[bool] = []
    problems: list[str] = []
    malformed = 0
    for number, reply in enumerate(replies):
        if _finish_reason(reply, trajectory, len(replies)) != "tool_calls" and not reply.tool_calls:
            continue
        wrong = [problem for call in reply.tool_calls if (problem := _problem(call, schemas))]
        if not reply.tool_calls:
            wrong = [f"reply {number + 1}: the finish reason is tool_calls, and there are none"]
        malformed += sum(_is_malformed(call) for call in reply.tool_calls)
        valid.append(not wrong)
        problems += wrong
    return ToolCallFacts(
        _finish_reason(replies[0], trajectory, len(replies)) if replies else "",
        sum(len(reply.tool_calls) for reply in replies),
        malformed,
        tuple(valid),
        tuple(problems),
    )


def _replies(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> list[ChatMessage]:
    """Return the model's replies, without those that are already in the input."""
    given = sample.input
    if isinstance(given, Mapping):
        given = given.get("messages", ())
    count = len(given) if isinstance(given, list | tuple) else 0
    messages = trajectory.messages[count:]
    return [message for message in messages if message.role == "assistant"]


def _finish_reason(reply: ChatMessage, trajectory: Trajectory[Any], replies: int) -> str:
    if replies == 1 and trajectory.stop_reason is not None:
        return trajectory.stop_reason
    return "tool_calls" if reply.tool_calls else "stop"


def _tools_of(sample: Sample[Any, Any]) -> Tools:
    for place in (sample.input, sample.metadata):
        if isinstance(place, Mapping) and "tools" in place:
            return place["tools"] or ()
    raise EvaluatorError(
        f"expected the tools of sample {sample.id!r}, found none - pass them, or put them under "
        "`tools` in its input or metadata"
    )


def _schemas(tools: Tools) -> dict[str, str]:
    """Return the JSON schemas of tools, as text, by name."""
    found: dict[str, str] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise EvaluatorError(
                f"expected tools as in Chat Completions, got {short_repr(tool)} - pass "
                '{"type": "function", "function": {"name": ..., "parameters": {...}}}'
            )
        schema = function.get("parameters") or {}
        found[function["name"]] = serde.encode(schema, sort=True).decode()
    return found


@lru_cache(maxsize=1024)
def _checker(schema: str) -> Callable[[Any], str]:
    try:
        return schema_checker(serde.decode(schema), formats=False)
    except UsageError as error:
        raise EvaluatorError(f"a tool has no valid schema: {error}") from None


def _is_malformed(call: ToolCall) -> bool:
    from ...adapters.wire import INVALID_JSON

    return INVALID_JSON in call.arguments


def _problem(call: ToolCall, schemas: Mapping[str, str]) -> str:
    """Return what is wrong with a call, or ""."""
    if call.name not in schemas:
        known = ", ".join(schemas) or "none"
        return f"{call.name}: there is no such tool; known: {known}"
    if _is_malformed(call):
        return f"{call.name}: the arguments are not a JSON object"
    if schemas[call.name] == _NO_SCHEMA:
        return f'{call.name}: the tool has no schema - give it {{"type": "object"}}'
    try:
        problem = _checker(schemas[call.name])(dict(call.arguments))
    except EvaluatorError as error:
        problem = str(error)
    return f"{call.name}: {problem}" if problem else ""


# ── evaluators ──────────────────────────────────────────────────────────────────────────────────


def tool_schema_accuracy(tools: Tools | None = None) -> Criterion:
    """Pass if every tool call names a tool and fits its schema; the value is the share of replies.

    As in K2 Vendor Verifier, a reply whose finish reason is `tool_calls`, but which has no calls,
    is not valid; nor is a call of a tool whose schema is empty (`"parameters": {}`), missing or
    wrong; `format` is not checked. Arguments that are no object are never valid, and empty
    arguments are those of a call without any; there, it is the other way round. An attempt without
    tool calls has nothing to check, and passes. Needs the extra `schema`.
    """
    if tools is not None:
        for schema in _schemas(tools).values():
            _checker(schema)  # raises here, not on the first sample

    def evaluate(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        facts = tool_call_facts(trajectory, sample, tools)
        value = sum(facts.valid) / len(facts.valid) if facts.valid else 1.0
        metrics = (
            Metric("tool_call_replies", len(facts.valid)),
            Metric("valid_tool_call_replies", sum(facts.valid)),
        )
        return Score(value, all(facts.valid), "; ".join(facts.problems[:3]), metrics)

    return built_in("tool_schema_accuracy", 2, serde.plain(tools))(evaluate)


def malformed_call_rate(maximum: float = 0.0) -> Criterion:
    """Pass if at most this share of the tool calls has arguments that are not a JSON object.

    The value is 1 minus the rate. Unlike a tool that failed, this is a fault of the model, or of
    the server that parsed its reply.
    """
    if not isinstance(maximum, int | float) or not 0 <= maximum <= 1:
        raise UsageError(f"expected a share for `maximum`, got {short_repr(maximum)}")

    def evaluate(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        calls = [call for reply in _replies(trajectory, sample) for call in reply.tool_calls]
        bad = [call.name for call in calls if _is_malformed(call)]
        rate = len(bad) / len(calls) if calls else 0.0
        reason = f"{len(bad)} of {len(calls)} calls are malformed: {', '.join(bad[:3])}"
        metrics = (Metric("malformed_calls", len(bad)), Metric("tool_calls", len(calls)))
        return Score(1 - rate, rate <= maximum, reason if bad else "", metrics)

    return built_in("malformed_call_rate", 1, maximum)(evaluate)


@built_in("finish_reason_agreement", 1)
def finish_reason_agreement(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Pass if the first reply ends for the same reason as the reference.

    `expected` is `stop`, `tool_calls` or another reason, or a mapping with `finish_reason`. All
    reasons but `stop` and `tool_calls` are one class.
    """
    wanted = ToolCallFacts(_expected_reason(sample)).finish_class
    got = ToolCallFacts(_first_reason(trajectory, sample)).finish_class
    return Score(float(got == wanted), reason="" if got == wanted else f"got {got}, not {wanted}")


@built_in("tool_call_f1", 1)
def tool_call_f1(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Pass if the model calls a tool exactly when the reference does.

    `expected` is as for `finish_reason_agreement`. The metrics `tp`, `fp`, `fn` and `tn` say which
    it was: over a run, F1 is 2 TP / (2 TP + FP + FN), as `wink eval vendors` shows it.
    """
    wanted = _expected_reason(sample) == "tool_calls"
    got = _first_reason(trajectory, sample) == "tool_calls"
    kind = {(True, True): "tp", (True, False): "fp", (False, True): "fn", (False, False): "tn"}
    metrics = tuple(Metric(name, float(kind[got, wanted] == name)) for name in kind.values())
    reasons = {"fp": "called a tool, the reference did not", "fn": "called no tool, unlike it"}
    return Score(float(got == wanted), reason=reasons.get(kind[got, wanted], ""), metrics=metrics)


def _expected_reason(sample: Sample[Any, Any]) -> str:
    expected = sample.expected
    reason = expected.get("finish_reason") if isinstance(expected, Mapping) else expected
    if not isinstance(reason, str):
        raise EvaluatorError(
            "expected a finish reason as `expected`, such as `tool_calls`, got "
            f"{short_repr(expected)}"
        )
    return reason


def _first_reason(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> str:
    replies = _replies(trajectory, sample)
    if not replies:
        raise EvaluatorError(
            "expected a trajectory with the model's messages, got none - return a `Trajectory`"
        )
    return _finish_reason(replies[0], trajectory, len(replies))
