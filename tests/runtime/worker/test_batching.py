"""A patient batcher waits for as long as others keep coming."""

from __future__ import annotations

import anyio
import pytest

from weakincentives.runtime.worker.batching import Batcher


async def sizes(most: int, *, patient: bool) -> list[int]:
    """How many went together, where each caller starts the next."""
    seen: list[int] = []

    async def double(items: list[int]) -> list[int]:
        seen.append(len(items))
        await anyio.lowlevel.checkpoint()
        return [2 * item for item in items]

    together = Batcher(double, max_batch=most, patient=patient)

    async def caller(number: int) -> None:
        if number < 20:
            group.start_soon(caller, number + 1)
        assert await together(number) == 2 * number

    async with anyio.create_task_group() as group:
        group.start_soon(caller, 1)
    return seen


@pytest.mark.anyio
async def test_all_go_together_though_they_come_one_by_one(anyio_backend: str) -> None:
    assert await sizes(50, patient=True) == [20]


@pytest.mark.anyio
async def test_no_more_go_together_than_may(anyio_backend: str) -> None:
    assert max(await sizes(8, patient=True)) == 8


@pytest.mark.anyio
async def test_others_leave_at_once(anyio_backend: str) -> None:
    assert len(await sizes(50, patient=False)) > 1
