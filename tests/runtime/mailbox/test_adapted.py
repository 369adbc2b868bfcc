"""A user's own mailbox class, with only the methods that the specifications use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.processes import TIMEOUT, running_loops, until
from tests.seeds.loops import QALoop
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import MailboxConnectionError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    Sample,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime import (
    Backoff,
    ControlDispatcher,
    DLQPolicy,
    InMemoryMailbox,
    MainLoopRequest,
)
from weakincentives.runtime.mailbox.backends.adapted import receiving_mailbox, sending_mailbox
from weakincentives.runtime.worker.dead_letters import dead_letters_of

DATASET = Dataset([Sample(str(n), n, n + 1) for n in range(12)], name="sums")
AT_ONCE = Backoff(base=0.0, max_delay=0.0)


class OwnMessage:
    def __init__(self, box: OwnMailbox, body: Any, count: int) -> None:
        self.box, self.body, self.delivery_count = box, body, count

    def acknowledge(self) -> None:
        self.box.acknowledged += 1

    def nack(self, *, visibility_timeout: float = 0) -> None:
        self.box.queue.append((self.body, self.delivery_count + 1))


class OwnMailbox:
    """Has `send` and `receive`, and messages with `acknowledge` and `nack`."""

    def __init__(self, fails: Callable[[str], None] = lambda name: None) -> None:
        self.queue: deque[tuple[Any, int]] = deque()
        self.acknowledged = 0
        self.fails = fails

    def send(self, body: Any) -> None:
        self.fails("send")
        self.queue.append((body, 1))

    def receive(
        self, *, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[OwnMessage]:
        self.fails("receive")
        try:
            body, count = self.queue.popleft()
        except IndexError:
            return []
        return [OwnMessage(self, body, count)]


def adds_one(number: int) -> int:
    return number + 1


def evaluate_over(requests: Any, results: Any, agent: Any = adds_one, **more: Any) -> Any:
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        agent, exact_match, requests, results, config=EvalLoopConfig(backoff=AT_ONCE), **more
    )
    submission = submit_dataset(DATASET, requests)
    with running_loops(loop):
        return collect_results(results, submission, timeout_seconds=TIMEOUT)


def test_a_dataset_is_evaluated_over_a_users_mailbox() -> None:
    requests, results = OwnMailbox(), OwnMailbox()
    report = evaluate_over(requests, results)

    assert report.passed == len(DATASET)
    assert requests.acknowledged == results.acknowledged == len(DATASET)


def test_one_iteration_terminates() -> None:
    requests, results = OwnMailbox(), OwnMailbox()
    submit_dataset(DATASET, requests)  # type: ignore[arg-type]
    EvalLoop(adds_one, exact_match, requests, results).run(max_iterations=1)  # type: ignore[arg-type]

    assert len(results.queue) == len(DATASET)


def test_an_error_of_a_users_mailbox_is_retried() -> None:
    failures = {"send": 2, "receive": 2}

    def fails(name: str) -> None:
        if submitted.is_set() and failures[name]:
            failures[name] -= 1
            raise OSError("no route")

    submitted = threading.Event()
    requests, results = OwnMailbox(fails), OwnMailbox(fails)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        adds_one,
        exact_match,
        requests,  # type: ignore[arg-type]
        results,  # type: ignore[arg-type]
        config=EvalLoopConfig(backoff=AT_ONCE),
    )
    submission = submit_dataset(DATASET, requests)  # type: ignore[arg-type]
    submitted.set()
    with running_loops(loop):
        report = collect_results(results, submission, timeout_seconds=TIMEOUT)  # type: ignore[arg-type]

    assert report.passed == len(DATASET)
    assert failures == {"send": 0, "receive": 0}


def test_a_failed_sample_is_returned_and_then_dead_lettered() -> None:
    def fails(number: int) -> int:
        raise ValueError("no")

    requests, results = OwnMailbox(), OwnMailbox()
    dead: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    policy = DLQPolicy(dead, max_delivery_count=2, backoff=AT_ONCE)
    report = evaluate_over(requests, results, fails, dlq=policy)

    assert report.errors == len(DATASET)
    assert len(dead_letters_of(dead)) == len(DATASET)


def test_the_mailbox_itself_may_acknowledge() -> None:
    class PlainMessage:
        def __init__(self, body: Any) -> None:
            self.body = body

    class Own(OwnMailbox):
        def receive(self, **how: Any) -> list[Any]:
            return [PlainMessage(self.queue.popleft()[0])] if self.queue else []

        def acknowledge(self, message: Any) -> None:
            self.acknowledged += 1

        def nack(self, message: Any, visibility_timeout: float = 0) -> None:
            self.queue.append((message.body, 1))

    requests, results = Own(), Own()

    assert evaluate_over(requests, results).passed == len(DATASET)
    assert requests.acknowledged == len(DATASET)


def test_a_users_mailbox_can_be_a_reply_address() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    replies = OwnMailbox()
    submit_dataset(DATASET, requests, reply_to=replies)  # type: ignore[arg-type]
    EvalLoop(adds_one, exact_match, requests).run(max_iterations=1)

    assert {body.sample_id for body, _ in replies.queue} == {sample.id for sample in DATASET}


def test_a_main_loop_works_with_a_users_mailbox() -> None:
    class Own(OwnMailbox):
        def send(self, body: Any, *, reply_to: Any = None) -> None:
            self.queue.append(((body, reply_to), 1))

        def receive(self, **how: Any) -> list[Any]:
            if not self.queue:
                return []
            (body, reply_to), count = self.queue.popleft()
            message = OwnMessage(self, body, count)
            message.reply_to = reply_to  # type: ignore[attr-defined]
            return [message]

    requests, replies = Own(), OwnMailbox()
    requests.send(MainLoopRequest("2+2?"), reply_to=replies)
    loop = QALoop(adapter=ScriptedAdapter(["4"]), bus=ControlDispatcher(), requests=requests)
    with running_loops(loop):
        until(lambda: replies.queue)

    assert replies.queue[0][0].output == "4"


@pytest.mark.parametrize("role", ["requests", "results", "mainloop_requests"])
def test_missing_methods_are_refused_at_construction(role: str) -> None:
    class WithoutMethods:
        pass

    boxes: dict[str, Any] = {
        "requests": OwnMailbox(),
        "results": OwnMailbox(),
        role: WithoutMethods(),
    }
    if role != "mainloop_requests":
        boxes["loop"] = adds_one
    needed = "receive" if role == "requests" else "send"
    with pytest.raises(UsageError, match=f"mailbox for `{role}`, got .* without `{needed}`"):
        EvalLoop(evaluator=exact_match, **boxes)


def test_main_loop_requests_need_a_reply_mailbox() -> None:
    with pytest.raises(UsageError, match=r"`mainloop_requests`, got .* without `sibling`"):
        EvalLoop(evaluator=exact_match, requests=OwnMailbox(), mainloop_requests=OwnMailbox())  # type: ignore[arg-type]


def test_async_methods_are_refused() -> None:
    class Async:
        async def send(self, body: Any) -> None: ...

    with pytest.raises(UsageError, match=r"got the async `.*Async\.send`"):
        sending_mailbox(Async(), "results")


def test_a_reply_address_that_it_cannot_send_is_refused() -> None:
    with pytest.raises(UsageError, match="whose `send` takes `reply_to`"):
        submit_dataset(DATASET, OwnMailbox(), reply_to="results")  # type: ignore[arg-type]


def test_our_own_mailboxes_are_used_as_they_are() -> None:
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("own")

    assert sending_mailbox(mailbox, "results") is receiving_mailbox(mailbox, "results") is mailbox


def test_an_error_names_the_mailbox() -> None:
    def fails(name: str) -> None:
        raise OSError("no route")

    with pytest.raises(MailboxConnectionError, match="'OwnMailbox' to work, got OSError: no route"):
        sending_mailbox(OwnMailbox(fails), "results").send(1)
