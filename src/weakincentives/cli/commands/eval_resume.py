"""`wink eval resume`: run the command of an earlier run again, but keep its stored results.

A run that was submitted to workers is collected.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...errors import UsageError
from ..options.execution import add_output_options
from ..options.runs import add_run, add_store, open_existing_store
from ..options.settings import add_setting, without_stopping
from . import eval_collect, eval_run


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    add_store(parser)
    parser.add_argument("--retry-errors", action="store_true", help="run errors again")
    parser.add_argument("--force", action="store_true",
        help="continue although the agent changed; new results are marked")  # fmt: skip
    add_setting(parser.add_argument, "max_concurrent", "default: as before")
    add_output_options(parser.add_argument)


def run(args: Namespace) -> int:
    """Read the command of the run from the store, and continue it."""
    with open_existing_store(args) as store:
        record = store.run(args.run_id)
    manifest = record.manifest
    if not manifest.command:
        raise UsageError(
            f"expected a run of `wink eval run`, got {manifest.run_id}, which a script started - "
            "run the script again with `resume=` and the same `store`"
        )
    if manifest.kind == "submission":
        return _collect(args)
    again = eval_run.parse(manifest.command[3:])
    again.resume, again.store = manifest.run_id, args.store or again.store
    if again.name and again.name == manifest.config.get("experiment_name"):
        again.name, again.experiment_name = None, again.name  # --name was the experiment once
    if record.stop_reason == "rule":  # a run that stopped early is resumed to run all samples
        without_stopping(again)
    if args.max_concurrent is not None:
        again.max_concurrent = args.max_concurrent
    for name in ("retry_errors", "force", "quiet", "no_progress", "format"):
        setattr(again, name, getattr(args, name))
    return eval_run.run(again)


def _collect(args: Namespace) -> int:
    """Continue a submitted run by collecting its results."""
    parser = ArgumentParser(prog="wink eval collect")
    eval_collect.configure(parser)
    again = parser.parse_args([])
    vars(again).update(vars(args))
    return eval_collect.run(again)
