"""`wink eval submit`: send a dataset to workers, as a run for `wink eval collect`.

The submission is in the local run store before the first sample is sent, so a run whose queue is
lost never looks complete.
"""

from __future__ import annotations

import shlex
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...experiment import BASELINE, Experiment
from ..console.styled_text import one_line, pluralize, print_stderr
from ..options.dataset_columns import COLUMNS, add_columns
from ..options.execution import (
    DATASET_HELP,
    add_agent_options,
    add_name,
    add_selection,
    add_tag,
)
from ..options.parsing import pairs, to_argv, whole_number
from ..options.queues import Deployment, add_queue, deployment
from ..options.runs import add_store, same_store, store_path
from ..options.settings import settings_of

if TYPE_CHECKING:
    from ...evals import Dataset
    from ...evals.distributed import Submission
    from ...evals.model.versions import WorkerVersion

EXIT_CODES = """\
exit codes:
  0  every sample is sent; the run id is on stdout
  2  usage error, or the queue cannot be reached
  4  no sample was selected
"""
SETTINGS_OF_SAMPLES = ("seed", "max_samples", "epochs", "cluster_by")
PERSISTED_OPTIONS = (
    *("queue", "prompt", "agent", "dataset"),
    *COLUMNS,
    *("model", "temperature", "max_tokens", "evaluator"),
    *("judge_model", "judge_temperature", "judge_max_tokens", "expect"),
    *("name", "experiment_name", "filter", "sample", *SETTINGS_OF_SAMPLES, "priority"),
)


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = EXIT_CODES
    add_queue(parser)
    parser.usage = (
        "wink eval submit --queue URL FILE.py[:NAME] [options]\n"
        "       wink eval submit --queue URL --prompt NAME --model MODEL --dataset FILE [options]\n"
        "       wink eval submit --queue URL --agent MODULE:FUNCTION --dataset FILE [options]\n"
        "       wink eval submit --queue URL --dataset FILE [options]"
    )
    add = parser.add_argument_group("target").add_argument
    add_agent_options(add, "only workers with the agent and evaluators of this suite run it")
    add("--expect", metavar="VERSION",
        help="only workers of this version run it, as `wink worker eval` prints it (default: that "
        "of FILE.py, --prompt or --agent; without these, any)")  # fmt: skip
    add("--dataset", metavar="FILE", help=f"{DATASET_HELP} (default: the samples of FILE.py)")
    add_columns(add)
    add = parser.add_argument
    add("--experiment-name", action="append", default=[], metavar="NAME",
        help="send every sample once per experiment; repeatable (default baseline, or the "
        "suite's setting)")  # fmt: skip
    add("--experiment", dest="experiment_name", action="append", help=SUPPRESS)  # its former name
    add_selection(parser, *SETTINGS_OF_SAMPLES)
    add_name(add)
    add_tag(add)
    add("--priority", type=whole_number(-1000), metavar="N",
        help="runs of a higher priority come first, those of the same take turns (default 0; "
        "not on SQS)")  # fmt: skip
    add("--run-id", metavar="ID",
        help="id of the run; for a known run, samples without a result are sent again")  # fmt: skip
    add_store(parser)


def run(args: Namespace) -> int:
    """Record the submission, send it, and print the run id."""
    from ...evals import EvalConfig, EvalRequest, open_store
    from ...evals.distributed import Submission, record_submission, refuse_cancelled
    from ...evals.engine.requirements import check_clusters
    from ...evals.engine.run_manifest import new_run_id
    from ...evals.model.versions import checked_version
    from ...runtime.mailbox.core.lanes import check_priority
    from ..options.sample_selection import selected, why_empty

    target = _target(args)
    given = {**target.settings, **settings_of(args)}
    everything, version = target.samples, target.version
    dataset = selected(everything, args.filter, args.sample, args.seed or 0)
    dataset = dataset[: given["max_samples"]]
    if not len(dataset):
        print_stderr(f"wink: nothing selected: {why_empty(everything, args.filter)}")
        return 4
    names = dict.fromkeys(args.experiment_name or [target.settings["experiment_name"]])
    experiments = tuple(BASELINE if name == BASELINE.name else Experiment(name) for name in names)
    expect = checked_version(args.expect or version or "")
    run_id, priority = args.run_id or new_run_id(), check_priority(args.priority or 0)
    submission = Submission(run_id, dataset, experiments, given["epochs"], expect, priority)
    config = EvalConfig(**{**given, "experiment_name": experiments[0].name})
    check_clusters(dataset, config)
    queue = deployment(args)
    results = queue.results(submission.run_id)
    visible = Namespace(**{**vars(args), "queue": queue.display_url})
    with (
        open_store(store_path(args)) as store,
        queue.mailbox(EvalRequest) as requests,
        # SQS must create the queue before a worker sends the first result.
        queue.mailbox(name=results),
    ):
        if priority:
            requests.require_lanes("priorities")
        refuse_cancelled(submission, requests)
        missing = record_submission(
            store,
            submission,
            queue=queue.name,
            queue_url=queue.display_url,
            config=config,
            suite=args.name or target.name,
            tags=pairs(args.tag, "--tag"),
            command=("wink", "eval", "submit", *args.targets, *to_argv(visible, PERSISTED_OPTIONS)),
            version=None if args.expect else version,
        )
        try:
            sent = submission.send(requests, reply_to=results, only=missing.__contains__)
        except Exception:
            command = shlex.join(["wink", "eval", "submit", "--run-id", submission.run_id])
            print_stderr(f"Not all samples were sent. To continue: {command} ...")
            raise
    _print_summary(submission, args.name or target.name, sent, queue, same_store(args))
    return 0


class _Target(NamedTuple):
    """What to send: samples, and what the suite that is named says about them.

    The version of its agent and evaluators is that of a worker with the same options.
    """

    samples: Dataset[Any, Any]
    name: str
    settings: dict[str, Any]
    version: WorkerVersion | None


def _target(args: Namespace) -> _Target:
    from ...evals import EvalConfig
    from ...evals.engine.run_manifest import version_of
    from ..plan import judge_model, one_suite
    from ..targets import load_dataset

    def settings(config: EvalConfig) -> dict[str, Any]:
        return {name: getattr(config, name) for name in (*SETTINGS_OF_SAMPLES, "experiment_name")}

    if not (args.targets or args.prompt or args.agent):
        return _Target(load_dataset(args), "", settings(EvalConfig()), None)
    name, suite = one_suite(Namespace(**{**vars(args), **dict.fromkeys(("dataset", *COLUMNS))}))
    agent, judge = suite.build_run().agent, judge_model(args) or suite.adapter
    samples = suite.dataset if args.targets and args.dataset is None else load_dataset(args)
    version = version_of(agent, suite.evaluator, judge)
    return _Target(samples, name, settings(suite.config), version)


def _print_summary(
    submission: Submission, suite: str, sent: int, queue: Deployment, store: str
) -> None:
    samples = pluralize(len(submission.dataset), "sample")
    if submission.epochs > 1:
        samples += f" x {submission.epochs} epochs"
    if len(submission.experiments) > 1:
        samples += f" x {len(submission.experiments)} experiments"
    name = one_line(suite or submission.dataset.name or "unnamed")
    done = "" if sent == len(submission) else f", {sent:,} sent now, the others have a result"
    print(submission.run_id)
    if submission.expect:
        done += f", of version {submission.expect} only"
    print_stderr(
        f"{name}: {samples} for the workers of {one_line(queue.display_url)}{done}",
        f"collect: wink eval collect {shlex.quote(submission.run_id)}{store}",
    )
