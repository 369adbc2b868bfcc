"""`evaluate` and `stream`: any samples in, a report in dataset order or results as they finish."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint

from tests.engine import LIMITS
from weakincentives import MarkdownSection, PromptTemplate, ToolCall
from weakincentives.adapters import HTTPAdapter, Limiter, ScriptedAdapter, retrying
from weakincentives.chat import ChatMessage
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    Sample,
    Score,
    contains,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.model import EvalRunCompleted, EvalRunStarted, SampleEvaluated
from weakincentives.rollouts import CalculatorEnvironment, Trajectory
from weakincentives.runtime import InProcessEventBus, Session, SessionSnapshot, ToolInvoked
from weakincentives.testing import Fault, ModelServer, ServedRequest

pytestmark = pytest.mark.anyio

SAMPLES = [Sample(str(number), number, "ok", {"even": number % 2 == 0}) for number in range(10)]
SAMPLES_OF_TEXT = [Sample(sample.id, f"question {sample.id}", "ok") for sample in SAMPLES]
QUESTION = PromptTemplate[str](
    ns="tests", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)


async def right(number: int) -> str:
    await checkpoint()
    return "ok"


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


async def test_results_are_in_dataset_order_whatever_finishes_first() -> None:
    finished: list[int] = []

    async def agent(number: int) -> str:
        for _ in range(3 * (10 - number)):
            await checkpoint()
        finished.append(number)
        return "ok"

    config = EvalConfig(max_concurrent=10, epochs=2, experiment_name="e")
    report = await evaluate(iter(SAMPLES), config, exact_match, agent=agent, dataset_name="d")

    assert finished != sorted(finished)
    assert [(r.sample_id, r.epoch) for r in report.results] == [
        (sample.id, epoch) for sample in SAMPLES for epoch in (1, 2)
    ]
    assert (report.dataset_name, report.pass_rate) == ("d", 1.0)
    assert {r.experiment_name for r in report.results} == {"e"}
    assert {r.run_id for r in report.results} == {report.run_id} != {""}
    assert report.config == config


def test_it_runs_on_trio_and_on_asyncio() -> None:
    async def answer(messages: list[ChatMessage]) -> str:
        await checkpoint()
        return f"echo {messages[-1].content}"

    samples = [Sample("1", "hello", "hello"), Sample("2", {"question": "bye"}, "no")]
    config = EvalConfig(endpoint=answer)

    for report in (
        trio.run(evaluate, samples, config, contains),
        asyncio.run(evaluate(samples, config, contains)),
    ):
        assert [result.passed for result in report.results] == [True, False]
        assert report.config["endpoint"].endswith("answer")


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (EvalConfig(), {}, "expected an endpoint or an agent, got neither"),
        ({"max_concurrent": 1}, {"agent": right}, "expected an `EvalConfig`, got `dict`"),
        (EvalConfig(), {"agent": right, "prepare_messages": right}, "are for an endpoint's agent"),
        (EvalConfig(), {"agent": 3}, "expected a function, a MainLoop or a prompt as agent"),
        (EvalConfig(endpoint=3), {}, "expected an endpoint, got 3"),
        (EvalConfig(), {"agent": right, "resume": "latest"}, "expected `store` to resume"),
    ],
)
async def test_mistakes_are_refused_before_anything_runs(
    config: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await evaluate(SAMPLES, config, exact_match, **options)


async def test_the_report_of_a_stopped_run_has_the_reason() -> None:
    def agent(number: int) -> str:
        raise ValueError("bad")

    report = await evaluate(SAMPLES, EvalConfig(1, stop_on_error=True), exact_match, agent=agent)

    assert (report.total, report.stopped) == (1, "stopped by the error of sample '0'")
    assert str(report).endswith(" - stopped by the error of sample '0'")


async def test_an_error_in_the_last_sample_does_not_stop_the_run() -> None:
    def agent(number: int) -> str:
        return "ok" if number < len(SAMPLES) - 1 else 1 / 0  # type: ignore[return-value]

    report = await evaluate(SAMPLES, EvalConfig(1, stop_on_error=True), exact_match, agent=agent)

    assert (report.total, report.errors, report.stopped) == (len(SAMPLES), 1, "")


async def test_a_busy_provider_is_retried_and_counts_as_infrastructure() -> None:
    calls: list[int] = []

    async def agent(number: int) -> str:
        calls.append(number)
        raise ProviderError("busy", retryable=True, retry_after=500.0 if number else 0.001)

    report = await evaluate(SAMPLES[:2], EvalConfig(max_retries=1), exact_match, agent=agent)

    assert {result.error_source for result in report.results} == {"infrastructure"}
    assert sorted(calls) == [0, 0, 1]  # 500 s is too long to wait for a retry


# ── endpoints and environments ──────────────────────────────────────────────────────────────────


class CountingEnvironment(CalculatorEnvironment):
    """An environment that counts how often it was closed."""

    opened: list[CountingEnvironment]

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0
        CountingEnvironment.opened.append(self)

    async def close(self) -> None:
        await checkpoint()
        self.closed += 1


def new_environment(sample: Sample[Any, Any]) -> CountingEnvironment:
    return CountingEnvironment()


@pytest.fixture(autouse=True)
def _forget_environments() -> None:
    CountingEnvironment.opened = []


def calculating_model(messages: list[ChatMessage]) -> ChatMessage:
    """Call the calculator once, then answer; raise if the question says "break"."""
    if messages[-1].role == "tool":
        if "break" in messages[0].content:
            raise ConnectionError("the model is gone")
        return ChatMessage("assistant", messages[-1].content)
    call = ToolCall("c1", "calculate", {"expression": "6 * 7"})
    return ChatMessage("assistant", "", tool_calls=(call,))


async def test_each_sample_has_its_own_environment_for_the_model() -> None:
    report = await evaluate(
        [Sample("1", "6 * 7", "42"), Sample("2", "break", "42")],
        EvalConfig(endpoint=calculating_model, max_concurrent=2),
        exact_match,
        lambda sample: [ChatMessage("user", f"Please: {sample.input}")],
        new_environment,
    )

    good, bad = report.results
    assert good.passed
    assert [m.role for m in good.trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert good.trajectory.messages[0].content == "Please: 6 * 7"
    assert (bad.error, bad.error_source) == ("the model is gone", "agent")
    assert [m.role for m in bad.trajectory.messages] == ["user", "assistant", "tool"]
    assert [environment.closed for environment in CountingEnvironment.opened] == [1, 1]


async def test_a_failed_attempt_keeps_its_session(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=calculating_model)
    with open_store(tmp_path / "runs.db") as store:
        await evaluate(
            [Sample("1", "break")], config, exact_match, None, new_environment, store=store
        )
        (row,) = store.rows("latest")

    assert row.session is not None
    (call,) = SessionSnapshot.from_bytes(row.session)[ToolInvoked].all()
    assert (call.name, call.success) == ("calculate", True)
    assert row.result.trajectory is not None
    assert row.result.trajectory.messages[-1].content == "42"


async def test_environments_are_closed_once_after_timeouts_and_cancellation() -> None:
    calls, all_called = 0, anyio.Event()

    async def never(messages: list[ChatMessage]) -> str:
        nonlocal calls
        calls += 1
        if calls == 3:
            all_called.set()
        await anyio.sleep_forever()
        return ""

    for limit in LIMITS:
        CountingEnvironment.opened.clear()
        config = EvalConfig(endpoint=never, max_concurrent=3, timeout_per_sample_ms=limit)
        report = await evaluate(SAMPLES_OF_TEXT[:3], config, exact_match, None, new_environment)
        if len(CountingEnvironment.opened) == 3:
            break
    assert [result.error_source for result in report.results] == ["agent"] * 3
    assert [environment.closed for environment in CountingEnvironment.opened] == [1, 1, 1]

    calls, all_called = 0, anyio.Event()
    without_timeout = EvalConfig(endpoint=never, max_concurrent=3)
    async with anyio.create_task_group() as group:
        group.start_soon(
            evaluate, SAMPLES_OF_TEXT, without_timeout, exact_match, None, new_environment
        )
        await all_called.wait()
        group.cancel_scope.cancel()
    assert [environment.closed for environment in CountingEnvironment.opened] == [1] * 6


async def test_a_result_stands_even_if_its_environment_fails_to_close() -> None:
    class FailsToClose(CalculatorEnvironment):
        async def close(self) -> None:
            raise OSError("device busy")

    config = EvalConfig(endpoint=calculating_model)
    report = await evaluate(
        [Sample("1", "?", "42")], config, exact_match, None, lambda s: FailsToClose()
    )

    (result,) = report.results
    assert result.passed
    assert "device busy" in result.trajectory.metadata["close_error"]


# ── one adapter for agents and judges ───────────────────────────────────────────────────────────


async def test_a_blocking_judge_shares_the_adapter_and_its_limiter() -> None:
    limiter = Limiter(2)
    adapter = ScriptedAdapter(lambda request: "ok", latency=0.01).around(limiter)

    def judge(sample: Sample[Any, Any], output: str, *, context: EvalContext) -> tuple[Score, ...]:
        answer = context.adapter.evaluate(QUESTION.bind(question=output)).output
        return (Score(criterion="judge", value=1.0, passed=answer == "ok"),)

    report = await evaluate(
        SAMPLES,
        EvalConfig(max_concurrent=5),
        judge,
        agent=QUESTION,
        adapter=adapter,
    )

    assert [result.error for result in report.results] == [None] * 10
    assert report.pass_rate == 1.0
    assert (limiter.state.requests, limiter.state.in_flight) == (20, 0)


async def test_a_call_that_waits_for_a_retry_lets_other_samples_run() -> None:
    def busy_once(request: ServedRequest) -> str | Fault:
        if len(server.requests) == 1:
            return Fault("status", 429, retry_after=wait)
        return "ok"

    for wait in (1, 5, 20):  # a slow machine may need more time for three samples
        with ModelServer(busy_once) as server:
            adapter = HTTPAdapter("m", base_url=server.openai_base_url).around(retrying())
            report = await evaluate(
                SAMPLES_OF_TEXT[:4],
                EvalConfig(timeout_per_sample_ms=None),
                exact_match,
                agent=QUESTION,
                adapter=adapter,
            )
            order = [request.body["messages"][0]["content"][-1] for request in server.requests]
        latency = report.results[0].latency_ms
        if order == ["0", "1", "2", "3", "0"] and latency < 900 * wait:
            break

    assert order == ["0", "1", "2", "3", "0"]
    assert report.pass_rate == 1.0
    assert latency < 900 * wait  # waiting is not counted as latency


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_event_loop_in_a_users_thread_never_runs_our_samples() -> None:
    threads: set[int] = set()
    failures = iter([True] * 3)

    def reply(request: Any) -> str:
        if next(failures, False):
            raise ProviderError("busy", retryable=True, retry_after=0.01)
        return "ok"

    adapter = ScriptedAdapter(reply).around(retrying())

    async def agent(number: int) -> str:
        threads.add(threading.get_ident())
        prompt = QUESTION.bind(question=str(number))
        return (await asyncio.to_thread(adapter.evaluate, prompt)).output

    report = await evaluate(SAMPLES, EvalConfig(max_concurrent=2), exact_match, agent=agent)

    assert report.pass_rate == 1.0
    assert threads == {threading.get_ident()}


# ── events ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_publishes_events_on_its_bus() -> None:
    bus, events = InProcessEventBus(), []
    for kind in (EvalRunStarted, SampleEvaluated, EvalRunCompleted):
        bus.subscribe(kind, events.append)
    bus.subscribe(SampleEvaluated, lambda event: 1 / 0)  # errors of subscribers are ignored

    report = await evaluate(
        Dataset(SAMPLES, "numbers"),
        EvalConfig(1, max_samples=3),
        exact_match,
        agent=lambda number: "ok" if number else "no",
        bus=bus,
        run_id="r1",
    )

    assert events[0] == EvalRunStarted("r1", "numbers", 3)
    assert [event.result for event in events[1:-1]] == list(report.results)
    assert events[-1] == EvalRunCompleted("r1", 2 / 3, 2 / 3, 0)


async def test_the_size_of_a_lazy_source_is_unknown() -> None:
    bus, events = InProcessEventBus(), []
    bus.subscribe(EvalRunStarted, events.append)

    await evaluate(iter(SAMPLES), EvalConfig(1), exact_match, agent=right, bus=bus, run_id="r1")

    assert events == [EvalRunStarted("r1", "", None)]


async def test_a_shared_session_is_stored_as_it_was_after_each_attempt(
    tmp_path: Path,
) -> None:
    shared = Session()

    def agent(sample: Sample[int, str]) -> tuple[Trajectory[str], Session]:
        shared.dispatch(ToolInvoked(name=sample.id))
        return Trajectory(output="ok"), shared

    with open_store(tmp_path / "runs.db") as store:
        await evaluate(SAMPLES[:3], EvalConfig(1), exact_match, agent=agent, store=store)
        snapshots = [SessionSnapshot.from_bytes(row.session or b"") for row in store.rows("latest")]

    assert [len(snapshot[ToolInvoked]) for snapshot in snapshots] == [1, 2, 3]
