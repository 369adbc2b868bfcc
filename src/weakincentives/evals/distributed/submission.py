"""A submission: the requests of one run, and the record of them in a run store.

Rules of this file:
1. A request has the same ids each time that it is built, so sending it again is idempotent.
2. A run store has the submission before the first request is sent, so a run whose queue is lost
   never looks complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import tee
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from ... import serde
from ...errors import UsageError
from ...experiment import BASELINE, Experiment
from ...internal.wire_names import wire_name
from ...runtime import tracing
from ...runtime.mailbox.core.envelope import pack, unpack
from ...runtime.mailbox.core.lanes import lane_headers
from .._types import Dataset, EvalConfig, EvalRequest, Sample
from ..engine.run_manifest import build_manifest
from ..engine.tasks import DatasetDigest
from ..model.quarantine import load_quarantine
from ..model.redacted_ids import redact_id
from ..model.result import EvalResult
from ..model.versions import WorkerVersion
from ..store.manifest import described_by
from ..store.value_keys import SUBMISSION

if TYPE_CHECKING:
    from ...runtime.mailbox import Mailbox
    from ..store import RunStore


@lru_cache(maxsize=1024)  # a worker loads, stores and sends the result of a request by its key
def key_id(*parts: str | int) -> UUID:
    """Return an id that is the same for the same parts on every machine.

    The parts ("a", "b/c") and ("a/b", "c") have different ids.
    """
    return uuid5(NAMESPACE_URL, f"wink:{serde.encode(parts).decode('utf-8', 'replace')}")


def request_key(request: EvalRequest[Any, Any]) -> str:
    """Return the message id of a request, which is the same for every copy of it."""
    if not request.run_id:
        return request.request_id.hex
    return key_id(request.run_id, request.experiment.name, request.sample.id, request.epoch).hex


class Key(NamedTuple):
    """Identifies a result within its run: results are counted by key."""

    experiment: str
    sample_id: str
    epoch: int

    @classmethod
    def of(cls, result: EvalResult[Any]) -> Key:
        """Return the key of a result."""
        return cls(result.experiment_name, result.sample_id, result.epoch)

    def redacted(self) -> Key:
        """Return the key under which a run store has its row."""
        return Key(redact_id(self.experiment), redact_id(self.sample_id), self.epoch)

    def restore(self, result: EvalResult[Any]) -> EvalResult[Any]:
        """Return the result under this key, replacing the redacted form of it."""
        if Key.of(result) == self:
            return result
        return replace(result, experiment_name=self.experiment, sample_id=self.sample_id)


@wire_name("wink:Submission", "weakincentives.evals._helpers:Submission")
@dataclass(frozen=True, slots=True)
class Submission:
    """The samples, experiments and epochs that were sent to workers as one run.

    Only workers of the version `expect` run it, if that is given (`WorkerVersion`, as text). Runs
    of a higher `priority` come first, and those of the same share a queue fairly.
    """

    run_id: str
    dataset: Dataset[Any, Any]
    experiments: tuple[Experiment, ...] = (BASELINE,)
    epochs: int = 1
    expect: str = ""
    priority: int = 0

    def __len__(self) -> int:
        return len(self.dataset) * len(self.experiments) * self.epochs

    def keys(self) -> Iterator[Key]:
        """Yield the key of every expected result, in the order of the report."""
        for sample, experiment, epoch in self._tasks():
            yield Key(experiment.name, sample.id, epoch)

    def requests(self) -> Iterator[EvalRequest[Any, Any]]:
        """Yield every request, built lazily and the same each time."""
        for number, (sample, experiment, epoch) in enumerate(self._tasks(), 1):
            yield EvalRequest(
                sample,
                experiment,
                key_id(self.run_id, experiment.name, sample.id, epoch),
                run_id=self.run_id,
                epoch=epoch,
                expect=self.expect,
                request_number=number,
            )

    def _tasks(self) -> Iterator[tuple[Sample[Any, Any], Experiment, int]]:
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
        """Send the requests whose key passes `only`, and return how many.

        Requests that are still queued are not queued twice.
        """
        pairs = zip(self.keys(), self.requests(), strict=True)
        # Lazy: `tee` buffers only the gap between its readers; one that lags would hold them all.
        bodies, identified, traced = tee((request for key, request in pairs if only(key)), 3)
        lane = lane_headers(self.run_id, self.priority)
        headers = ({**lane, **_trace_headers(self.dataset, request)} for request in traced)
        ids = (request.request_id.hex for request in identified)
        return requests.send_all(bodies, reply_to=reply_to, ids=ids, headers=headers)


def _trace_headers(dataset: Dataset[Any, Any], request: EvalRequest[Any, Any]) -> dict[str, str]:
    """Return headers that make the worker's spans for a request children of one begun here."""
    if not tracing.is_tracing():
        return {}
    sample, experiment = request.sample, request.experiment.name
    facts = {"run_id": request.run_id, "experiment": experiment, "epoch": request.epoch}
    with tracing.span("request", sample.id, sample=sample, dataset_name=dataset.name, **facts):
        return tracing.inject()


def refuse_cancelled(submission: Submission, requests: Mailbox[Any]) -> None:
    """Raise a `UsageError` if the run was cancelled: its mailbox would drop the samples."""
    if is_cancelled(submission.run_id, requests):
        raise _cancelled_error(submission.run_id)


def is_cancelled(run_id: str, requests: Mailbox[Any]) -> bool:
    """Return whether a run was cancelled; False if a user's own mailbox cannot tell."""
    cancelled = getattr(requests, "cancelled", None)
    return callable(cancelled) and bool(cancelled({run_id}))


def _cancelled_error(run_id: str) -> UsageError:
    return UsageError(
        f"expected a run that goes on, got {run_id!r}, which was cancelled - submit the samples "
        "again without this run id, as a new run"
    )


# ── in a run store ──────────────────────────────────────────────────────────────────────────────


def record_submission(
    store: RunStore,
    submission: Submission,
    *,
    queue: str,
    config: EvalConfig,
    queue_url: str = "",
    suite: str = "",
    tags: Mapping[str, str] | None = None,
    command: tuple[str, ...] = (),
    version: WorkerVersion | None = None,
) -> set[Key]:
    """Record a submission to the workers of `queue`; return the keys that have no result yet.

    `queue_url` is the address that results are collected from, without a password. `version`
    describes what the submission expects, if that is known.
    A submission that was recorded before must have the same samples and experiments.
    """
    run_id = submission.run_id
    is_new = not _has_run(store, run_id)
    if not is_new and store.run(run_id).status == "cancelled":
        raise _cancelled_error(run_id)
    if not is_new and store.find(_store_key(run_id)) is None:
        raise UsageError(
            f"expected the id of a new or submitted run, got {run_id!r}, which was run locally - "
            "choose another --run-id"
        )
    # The submission is stored before its run: a crash in between leaves nothing to clean up.
    stored, _ = unpack(store.keep(_store_key(run_id), pack(submission)))
    if stored != submission:
        raise UsageError(
            f"expected the samples and experiments of the run {run_id!r}, got others - choose "
            "another --run-id, or repeat the options of the first submission"
        )
    if is_new:
        manifest = build_manifest(
            run_id,
            None,
            None,
            config,
            submission.dataset,
            suite=suite,
            tags=tags,
            command=command,
            quarantine=load_quarantine(suite or submission.dataset.name),
        )
        manifest = replace(
            manifest,
            agent=f"workers of {queue}",
            dataset_digest=DatasetDigest(submission.dataset).finish(),
            planned=len(submission),
            kind="submission",
            queue=queue_url,
            git_commit=None,  # of the workers, which may not have the client's
            expect=submission.expect,
        )
        store.begin(manifest if version is None else described_by(manifest, version))
    keys, stored_keys = submission.keys(), store.keys(run_id)
    return {key for key in keys if key.redacted() not in stored_keys}


def load_submission(store: RunStore, run_id: str) -> Submission:
    """Return the submission of a run; raise a `UsageError` if the run was not submitted."""
    data = store.find(_store_key(run_id))
    if data is None:
        raise UsageError(
            f"expected a run that `wink eval submit` began, got {run_id} - "
            f"see `wink eval show {run_id}`"
        )
    submission: Submission = unpack(data, Submission)[0]
    return submission


def _store_key(run_id: str) -> str:
    return SUBMISSION + run_id


def _has_run(store: RunStore, run_id: str) -> bool:
    try:
        return store.run(run_id).manifest.run_id == run_id
    except UsageError:
        return False
