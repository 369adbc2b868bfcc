"""What a run is to do: one task a sample and epoch, pulled when there is a place for it."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from ..errors import UsageError, shown
from ._config import EvalConfig, stops_early
from ._types import Sample

__all__ = ["Select", "Task", "count_of", "pulled"]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One sample to try: its place in the dataset, the epoch, and how often it was tried before."""

    sample: Sample[Any, Any]
    position: int
    epoch: int = 1
    tries: int = 0


Select = Callable[[Task], "Task | None"]


def count_of(samples: Any, config: EvalConfig) -> int | None:
    """How many samples will be pulled; None where nobody knows before the end."""
    if not hasattr(samples, "__len__"):
        return None
    count, most = len(samples), config.max_samples
    return count if most is None else min(count, most)


def pulled(
    samples: Iterable[Any] | AsyncIterable[Any],
    config: EvalConfig,
    select: Select,
) -> tuple[Callable[[], Any], Callable[[], Awaitable[None]]]:
    """Two functions: the next task, None at the end, pulled as it is called; and an end to it.

    Of a source that is async, the task is to be waited for.
    """
    seen: set[int] = set()

    def tasks_of(position: int, sample: Any) -> Iterator[Task]:
        if not isinstance(sample, Sample):
            raise UsageError(f"expected a `Sample`, got {shown(sample)} - sample {position + 1}")
        if (mark := hash(sample.id)) in seen:
            raise UsageError(
                f"expected every sample id once, got {sample.id!r} twice - sample {position + 1}"
            )
        seen.add(mark)
        for epoch in range(1, config.epochs + 1):
            if (task := select(Task(sample, position, epoch))) is not None:
                yield task

    if isinstance(samples, AsyncIterable):
        lock = anyio.Lock()
        coming = _tasks_async(samples, config.max_samples, tasks_of)

        async def take_async() -> Task | None:
            async with lock:
                return await anext(coming, None)

        return take_async, coming.aclose
    if not isinstance(samples, Iterable):
        raise UsageError(f"expected samples, got {shown(samples)}")
    rest = _tasks(samples, config, tasks_of)

    async def close() -> None:
        rest.close()

    return partial(next, rest, None), close


def _tasks(
    samples: Iterable[Any], config: EvalConfig, tasks_of: Callable[[int, Any], Iterator[Task]]
) -> Generator[Task]:
    most = config.max_samples
    if most == 0:
        return
    placed: Iterable[tuple[int, Any]] = enumerate(samples)
    if stops_early(config):
        from ._stopping import by_chance

        placed = by_chance(samples, config)
    for count, (position, sample) in enumerate(placed, 1):
        yield from tasks_of(position, sample)
        if count == most:  # and not one more is pulled
            return


async def _tasks_async(
    samples: AsyncIterable[Any],
    most: int | None,
    tasks_of: Callable[[int, Any], Iterator[Task]],
) -> AsyncGenerator[Task]:
    if most == 0:
        return
    position, source = 0, aiter(samples)
    try:
        async for sample in source:
            for task in tasks_of(position, sample):
                yield task
            position += 1
            if position == most:
                return
    finally:
        if source is not samples and isinstance(source, AsyncGenerator):  # nobody else can
            await source.aclose()
