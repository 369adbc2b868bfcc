"""A cluster gives the same results as one process: a main loop sends its trajectory too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import TIMEOUT, running_loops, until
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
    """An adapter that returns everything a provider can report."""

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


def score_last_message(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    return Score(1.0 if "boxed" in trajectory.messages[-1].content else 0.0)


def run_in_cluster(cluster: Cluster, evaluator: Any, **options: Any) -> EvalResult[Any]:
    main_loop = QALoop(
        adapter=options.pop("adapter", Adapter()), bus=ControlDispatcher(), requests=cluster.main
    )
    submission = cluster.submit(DATASET[:1])
    with running_loops(main_loop, cluster.eval_loop(evaluator)):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)
    return report.results[0]


def test_a_score_function_gets_the_same_messages_as_in_one_process() -> None:
    result = run_in_cluster(Cluster(), score_last_message)

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.messages == MESSAGES


def test_cost_stop_reason_tokens_and_latency_are_sent_too() -> None:
    trajectory = run_in_cluster(Cluster(), exact_match).trajectory

    assert trajectory is not None
    assert (trajectory.cost, trajectory.stop_reason) == (0.25, "length")
    assert (trajectory.latency_ms, trajectory.tokens) == (12, (TRACE,))


def test_trajectories_are_sent_through_a_queue_of_bytes(tmp_path: Any) -> None:
    cluster = Cluster()
    cluster.main = SqliteMailbox("main", tmp_path / "queue.db")  # type: ignore[assignment]
    result = run_in_cluster(cluster, score_last_message)

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.tokens == (TRACE,)


@pytest.mark.anyio
async def test_one_process_gives_the_same_result() -> None:
    main_loop = QALoop(adapter=Adapter(), bus=ControlDispatcher())
    report = await evaluate(
        DATASET[:1], EvalConfig(timeout=TIMEOUT), score_last_message, agent=main_loop
    )

    assert report.results[0].trajectory == run_in_cluster(Cluster(), exact_match).trajectory


@pytest.mark.parametrize("fails", [False, True])
def test_the_latency_does_not_include_the_time_in_the_queue(fails: bool) -> None:
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
        config=EvalLoopConfig(mainloop_timeout=TIMEOUT, clock=clock),
    )
    with running_loops(eval_loop):
        until(lambda: cluster.main.approximate_count() == 1)
        clock.advance(600)  # while the request is in the queue
        with running_loops(cluster.main_loop(answer)):
            report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

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
        message.nack(visibility_timeout=0)  # so that it is answered: the eval loop waits for it
        cluster.main_loop().run(max_iterations=1)


def test_a_reply_goes_to_the_address_in_the_request_if_the_message_has_none(tmp_path: Any) -> None:
    file = tmp_path / "queue.db"
    cluster = Cluster()
    cluster.main = SqliteMailbox("main", file)  # type: ignore[assignment]
    replies: SqliteMailbox[Any] = SqliteMailbox("replies", file)
    cluster.main.send(MainLoopRequest("0+1?", reply_to="replies"))
    cluster.main_loop().run(max_iterations=1)

    assert [message.body.output for message in replies.receive()] == ["1"]


def test_an_answer_without_messages_has_none_in_the_result() -> None:
    """A response of a user's adapter needs only `output`, `text` and `usage`."""

    class MinimalAdapter:
        def evaluate(self, prompt: Any, *, session: Any = None) -> Any:
            class Response:
                output = text = "1"
                usage = None

            return Response()

    result = run_in_cluster(Cluster(), exact_match, adapter=MinimalAdapter())

    assert result.passed
    assert result.trajectory is not None
    assert result.trajectory.messages == ()


def test_a_scripted_adapter_returns_the_conversation() -> None:
    result = run_in_cluster(Cluster(), exact_match, adapter=ScriptedAdapter(adds))

    assert result.trajectory is not None
    assert [message.role for message in result.trajectory.messages][-1] == "assistant"
