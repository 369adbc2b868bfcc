"""Eval loops and main loops in one process: routing, sessions, the cause of an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import TIMEOUT, running_loops, until
from tests.seeds.in_memory_cluster import DATASET, Cluster
from tests.seeds.loops import MathLoop
from weakincentives import ToolCall
from weakincentives.errors import MailboxConnectionError
from weakincentives.evals import (
    EvalConfig,
    all_of,
    collect_results,
    evaluate,
    exact_match,
    open_store,
    submit_dataset,
    tool_called,
)
from weakincentives.evals.distributed import mailbox_agent
from weakincentives.runtime import ControlDispatcher, InMemoryMailbox
from weakincentives.runtime.worker.dead_letters import Backoff, DLQPolicy


def test_two_eval_loops_and_two_main_loops_share_the_work() -> None:
    cluster = Cluster()
    loops = [cluster.eval_loop(), cluster.eval_loop(), cluster.main_loop(), cluster.main_loop()]
    submission = cluster.submit()
    with running_loops(*loops):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 12
    assert [result.sample_id for result in report.results] == [s.id for s in DATASET]


@pytest.mark.anyio
async def test_a_mailbox_agent_answers_evaluate_too() -> None:
    cluster = Cluster()
    with running_loops(cluster.main_loop()):
        report = await evaluate(
            DATASET,
            EvalConfig(max_concurrent=5),
            exact_match,
            agent=mailbox_agent(cluster.main, TIMEOUT),
        )

    assert report.passed == 12


@pytest.mark.parametrize("strategy", ["snapshot in the result", "shared session store"])
def test_session_aware_evaluators_in_a_cluster(
    adapter_replying: Callable[..., Any], tmp_path: Path, strategy: str
) -> None:
    cluster = Cluster()
    call = ToolCall("call_1", "calculator", {"left": 0, "right": 1})
    with open_store(tmp_path / "sessions.db") as store:
        shared = {"session_store": store} if "store" in strategy else {}
        main_loop = MathLoop(adapter=adapter_replying(call, "1"), bus=ControlDispatcher())
        main_loop._requests, main_loop._session_store = cluster.main, shared.get("session_store")
        eval_loop = cluster.eval_loop(all_of(exact_match, tool_called("calculator")), **shared)
        submission = cluster.submit(DATASET[:1])
        with running_loops(main_loop, eval_loop):
            report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 1


# ── error attribution: the four rows of the table ───────────────────────────────────────────────


def test_a_missing_main_loop_is_an_infrastructure_error() -> None:
    cluster = Cluster()
    submission = cluster.submit(DATASET[:1])
    cluster.eval_loop(mainloop_timeout=0.1).run(max_iterations=1)
    (result,) = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT).results

    assert result.error_source == "infrastructure"
    assert "got none in 0.1 s - is one running?" in (result.error or "")


def test_a_request_without_a_main_loop_is_retried_by_the_dead_letter_policy() -> None:
    cluster = Cluster()
    dead_letters: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    policy = DLQPolicy(dead_letters, max_delivery_count=2, backoff=Backoff(0.0, max_delay=0.0))
    submission = cluster.submit(DATASET[:1])
    cluster.eval_loop(mainloop_timeout=0.1, dlq=policy).run(max_iterations=1)
    (result,) = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT).results

    assert (result.error or "").startswith("gave up after 2 deliveries")
    assert dead_letters.approximate_count() == 1


def test_a_failure_of_the_main_loop_is_an_error_of_the_agent() -> None:
    def fails(request: Any) -> str:
        raise ValueError("the model said no")

    cluster = Cluster()
    dead_letters: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    submission = cluster.submit(DATASET[:1])
    with running_loops(cluster.main_loop(fails), cluster.eval_loop(dlq=DLQPolicy(dead_letters))):
        (result,) = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT).results

    assert result.error_source == "agent"
    assert "the model said no" in (result.error or "")
    assert (result.score.value, result.score.passed) == (0.0, False)
    assert dead_letters.approximate_count() == 0


def test_after_a_network_partition_the_sample_is_redelivered() -> None:
    cluster = Cluster()
    partitioned = threading.Event()
    partitioned.set()
    put = cluster.main.queue.put

    def fail_once(messages: Any, max_size: Any) -> None:
        if partitioned.is_set():
            partitioned.clear()
            raise MailboxConnectionError("no route")
        put(messages, max_size)

    cluster.main.queue.put = fail_once  # type: ignore[method-assign]
    submission = cluster.submit(DATASET[:1])
    eval_loop = cluster.eval_loop()
    with running_loops(cluster.main_loop(), eval_loop):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 1
    assert eval_loop.metrics()["retried_total"] == 1
    assert report.results[0].attempt == 2


def test_late_and_second_replies_are_dropped() -> None:
    """An eval loop times out and sends its request again; then both replies arrive."""
    cluster = Cluster()
    submission = cluster.submit(DATASET[:1])
    cluster.eval_loop(mainloop_timeout=0.1).run(max_iterations=1)  # no main loop is running yet
    submit_dataset(DATASET[:1], cluster.requests, reply_to=cluster.results, run_id="again")
    eval_loop = cluster.eval_loop()
    main_loop = cluster.main_loop()
    with running_loops(main_loop, eval_loop):
        first = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)
        until(lambda: main_loop.metrics().get("acknowledged_total", 0) == 2)
        until(lambda: cluster.results.approximate_count() == 1)
    messages = cluster.results.receive(max_messages=5, wait_time_seconds=TIMEOUT)

    assert first.results[0].error_source == "infrastructure"  # the first result of a sample is kept
    assert [message.body.passed for message in messages] == [True]
