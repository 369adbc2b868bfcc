"""`wink eval resume`: the command that began a run, again, without what is already stored.

What was submitted to workers is collected.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from . import _eval_run

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("run_id", nargs="?", default="latest", metavar="RUN", help="which (latest)")
    parser.add_argument("--store", metavar="PATH", help="where runs are kept")
    parser.add_argument("--retry-errors", action="store_true", help="run its errors again")
    parser.add_argument(
        "-j",
        "--max-concurrency",
        type=_eval_run.whole(1),
        metavar="N",
        help="so many at once (as before)",
    )
    _eval_run.add_looks(parser.add_argument)


def run(args: Namespace) -> int:
    """Read how the run began, and go on with it."""
    from ..errors import UsageError
    from ..evals._stopping import EARLY
    from ._views import open_store

    with open_store(args) as store:
        record = store.run(args.run_id)
    manifest = record.manifest
    if not manifest.command:
        raise UsageError(
            f"expected a run that `wink eval run` began, got {manifest.run_id} of a script - "
            "run that again with `resume=` and its `store`"
        )
    if manifest.command[2] == "submit":
        return _collect(args)
    parser = ArgumentParser(prog="wink eval run")
    _eval_run.configure(parser)
    again = parser.parse_args(manifest.command[3:])
    again.resume, again.store = manifest.run_id, args.store or again.store
    if record.note.startswith(EARLY):  # it knew enough; who resumes it wants to know all
        again.stop_when = _eval_run.NEVER
    if args.max_concurrency is not None:
        again.max_concurrency = args.max_concurrency
    for name in ("retry_errors", "quiet", "no_progress", "format"):
        setattr(again, name, getattr(args, name))
    return _eval_run.run(again)


def _collect(args: Namespace) -> int:
    """A run that was submitted goes on by being collected."""
    from . import _eval_collect

    parser = ArgumentParser(prog="wink eval collect")
    _eval_collect.configure(parser)
    again = parser.parse_args([])
    vars(again).update(vars(args))
    return _eval_collect.run(again)
