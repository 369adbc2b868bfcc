"""Both ends of a run by mailbox: samples go out, results come in, each counted once by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.lowlevel

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import MailboxError, UsageError, shown
from ..experiment import BASELINE, Experiment
from ..runtime import tracing
from ..secrets import logger_for
from ._config import check_whole
from ._loop import request_key
from ._mailbox_agent import key_id
from ._manifest import new_run_id
from ._report import EvalReport, EvalResult
from ._types import Dataset, EvalRequest, Sample

if TYPE_CHECKING:
    from ..runtime.mailbox import Mailbox, QueueMailbox

__all__ = [
    "Collector",
    "Key",
    "Submission",
    "collect_results",
    "collect_results_async",
    "submit_dataset",
    "submit_experiments",
]

logger = logger_for(__name__)

LONGEST_POLL = 20.0  # seconds
LEASE = 60.0  # of a result: it is counted at once
PATIENCE = 30.0  # seconds without a result, with nothing queued, before what is missing goes again
NAMED = 5  # missing samples that a report names in its line


class Key(NamedTuple):
    """What a result is counted by, within a run."""

    experiment: str
    sample_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Submission:
    """What was sent out as one run; `collect_results` waits for exactly that."""

    run_id: str
    dataset: Dataset[Any, Any]
    experiments: tuple[Experiment, ...] = (BASELINE,)
    epochs: int = 1

    def __len__(self) -> int:
        return len(self.dataset) * len(self.experiments) * self.epochs

    def keys(self) -> Iterator[Key]:
        """The key of every result that is owed, in the report's order."""
        for sample, experiment, epoch in self._each():
            yield Key(experiment.name, sample.id, epoch)

    def requests(self) -> Iterator[EvalRequest[Any, Any]]:
        """Every request; made as it is needed, and the same each time."""
        for sample, experiment, epoch in self._each():
            id = key_id(self.run_id, experiment.name, sample.id, epoch)
            yield EvalRequest(sample, experiment, id, run_id=self.run_id, epoch=epoch)

    def _each(self) -> Iterator[tuple[Sample[Any, Any], Experiment, int]]:
        return (
            (sample, experiment, epoch)
            for experiment in self.experiments
            for sample in self.dataset
            for epoch in range(1, self.epochs + 1)
        )

    def send(
        self,
        requests: Mailbox[Any],
        *,
        reply_to: Mailbox[Any] | str | None = None,
        only: Callable[[Key], bool] = lambda key: True,
    ) -> int:
        """Send what `only` wants; how many. What is queued already is not queued twice."""
        wanted = (
            request
            for request in self.requests()
            if only(Key(request.experiment.name, request.sample.id, request.epoch))
        )  # made as they are sent: no more copies than are read, or all would be held
        if not tracing.watched():
            bodies, again = tee(wanted)
            return requests.send_all(bodies, reply_to=reply_to, ids=map(request_key, again))
        bodies, again, traced = tee(wanted, 3)
        headers = map(partial(_traced, self.dataset), traced)
        return requests.send_all(
            bodies, reply_to=reply_to, ids=map(request_key, again), headers=headers
        )


def _traced(dataset: Dataset[Any, Any], request: EvalRequest[Any, Any]) -> dict[str, str]:
    """The headers by which what workers do for a request belongs to the trace that begins here."""
    sample, experiment = request.sample, request.experiment.name
    facts = {"run_id": request.run_id, "experiment": experiment, "epoch": request.epoch}
    with tracing.span("request", sample.id, sample=sample, dataset_name=dataset.name, **facts):
        return tracing.carried()


def submit_dataset(
    dataset: Dataset[Any, Any],
    experiment: Experiment | Mailbox[Any],
    requests: Mailbox[Any] | None = None,
    *,
    reply_to: Mailbox[Any] | str | None = None,
    run_id: str | None = None,
    epochs: int = 1,
) -> Submission:
    """Send every sample to the workers: `submit_dataset(dataset, requests)`.

    With an experiment: `submit_dataset(dataset, experiment, requests)`. Results come to the
    workers' own `results` mailbox, or to `reply_to`. Sent again with the same `run_id`, what is
    still queued is not queued twice, and what was done already is counted once.
    """
    if requests is None:
        if isinstance(experiment, Experiment):
            raise UsageError("expected a mailbox to submit to, got only an experiment")
        requests, experiment = experiment, BASELINE
    if not isinstance(experiment, Experiment):
        raise UsageError(f"expected an `Experiment`, got {shown(experiment)}")
    return submit_experiments(
        dataset, [experiment], requests, reply_to=reply_to, run_id=run_id, epochs=epochs
    )


def submit_experiments(
    dataset: Dataset[Any, Any],
    experiments: Iterable[Experiment],
    requests: Mailbox[Any],
    *,
    reply_to: Mailbox[Any] | str | None = None,
    run_id: str | None = None,
    epochs: int = 1,
) -> Submission:
    """Send every sample once for each experiment, as one run."""
    if not isinstance(dataset, Dataset):
        raise UsageError(f"expected a `Dataset` to submit, got {shown(dataset)}")
    check_whole(epochs, 1, "epochs")
    tried = tuple(experiments)
    names = [experiment.name for experiment in tried]
    if not tried or len(set(names)) < len(names):
        raise UsageError(f"expected experiments with names of their own, got {shown(names)}")
    submission = Submission(run_id or new_run_id(), dataset, tried, epochs)
    submission.send(requests, reply_to=reply_to)
    return submission


@dataclass(slots=True)
class Collector:
    """Results by key: the first of each counts, whatever else comes is only counted."""

    submission: Submission | None = None
    results: dict[Any, EvalResult[Any]] = field(default_factory=dict)
    duplicates: int = 0
    foreign: int = 0
    resubmitted: int = 0
    _owed: frozenset[Key] = frozenset()

    def __post_init__(self) -> None:
        if self.submission is not None:
            self._owed = frozenset(self.submission.keys())

    def belongs(self, result: object) -> bool:
        """True for a result that is waited for, whether or not it came before."""
        if not isinstance(result, EvalResult):
            return False
        if self.submission is None:
            return True
        return result.run_id == self.submission.run_id and _key(result) in self._owed

    def add(self, result: EvalResult[Any]) -> bool:
        """Count a result; False where its key has one already."""
        key = _key(result) if self.submission is not None else (result.run_id, _key(result))
        if key in self.results:
            self.duplicates += 1
            return False
        self.results[key] = result
        return True

    def missing(self) -> tuple[Key, ...]:
        """The keys without a result, in the report's order; none where nobody knows them."""
        if self.submission is None:
            return ()
        owed = self.submission.keys()
        return tuple(key for key in owed if key not in self.results)

    def report(self, expected: int, why: str) -> EvalReport[Any]:
        """What came, in dataset order; where something is missing, the report says what."""
        short = expected - len(self.results)
        stopped = ""
        if short > 0:
            names = [key.sample_id for key in self.missing()[:NAMED]]
            more = ", …" if short > len(names) else ""
            listed = f": {', '.join(names)}{more}" if names else ""
            stopped = f"{short} of {expected} missing after {why}{listed}"
        if self.submission is None:
            order: Iterable[Any] = sorted(self.results)
            return EvalReport([self.results[key] for key in order], stopped=stopped)
        return EvalReport(
            [self.results[key] for key in filter(self.results.get, self.submission.keys())],
            self.submission.run_id,
            self.submission.dataset.name,
            stopped=stopped,
            missing=self.missing(),
        )


def collect_results(
    results: QueueMailbox[EvalResult[Any]],
    expected_count: int | Submission,
    *,
    timeout_seconds: float = 300,
    requests: QueueMailbox[Any] | None = None,
    known: Iterable[EvalResult[Any]] = (),
    on_result: Callable[[EvalResult[Any]], object] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> EvalReport[Any]:
    """Collect results into a report, each key once.

    Pass what `submit_dataset` returned rather than a count: then results of other runs are left
    for others, and after `timeout_seconds` the report says which samples are missing. With
    `requests`, what is missing is sent again once nothing is queued any more and nothing came for
    30 s, as after the loss of a server. `on_result` is called before a result is acknowledged;
    what it kept is `known` to whoever collects again after a crash.
    """
    from ._suite import from_sync

    return from_sync(
        partial(
            collect_results_async,
            results,
            expected_count,
            timeout_seconds=timeout_seconds,
            requests=requests,
            known=known,
            on_result=on_result,
            clock=clock,
        )
    )


async def collect_results_async(
    results: QueueMailbox[EvalResult[Any]],
    expected_count: int | Submission,
    *,
    timeout_seconds: float = 300,
    requests: QueueMailbox[Any] | None = None,
    known: Iterable[EvalResult[Any]] = (),
    on_result: Callable[[EvalResult[Any]], object] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> EvalReport[Any]:
    """The same inside an event loop, asyncio's or trio's."""
    submission = expected_count if isinstance(expected_count, Submission) else None
    expected = len(submission) if submission is not None else int(expected_count)  # type: ignore[arg-type]
    collector = Collector(submission)
    for result in known:
        collector.add(result)
    end = clock.monotonic() + timeout_seconds
    quiet_since = clock.monotonic()
    while len(collector.results) < expected and (left := end - clock.monotonic()) > 0:
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            came = await _collect_some(results, collector, min(left, LONGEST_POLL), on_result)
            if came:
                quiet_since = clock.monotonic()
            elif (
                submission is not None
                and requests is not None
                and clock.monotonic() - quiet_since >= PATIENCE
                and not await requests.aside(requests.approximate_count)
            ):
                await _send_missing(submission, collector, requests, results)
                quiet_since = clock.monotonic()
        except MailboxError as error:
            logger.warning("cannot collect from %r: %s", results.name, error)
            await anyio.sleep(min(1.0, left))
    return collector.report(expected, f"{timeout_seconds:g} s")


async def _collect_some(
    results: QueueMailbox[EvalResult[Any]],
    collector: Collector,
    wait: float,
    on_result: Callable[[EvalResult[Any]], object] | None,
) -> int:
    """Receive once, count, then acknowledge; how many new results came."""
    messages = await results.receive_async(
        max_messages=100, visibility_timeout=LEASE, wait_time_seconds=wait
    )
    ours, others, new = [], [], 0
    for message in messages:
        body = message.body if message.problem is None else None
        if body is None or not collector.belongs(body):
            collector.foreign += 1
            logger.warning("left in %r, as not awaited here: %r", results.name, message)
            others.append(message)
            continue
        ours.append(message)
        if collector.add(body):
            new += 1
            if on_result is not None:
                on_result(body)
    if ours:
        await results.aside(partial(results.acknowledge_all, ours))
    if others:  # for whoever awaits them
        await results.aside(partial(results.release_all, others, 10.0))
    return new


async def _send_missing(
    submission: Submission,
    collector: Collector,
    requests: QueueMailbox[Any],
    results: QueueMailbox[EvalResult[Any]],
) -> None:
    missing = frozenset(collector.missing())
    send = partial(submission.send, requests, reply_to=results, only=missing.__contains__)
    sent = await requests.aside(send)
    collector.resubmitted += sent
    logger.warning("sent %d missing samples of %s again", sent, submission.run_id)


def _key(result: EvalResult[Any]) -> Key:
    return Key(result.experiment_name, result.sample_id, result.epoch)
