"""Submit a dataset to workers, and collect their results into a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import UsageError, short_repr
from ..experiment import BASELINE, Experiment
from ..internal.checks import check_whole
from ..internal.event_loop import run_sync
from ..internal.public_module import set_public_module
from ..runtime.mailbox.backends.adapted import receiving_mailbox, sending_mailbox
from ..runtime.mailbox.core.lanes import check_priority
from ..secrets import redact
from ._types import Dataset, Sample
from .distributed.collector import CollectConfig, Collector
from .distributed.ledgers import MemoryLedger
from .distributed.submission import Key, Submission, refuse_cancelled
from .engine.run_manifest import new_run_id
from .model.quarantine import QuarantinedSample, split_by_date
from .model.result import EvalResult
from .model.versions import WorkerVersion, checked_version
from .runs.report import EvalReport

if TYPE_CHECKING:
    from ..runtime.mailbox import Mailbox

__all__ = [
    "cancel_run",
    "collect_results",
    "collect_results_async",
    "submit_dataset",
    "submit_experiments",
]


def submit_dataset(
    dataset: Dataset[Any, Any] | Sequence[Sample[Any, Any]],
    experiment: Experiment | str | Mailbox[Any] | None = None,
    requests: Mailbox[Any] | None = None,
    *,
    reply_to: Mailbox[Any] | str | None = None,
    run_id: str | None = None,
    epochs: int = 1,
    expect: WorkerVersion | str = "",
    priority: int = 0,
) -> Submission:
    """Send every sample to the workers: `submit_dataset(dataset, requests)`.

    With an experiment or its name: `submit_dataset(dataset, experiment, requests)`. Results go to
    the workers' own `results` mailbox, or to `reply_to`. Submitting again with the same `run_id` is
    idempotent: queued samples are not queued twice, and finished ones are counted once.

    With `expect`, such as `EvalLoop.version`, `EvalSuite.version` or the text of one, workers of
    another version return the samples to the queue, and say so.

    Runs share the mailbox: they take turns, and one of a higher `priority` comes first.
    `cancel_run` takes a run back.
    """
    if requests is None:
        if experiment is None or isinstance(experiment, Experiment | str):
            got = "none" if experiment is None else "only an experiment"
            raise UsageError(
                f"expected a mailbox to submit to, got {got} - pass `requests=mailbox`"
            )
        requests, experiment = experiment, BASELINE
    if experiment is None:
        experiment = BASELINE
    if isinstance(experiment, str):
        experiment = Experiment(experiment)
    if not isinstance(experiment, Experiment):
        raise UsageError(f"expected an `Experiment` or its name, got {short_repr(experiment)}")
    return submit_experiments(
        dataset,
        [experiment],
        requests,
        reply_to=reply_to,
        run_id=run_id,
        epochs=epochs,
        expect=expect,
        priority=priority,
    )


def submit_experiments(
    dataset: Dataset[Any, Any] | Sequence[Sample[Any, Any]],
    experiments: Iterable[Experiment],
    requests: Mailbox[Any],
    *,
    reply_to: Mailbox[Any] | str | None = None,
    run_id: str | None = None,
    epochs: int = 1,
    expect: WorkerVersion | str = "",
    priority: int = 0,
) -> Submission:
    """Send every sample once for each experiment, as one run."""
    if isinstance(dataset, list | tuple):
        dataset = Dataset(dataset)
    if not isinstance(dataset, Dataset):
        raise UsageError(f"expected a `Dataset` or a list of samples, got {short_repr(dataset)}")
    requests = sending_mailbox(requests, "requests")
    if reply_to is not None and not isinstance(reply_to, str):
        reply_to = sending_mailbox(reply_to, "reply_to")
    check_whole(epochs, 1, "epochs")
    variants = tuple(experiments)
    names = [experiment.name for experiment in variants]
    if not variants or len(set(names)) < len(names):
        raise UsageError(f"expected experiments with distinct names, got {short_repr(names)}")
    run_id = run_id or new_run_id()
    if redact(run_id) != run_id:
        raise UsageError(f"expected a run id without a secret in it, got {redact(run_id)!r}")
    version, priority = checked_version(expect), check_priority(priority)
    submission = Submission(run_id, dataset, variants, epochs, version, priority)
    refuse_cancelled(submission, requests)
    submission.send(requests, reply_to=reply_to)
    return submission


def cancel_run(run: Submission | str, requests: Mailbox[Any]) -> int:
    """Cancel a submitted run; return how many of its samples were taken back.

    No worker begins another sample of it, those that run are cancelled within seconds, and nothing
    of it is retried. The other runs in the mailbox are not touched. Calling it again is harmless.
    What is finished can still be collected, with the `requests` of this call: the report then says
    that the run was cancelled. On SQS nothing can be taken back: the workers remove the samples.
    Main loops in other processes have a mailbox of their own: `cancel_run(run, mainloop_requests)`.
    """
    run_id = run.run_id if isinstance(run, Submission) else run
    return int(sending_mailbox(requests, "requests", "cancel").cancel(run_id))


def collect_results(
    results: Mailbox[EvalResult[Any]],
    expected_count: int | Submission,
    timeout_seconds: float = 300,
    *,
    requests: Mailbox[Any] | None = None,
    known: Iterable[EvalResult[Any]] = (),
    on_result: Callable[[EvalResult[Any]], object] | None = None,
    resubmit_after: float = 30.0,
    quarantine: Iterable[QuarantinedSample] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> EvalReport[Any]:
    """Collect results into a report, each key once.

    Pass the `Submission` that `submit_dataset` returned rather than a count: then results of other
    runs are left in the mailbox, and after `timeout_seconds` the report lists what is missing (of a
    count, how many are). An incomplete report is also logged as a warning.
    Anything else in the mailbox, such as a damaged result, becomes a dead letter in `NAME-dlq`.

    If workers refuse the version that a submission expects, and none accepts it for
    `resubmit_after` seconds, the collection ends and the report says what differs.

    With `requests`, missing samples are sent again once that mailbox is empty and no result has
    arrived for `resubmit_after` seconds, and the collection ends if the run is cancelled.
    `on_result` is called with each new result before it is acknowledged; what it stored is `known`
    to the next collection after a crash. Samples in `quarantine`, such as `load_quarantine(name)`,
    are in the report and do not count.
    """
    return run_sync(
        partial(
            collect_results_async,
            results,
            expected_count,
            timeout_seconds=timeout_seconds,
            requests=requests,
            known=known,
            on_result=on_result,
            resubmit_after=resubmit_after,
            quarantine=quarantine,
            clock=clock,
        )
    )


async def collect_results_async(
    results: Mailbox[EvalResult[Any]],
    expected_count: int | Submission,
    timeout_seconds: float = 300,
    *,
    requests: Mailbox[Any] | None = None,
    known: Iterable[EvalResult[Any]] = (),
    on_result: Callable[[EvalResult[Any]], object] | None = None,
    resubmit_after: float = 30.0,
    quarantine: Iterable[QuarantinedSample] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> EvalReport[Any]:
    """Collect results inside an event loop, of asyncio or trio."""
    submission = expected_count if isinstance(expected_count, Submission) else None
    expected = len(submission) if submission is not None else int(expected_count)  # type: ignore[arg-type]
    ledger = MemoryLedger(submission, expected=expected, on_result=on_result)
    for result in known if submission is None else _restored(known, submission):
        ledger.add(result)
    config = CollectConfig(resubmit_after=resubmit_after)
    results = receiving_mailbox(results, "results")
    if requests is not None:
        requests = sending_mailbox(requests, "requests")
    collector = Collector(
        cast(Any, results),
        ledger,
        submission,
        requests=cast(Any, requests),
        config=config,
        clock=clock,
    )
    if not ledger.complete():
        await collector.run(timeout_seconds)
    quarantined = split_by_date(quarantine)[0]
    waited = "the run was cancelled" if collector.cancelled else f"{timeout_seconds:g} s"
    return ledger.report(waited, quarantined, reason=collector.refused)


def _restored(
    known: Iterable[EvalResult[Any]], submission: Submission
) -> Iterator[EvalResult[Any]]:
    """Yield the known results of the run, under the submitted keys: a run store redacts ids."""
    keys = submission.keys()
    originals = {key.redacted(): key for key in keys}
    for result in known:
        if (key := originals.get(Key.of(result).redacted())) is not None:
            yield key.restore(result)


set_public_module("weakincentives.evals", globals(), __all__)
