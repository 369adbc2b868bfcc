"""Evaluators of sessions also work for agents that return a trajectory and no session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.errors import EvaluatorError, UnsuitableAgentError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalLoop,
    EvalLoopConfig,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    all_of,
    all_tools_succeeded,
    collect_results,
    composite,
    cost_under,
    evaluate,
    exact_match,
    latency_under,
    llm_judge,
    open_store,
    slice_contains,
    submit_dataset,
    token_usage_under,
    tool_call_count,
    tool_called,
    tool_called_with,
    tool_not_called,
    tools_called_in_order,
    weighted,
)
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.evals.engine.rescoring import rescore
from weakincentives.evals.evaluators import criterion, environment_score
from weakincentives.evals.judges import judge_panel, llm_rubric
from weakincentives.rollouts import Trajectory, TrajectorySession
from weakincentives.runtime import (
    InMemoryMailbox,
    PromptExecuted,
    PromptRendered,
    SessionView,
    ToolInvoked,
)

DATASET = Dataset([Sample("1", "Where is order 7?", "shipped")], name="orders")


@dataclass(frozen=True)
class Plan:
    """A user-defined type."""

    steps: int = 0


def support_agent(question: str) -> Trajectory[str]:
    """Look up an order; the second tool fails, and the third reports failure in JSON."""
    calls = (
        ToolCall("a", "get_order", {"id": 7}),
        ToolCall("b", "notify", {"to": "ann"}),
        ToolCall("c", "log", {}),
    )
    return Trajectory(
        (
            ChatMessage("user", question),
            ChatMessage("assistant", "", calls),
            ChatMessage("tool", "shipped", tool_call_id="a"),
            ChatMessage("tool", '{"success": false}', tool_call_id="c"),
            ChatMessage("tool", "timed out", tool_call_id="b"),
            ChatMessage("assistant", "shipped"),
        ),
        "shipped",
        usage=TokenUsage(100, 20),
        cost=0.25,
        latency_ms=900,
        tool_errors={"b": "timed out"},
    )


def reads_messages(output: Any, expected: Any, session: SessionView) -> bool:
    """Read everything that a session evaluator can read of a trajectory."""
    (executed,) = session[PromptExecuted].all()
    return (
        executed.usage == TokenUsage(100, 20)
        and executed.latency_ms == 900
        and len(session[ChatMessage].where(lambda message: message.role == "tool")) == 3
    )


SUITE = composite(
    exact_match,
    tool_called("get_order"),
    tool_not_called("refund"),
    tool_call_count("notify", min_count=1, max_count=1),
    tool_called_with("get_order", id=7),
    tools_called_in_order("get_order", "notify", "log", exactly=True),
    all_tools_succeeded(),
    token_usage_under(120),
    latency_under(900),
    cost_under(0.25),
    slice_contains(ToolInvoked, lambda call: call.result == "shipped"),
    reads_messages,
)


def verdicts(result: EvalResult[Any]) -> dict[str, tuple[bool, str]]:
    assert result.error is None, result.error
    return {score.criterion: (score.passed, score.reason) for score in result.scores}


def test_session_evaluators_read_a_trajectory() -> None:
    by_criterion = verdicts(EvalSuite(support_agent, DATASET, SUITE).run().results[0])

    failed = {name: reason for name, (passed, reason) in by_criterion.items() if not passed}
    assert failed == {"all_tools_succeeded": "failed tools: ['notify', 'log']"}
    assert len(by_criterion) == 12


def test_the_score_is_the_same_live_rescored_and_from_a_worker(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        live = EvalSuite(support_agent, DATASET, SUITE).run(store=store, run_id="live").results[0]
        stored = anyio.run(rescore, store, "live", SUITE)
        rescored = next(iter(store.rows(stored))).result
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[EvalResult[Any]] = InMemoryMailbox("results")
    submission = submit_dataset(DATASET, requests)
    EvalLoop(support_agent, SUITE, requests, results).run(max_iterations=1)
    collected = collect_results(results, submission).results[0]

    assert verdicts(live) == verdicts(rescored) == verdicts(collected)


def test_a_trajectory_can_be_scored_directly() -> None:
    trajectory = support_agent("?")

    assert tool_called("get_order")(trajectory, DATASET[0]).passed
    assert not all_tools_succeeded()(trajectory, DATASET[0]).passed


def test_results_are_matched_with_calls_by_id_or_by_name() -> None:
    same = ToolCall("1", "search", {"page": 1}), ToolCall("1", "search", {"page": 2})
    trajectory: Trajectory[None] = Trajectory(
        (
            ChatMessage("assistant", "", same),
            ChatMessage("tool", "one", tool_call_id="1"),
            ChatMessage("tool", "two", tool_call_id="1"),
            ChatMessage("assistant", "", [ToolCall("", "fetch"), ToolCall("", "read")]),
            ChatMessage("tool", "read it", name="read"),
            ChatMessage("tool", "[not JSON", name="fetch"),
            ChatMessage("tool", "alone", tool_call_id="9", name="orphan"),
            ChatMessage("assistant", "", [ToolCall("5", "unanswered")]),
        )
    )
    events = TrajectorySession(trajectory)[ToolInvoked].all()

    assert [(event.name, event.result) for event in events] == [
        ("search", "one"),
        ("search", "two"),
        ("fetch", "[not JSON"),
        ("read", "read it"),
        ("orphan", "alone"),
        ("unanswered", None),
    ]
    assert events == TrajectorySession(trajectory)[ToolInvoked].all()


@pytest.mark.parametrize(
    ("agent", "evaluator", "problem"),
    [
        (lambda q: "Paris", tool_not_called("x"), "needs a session, and there is none"),
        (lambda q: Trajectory(usage=TokenUsage(1)), tool_called("x"), "the tool calls are unknown"),
        (
            lambda q: Trajectory([ChatMessage("user", q)]),
            slice_contains(Plan, lambda plan: True),
            "to read `Plan` from, got one that left a trajectory",
        ),
        (
            lambda q: Trajectory([ChatMessage("user", q)]),
            lambda output, expected, session: not session[PromptRendered].all(),
            "to read `PromptRendered` from",
        ),
        (
            lambda q: Trajectory([ChatMessage("user", q)]),
            token_usage_under(1),
            "expected a session, or a trajectory with `usage`",
        ),
    ],
)
def test_information_that_a_trajectory_lacks_is_an_error(
    agent: Callable[[str], Any], evaluator: Any, problem: str
) -> None:
    result = EvalSuite(agent, DATASET, evaluator).run().results[0]

    assert result.error_source == "evaluator"
    assert problem in str(result.error)


def has_plan(context: EvalContext) -> bool:
    return len(context.session[Plan].all()) > 0  # type: ignore[index]


async def has_plan_async(context: EvalContext) -> bool:
    return has_plan(context)


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        (tool_called("x"), "evaluator `tool_called(x)` needs a session"),
        (has_plan, "evaluator `has_plan` needs a session"),
        (has_plan_async, "evaluator `has_plan_async` needs a session"),
        (token_usage_under(9), "expected a session, or a trajectory with `usage`"),
        (cost_under(9.0), "expected a session, or a trajectory with `cost`"),
        (environment_score, "expected an environment with `score()`"),
    ],
)
def test_an_evaluator_that_the_agent_leaves_nothing_for_ends_the_run_at_the_first_sample(
    evaluator: Any, why: str
) -> None:
    asked: list[str] = []

    def agent(question: str) -> str:
        asked.append(question)
        return "Paris"

    samples = [Sample(str(number), "Capital of France?", "Paris") for number in range(90)]
    suite = EvalSuite(
        agent, samples, all_of(exact_match, evaluator), config=EvalConfig(max_concurrent=1)
    )
    report = suite.run()

    assert (len(asked), len(report.results)) == (1, 1)
    assert report.stopped.startswith(f"stopped at the first sample: {why}")


def test_a_worker_ends_with_that_error_and_the_client_gets_it_as_a_result() -> None:
    asked: list[str] = []
    requests: InMemoryMailbox[Any, Any] = InMemoryMailbox("q")
    results: InMemoryMailbox[Any, Any] = InMemoryMailbox("r")
    samples = [Sample(str(number), "Capital of France?", "Paris") for number in range(90)]
    submission = submit_dataset(Dataset(samples), requests, reply_to=results)

    config = EvalLoopConfig(max_concurrent=1)
    loop = EvalLoop(asked.append, tool_called("x"), requests, config=config)
    with pytest.raises(UnsuitableAgentError, match=r"`tool_called\(x\)` needs a session"):
        loop.run()
    report = collect_results(results, submission, timeout_seconds=0.1)

    assert len(asked) == 1
    assert "needs a session" in str(report.results[0].error)
    assert len(report.missing) == 89


def test_a_sample_that_leaves_nothing_is_an_error_of_its_own_once_another_was_scored() -> None:
    def agent(question: str) -> Any:
        messages = [ChatMessage("user", question)]
        return Trajectory(messages, "Paris") if question == "first" else "Paris"

    samples = [Sample(name, name, "Paris") for name in ("first", "second", "third")]
    config = EvalConfig(max_concurrent=1)
    report = EvalSuite(agent, samples, tool_not_called("x"), config=config).run()

    assert [result.error is None for result in report.results] == [True, False, False]


# ── refused before the first sample ─────────────────────────────────────────────────────────────


def planner(question: str) -> str:
    raise AssertionError("this agent must not run")


async def async_planner(question: str) -> Trajectory[str] | None:
    raise AssertionError("this agent must not run")


HAS_PLAN = slice_contains(Plan, lambda plan: True)


@pytest.mark.parametrize("agent", [planner, async_planner])
@pytest.mark.parametrize("evaluator", [HAS_PLAN, all_of(exact_match, weighted((HAS_PLAN, 1.0)))])
def test_a_custom_slice_is_refused_for_an_agent_without_a_session(
    agent: Callable[[str], Any], evaluator: Any
) -> None:
    expected = rf"`slice_contains\(Plan\)` reads .* the agent `.*{agent.__name__}` leaves none"
    for run in (
        EvalSuite(agent, DATASET, evaluator).run,
        lambda: anyio.run(
            lambda: evaluate(DATASET, EvalConfig(), evaluator, agent=agent)  # type: ignore[arg-type]
        ),
        lambda: EvalLoop(agent, evaluator, InMemoryMailbox("q")),
        lambda: anyio.run(attempt, function_agent(agent), DATASET[0], evaluator),
    ):
        with pytest.raises(UsageError, match=expected):
            run()


def test_an_agent_that_may_return_a_session_is_not_refused() -> None:
    def pair(question: str) -> tuple[Trajectory[str], SessionView]: ...
    def either(question: str) -> str | tuple[Trajectory[str], SessionView]: ...
    def anything(question: str) -> Any: ...
    def unknown(question: str) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821
    def unannotated(question): ...  # type: ignore[no-untyped-def]

    for agent in (pair, either, anything, unknown, unannotated, lambda question: None):
        EvalSuite(agent, DATASET, HAS_PLAN).build_run().check()


@pytest.mark.parametrize(
    "evaluator",
    [
        llm_judge("Correct"),
        llm_rubric({"tone": "Polite"}),
        all_of(exact_match, criterion(llm_judge("Correct"), name="mine")),
        judge_panel(llm_judge("Correct")),
    ],
)
def test_a_judge_without_an_adapter_is_refused_at_the_start(evaluator: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the judge `.*` has no adapter to judge the agent `.*pl"):
        EvalSuite(planner, DATASET, evaluator).run()
    with open_store(tmp_path / "runs.db") as store:
        EvalSuite(support_agent, DATASET, exact_match).run(store=store, run_id="r")
        with pytest.raises(UsageError, match=r"the judge `.*` has no adapter"):
            anyio.run(rescore, store, "r", evaluator)


def test_a_panel_with_a_quorum_may_have_a_judge_without_an_adapter() -> None:
    async def human(output: str, expected: str) -> Score:
        return Score(1.0)

    panel = judge_panel(human, llm_judge("Correct"), quorum=1)
    assert EvalSuite(lambda q: "shipped", DATASET, panel).run().passed == 1


def test_tool_errors_must_be_text() -> None:
    with pytest.raises(UsageError, match=r"a text for `Trajectory.tool_errors\['a'\]`, got 5"):
        Trajectory(tool_errors={"a": 5})  # type: ignore[dict-item]
    with pytest.raises(EvaluatorError, match="unknown"):
        TrajectorySession(Trajectory())[ToolInvoked]
