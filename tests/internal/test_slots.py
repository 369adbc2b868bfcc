"""Places that are lent while their holder only waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.internal.slots import Slot, slot_released


class Room:
    """So many places, and a count of those that are lent."""

    def __init__(self, places: int = 1) -> None:
        self.places = anyio.Semaphore(places, fast_acquire=True)
        self.lent = 0
        self.most_lent = 0

    def slot(self) -> Slot:
        return Slot(self.places, self.count)

    def count(self, change: int) -> None:
        self.lent += change
        self.most_lent = max(self.most_lent, self.lent)
        assert self.lent >= 0


@pytest.mark.anyio
async def test_outside_of_an_engine_it_changes_nothing() -> None:
    async with slot_released():
        await checkpoint()


@pytest.mark.anyio
async def test_who_is_away_lends_the_place_and_takes_one_again() -> None:
    room = Room()

    async with room.slot():
        assert room.places.value == 0
        async with slot_released():
            assert (room.places.value, room.lent) == (1, 1)
        assert (room.places.value, room.lent) == (0, 0)
    assert room.places.value == 1


@pytest.mark.anyio
async def test_an_error_while_away_passes_through_with_the_place_taken_again() -> None:
    room = Room()

    async with room.slot():
        with pytest.raises(KeyError):
            async with slot_released():
                raise KeyError
        assert (room.places.value, room.lent) == (0, 0)


@pytest.mark.anyio
async def test_several_calls_of_one_task_share_its_place() -> None:
    room = Room()

    async def call() -> None:
        async with slot_released():
            await checkpoint()

    async with room.slot(), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert (room.places.value, room.lent, room.most_lent) == (1, 0, 1)


@pytest.mark.anyio
async def test_calls_that_come_back_while_the_place_is_taken_wait_for_one_only() -> None:
    room = Room()

    async def call(turns: int) -> None:
        await _turns(turns)
        async with slot_released():
            await checkpoint()

    async def another() -> None:
        async with room.slot():
            await _turns(20)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, room.slot():
            group.start_soon(another)
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, 0)
                calls.start_soon(call, 5)  # leaves while the first one waits to come back
            assert room.places.value == 0
    assert (room.places.value, room.lent) == (1, 0)


@pytest.mark.anyio
async def test_who_is_cancelled_on_the_way_back_has_no_place_and_can_ask_for_one() -> None:
    room = Room()

    async with room.slot() as slot:
        with anyio.CancelScope() as scope:
            async with slot_released():
                await room.places.acquire()
                scope.cancel()
        assert (room.places.value, room.lent) == (0, 0)

        room.places.release()
        await slot.acquire()
        assert room.places.value == 0
        async with slot_released():
            assert room.lent == 1
    assert (room.places.value, room.lent) == (1, 0)


@pytest.mark.anyio
async def test_a_call_that_outlives_its_task_keeps_no_place() -> None:
    room = Room()
    ended = anyio.Event()

    async def call() -> None:
        async with slot_released():
            await ended.wait()

    async with anyio.create_task_group() as group:
        async with room.slot():
            group.start_soon(call)
            await checkpoint()
            await anyio.wait_all_tasks_blocked()
        assert (room.places.value, room.lent) == (1, 0)
        ended.set()
    assert (room.places.value, room.lent) == (1, 0)


def test_a_loop_in_a_thread_of_its_own_has_no_part_in_it() -> None:
    room_of: list[Room] = []

    async def elsewhere() -> int:
        async with slot_released():
            return room_of[0].lent

    async def here() -> int:
        room_of.append(Room())
        async with room_of[0].slot():
            return await asyncio.to_thread(asyncio.run, elsewhere())

    assert asyncio.run(here()) == 0


Step = tuple[int, int, int]  # turns before leaving, turns away, turns after


@given(
    places=st.integers(1, 3),
    tasks=st.lists(
        st.tuples(
            st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=3),
            st.none() | st.integers(0, 8),
        ),
        max_size=6,
    ),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_no_place_is_lost_or_doubled_whatever_happens(
    places: int, tasks: list[tuple[list[Step], int | None]], backend: str
) -> None:
    anyio.run(_everything_comes_back, places, tasks, backend=backend)


async def _everything_comes_back(places: int, tasks: list[tuple[list[Step], int | None]]) -> None:
    room = Room(places)

    async def call(before: int, gone: int, after: int) -> None:
        await _turns(before)
        async with slot_released():
            await _turns(gone)
        await _turns(after)

    async def task(steps: list[Step], cancelled_after: int | None) -> None:
        async with room.slot() as slot:
            async with anyio.create_task_group() as group:
                for step in steps:
                    group.start_soon(call, *step)
                if cancelled_after is not None:
                    group.start_soon(_after, cancelled_after, group.cancel_scope.cancel)
            await slot.acquire()
            assert room.places.value < places

    async with anyio.create_task_group() as group:
        for steps, cancelled_after in tasks:
            group.start_soon(task, steps, cancelled_after)
    assert (room.places.value, room.lent) == (places, 0)


async def _turns(count: int) -> None:
    for _ in range(count):
        await checkpoint()


async def _after(turns: int, then: Callable[[], Any]) -> None:
    await _turns(turns)
    then()
