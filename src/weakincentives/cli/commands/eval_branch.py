"""`wink eval branch`: continue from a snapshot of a sample's environment, several times."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack, redirect_stdout
from sys import stderr

from ...errors import UsageError
from ...evals.engine.branching import branch_run, find_snapshot
from ...evals.engine.run import run_to_report
from ...internal.event_loop import run_sync
from ..console.styled_text import one_line
from ..console.text_tables import screen
from ..console.views import line_of
from ..options.parsing import whole_number
from ..options.runs import REFERENCES, add_store, open_existing_store, same_store
from ..options.settings import add_setting
from ..plan import plans_of
from . import eval_run


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("run_id", metavar="RUN", help=REFERENCES)
    add("sample_id", metavar="SAMPLE", help="id of a sample whose agent took snapshots")
    add("--at", type=whole_number(0), metavar="TURN",
        help="continue after this turn; 0 is the start (default: the last snapshot)")  # fmt: skip
    add("-n", type=whole_number(1), default=8, metavar="N",
        help="how often to continue from there (default 8; 1 resumes an attempt)")  # fmt: skip
    add("--epoch", type=whole_number(1), metavar="N",
        help="epoch of the sample (default: the first with that snapshot)")  # fmt: skip
    add_setting(add, "max_concurrent", "default: as in the run")
    add_store(parser)


def run(args: Namespace) -> int:
    """Run the branches as a new run; exit code 3 if one of them is an error."""
    with ExitStack() as stack:
        store = stack.enter_context(open_existing_store(args))
        manifest = store.run(args.run_id).manifest
        if not manifest.command:
            raise UsageError(
                f"expected a run of `wink eval run`, got {manifest.run_id}, which a script started "
                "- in the script, call `branch_sample` of evals.engine.branching"
            )
        result, snapshot = find_snapshot(
            store, manifest.run_id, args.sample_id, at=args.at, epoch=args.epoch
        )
        again = eval_run.parse(manifest.command[3:])
        again.max_concurrent = args.max_concurrent or again.max_concurrent
        with redirect_stdout(stderr):
            (plan,) = plans_of(again, stack)
            branches = branch_run(
                result,
                snapshot,
                plan.suite.build_run().agent,
                plan.suite.evaluator,
                plan.config,
                n=args.n,
                adapter=plan.judge or plan.suite.adapter,
                store=store,
                dataset_name=manifest.dataset_name,
            )
            report = run_sync(run_to_report, branches)
    to = screen()
    print(one_line(f"from turn {snapshot.turn} of {args.sample_id}: {report}"))
    for each in report.results:
        to.print(line_of(each, len(args.sample_id), epochs=True))
    print(f"run {report.run_id}: wink eval show {report.run_id}{same_store(args)}")
    return 3 if report.errors else 0
