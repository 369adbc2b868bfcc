"""Evaluators of how the agent got there: tools called, tokens used, custom state.

They read a `SessionView`, so they give the same score on a live session, on a snapshot from
another process, and on a stored one.

Empty sets: an agent that called no tool passes `all_tools_succeeded`, `tool_not_called` and every
budget, and fails `tool_called`. What was not measured is not 0: a budget on latency or cost is an
`EvaluatorError` where an event does not say. Tokens are the exception that the providers make:
an execution without usage counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import serde
from ..errors import EvaluatorError, UsageError
from ..runtime.events import PromptExecuted, ToolInvoked
from ..runtime.session import SessionView
from ._criterion import Criterion, criterion
from ._types import Score, finite

__all__ = [
    "all_tools_succeeded",
    "cost_under",
    "latency_under",
    "slice_contains",
    "token_usage_under",
    "tool_call_count",
    "tool_called",
    "tool_called_with",
    "tool_not_called",
    "tools_called_in_order",
]

T = TypeVar("T")


def _count(session: SessionView, name: str) -> int:
    return sum(1 for call in session[ToolInvoked].all() if call.name == name)


def tool_called(name: str) -> Criterion:
    """The tool was called at least once, with whatever success."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        return Score(float(count > 0), reason=f"tool '{name}' called {count} time(s)")

    return criterion(evaluate, name=f"tool_called({name})")


def tool_not_called(name: str) -> Criterion:
    """The tool was never called."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        reason = f"tool '{name}' called {count} time(s)" if count else ""
        return Score(float(count == 0), reason=reason)

    return criterion(evaluate, name=f"tool_not_called({name})")


def tool_call_count(name: str, *, min_count: int = 0, max_count: int | None = None) -> Criterion:
    """The tool was called from `min_count` to `max_count` times, both included."""
    if min_count < 0 or (max_count is not None and max_count < min_count):
        raise UsageError(
            f"expected 0 <= min_count <= max_count, got min_count={min_count}, "
            f"max_count={max_count}"
        )
    bounds = f">= {min_count}" if max_count is None else f"{min_count}-{max_count}"

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        passed = count >= min_count and (max_count is None or count <= max_count)
        reason = f"tool '{name}' called {count} times (expected {bounds})"
        return Score(float(passed), reason=reason)

    return criterion(evaluate, name=f"tool_call_count({name})")


def tool_called_with(name: str, **params: Any) -> Criterion:
    """One call of the tool had these parameters, whatever others: `("search", query="wink")`.

    A value may be a function, which is asked: `("search", query=lambda q: "wink" in q)`.
    """
    tests = {key: want if callable(want) else _equals(want) for key, want in params.items()}

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        calls = [call for call in session[ToolInvoked].all() if call.name == name]
        passed = any(_fits(call.params, tests) for call in calls)
        seen = "; ".join(serde.encode(call.params).decode() for call in calls[:3])
        reason = "" if passed else f"tool '{name}' called with {seen or 'nothing: no call'}"
        return Score(float(passed), reason=reason)

    return criterion(evaluate, name=f"tool_called_with({name})")


def _equals(want: Any) -> Callable[[Any], bool]:
    want = serde.plain(want)  # the event's parameters are plain data as well
    return lambda got: bool(got == want)


def _fits(params: Any, tests: Mapping[str, Callable[[Any], bool]]) -> bool:
    return isinstance(params, Mapping) and all(
        key in params and test(params[key]) for key, test in tests.items()
    )


def tools_called_in_order(*names: str, exactly: bool = False) -> Criterion:
    """The tools were called in this order, with any calls between; `exactly` allows none.

    No names: with `exactly`, no tool may be called at all; without, every session passes.
    """

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        called = tuple(call.name for call in session[ToolInvoked].all())
        rest = iter(called)
        passed = called == names if exactly else all(name in rest for name in names)
        order = " > ".join(called) or "none"
        return Score(float(passed), reason="" if passed else f"tools called: {order}")

    return criterion(evaluate)


def all_tools_succeeded() -> Criterion:
    """No call of any tool failed; of no calls, none did."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        failed = [call.name for call in session[ToolInvoked].all() if not call.success]
        return Score(float(not failed), reason=f"failed tools: {failed}" if failed else "")

    return criterion(evaluate)


def token_usage_under(max_tokens: int) -> Criterion:
    """Input and output tokens of all prompts together are at most `max_tokens`."""
    limit = _limit(max_tokens, "max_tokens")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        used = sum(e.usage.total_tokens for e in session[PromptExecuted].all() if e.usage)
        return Score(float(used <= limit), reason=f"used {used} tokens (limit: {max_tokens})")

    return criterion(evaluate)


def latency_under(max_ms: float) -> Criterion:
    """All prompts together, tools included, took at most `max_ms` milliseconds."""
    limit = _limit(max_ms, "max_ms")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        took = _total(session, "latency_ms")
        return Score(float(took <= limit), reason=f"took {took:g} ms (limit: {max_ms:g})")

    return criterion(evaluate)


def cost_under(max_cost: float) -> Criterion:
    """All prompts together cost at most `max_cost` US dollars."""
    limit = _limit(max_cost, "max_cost")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        cost = _total(session, "cost")
        return Score(float(cost <= limit), reason=f"cost ${cost:.4f} (limit: ${max_cost:.4f})")

    return criterion(evaluate)


def _limit(value: float, name: str) -> float:
    if finite(value, name) < 0:
        raise UsageError(f"expected `{name}` >= 0, got {value}")
    return value


def _total(session: SessionView, field: str) -> float:
    """The sum of one field over all executed prompts; unknown is not 0."""
    total = 0.0
    for event in session[PromptExecuted].all():
        part = getattr(event, field)
        if part is None:
            raise EvaluatorError(
                f"expected `{field}` on every PromptExecuted event, got none for prompt "
                f"'{event.prompt_name}' by adapter '{event.adapter}'"
            )
        total += part
    return total


def slice_contains(
    slice_type: type[T], predicate: Callable[[T], bool], *, min_count: int = 1
) -> Criterion:
    """At least `min_count` items of a slice satisfy the predicate."""
    if min_count < 0:
        raise UsageError(f"expected `min_count` >= 0, got {min_count}")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        found = len(session[slice_type].where(predicate))
        reason = f"found {found} matching items (need >= {min_count})"
        return Score(float(found >= min_count), reason=reason)

    return criterion(evaluate, name=f"slice_contains({slice_type.__name__})")
