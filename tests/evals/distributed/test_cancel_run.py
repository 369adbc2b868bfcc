"""`cancel_run`: workers stop, collectors end, and no other run in the mailbox notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes import until
from tests.runtime.mailbox.sqs_server import running
from tests.seeds.in_memory_cluster import Cluster
from weakincentives.errors import MailboxConnectionError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    Sample,
    cancel_run,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import InMemoryMailbox, SQSMailbox, lane_headers
from weakincentives.runtime.worker import DLQPolicy

HANGS = Dataset([Sample(f"h{n}", "hangs", "yes") for n in range(4)])
QUICK = Dataset([Sample(f"q{n}", "quick", "yes") for n in range(3)])


class Agent:
    """An agent whose hanging samples end only when they are cancelled."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, sample: Sample[str, str]) -> str:
        import anyio

        self.began.append(sample.id)
        try:
            await anyio.sleep(1000 if sample.input == "hangs" else 0)
        except BaseException:
            self.cancelled.append(sample.id)
            raise
        return "yes"


@contextmanager
def worker(agent: Any, requests: Any, results: Any, **options: Any) -> Iterator[EvalLoop]:
    """Run a loop in a thread while the block runs."""
    config = EvalLoopConfig(max_concurrent=2)
    loop: Any = EvalLoop(agent, exact_match, requests, results, config=config, **options)
    with at_work(loop):
        yield loop


@contextmanager
def at_work(loop: Any) -> Iterator[None]:
    """Run a loop in a thread while the block runs."""
    thread = threading.Thread(target=loop.run, kwargs={"wait_time_seconds": 0.2})
    thread.start()
    try:
        yield
    finally:
        loop.shutdown(timeout=5)
        thread.join(30)


@pytest.fixture
def boxes() -> tuple[InMemoryMailbox[Any], InMemoryMailbox[Any]]:
    return InMemoryMailbox(name="requests"), InMemoryMailbox(name="results")


def test_a_cancelled_run_ends_and_the_next_one_gets_its_slots(boxes: Any) -> None:
    requests, results = boxes
    agent = Agent()
    hanging = submit_dataset(HANGS, requests)
    with worker(agent, requests, results) as loop:
        until(lambda: len(agent.began) == 2)
        assert cancel_run(hanging, requests) == 4
        quick = submit_dataset(QUICK, requests)
        report = collect_results(results, quick, 30, requests=requests)
        until(lambda: loop.metrics()["in_flight"] == 0)

    assert str(report).startswith("3/3 passed")
    assert sorted(agent.began[:2]) == sorted(agent.cancelled)
    assert loop.metrics()["cancelled_total"] == 2
    assert requests.approximate_count() == loop.dead_letters.approximate_count() == 0
    assert results.receive() == []


def test_main_loops_end_their_part_of_a_run_that_is_cancelled_in_their_mailbox_too() -> None:
    cluster, began, ended = Cluster(), list[str](), list[str]()

    async def hang(request: Any) -> str:
        import anyio

        began.append("")
        try:
            await anyio.sleep(1000)
        finally:
            ended.append("")
        return "no"

    with at_work(cluster.main_loop(hang)), at_work(cluster.eval_loop()):
        run = cluster.submit()
        until(lambda: began)
        cancel_run(run, cluster.requests)
        cancel_run(run, cluster.main)
        until(lambda: ended)

    assert len(ended) == len(began) < len(run)
    assert cluster.main.approximate_count() == cluster.requests.approximate_count() == 0


def test_a_collector_of_a_cancelled_run_says_so_and_keeps_what_is_finished(boxes: Any) -> None:
    requests, results = boxes
    mixed = submit_dataset(Dataset([*QUICK, *HANGS]), requests, run_id="mixed")
    with worker(agent := Agent(), requests, results):
        until(lambda: len(agent.began) == 5)
        cancel_run("mixed", requests)
        began = time.monotonic()
        report = collect_results(results, mixed, 300, requests=requests, resubmit_after=0.1)

    assert time.monotonic() - began < 60
    assert len(report.results) == 3
    assert report.stopped == "4 of 7 missing after the run was cancelled: h0, h1, h2, h3"
    with pytest.raises(UsageError, match="'mixed', which was cancelled"):
        submit_dataset(QUICK, requests, run_id="mixed")


def test_a_sample_that_fails_while_its_run_is_cancelled_is_no_dead_letter(boxes: Any) -> None:
    requests, results = boxes
    dead = InMemoryMailbox[Any](name="dead")

    async def agent(sample: Sample[str, str]) -> str:
        requests.cancel("doomed")
        raise ValueError("boom")

    submit_dataset(QUICK[:1], requests, run_id="doomed")
    with worker(agent, requests, results, dlq=DLQPolicy(dead, max_delivery_count=1)) as loop:
        until(lambda: loop.metrics().get("cancelled_total") == 1)

    assert dead.approximate_count() == results.approximate_count() == 0


def test_a_request_that_names_no_group_is_cancelled_by_its_run(boxes: Any) -> None:
    """As a sender of the release before writes it, or `wink dlq replay`."""
    requests, results = boxes
    submission = submit_dataset(QUICK, InMemoryMailbox(name="elsewhere"), run_id="old")
    requests.cancel("old")
    requests.send_all(submission.requests())
    other = submit_dataset(QUICK, requests)

    with worker(agent := Agent(), requests, results):
        report = collect_results(results, other, 30, requests=requests)

    assert len(report.results) == 3 == len(agent.began)
    assert requests.approximate_count() == 0


def test_higher_priorities_come_first(boxes: Any) -> None:
    requests, _ = boxes
    for name, priority in (("low", -1), ("normal", 0), ("high", 5)):
        submit_dataset(QUICK, requests, run_id=name, priority=priority)

    received = [message.body.run_id for message in requests.receive(max_messages=9)]

    assert received == ["high"] * 3 + ["normal"] * 3 + ["low"] * 3


class Own:
    """A user's own mailbox, which knows neither groups nor priorities."""

    def __init__(self) -> None:
        self.box: InMemoryMailbox[Any] = InMemoryMailbox(name="own")

    def send(self, body: Any) -> None:
        self.box.send(body)

    def receive(self) -> Any:
        return self.box.receive(max_messages=2)


class OwnThatKnows(Own):
    """One that can say what is cancelled, and no more."""

    gone: frozenset[str] = frozenset()

    def cancel(self, group: str) -> None:
        self.gone |= {group}

    def cancelled(self, groups: Any) -> Any:
        return self.gone & {*groups}


def test_a_users_own_mailbox_is_cancelled_where_it_can_say_so(boxes: Any) -> None:
    requests, results = OwnThatKnows(), boxes[1]
    gone = submit_dataset(QUICK, requests)  # type: ignore[arg-type]
    assert cancel_run(gone, requests) == 0  # type: ignore[arg-type]
    kept = submit_dataset(QUICK, requests)  # type: ignore[arg-type]

    with worker(agent := Agent(), requests, results):
        report = collect_results(results, kept, 30)

    assert len(report.results) == 3 == len(agent.began)


def test_nothing_begins_while_it_is_unknown_whether_its_run_is_cancelled(boxes: Any) -> None:
    requests, results, agent = OwnThatKnows(), boxes[1], Agent()
    begun_when_asked: list[int] = []

    def cancelled(groups: Any) -> Any:
        begun_when_asked.append(len(agent.began))
        if len(begun_when_asked) <= 2:
            raise MailboxConnectionError("no answer")
        return set()

    submission = submit_dataset(QUICK, requests)  # type: ignore[arg-type]
    requests.cancelled = cancelled  # type: ignore[method-assign]

    with worker(agent, requests, results):
        report = collect_results(results, submission, 30)

    assert (len(report.results), begun_when_asked[:3]) == (3, [0, 0, 0])


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda box: cancel_run("run", box), "without `cancel`"),
        (lambda box: submit_dataset(QUICK, box, priority=1), "priorities"),
    ],
)
def test_what_a_users_own_mailbox_cannot_do_is_refused(
    call: Callable[[Any], object], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        call(Own())


def test_workers_on_sqs_remove_what_is_cancelled() -> None:
    server = running()
    server.reset()
    requests: SQSMailbox[Any] = SQSMailbox("requests", server.client)
    results: SQSMailbox[Any] = SQSMailbox("results", server.client)
    hanging = submit_dataset(HANGS, requests)
    with worker(agent := Agent(), requests, results) as loop:
        until(lambda: len(agent.began) == 2)
        assert cancel_run(hanging, SQSMailbox("requests", server.client)) == 0
        quick = submit_dataset(QUICK, requests)
        report = collect_results(results, quick, 60, requests=requests)
        until(lambda: requests.approximate_count() == 0)
        metrics = loop.metrics()

    assert str(report).startswith("3/3 passed")
    assert sorted(agent.cancelled) == sorted(id for id in agent.began if id.startswith("h"))
    assert len(agent.began) <= 3 + 4
    assert metrics["cancelled_total"] == 4


def test_sqs_remembers_the_last_cancelled_groups_in_its_tags() -> None:
    server = running()
    server.reset()
    requests: SQSMailbox[Any] = SQSMailbox("requests", server.client)
    server.client.tag_queue(QueueUrl=requests.queue.find(), Tags={"team": "evals"})

    for number in range(45):
        requests.cancel(f"run-{number}")

    known = requests.cancelled([f"run-{number}" for number in range(45)])
    assert len(known) == 40
    assert "run-44" in known
    tags = server.client.list_queue_tags(QueueUrl=requests.queue.find())["Tags"]
    assert tags["team"] == "evals"


def test_each_run_is_a_message_group_of_sqs() -> None:
    server = running()
    server.reset()
    requests: SQSMailbox[Any] = SQSMailbox("requests", server.client)
    requests.send("hello", headers=lane_headers("run"))

    (received,) = server.client.receive_message(
        QueueUrl=requests.queue.find(), MessageSystemAttributeNames=["MessageGroupId"]
    )["Messages"]

    assert len(received["Attributes"]["MessageGroupId"]) == 40
