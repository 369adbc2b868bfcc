"""`wink eval compare`: is the second run better than the first, and how sure is that?"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import TYPE_CHECKING

from ._comparing import (
    RUN_HELP,
    Finder,
    add_confidence,
    comparison_data,
    comparison_markdown,
    comparison_text,
    say_warnings,
)
from ._eval_run import whole
from ._views import add_store, out, screen, words_anywhere

if TYPE_CHECKING:
    from ..evals import RunRecord, RunStore
    from ..evals._comparison import RunComparison
    from ._plan import Plan

__all__ = ["configure", "run"]

FLIPS = 5
PASSED_ON = ("prompt", "dataset", "evaluator", "judge_model", "limit", "epochs", "store")


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.usage = (
        "wink eval compare RUN_A RUN_B... [options]\n"
        "       wink eval compare RUN [options]          (its experiments)\n"
        "       wink eval compare --prompt NAME --dataset FILE --models A B... [options]"
    )
    words_anywhere(parser)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help=RUN_HELP)
    add("--metric", default="passed", metavar="NAME", help="what the verdict is about (passed)")
    add("--by", metavar="KEY", help="slices: the pass rate for each value in the metadata")
    add("--flips", type=whole(0), metavar="N", help=f"how many of them to list ({FLIPS})")
    add("--force", action="store_true", help="also where the runs were not measured alike")
    add(
        "--format",
        choices=("text", "json", "md"),
        default="text",
        help="to read, data, or for a PR",
    )
    add_confidence(parser)
    add_store(parser)
    add = parser.add_argument_group("run what is missing, then compare").add_argument
    add("--prompt", metavar="REF", help="a prompt, as for `wink eval run`")
    add("--dataset", metavar="FILE", help=".jsonl .json .csv .tsv .parquet")
    add("--models", nargs="+", default=[], metavar="MODEL", help="the first is the one to beat")
    add("--evaluator", action="append", default=[], metavar="REF", help="exact_match, or others")
    add("--judge-model", metavar="MODEL", help="who answers judges, if not the model")
    add("--limit", type=whole(0), metavar="N", help="only the first N samples")
    add("--epochs", type=whole(1), metavar="N", help="each of them N times")


def run(args: Namespace) -> int:
    """Exit code 0, whatever the verdict: `wink eval gate` is what fails."""
    from .. import serde
    from ..errors import UsageError
    from ..evals._compare import compare_several

    words = _wanted(args)
    if isinstance(words, int):
        return words
    with ExitStack() as stack:
        finder = Finder(args, stack)
        runs = [finder.find(word, args.by) for word in words]
    if len(runs) == 1:
        runs = runs[0].by_experiment()
    if len(runs) < 2:
        raise UsageError("expected two runs to compare, got one with one experiment")
    found = compare_several(
        runs[0],
        runs[1:],
        metric=args.metric,
        by=args.by,
        confidence=args.confidence,
        force=args.force,
    )
    if args.format == "json":
        data = comparison_data(found, args.flips)
        sys.stdout.write(serde.encode(data).decode() + "\n")
        _tell_github(found)
        return 0
    if args.format == "md":
        sys.stdout.writelines(f"{line}\n" for line in comparison_markdown(found))
    else:
        to = screen()
        out(to, *comparison_text(found, to.width, FLIPS if args.flips is None else args.flips))
    notes = [note for each in found for note in each.warnings]
    if any(measure.adjusted is not None for each in found for measure in each.all_measures()):
        notes.append("p is raised (after Holm) where several are looked at together")
    say_warnings(notes)
    _tell_github(found)
    return 0


def _tell_github(found: Sequence[RunComparison]) -> None:
    from ..evals._github import on_github, tell_comparison
    from ._views import say

    if on_github():
        name = found[0].before.dataset_name or "comparison"
        outcomes = {str(each): each.measure.outcome for each in found}
        say(*tell_comparison(name, outcomes, comparison_markdown(found)))


def _wanted(args: Namespace) -> list[str] | int:
    """The words that name the runs; or the exit code of a run that was needed and interrupted."""
    from ..errors import UsageError

    if not args.models:
        given = [name for name in ("prompt", "dataset", "evaluator") if getattr(args, name)]
        if given:
            raise UsageError(f"expected --models A B... with --{given[0]}, got none")
        if not args.runs:
            raise UsageError("expected RUN_A RUN_B to compare, got none - `wink eval list` has ids")
        return list(args.runs)
    if args.runs:
        raise UsageError("expected runs or --models, got both")
    if len(set(args.models)) < 2:
        raise UsageError("expected two models or more for --models, got one")
    ids = []
    plans = [_planned(args, model) for model in dict.fromkeys(args.models)]  # all, before any runs
    for own, plan in plans:
        found = _run_of(own, plan)
        if isinstance(found, int):
            return found
        ids.append(found)
    return ids


# ── what is missing ─────────────────────────────────────────────────────────────────────────────


def _planned(args: Namespace, model: str) -> tuple[Namespace, Plan]:
    """What `wink eval run` would be told, and the plan that it would make."""
    from . import _eval_run
    from ._plan import plans_of

    parser = ArgumentParser(prog="wink eval run")
    _eval_run.configure(parser)
    own = parser.parse_args(["--model", model, *_eval_run.words_of(args, PASSED_ON)])
    with ExitStack() as stack, redirect_stdout(sys.stderr):
        (plan,) = plans_of(own, stack)
    return own, plan


def _run_of(args: Namespace, plan: Plan) -> str | int:
    """The id of the run of this plan: one that is there, or else a new one."""
    from ..evals import RunStore
    from ._conduct import run_all
    from ._views import say, store_path

    with RunStore(store_path(args)) as store:
        for record in _like(store, plan):
            run_id = record.manifest.run_id
            if record.status == "complete":
                say(f"{args.model}: run {run_id} is there, and is not run again")
                return run_id
            if record.status in ("interrupted", "stopped"):
                args.resume = run_id
                break
    code = run_all(args)
    if code in (4, 130):
        return code
    with RunStore(store_path(args)) as store:
        return next(_like(store, plan)).manifest.run_id


def _like(store: RunStore, plan: Plan) -> Iterator[RunRecord]:
    """The runs of the same command, samples, agent and evaluators, newest first."""
    from ..evals._manifest import infos

    agent = plan.suite.planned().agent
    criteria = tuple(infos(plan.suite.evaluator))
    for record in store.runs():
        of = record.manifest
        if (
            of.command == plan.command
            and of.parent is None
            and of.dataset_digest == plan.samples.digest
            and of.agent_version == getattr(agent, "agent_version", "")
            and of.criteria == criteria
        ):
            yield record
