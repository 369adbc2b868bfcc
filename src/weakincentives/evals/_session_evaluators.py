"""Evaluators of how the agent got there: tools called, tokens used, custom state.

They read a `SessionView`, so they give the same score on a live session, on a snapshot from
another process, and on a stored one.

Empty sets: an agent that called no tool passes `all_tools_succeeded`, `tool_not_called` and every
budget, and fails `tool_called`. What was not measured is not 0: a budget on latency or cost is an
`EvaluatorError` where an event does not say. Tokens are the exception that the providers make:
an execution without usage counts as 0. Where an agent leaves no session, a budget goes by the
trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import serde
from ..errors import EvaluatorError, UsageError, shown
from ..runtime.events import PromptExecuted, ToolInvoked
from ..runtime.session import SessionView
from ._criterion import Criterion, criterion
from ._score import Score, finite
from ._types import EvalContext

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


def _tool(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"expected the name of a tool, got {shown(name)}")
    return name


def tool_called(name: str) -> Criterion:
    """The tool was called at least once, with whatever success."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        return Score(float(count > 0), reason=f"tool '{name}' called {count} time(s)")

    return criterion(evaluate, name=f"tool_called({_tool(name)})")


def tool_not_called(name: str) -> Criterion:
    """The tool was never called."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        reason = f"tool '{name}' called {count} time(s)" if count else ""
        return Score(float(count == 0), reason=reason)

    return criterion(evaluate, name=f"tool_not_called({_tool(name)})")


def tool_call_count(name: str, *, min_count: int = 0, max_count: int | None = None) -> Criterion:
    """The tool was called from `min_count` to `max_count` times, both included."""
    counts = (min_count,) if max_count is None else (min_count, max_count)
    if not all(isinstance(count, int) for count in counts) or not 0 <= min_count <= counts[-1]:
        raise UsageError(
            "expected whole numbers with 0 <= min_count <= max_count, got "
            f"min_count={min_count!r}, max_count={max_count!r}"
        )
    bounds = f">= {min_count}" if max_count is None else f"{min_count}-{max_count}"

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        passed = count >= min_count and (max_count is None or count <= max_count)
        reason = f"tool '{name}' called {count} times (expected {bounds})"
        return Score(float(passed), reason=reason)

    return criterion(evaluate, name=f"tool_call_count({_tool(name)})")


def tool_called_with(name: str, /, **params: Any) -> Criterion:
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

    return criterion(evaluate, name=f"tool_called_with({_tool(name)})")


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
    names = tuple(map(_tool, names))

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

    def used(context: EvalContext) -> float:
        if context.session is not None:
            executed = context.session[PromptExecuted].all()
            return sum(event.usage.total_tokens for event in executed if event.usage)
        usage = context.trajectory.usage
        return _known(usage.total_tokens if usage else None, "usage")

    return _budget(
        "token_usage_under", max_tokens, used, lambda n: f"used {n} tokens (limit: {max_tokens})"
    )


def latency_under(max_ms: float) -> Criterion:
    """All prompts together, tools included, took at most `max_ms` milliseconds."""

    def took(context: EvalContext) -> float:
        if context.session is not None:
            return _total(context.session, "latency_ms")
        return _known(context.trajectory.latency_ms, "latency_ms")

    return _budget("latency_under", max_ms, took, lambda n: f"took {n:g} ms (limit: {max_ms:g})")


def cost_under(max_cost: float) -> Criterion:
    """All prompts together cost at most `max_cost` US dollars."""

    def cost(context: EvalContext) -> float:
        if context.session is not None:
            return _total(context.session, "cost")
        return _known(context.trajectory.cost, "cost")

    def reason(spent: float) -> str:
        from ._words import money

        return f"cost {money(spent)} (limit: {money(max_cost)})"

    return _budget("cost_under", max_cost, cost, reason)


def _budget(
    name: str,
    limit: float,
    spent: Callable[[EvalContext], float],
    reason: Callable[[float], str],
) -> Criterion:
    """Passes while what was spent, by the session or else by the trajectory, is within bounds."""
    if finite(limit, name) < 0:
        raise UsageError(f"expected a limit >= 0 for `{name}`, got {limit}")

    def evaluate(sample: Any, output: Any, *, context: EvalContext) -> Score:
        amount = spent(context)
        return Score(float(amount <= limit), reason=reason(amount))

    return criterion(evaluate, name=name)


def _known(amount: float | None, field: str) -> float:
    if amount is None:
        raise EvaluatorError(
            f"expected a session, or a trajectory with `{field}`, got neither - "
            "return a `Trajectory` that has it from the agent, or run one that leaves a session"
        )
    return amount


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
    if not isinstance(slice_type, type) or not callable(predicate):
        raise UsageError(
            f"expected a class and a function, got {shown(slice_type)} and {shown(predicate)}"
        )
    if not isinstance(min_count, int) or min_count < 0:
        raise UsageError(f"expected `min_count` >= 0, got {min_count!r}")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        found = len(session[slice_type].where(predicate))
        reason = f"found {found} matching items (need >= {min_count})"
        return Score(float(found >= min_count), reason=reason)

    return criterion(evaluate, name=f"slice_contains({slice_type.__name__})")
