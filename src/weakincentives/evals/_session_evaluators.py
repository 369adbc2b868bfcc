"""Evaluators of the agent's session: tools called, tokens used, custom state.

They read a `SessionView`, so the score is the same for a live session, for a snapshot from another
process and for a stored session.

An agent that called no tool passes `all_tools_succeeded`, `tool_not_called` and every budget, and
fails `tool_called`. An unmeasured value is not 0: a budget on latency or cost is an
`UnsuitableAgentError` if an event has no figure. Tokens are an exception, since some providers
report none: an execution without usage counts as 0. If an agent leaves no session, these evaluators
read its trajectory: the tool calls in its messages, its usage, cost and latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import serde
from ..errors import UnsuitableAgentError, UsageError, short_repr
from ..internal.checks import finite
from ..internal.public_module import set_public_module
from ..internal.text_differences import MAX_CHARS
from ..rollouts.trajectory_session import DERIVED_SLICES, TrajectorySession
from ..runtime.events import PromptExecuted, ToolInvoked
from ..runtime.session import SessionView
from ..secrets import shorten
from ._types import EvalContext, Score
from .evaluators.criteria import Criterion, built_in

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
_MAX_LISTED = 20  # tools in a reason


def _count(session: SessionView, name: str) -> int:
    return sum(1 for call in session[ToolInvoked].all() if call.name == name)


def _called(session: SessionView) -> str:
    """Return the tools that were called, in order: `search > open`; the first of many."""
    names = [call.name for call in session[ToolInvoked].all()]
    more = f" > {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return " > ".join(names[:_MAX_LISTED]) + more or "none"


def _tool(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"expected the name of a tool, got {short_repr(name)}")
    return name


def tool_called(name: str) -> Criterion:
    """Pass if the tool was called at least once, successfully or not."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        return Score(float(count > 0), reason=f"tool '{name}' called {count} time(s)")

    return built_in("tool_called", 1, name, label=f"tool_called({_tool(name)})")(evaluate)


def tool_not_called(name: str) -> Criterion:
    """Pass if the tool was never called."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = _count(session, name)
        reason = f"tool '{name}' called {count} time(s)" if count else ""
        return Score(float(count == 0), reason=reason)

    return built_in("tool_not_called", 1, name, label=f"tool_not_called({_tool(name)})")(evaluate)


def tool_call_count(name: str, min_count: int = 0, max_count: int | None = None) -> Criterion:
    """Pass if the tool was called `min_count` to `max_count` times, both included."""
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

    label = f"tool_call_count({_tool(name)})"
    return built_in("tool_call_count", 1, name, min_count, max_count, label=label)(evaluate)


def tool_called_with(name: str, /, **params: Any) -> Criterion:
    """Pass if one call of the tool had these parameters: `("search", query="wink")`.

    A value may be a predicate: `("search", query=lambda q: "wink" in q)`.
    """
    tests = {key: want if callable(want) else _equals(want) for key, want in params.items()}
    wanted = ", ".join(f"{key}={short_repr(want)}" for key, want in params.items()) or "a call"

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        calls = [call for call in session[ToolInvoked].all() if call.name == name]
        passed = any(_fits(call.params, tests) for call in calls)
        actual = "; ".join(shorten(serde.encode(c.params).decode(), MAX_CHARS) for c in calls[:3])
        if passed:
            return Score(1.0)
        more = f" and {len(calls) - 3:,} more" if len(calls) > 3 else ""
        reason = f"tool '{name}' called with {actual or 'nothing: no call'}{more}"
        return Score(0.0, reason=f"{reason}, expected {wanted}")

    label = f"tool_called_with({_tool(name)})"
    return built_in("tool_called_with", 1, name, params, label=label)(evaluate)


def _equals(want: Any) -> Callable[[Any], bool]:
    want = serde.plain(want)  # the event's parameters are plain data too
    return lambda got: bool(got == want)


def _fits(params: Any, tests: Mapping[str, Callable[[Any], bool]]) -> bool:
    return isinstance(params, Mapping) and all(
        key in params and test(params[key]) for key, test in tests.items()
    )


def tools_called_in_order(*names: str, exactly: bool = False) -> Criterion:
    """Pass if the tools were called in this order; with `exactly`, without any other call.

    Without names, every session passes; with `exactly`, one without tool calls.
    """
    names = tuple(map(_tool, names))

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        called = tuple(call.name for call in session[ToolInvoked].all())
        remaining = iter(called)
        passed = called == names if exactly else all(name in remaining for name in names)
        if passed:
            return Score(1.0)
        how = "exactly " if exactly else ""
        wanted = " > ".join(names) or "none"
        return Score(0.0, reason=f"tools called: {_called(session)}, expected {how}{wanted}")

    return built_in("tools_called_in_order", 1, names, exactly)(evaluate)


def all_tools_succeeded() -> Criterion:
    """Pass if no tool call failed."""

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        failed = [call for call in session[ToolInvoked].all() if not _succeeded(call)]
        if not failed:
            return Score(1.0)
        reason = f"failed tools: {[call.name for call in failed[:_MAX_LISTED]]}"
        if len(failed) > _MAX_LISTED:
            reason += f" and {len(failed) - _MAX_LISTED:,} more"
        return Score(0.0, reason=reason)

    return built_in("all_tools_succeeded", 1)(evaluate)


def _succeeded(call: Any) -> bool:
    """Return whether a tool call succeeded; an event of another class may have a result only."""
    success, result = call.success, call.result
    if isinstance(success, bool):
        return success
    return not (isinstance(result, Mapping) and result.get("success") is False)


def token_usage_under(max_tokens: int) -> Criterion:
    """Pass if all prompts together used at most `max_tokens` input and output tokens."""

    def used(context: EvalContext) -> float:
        if (session := _recorded(context)) is not None:
            executed = session[PromptExecuted].all()
            return sum(
                (event.usage.input_tokens or 0) + (event.usage.output_tokens or 0)
                for event in executed
                if event.usage
            )
        usage = context.trajectory.usage
        return _known(usage.total_tokens if usage else None, "usage")

    return _budget(
        "token_usage_under", max_tokens, used, lambda n: f"used {n} tokens (limit: {max_tokens})"
    )


def latency_under(max_ms: float) -> Criterion:
    """Pass if all prompts together, tools included, took at most `max_ms` milliseconds."""

    def took(context: EvalContext) -> float:
        if (session := _recorded(context)) is not None:
            return _total(session, "latency_ms")
        return _known(context.trajectory.latency_ms, "latency_ms")

    return _budget("latency_under", max_ms, took, lambda n: f"took {n:g} ms (limit: {max_ms:g})")


def cost_under(max_cost: float) -> Criterion:
    """Pass if all prompts together cost at most `max_cost` US dollars."""

    def cost(context: EvalContext) -> float:
        if (session := _recorded(context)) is not None:
            return _total(session, "cost")
        return _known(context.trajectory.cost, "cost")

    def reason(spent: float) -> str:
        from ..internal.formatting import money

        return f"cost {money(spent)} (limit: {money(max_cost)})"

    return _budget("cost_under", max_cost, cost, reason)


def _budget(
    name: str,
    limit: float,
    spent: Callable[[EvalContext], float],
    reason: Callable[[float], str],
) -> Criterion:
    """Return a criterion that passes if what was spent is at most the limit."""
    if finite(limit, name) < 0:
        raise UsageError(f"expected a limit >= 0 for `{name}`, got {limit}")

    def evaluate(sample: Any, output: Any, *, context: EvalContext) -> Score:
        amount = spent(context)
        return Score(float(amount <= limit), reason=reason(amount))

    return built_in(name, 1, limit)(evaluate)


def _recorded(context: EvalContext) -> SessionView | None:
    """Return the session that the agent itself recorded; None if it left a trajectory only."""
    session = context.session
    return None if isinstance(session, TrajectorySession) else session


def _known(amount: float | None, field: str) -> float:
    if amount is None:
        raise UnsuitableAgentError(
            f"expected a session, or a trajectory with `{field}`, got neither - "
            "return a `Trajectory` that has it from the agent, instrument it, or call "
            "`record.usage(...)` (docs/agents.md)"
        )
    return amount


def _total(session: SessionView, field: str) -> float:
    """Return the sum of a field over all executed prompts; unknown is not 0."""
    total = 0.0
    for event in session[PromptExecuted].all():
        part = getattr(event, field)
        if part is None:
            raise UnsuitableAgentError(
                f"expected `{field}` on every PromptExecuted event, got none for prompt "
                f"'{event.prompt_name}' by adapter '{event.adapter}'"
            )
        total += part
    return total


def slice_contains(
    slice_type: type[T], predicate: Callable[[T], bool], min_count: int = 1
) -> Criterion:
    """Pass if at least `min_count` items of a slice satisfy the predicate."""
    if not isinstance(slice_type, type) or not callable(predicate):
        raise UsageError(
            f"expected a class and a function, got {short_repr(slice_type)} and "
            f"{short_repr(predicate)}"
        )
    if not isinstance(min_count, int) or min_count < 0:
        raise UsageError(f"expected `min_count` >= 0, got {min_count!r}")

    def evaluate(output: Any, expected: Any, session: SessionView) -> Score:
        count = len(session[slice_type].where(predicate))
        reason = f"found {count} matching items (need >= {min_count})"
        return Score(float(count >= min_count), reason=reason)

    label = f"slice_contains({slice_type.__name__})"
    return built_in(
        "slice_contains",
        1,
        slice_type,
        predicate,
        min_count,
        label=label,
        requires=None if slice_type in DERIVED_SLICES else "session",
    )(evaluate)


set_public_module("weakincentives.evals", globals(), __all__)
