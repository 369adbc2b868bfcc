"""A patient batcher waits for as long as others keep coming."""

from __future__ import annotations

import anyio
import pytest

from weakincentives.runtime.worker.batching import Batcher


async def sizes_of_batches(max_batch: int, *, patient: bool) -> list[int]:
    """Return the sizes of the batches if each caller starts the next one."""
    batch_sizes: list[int] = []

    async def double(items: list[int]) -> list[int]:
        batch_sizes.append(len(items))
        await anyio.lowlevel.checkpoint()
        return [2 * item for item in items]

    together = Batcher(double, max_batch=max_batch, patient=patient)

    async def caller(number: int) -> None:
        if number < 20:
            group.start_soon(caller, number + 1)
        assert await together(number) == 2 * number

    async with anyio.create_task_group() as group:
        group.start_soon(caller, 1)
    return batch_sizes


@pytest.mark.anyio
async def test_a_patient_batcher_collects_items_that_arrive_one_by_one(anyio_backend: str) -> None:
    assert await sizes_of_batches(50, patient=True) == [20]


@pytest.mark.anyio
async def test_a_batch_has_at_most_its_maximum_size(anyio_backend: str) -> None:
    assert max(await sizes_of_batches(8, patient=True)) == 8


@pytest.mark.anyio
async def test_an_impatient_batcher_sends_immediately(anyio_backend: str) -> None:
    assert len(await sizes_of_batches(50, patient=False)) > 1
