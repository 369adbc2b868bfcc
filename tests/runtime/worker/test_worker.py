"""A worker whose mailboxes and stores are full, unavailable or gone; and how it stops."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import anyio
import pytest
import trio.testing

from tests.runtime.mailbox import sqs_server
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.errors import (
    MailboxConnectionError,
    MailboxError,
    ProviderError,
    StoreError,
    UsageError,
)
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    Sample,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import InMemoryMailbox, MemoryQueue, Message, SQSMailbox
from weakincentives.runtime.worker.dead_letters import Backoff, DLQPolicy, dead_letters_of
from weakincentives.runtime.worker.worker import Worker, WorkerConfig
from weakincentives.testing import FakeMailbox

THREE = Dataset([Sample(str(number), number, number + 1) for number in range(3)])


def run_on_virtual_time(main: Callable[[], Awaitable[None]]) -> None:
    """Run it on a clock that jumps to the next timer when all tasks wait."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(main, backend="trio", backend_options={"clock": clock})


def worker_for(requests: Any, handle: Any) -> Worker[str]:
    async def give_up(message: Message[str], error: BaseException) -> None:
        raise AssertionError(error)

    return Worker(requests, handle, give_up, config=WorkerConfig())


class VirtualClock:
    """The event loop's time, for leases and delays."""

    def monotonic(self) -> float:
        return anyio.current_time()

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now()


async def failing_agent(number: int) -> int:
    raise ValueError("never")


class AddingAgent:
    """An agent that adds one, and records its inputs."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def __call__(self, number: int) -> int:
        self.numbers.append(number)
        return number + 1


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_without_wait_time_works_and_yields_to_others() -> None:
    requests: InMemoryMailbox[str] = InMemoryMailbox("requests")
    requests.send_all(["one", "two"])
    done: list[str] = []

    async def handle(message: Message[str]) -> None:
        await worker.acknowledge(message)
        done.append(message.body)
        if len(done) == 3:
            worker.stop()

    worker = worker_for(requests, handle)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: worker.run(wait_time_seconds=0))
            await anyio.sleep(60)
            requests.send("late")

    run_on_virtual_time(main)

    assert sorted(done[:2]) == ["one", "two"]
    assert done[2:] == ["late"]


@pytest.mark.parametrize("wait", [-1, math.nan])
def test_an_invalid_wait_is_refused(wait: float) -> None:
    worker = worker_for(InMemoryMailbox(), None)

    with pytest.raises(UsageError, match="`wait_time_seconds` >= 0, got"):
        anyio.run(lambda: worker.run(wait_time_seconds=wait))

    assert not worker.running


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def test_results_wait_for_a_full_mailbox_and_no_sample_runs_twice() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results", max_size=1)
    submit_dataset(THREE, requests)
    agent, results_received = AddingAgent(), []
    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests, results)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: loop.run_async(max_iterations=1))
            for _ in THREE:
                await anyio.sleep(60)
                (message,) = results.receive()
                results_received.append((message.body.sample_id, message.body.error))
                message.acknowledge()

    run_on_virtual_time(main)

    assert sorted(agent.numbers) == [0, 1, 2]
    assert sorted(results_received) == [("0", None), ("1", None), ("2", None)]
    assert requests.approximate_count() == loop.dead_letters.approximate_count() == 0


def test_a_message_is_released_if_the_result_mailbox_stays_full() -> None:
    """Otherwise it would keep a slot from messages whose results can be sent."""
    requests: InMemoryMailbox[str] = InMemoryMailbox("requests", clock=VirtualClock())
    full: InMemoryMailbox[str] = InMemoryMailbox("full", max_size=1)
    full.send("there")
    requests.send("one")
    deliveries: list[tuple[int, float]] = []

    async def handle(message: Message[str]) -> None:
        deliveries.append((message.delivery_count, anyio.current_time()))
        if message.delivery_count == 2:
            worker.stop()
            await worker.acknowledge(message)
        else:
            await worker.send(full, "never")

    worker = worker_for(requests, handle)
    run_on_virtual_time(lambda: worker.run())

    (_, first), (_, second) = deliveries
    assert 200 < second - first < 400


def test_a_worker_that_cannot_send_returns_after_its_retry_timeout() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests", clock=VirtualClock())
    results: FakeMailbox[Any] = FakeMailbox("results")
    results.set_connection_error(MailboxConnectionError("unavailable"))
    submit_dataset(THREE, requests)
    ended: list[float] = []
    config = EvalLoopConfig(retry_timeout=5.0, backoff=Backoff(jitter=0.0, base=60.0))
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        AddingAgent(), exact_match, requests, results, config=config
    )

    async def main() -> None:
        await loop.run_async(max_iterations=1)
        ended.append(anyio.current_time())

    run_on_virtual_time(main)
    assert ended[0] <= 5.0
    assert requests.approximate_count() == 3


def test_a_retry_timeout_must_be_a_number() -> None:
    with pytest.raises(UsageError, match="retry_timeout"):
        WorkerConfig(retry_timeout=-1.0)


def test_a_dead_letter_is_durable_before_the_client_gets_the_error() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests", clock=VirtualClock())
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    dead: FakeMailbox[Any] = FakeMailbox("dead")
    dead.set_connection_error(MailboxConnectionError("unavailable"))
    submit_dataset(THREE, requests)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        failing_agent,
        exact_match,
        requests,
        results,
        config=EvalLoopConfig(retry_timeout=5.0, backoff=Backoff(jitter=0.0, base=60.0)),
        dlq=DLQPolicy(dead, max_delivery_count=1),
    )

    async def main() -> None:
        await loop.run_async(max_iterations=1)
        assert (results.approximate_count(), requests.approximate_count()) == (0, 3)
        dead.clear_connection_error()
        await anyio.sleep(600)
        await loop.run_async(max_iterations=1)

    run_on_virtual_time(main)
    assert (results.approximate_count(), dead.approximate_count()) == (3, 3)
    assert requests.approximate_count() == 0


def test_an_error_is_reported_even_if_the_dead_letters_never_take_the_message() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests", clock=VirtualClock())
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    dead: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    dead.close()
    submit_dataset(THREE, requests)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        failing_agent, exact_match, requests, results, dlq=DLQPolicy(dead, max_delivery_count=1)
    )
    run_on_virtual_time(lambda: loop.run_async(max_iterations=1))

    assert (results.approximate_count(), requests.approximate_count()) == (3, 3)


class UnavailableStore:
    """A store whose two operations fail some times, then work."""

    def __init__(self, times: int) -> None:
        self.values: dict[str, bytes] = {}
        self._failures = {"find": times, "keep": times}

    def find(self, key: str) -> bytes | None:
        self._fail("find")
        return self.values.get(key)

    def keep(self, key: str, value: bytes) -> bytes:
        self._fail("keep")
        return self.values.setdefault(key, value)

    def _fail(self, what: str) -> None:
        if self._failures[what] > 0:
            self._failures[what] -= 1
            raise StoreError("expected a store to write to, got a full disk")


class UnavailableBudget:
    """A shared budget on a server that is unavailable at first."""

    def __init__(self, times: int) -> None:
        self._failures = times

    async def spend(self, tokens: float, cost: float) -> str:
        if self._failures > 0:
            self._failures -= 1
            raise ProviderError("expected a server, got none")
        return ""


@pytest.mark.parametrize(
    "unavailable",
    [{"store": UnavailableStore(8)}, {"budget": UnavailableBudget(8)}],
    ids=["store", "budget"],
)
def test_an_unavailable_store_or_budget_costs_neither_runs_nor_deliveries(unavailable: Any) -> None:
    """Check it with a limit of one delivery."""
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    dead: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    submit_dataset(THREE, requests)
    agent = AddingAgent()
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        agent,
        exact_match,
        requests,
        results,
        dlq=DLQPolicy(dead, max_delivery_count=1),
        config=EvalLoopConfig(
            max_concurrent=1, backoff=Backoff(base=0.01, max_delay=0.01), **unavailable
        ),
    )
    loop.run(max_iterations=1)

    assert agent.numbers == [0, 1, 2]
    assert [message.body.error for message in results.receive(max_messages=9)] == [None] * 3
    assert dead.approximate_count() == 0


class SmallMailbox:
    """A user's own mailbox: without a hash, and not for long messages."""

    __hash__ = None  # type: ignore[assignment]
    name, closed = "picky", False

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, body: Any, **more: Any) -> str:
        if body.error is None:
            raise MailboxError("expected a message of at most 9 bytes")
        self.sent.append(body)
        return "id"


def test_a_result_that_is_too_long_is_an_error_after_one_run() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    submit_dataset(THREE[:1], requests)
    agent, results = AddingAgent(), SmallMailbox()
    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests, results)  # type: ignore[arg-type]
    loop.run(max_iterations=1)

    (result,) = results.sent
    assert (result.error_source, agent.numbers) == ("infrastructure", [0])
    assert "at most 9 bytes" in result.error
    assert "at most 9 bytes" in dead_letters_of(loop.dead_letters)[0].last_error


@pytest.mark.parametrize("delivered", [0, 5], ids=["fresh", "often delivered"])
def test_a_result_for_a_mailbox_that_is_closed_is_a_dead_letter(delivered: int) -> None:
    """Check that it is not run, not released forever, and does not end the worker."""
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    submit_dataset(THREE[:1], requests, reply_to=results)
    results.close()
    for _ in range(delivered):
        requests.receive()[0].nack()
    agent = AddingAgent()
    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests)
    loop.run(max_iterations=1)

    assert agent.numbers == []
    assert requests.approximate_count() == 0
    assert len(dead_letters_of(loop.dead_letters)) == 1


@pytest.mark.parametrize("delivered", [0, 5], ids=["fresh", "often delivered"])
def test_a_result_for_a_deleted_queue_is_a_dead_letter(delivered: int) -> None:
    server = sqs_server.running()
    server.reset()
    results: SQSMailbox[Any] = SQSMailbox("results", server.client)
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    submit_dataset(THREE[:1], requests, reply_to=results)
    results.queue.delete()
    for _ in range(delivered):
        requests.receive()[0].nack()
    loop: EvalLoop[Any, Any, Any] = EvalLoop(AddingAgent(), exact_match, requests)
    loop.run(max_iterations=1)

    assert requests.approximate_count() == 0
    assert len(dead_letters_of(loop.dead_letters)) == 1
    assert loop.metrics()["unanswered_total"] == 1


# ── what was often delivered ────────────────────────────────────────────────────────────────────


class EveryDeliveryCounts(MemoryQueue):
    """A queue on which every delivery counts, as on SQS."""

    can_uncount_delivery = False

    def release(self, handles: Any, delay: float, *, untried: bool = False) -> list[bool]:
        return super().release(handles, delay)


@pytest.mark.parametrize("queue", [MemoryQueue, EveryDeliveryCounts])
def test_often_delivered_messages_run_alone_and_none_is_given_up_untried(
    queue: Callable[[str], MemoryQueue],
) -> None:
    requests: InMemoryMailbox[str] = InMemoryMailbox(queue=queue("requests"))
    requests.send_all([f"old {number}" for number in range(5)])
    for _ in range(3):
        requests.release_all(requests.receive(max_messages=9))
    requests.send_all([f"new {number}" for number in range(3)])
    done: list[str] = []
    busy: set[str] = set()

    async def handle(message: Message[str]) -> None:
        busy.add(message.body)
        await anyio.sleep(1)
        assert len(busy) == 1 or not any(each.startswith("old") for each in busy)
        busy.remove(message.body)
        await worker.acknowledge(message)
        done.append(message.body)

    worker = worker_for(requests, handle)
    run_on_virtual_time(lambda: worker.run(max_iterations=1))

    assert len(done) == len(set(done)) == 8


# ── stopping ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("graces", [(50.0, 5.0), (5.0, 50.0)])
def test_the_shortest_grace_period_wins(graces: tuple[float, float]) -> None:
    """For example an exhausted budget, and then SIGTERM."""
    requests: InMemoryMailbox[str] = InMemoryMailbox("requests")
    requests.send("endless")
    seconds = 0.0

    async def handle(message: Message[str]) -> None:
        await anyio.sleep(1000)

    worker = worker_for(requests, handle)

    async def main() -> None:
        nonlocal seconds
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.sleep(1)
            begin = anyio.current_time()
            for grace in graces:
                worker.stop(grace=grace)
                await anyio.sleep(1)
        seconds = anyio.current_time() - begin

    run_on_virtual_time(main)

    assert 4 < seconds < 8
    assert requests.approximate_count() == 1


@pytest.mark.parametrize("how", ["cancelled", "a neighbour's bug"])
def test_messages_in_flight_are_released_untried_if_a_run_is_aborted(how: str) -> None:
    requests: InMemoryMailbox[str] = InMemoryMailbox("requests")
    requests.send("innocent")

    async def handle(message: Message[str]) -> None:
        if message.body == "bug":
            raise RuntimeError("bug")
        requests.send("bug") if how != "cancelled" else cancelled.cancel()
        await anyio.sleep(1000)

    worker = worker_for(requests, handle)
    cancelled: anyio.CancelScope

    async def main() -> None:
        nonlocal cancelled
        with anyio.CancelScope() as cancelled, suppress(RuntimeError):
            await worker.run()

    run_on_virtual_time(main)

    counts = {each.body: each.delivery_count for each in requests.receive(max_messages=9)}
    assert counts["innocent"] == 1
