"""A worker that waited longer for a message than it may keep one still keeps it."""

from __future__ import annotations

from typing import Any

import anyio
import trio.testing

from weakincentives.runtime.mailbox import InMemoryMailbox, Message
from weakincentives.runtime.worker.worker import Worker, WorkerConfig

LEASE = 10.0


def test_a_message_that_arrives_after_a_long_wait_is_handled_immediately() -> None:
    requests: InMemoryMailbox[str] = InMemoryMailbox("requests")
    done: list[tuple[str, int, float]] = []

    async def handle(message: Message[str]) -> None:
        await anyio.sleep(1)
        await worker.acknowledge(message)
        done.append((message.body, message.delivery_count, anyio.current_time() - begin))
        worker.stop()

    async def give_up(message: Message[str], error: BaseException) -> None:
        raise AssertionError(error)

    worker: Worker[str] = Worker(requests, handle, give_up, config=WorkerConfig())
    begin = 0.0

    async def main() -> None:
        nonlocal begin
        begin = anyio.current_time()
        async with anyio.create_task_group() as group:
            how: dict[str, Any] = {"visibility_timeout": LEASE, "wait_time_seconds": 4 * LEASE}
            group.start_soon(lambda: worker.run(max_iterations=None, **how))
            await anyio.sleep(1.5 * LEASE)
            requests.send("late")

    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(main, backend="trio", backend_options={"clock": clock})

    assert done == [("late", 1, 1.5 * LEASE + 1)]
