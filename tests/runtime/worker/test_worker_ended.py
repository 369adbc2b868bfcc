"""An agent that harms its task or the event loop costs deliveries of its own message only."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import pytest

from tests.seeds.loops import QALoop
from weakincentives.errors import WorkerEndedError
from weakincentives.evals import Dataset, EvalLoop, Sample, exact_match, submit_dataset
from weakincentives.runtime import ControlDispatcher, MainLoopRequest
from weakincentives.runtime.mailbox import InMemoryMailbox
from weakincentives.runtime.worker.dead_letters import dead_letters_of

LIMIT = 5  # deliveries, where no policy says otherwise


def interrupt() -> None:
    raise KeyboardInterrupt


def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


HARMFUL_ACTIONS: dict[str, Callable[[asyncio.AbstractEventLoop], object]] = {
    "its own task": lambda loop: loop.call_soon(current().cancel),
    "its own task, caught": lambda loop: current().cancel(),
    "all tasks": lambda loop: loop.call_soon(cancel_all_tasks),
    "exit in a callback": lambda loop: loop.call_soon(sys.exit),
    "interrupt in a callback": lambda loop: loop.call_soon(interrupt),
    "the loop": lambda loop: loop.stop(),
}


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def run_until_empty(loop: Any, requests: InMemoryMailbox[Any]) -> list[str]:
    """Run the loop again whenever it ends, as a supervisor does; return why it ended."""
    ended: list[str] = []
    with ThreadPoolExecutor(
        1
    ) as thread:  # as in a group of loops, so that an interrupt does not reach pytest
        while requests.approximate_count():
            assert len(ended) < 10, f"it comes back forever: {ended}"
            try:
                thread.submit(partial(loop.run, max_iterations=1)).result()
            except WorkerEndedError as error:
                ended.append(str(error))
    return ended


@pytest.mark.parametrize("harm", HARMFUL_ACTIONS)
def test_a_sample_that_ends_its_worker_is_tried_up_to_the_limit(harm: str) -> None:
    calls: Counter[int] = Counter()

    async def agent(number: int) -> int:
        calls[number] += 1
        if number == 1:
            HARMFUL_ACTIONS[harm](asyncio.get_running_loop())
            await anyio.sleep(30)
        return number

    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests, results)
    submit_dataset(Dataset([Sample(str(n), n, n) for n in range(4)]), requests)

    ended = run_until_empty(loop, requests)

    rows = {each.body.sample_id: each.body for each in results.receive(max_messages=99)}
    assert {id for id, row in rows.items() if row.passed} == {"0", "2", "3"}
    assert rows["1"].error
    assert calls[1] <= LIMIT
    if ended:  # it ended the worker each time
        assert len(ended) == calls[1] == LIMIT
        (letter,) = dead_letters_of(loop.dead_letters)
        assert "was delivered 5 times and never finished" in letter.last_error


@pytest.mark.parametrize("harm", HARMFUL_ACTIONS)
def test_a_request_that_ends_its_main_loop_is_answered_with_an_error(harm: str) -> None:
    calls: Counter[str] = Counter()

    class Adapter:
        def evaluate(self, prompt: Any, **more: Any) -> Any:
            raise NotImplementedError

        async def evaluate_async(self, prompt: Any, **more: Any) -> Any:
            calls["asked"] += 1
            HARMFUL_ACTIONS[harm](asyncio.get_running_loop())
            await anyio.sleep(30)

    requests: InMemoryMailbox[Any] = InMemoryMailbox("main")
    replies: InMemoryMailbox[Any] = InMemoryMailbox("replies")
    requests.send(MainLoopRequest("2+2?"), reply_to=replies)

    ended = run_until_empty(
        QALoop(adapter=Adapter(), bus=ControlDispatcher(), requests=requests), requests
    )

    (reply,) = replies.receive(max_messages=9)
    if "its own task" in harm:
        assert (ended, calls["asked"]) == ([], 1)
        assert "cancelled from inside" in reply.body.error
    else:
        assert len(ended) == calls["asked"] == LIMIT
        assert "was delivered 5 times and never finished" in reply.body.error


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), BaseException("a panic")])
def test_any_exception_of_an_adapter_is_sent_as_a_result(error: BaseException) -> None:
    class Adapter:
        def evaluate(self, prompt: Any, **more: Any) -> Any:
            raise error

    requests: InMemoryMailbox[Any] = InMemoryMailbox("main")
    replies: InMemoryMailbox[Any] = InMemoryMailbox("replies")
    requests.send(MainLoopRequest("2+2?"), reply_to=replies)

    assert (
        run_until_empty(
            QALoop(adapter=Adapter(), bus=ControlDispatcher(), requests=requests), requests
        )
        == []
    )

    (reply,) = replies.receive(max_messages=9)
    assert reply.body.error == (str(error) or type(error).__name__)


def test_a_worker_that_an_agent_asks_to_stop_counts_the_delivery() -> None:
    """For example by a signal to its own process or process group."""
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    calls: Counter[int] = Counter()

    async def agent(number: int) -> int:
        calls[number] += 1
        loop.worker.stop(grace=0)
        await anyio.sleep_forever()
        return number

    loop: EvalLoop[Any, Any, Any] = EvalLoop(agent, exact_match, requests, results)
    submit_dataset(Dataset([Sample("1", 1, 1)]), requests)

    assert run_until_empty(loop, requests) == []

    (result,) = results.receive(max_messages=9)
    assert "was delivered 5 times and never finished" in result.body.error
    assert calls[1] == LIMIT
