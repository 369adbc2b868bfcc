"""The tasks of a run: one a sample and epoch, pulled when there is a slot for it."""

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
from hashlib import blake2b, sha256
from typing import Any

import anyio

from ... import serde
from ...errors import SerializationError, UsageError, short_repr
from ...internal.frozen import fast_init
from .._samples import sample_line
from .._types import Dataset, EvalConfig, Sample, stops_early
from .requirements import check_cluster

_MAX_KNOWN_IDS = 50_000  # for a source without a length: the first, and twice the latest


@fast_init
@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A sample to run: its position in the dataset, the epoch, and how often it was tried.

    `deaths` is how often its process died while it ran: such a task runs alone, after the others.
    One with an `error` is not run any more.
    """

    sample: Sample[Any, Any]
    position: int
    epoch: int = 1
    tries: int = 0
    deaths: int = 0
    error: str = ""


Admit = Callable[[Task], "Task | None"]


def count_of(samples: Any, config: EvalConfig) -> int | None:
    """Return how many samples will be pulled; None if that is not known before the end."""
    if not hasattr(samples, "__len__"):
        return None
    count, limit = len(samples), config.max_samples
    return count if limit is None else min(count, limit)


def open_task_source(
    samples: Iterable[Any] | AsyncIterable[Any], config: EvalConfig, admit: Admit
) -> tuple[Callable[[], Awaitable[Task | None]], Callable[[], Awaitable[None]]]:
    """Return two async functions: `next_task`, which gives None at the end, and `close`."""
    if isinstance(samples, AsyncIterable):
        lock = anyio.Lock()
        async_tasks = _async_tasks(samples, config, admit)

        async def next_async() -> Task | None:
            async with lock:
                return await anext(async_tasks, None)

        return next_async, async_tasks.aclose
    tasks = tasks_of(samples, config, admit)

    async def next_task() -> Task | None:
        return next(tasks, None)

    async def close() -> None:
        tasks.close()

    return next_task, close


def tasks_of(samples: Iterable[Any], config: EvalConfig, admit: Admit) -> Generator[Task]:
    """Return the tasks of the samples, in a random order if the run may stop early."""
    if not isinstance(samples, Iterable):
        raise UsageError(f"expected samples, got {short_repr(samples)}")
    return _tasks(samples, config, _epochs(samples, config, admit))


def _tasks(
    samples: Iterable[Any], config: EvalConfig, epochs: Callable[[int, Any], Iterator[Task]]
) -> Generator[Task]:
    if config.max_samples == 0:
        return
    positioned: Iterable[tuple[int, Any]] = enumerate(samples)
    if stops_early(config):
        from .early_stopping import shuffled

        positioned = shuffled(samples, config)
    for count, (position, sample) in enumerate(positioned, 1):
        yield from epochs(position, sample)
        if count == config.max_samples:  # before another one is pulled
            return


async def _async_tasks(
    samples: AsyncIterable[Any], config: EvalConfig, admit: Admit
) -> AsyncGenerator[Task]:
    if config.max_samples == 0:
        return
    epochs = _epochs(samples, config, admit)
    position, source = 0, aiter(samples)
    try:
        async for sample in source:
            for task in epochs(position, sample):
                yield task
            position += 1
            if position == config.max_samples:
                return
    finally:
        if source is not samples and isinstance(source, AsyncGenerator):  # only we refer to it
            await source.aclose()


def _epochs(samples: Any, config: EvalConfig, admit: Admit) -> Callable[[int, Any], Iterator[Task]]:
    """Return a function that gives the admitted tasks of one sample, after checking it."""
    is_repeated = _id_check(samples)

    def epochs(position: int, sample: Any) -> Iterator[Task]:
        if not isinstance(sample, Sample):
            raise UsageError(
                f"expected a `Sample`, got {short_repr(sample)} - sample {position + 1}"
            )
        if is_repeated(sample.id):
            raise UsageError(
                f"expected every sample id once, got {sample.id!r} twice - sample {position + 1}"
            )
        check_cluster(sample, config.cluster_by)
        for epoch in range(1, config.epochs + 1):
            if (task := admit(Task(sample, position, epoch))) is not None:
                yield task

    return epochs


def _id_check(samples: Any) -> Callable[[str], bool]:
    """Return a function that returns whether it was called with the same id before.

    A `Dataset` has checked its ids. Of samples with a length, every id is remembered: they are in
    memory anyway. Of others, which may never end, memory stays flat: the hashes of the first ids
    are kept, so that a source that starts over is noticed, and those of the latest. They have 64
    bits: in a million samples, two ids share one with a probability of 1 in 100 million.
    """
    if isinstance(samples, Dataset):
        return lambda sample_id: False
    if hasattr(samples, "__len__"):
        ids: set[str] = set()

        def is_known(sample_id: str) -> bool:
            known = sample_id in ids
            ids.add(sample_id)
            return known

        return is_known

    first: set[int] = set()
    recent: set[int] = set()
    older: set[int] = set()

    def is_remembered(sample_id: str) -> bool:
        nonlocal recent, older
        hashed = hash(sample_id)
        if hashed in first or hashed in recent or hashed in older:
            return True
        if len(first) < _MAX_KNOWN_IDS:
            first.add(hashed)
            return False
        if len(recent) == _MAX_KNOWN_IDS:
            recent, older = set(), recent
        recent.add(hashed)
        return False

    return is_remembered


class DatasetDigest:
    """The digest of a dataset, computed while its samples are pulled, as far as that is in order.

    It takes seconds for a large dataset, which nobody should wait for before the first sample.
    """

    def __init__(self, dataset: Dataset[Any, Any]) -> None:
        self._samples = dataset.samples
        self._content = sha256()
        self._added = 0  # samples
        self._encodable = True

    def note(self, task: Task) -> None:
        """Add the sample of a task, if it is the next one of the dataset."""
        if task.position == self._added and self._encodable:
            self._add(task.sample)

    def _add(self, sample: Sample[Any, Any]) -> None:
        try:
            self._content.update(sample_line(sample, sort=True))
        except SerializationError:
            self._encodable = False
        self._added += 1

    def finish(self) -> str | None:
        """Add the samples that were not pulled and return the digest: that of `Dataset.digest`.

        Return None if a sample has no JSON form.
        """
        while self._encodable and self._added < len(self._samples):
            self._add(self._samples[self._added])
        return self._content.hexdigest() if self._encodable else None


def sample_digest(sample: Sample[Any, Any]) -> str:
    """Return the content hash of a sample; empty if the sample has no JSON form."""
    try:
        return blake2b(serde.encode(sample, sort=True), digest_size=8).hexdigest()
    except SerializationError:
        return ""
