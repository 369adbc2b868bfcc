"""A cluster gives what one process gives: the trajectory travels with the result of a main loop."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import PATIENCE, running_loops, until
from tests.seeds.in_memory_cluster import DATASET, Cluster, adds
from tests.seeds.loops import QALoop
from weakincentives import TokenUsage, serde
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, TokenTrace
from weakincentives.evals import (
    EvalConfig,
    EvalLoop,
    EvalLoopConfig,
    EvalResult,
    Sample,
    Score,
    Trajectory,
    collect_results,
    evaluate,
    exact_match,
)
from weakincentives.runtime import (
    ControlDispatcher,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
)
from weakincentives.runtime.mailbox import SqliteMailbox
from weakincentives.runtime.mailbox.core.envelope import pack, unpack
from weakincentives.testing import FakeClock

MESSAGES = (ChatMessage("user", "0+1?"), ChatMessage("assistant", "It is \\boxed{1}."))
TRACE = TokenTrace(prompt_ids=(1, 2), ids=(3,), logprobs=(-0.5,))


class Adapter:
    """Answers as a provider does that reports everything."""

    def evaluate(self, prompt: Any, *, session: Any = None) -> PromptResponse[str]:
        return PromptResponse(
            "qa",
            "1",
            "1",
            TokenUsage(10, 5),
            MESSAGES,
            "length",
            latency_ms=12.4,
            cost=0.25,
            tokens=(TRACE,),
        )


def reads_the_last_message(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    return Score(1.0 if "boxed" in trajectory.messages[-1].content else 0.0)


def in_cluster(cluster: Cluster, evaluator: Any, **how: Any) -> EvalResult[Any]:
    main_loop = QALoop(
        adapter=how.pop("adapter", Adapter()), bus=ControlDispatcher(), requests=cluster.main
    )
    submission = cluster.submit(DATASET[:1])
    with running_loops(main_loop, cluster.eval_loop(evaluator)):
        report = collect_results(cluster.results, submission, timeout_seconds=PATIENCE)
    return report.results[0]


def test_a_score_function_sees_the_same_messages_as_in_one_process() -> None:
    result = in_cluster(Cluster(), reads_the_last_message)

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.messages == MESSAGES


def test_cost_stop_reason_tokens_and_latency_travel_too() -> None:
    trajectory = in_cluster(Cluster(), exact_match).trajectory

    assert trajectory is not None
    assert (trajectory.cost, trajectory.stop_reason) == (0.25, "length")
    assert (trajectory.latency_ms, trajectory.tokens) == (12, (TRACE,))


def test_they_travel_through_a_queue_of_bytes(tmp_path: Any) -> None:
    cluster = Cluster()
    cluster.main = SqliteMailbox("main", tmp_path / "queue.db")  # type: ignore[assignment]
    result = in_cluster(cluster, reads_the_last_message)

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.tokens == (TRACE,)


@pytest.mark.anyio
async def test_the_same_result_comes_from_one_process() -> None:
    main_loop = QALoop(adapter=Adapter(), bus=ControlDispatcher())
    report = await evaluate(
        DATASET[:1], EvalConfig(timeout=PATIENCE), reads_the_last_message, agent=main_loop
    )

    assert report.results[0].trajectory == in_cluster(Cluster(), exact_match).trajectory


@pytest.mark.parametrize("fails", [False, True])
def test_the_latency_is_the_main_loops_time_and_not_that_of_its_queue(fails: bool) -> None:
    def answer(request: Any) -> str:
        if fails:
            raise ValueError("no")
        return adds(request)

    cluster, clock = Cluster(), FakeClock()
    submission = cluster.submit(DATASET[:1])
    eval_loop: EvalLoop[Any, Any, Any] = EvalLoop(
        evaluator=exact_match,
        requests=cluster.requests,
        mainloop_requests=cluster.main,
        config=EvalLoopConfig(mainloop_timeout=PATIENCE, clock=clock),
    )
    with running_loops(eval_loop):
        until(lambda: cluster.main.approximate_count() == 1)
        clock.advance(600)  # while the request is in the queue
        with running_loops(cluster.main_loop(answer)):
            report = collect_results(cluster.results, submission, timeout_seconds=PATIENCE)

    assert report.results[0].success is not fails
    assert report.results[0].latency_ms < 600_000


def test_a_result_of_an_earlier_version_can_be_read() -> None:
    old = pack(MainLoopResult(MainLoopRequest("1").request_id, "1", usage=TokenUsage(1, 1)))
    new = ("messages", "stop_reason", "latency_ms", "cost", "tokens", "error_source")
    _head, content = old.split(b"\n")
    data = {name: value for name, value in serde.decode(content).items() if name not in new}
    result: MainLoopResult[Any] = serde.decode(serde.encode(data), MainLoopResult)

    assert unpack(old, MainLoopResult)[0].output == result.output == "1"
    assert (result.messages, result.latency_ms, result.tokens) == ((), None, ())


def test_a_request_names_its_reply_mailbox() -> None:
    cluster = Cluster()
    cluster.submit(DATASET[:1])
    with running_loops(cluster.eval_loop()):
        until(lambda: cluster.main.approximate_count() == 1)
        (message,) = cluster.main.receive()

        assert message.body.reply_to == message.reply_address
        assert message.body.reply_to.startswith("mainloop-requests-replies-")
        message.nack(visibility_timeout=0)  # answered, since the loop waits for what it asked
        cluster.main_loop().run(max_iterations=1)


def test_a_reply_goes_to_the_address_in_the_request_if_the_message_has_none(tmp_path: Any) -> None:
    file = tmp_path / "queue.db"
    cluster = Cluster()
    cluster.main = SqliteMailbox("main", file)  # type: ignore[assignment]
    replies: SqliteMailbox[Any] = SqliteMailbox("replies", file)
    cluster.main.send(MainLoopRequest("0+1?", reply_to="replies"))
    cluster.main_loop().run(max_iterations=1)

    assert [message.body.output for message in replies.receive()] == ["1"]


def test_an_answer_without_messages_gives_none() -> None:
    """A user's adapter needs `output`, `text` and `usage` alone."""

    class Bare:
        def evaluate(self, prompt: Any, *, session: Any = None) -> Any:
            class Response:
                output = text = "1"
                usage = None

            return Response()

    result = in_cluster(Cluster(), exact_match, adapter=Bare())

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.messages == ()


def test_a_scripted_adapter_gives_the_conversation() -> None:
    result = in_cluster(Cluster(), exact_match, adapter=ScriptedAdapter(adds))

    assert result.trajectory is not None
    assert [message.role for message in result.trajectory.messages][-1] == "assistant"
