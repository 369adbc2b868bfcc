"""Concurrency slots that a task lends to others while it only waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, strategies as st

from weakincentives.internal.slots import Slot, slot_released


class Slots:
    """A number of concurrency slots, and a count of those that are lent."""

    def __init__(self, slot_count: int = 1) -> None:
        self.semaphore = anyio.Semaphore(slot_count, fast_acquire=True)
        self.lent = 0
        self.max_lent = 0

    def slot(self) -> Slot:
        return Slot(self.semaphore, self.count_lent)

    def count_lent(self, change: int) -> None:
        self.lent += change
        self.max_lent = max(self.max_lent, self.lent)
        assert self.lent >= 0


@pytest.mark.anyio
async def test_releasing_without_a_slot_does_nothing() -> None:
    async with slot_released():
        await checkpoint()


@pytest.mark.anyio
async def test_a_released_slot_is_lent_and_reacquired() -> None:
    slots = Slots()

    async with slots.slot():
        assert slots.semaphore.value == 0
        async with slot_released():
            assert (slots.semaphore.value, slots.lent) == (1, 1)
        assert (slots.semaphore.value, slots.lent) == (0, 0)
    assert slots.semaphore.value == 1


@pytest.mark.anyio
async def test_an_error_while_the_slot_is_released_is_raised_after_reacquiring_it() -> None:
    slots = Slots()

    async with slots.slot():
        with pytest.raises(KeyError):
            async with slot_released():
                raise KeyError
        assert (slots.semaphore.value, slots.lent) == (0, 0)


@pytest.mark.anyio
async def test_concurrent_calls_of_one_task_lend_its_slot_once() -> None:
    slots = Slots()

    async def call() -> None:
        async with slot_released():
            await checkpoint()

    async with slots.slot(), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert (slots.semaphore.value, slots.lent, slots.max_lent) == (1, 0, 1)


@pytest.mark.anyio
async def test_concurrent_calls_that_wait_to_reacquire_need_only_one_slot() -> None:
    slots = Slots()

    async def call(checkpoints: int) -> None:
        await _checkpoints(checkpoints)
        async with slot_released():
            await checkpoint()

    async def other_task() -> None:
        async with slots.slot():
            await _checkpoints(20)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, slots.slot():
            group.start_soon(other_task)
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, 0)
                calls.start_soon(call, 5)  # releases while the first call waits to reacquire
            assert slots.semaphore.value == 0
    assert (slots.semaphore.value, slots.lent) == (1, 0)


@pytest.mark.anyio
async def test_a_task_cancelled_while_reacquiring_has_no_slot_and_can_acquire_one() -> None:
    slots = Slots()

    async with slots.slot() as slot:
        with anyio.CancelScope() as scope:
            async with slot_released():
                await slots.semaphore.acquire()
                scope.cancel()
        assert (slots.semaphore.value, slots.lent) == (0, 0)

        slots.semaphore.release()
        await slot.acquire()
        assert slots.semaphore.value == 0
        async with slot_released():
            assert slots.lent == 1
    assert (slots.semaphore.value, slots.lent) == (1, 0)


@pytest.mark.anyio
async def test_a_call_that_outlives_its_task_holds_no_slot() -> None:
    slots = Slots()
    ended = anyio.Event()

    async def call() -> None:
        async with slot_released():
            await ended.wait()

    async with anyio.create_task_group() as group:
        async with slots.slot():
            group.start_soon(call)
            await checkpoint()
            await anyio.wait_all_tasks_blocked()
        assert (slots.semaphore.value, slots.lent) == (1, 0)
        ended.set()
    assert (slots.semaphore.value, slots.lent) == (1, 0)


def test_an_event_loop_in_another_thread_does_not_release_the_slot() -> None:
    slots_of: list[Slots] = []

    async def in_other_loop() -> int:
        async with slot_released():
            return slots_of[0].lent

    async def main() -> int:
        slots_of.append(Slots())
        async with slots_of[0].slot():
            return await asyncio.to_thread(asyncio.run, in_other_loop())

    assert asyncio.run(main()) == 0


Step = tuple[int, int, int]  # checkpoints before, while and after the slot is released


@given(
    count=st.integers(1, 3),
    tasks=st.lists(
        st.tuples(
            st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=3),
            st.none() | st.integers(0, 8),
        ),
        max_size=6,
    ),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_no_slot_is_lost_or_duplicated(
    count: int, tasks: list[tuple[list[Step], int | None]], backend: str
) -> None:
    anyio.run(_check_all_slots_are_returned, count, tasks, backend=backend)


async def _check_all_slots_are_returned(
    count: int, tasks: list[tuple[list[Step], int | None]]
) -> None:
    slots = Slots(count)

    async def call(before: int, released: int, after: int) -> None:
        await _checkpoints(before)
        async with slot_released():
            await _checkpoints(released)
        await _checkpoints(after)

    async def task(steps: list[Step], cancelled_after: int | None) -> None:
        async with slots.slot() as slot:
            async with anyio.create_task_group() as group:
                for step in steps:
                    group.start_soon(call, *step)
                if cancelled_after is not None:
                    group.start_soon(_call_after, cancelled_after, group.cancel_scope.cancel)
            await slot.acquire()
            assert slots.semaphore.value < count

    async with anyio.create_task_group() as group:
        for steps, cancelled_after in tasks:
            group.start_soon(task, steps, cancelled_after)
    assert (slots.semaphore.value, slots.lent) == (count, 0)


async def _checkpoints(count: int) -> None:
    for _ in range(count):
        await checkpoint()


async def _call_after(checkpoints: int, callback: Callable[[], Any]) -> None:
    await _checkpoints(checkpoints)
    callback()
