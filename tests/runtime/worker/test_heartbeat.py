"""A worker's heartbeat shows progress: a tool or an agent that hangs does not beat."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.processes import TIMEOUT, running_loops, until
from tests.seeds.loops import QALoop, QAParams
from weakincentives import MarkdownSection, PromptTemplate, Tool, ToolCall, ToolContext
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalLoop,
    EvalLoopConfig,
    Sample,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime import (
    ControlDispatcher,
    Heartbeat,
    InMemoryMailbox,
    MainLoopConfig,
    MainLoopRequest,
    Watchdog,
)
from weakincentives.runtime.worker import in_flight
from weakincentives.runtime.worker.heartbeat import beat


@dataclass(frozen=True)
class NoParams:
    pass


class CountingHeartbeat(Heartbeat):
    """Counts its beats."""

    def __init__(self) -> None:
        super().__init__()
        self.beats = 0
        self.add_callback(self.count)

    __slots__ = ("beats",)

    def count(self) -> None:
        self.beats += 1


class ToolLoop(QALoop):
    """A loop with one tool, whose handler is given by the test."""

    def __init__(self, handler: Any, **more: Any) -> None:
        call = ToolCall("call_1", "work", {})
        super().__init__(adapter=ScriptedAdapter([call, "4"]), bus=ControlDispatcher(), **more)
        tool = Tool[NoParams, str]("work", "Works.", handler)
        section = MarkdownSection[QAParams]("Question", "Answer: $question", "q", tools=[tool])
        self._template = PromptTemplate[str](ns="qa", key="a", name="qa", sections=[section])


def test_every_model_call_and_tool_call_beats_the_heartbeat_given_to_execute() -> None:
    heartbeat = CountingHeartbeat()
    beats: list[int] = []

    def work(params: NoParams, *, context: ToolContext) -> str:
        beats.append(heartbeat.beats)
        context.beat()
        return "done"

    response, _ = ToolLoop(work).execute("2+2?", heartbeat=heartbeat)

    assert response.output == "4"
    assert beats == [2]  # before and after the first call of the model
    assert heartbeat.beats == 2 + 1 + 1 + 2  # the tool by itself, its end, the second call


@pytest.mark.anyio
async def test_the_async_form_beats_too() -> None:
    heartbeat = CountingHeartbeat()
    await ToolLoop(lambda params: "done").execute_async("2+2?", heartbeat=heartbeat)

    assert heartbeat.beats == 5


def test_outside_of_a_worker_nothing_beats() -> None:
    beat()
    ToolContext().beat()


def test_an_eval_loops_heartbeat_beats_by_the_tools_of_its_main_loop() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    passed: list[Any] = []

    def work(params: NoParams, *, context: ToolContext) -> str:
        passed.append(context.heartbeat)
        return "done"

    loop: EvalLoop[Any, Any, Any] = EvalLoop(ToolLoop(work), exact_match, requests, results)
    submit_dataset([Sample("1", "2+2?", "4")], requests)
    loop.run(max_iterations=1)

    assert passed == [loop.heartbeat]


@pytest.mark.parametrize("kind", ["agent", "tool"])
def test_a_watchdog_sees_synchronous_code_that_hangs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "HEARTBEAT_SECONDS", 0.01)
    hanging, hung, stalled = threading.Event(), threading.Event(), threading.Event()

    def hangs(request: Any) -> str:
        hung.set()
        assert hanging.wait(TIMEOUT)
        return "4"

    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    agent = hangs if kind == "agent" else ToolLoop(hangs)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests, results)
    submit_dataset([Sample("1", "2+2?", "4")], requests)
    with running_loops(loop):
        assert hung.wait(TIMEOUT)
        watchdog = Watchdog(
            [loop.heartbeat],
            stall_threshold=0.3,
            check_interval=0.05,
            on_stall=lambda names: stalled.set(),
        )
        with watchdog:
            assert stalled.wait(TIMEOUT)
        hanging.set()
        assert collect_results(results, 1, timeout_seconds=TIMEOUT).passed == 1
        age = loop.heartbeat.elapsed()
        until(lambda: loop.heartbeat.elapsed() <= age)  # idle again, it beats by itself


def test_a_main_loop_that_hangs_answers_after_its_timeout_and_holds_no_lease() -> None:
    hanging = threading.Event()

    def hangs(request: Any) -> str:
        assert hanging.wait(TIMEOUT)
        return "4"

    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    replies: InMemoryMailbox[Any] = InMemoryMailbox("replies")

    class Blocking:
        def evaluate(self, prompt: Any, *, session: Any = None) -> Any:
            return hangs(prompt)

    loop = QALoop(
        adapter=Blocking(),
        bus=ControlDispatcher(),
        requests=requests,
        config=MainLoopConfig(timeout=0.1),
    )
    requests.send(MainLoopRequest("2+2?"), reply_to=replies)
    loop.run(max_iterations=1)
    hanging.set()
    (message,) = replies.receive()

    assert message.body.error == "timed out after 0.1 s - raise MainLoopConfig.timeout"
    assert requests.approximate_count() == 0


def test_an_eval_loops_agent_that_hangs_is_an_error_after_its_timeout() -> None:
    hanging = threading.Event()
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        lambda text: hanging.wait(TIMEOUT),
        exact_match,
        requests,
        results,
        config=EvalLoopConfig(timeout=0.1),
    )
    submit_dataset([Sample("1", "2+2?", "4")], requests)
    loop.run(max_iterations=1)
    hanging.set()

    assert "timed out after 0.1 s" in str(results.receive()[0].body.error)
    assert requests.approximate_count() == 0


@pytest.mark.parametrize("timeout", [0, -1.0, "long"])
def test_a_timeout_of_a_main_loop_is_a_number_above_zero(timeout: Any) -> None:
    with pytest.raises(UsageError, match=r"`MainLoopConfig\.timeout`"):
        MainLoopConfig(timeout=timeout)


def test_waiting_for_a_main_loop_elsewhere_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    from weakincentives.evals.distributed import mailbox_agents

    monkeypatch.setattr(mailbox_agents, "POLL_SECONDS", 0.01)
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    main: InMemoryMailbox[Any] = InMemoryMailbox("main")
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        evaluator=exact_match,
        requests=requests,
        results=results,
        mainloop_requests=main,
        config=EvalLoopConfig(mainloop_timeout=TIMEOUT),
    )
    submit_dataset([Sample("1", "2+2?", "4")], requests)
    with running_loops(loop):
        until(lambda: main.approximate_count() == 1)
        beaten = threading.Semaphore(0)
        loop.heartbeat.add_callback(beaten.release)
        assert all(beaten.acquire(timeout=TIMEOUT) for _ in range(3))
        anyio.run(_answer, main)
        assert collect_results(results, 1, timeout_seconds=TIMEOUT).passed == 1


async def _answer(main: InMemoryMailbox[Any]) -> None:
    loop = QALoop(adapter=ScriptedAdapter(["4"]), bus=ControlDispatcher(), requests=main)
    await loop.run_async(max_iterations=1)
