"""`wink eval submit`: a dataset to the workers, as a run that `wink eval collect` brings in.

What is owed is in the local run store before the first sample is sent, so that nothing that
happens to the queue can make a run look whole that is not.
"""

from __future__ import annotations

import argparse
import shlex
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ._eval_run import add_selection, words_of
from ._queues import add_queue, deployment
from ._views import add_store, same_store, say, store_path

if TYPE_CHECKING:
    from ..evals import RunManifest, RunStore
    from ..evals._helpers import Submission
    from ._queues import Deployment

__all__ = ["configure", "run", "submission_of"]

EXIT_CODES = """\
exit codes:
  0  everything is sent; the run's id is on stdout
  2  the command or what it names is wrong, or the queue cannot be reached
  4  nothing was selected
"""
REMEMBERED = ("queue", "dataset", "experiment", "filter", "sample", "seed", "limit", "epochs")


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    add_queue(parser)
    add = parser.add_argument
    add("--dataset", metavar="FILE", required=True, help=".jsonl .json .csv .tsv .parquet")
    add(
        "--experiment", action="append", default=[], metavar="NAME",
        help="every sample once for each of these (baseline)",
    )  # fmt: skip
    add_selection(parser)
    add("--tag", action="append", default=[], metavar="KEY=VALUE", help="to find the run by")
    add(
        "--run-id", metavar="ID",
        help="a name of your own; of a run that is there, what has no result is sent again",
    )  # fmt: skip
    add_store(parser)


def run(args: Namespace) -> int:
    """Write down what is owed, send it, and print the run's id."""
    from ..evals import RunStore
    from ..evals._helpers import Submission
    from ..evals._manifest import new_run_id
    from ..evals._types import EvalRequest
    from ..experiment import BASELINE, Experiment
    from ._selection import selected, why_empty
    from ._target import load_dataset

    whole = load_dataset(args.dataset)
    dataset = selected(whole, args.filter, args.sample, args.seed or 0)[: args.limit]
    if not len(dataset):
        say(f"wink: nothing selected: {why_empty(whole, args.filter)}")
        return 4
    names = dict.fromkeys(args.experiment)
    experiments = tuple(map(Experiment, names)) or (BASELINE,)
    submission = Submission(args.run_id or new_run_id(), dataset, experiments, args.epochs or 1)
    queue = deployment(args)
    with (
        RunStore(store_path(args)) as store,
        queue.mailbox(EvalRequest) as requests,
        # Made now, where a back-end must be told (SQS): workers may answer before anybody collects.
        queue.mailbox(name=queue.results(submission.run_id)),
    ):
        stored = _begin(store, submission, args, queue)
        try:
            sent = submission.send(
                requests,
                reply_to=queue.results(submission.run_id),
                only=lambda key: key not in stored,
            )
        except Exception:
            again = ["wink", "eval", "submit", "--run-id", submission.run_id]
            say(f"The run is stored, but not all of it is sent: {shlex.join(again)} ... goes on.")
            raise
    _tell(submission, sent, queue, same_store(args))
    return 0


def _begin(store: RunStore, submission: Submission, args: Namespace, queue: Deployment) -> set[Any]:
    """Put into the store what is owed, unless it is there; the keys that have a row already."""
    from ..errors import UsageError
    from ..runtime.mailbox._envelope import pack, unpack

    run_id = submission.run_id
    known = _manifest_of(store, run_id)
    if known is not None and store.find(f"submission:{run_id}") is None:
        raise UsageError(
            f"expected the id of a new run, or of one that was submitted, got {run_id!r}, which "
            "was run here - choose another"
        )
    # First what is owed, then that there is a run: between the two, it can only be sent again.
    kept, _ = unpack(store.keep(f"submission:{run_id}", pack(submission)))
    if kept != submission:
        raise UsageError(
            f"expected the samples and experiments of the run {run_id!r}, got others - choose "
            "another --run-id, or say again what you said first"
        )
    if known is None:
        store.begin(_manifest(submission, args, queue))
    return set(store.keys(run_id))


def _manifest_of(store: RunStore, run_id: str) -> RunManifest | None:
    from ..errors import UsageError

    try:
        found = store.run(run_id).manifest
    except UsageError:
        return None
    return found if found.run_id == run_id else None


def _manifest(submission: Submission, args: Namespace, queue: Deployment) -> RunManifest:
    from .. import serde
    from ..clock import SYSTEM_CLOCK
    from ..evals import EvalConfig, RunManifest
    from ..evals._manifest import git_commit, packages
    from ._selection import pairs

    dataset = submission.dataset
    config = EvalConfig(
        epochs=submission.epochs,
        max_samples=args.limit,
        seed=args.seed or 0,
        experiment_name=submission.experiments[0].name,
    )
    shown = Namespace(**{**vars(args), "queue": queue.shown})
    return RunManifest(
        run_id=submission.run_id,
        created_at=SYSTEM_CLOCK.now(),
        dataset_name=dataset.name,
        dataset_digest=dataset.digest,
        planned=len(submission),
        agent=f"workers of {queue.name}",
        config=serde.plain(config),
        tags=pairs(args.tag, "--tag"),
        git_commit=git_commit(),
        packages=packages(),
        command=("wink", "eval", "submit", *words_of(shown, REMEMBERED)),
    )


def submission_of(store: RunStore, manifest: RunManifest) -> Submission:
    """What a run owes; a run that was not submitted is refused."""
    from ..errors import UsageError
    from ..evals._helpers import Submission
    from ..runtime.mailbox._envelope import unpack

    kept = store.find(f"submission:{manifest.run_id}")
    if kept is None:
        raise UsageError(
            f"expected a run that `wink eval submit` began, got {manifest.run_id} - "
            f"`wink eval show {manifest.run_id}` says what it is"
        )
    submission: Submission = unpack(kept, Submission)[0]
    return submission


def _tell(submission: Submission, sent: int, queue: Deployment, where: str) -> None:
    from ._summary import harmless

    each = f" x {submission.epochs} epochs" if submission.epochs > 1 else ""
    if len(submission.experiments) > 1:
        each += f" x {len(submission.experiments)} experiments"
    count = len(submission.dataset)
    samples = f"{count:,} sample{'' if count == 1 else 's'}{each}"
    name = harmless(submission.dataset.name or "unnamed")
    print(submission.run_id)
    left = "" if sent == len(submission) else f", {sent:,} sent now: the others have a result"
    say(
        f"{name}: {samples} for the workers of {harmless(queue.shown)}{left}",
        f"collect: wink eval collect {shlex.quote(submission.run_id)}{where}",
    )
