"""Plans carried out: run, watched, told, and judged by the gates.

What a run came to is read from the store, so that it is what `wink eval show` says too.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import anyio
from rich.console import Console

from .. import serde
from ..clock import SYSTEM_CLOCK
from ..errors import SerializationError, UsageError
from ..evals import EvalResult, RunRecord, RunStore
from ..evals._evaluate import Run
from ..evals._export import format_by_suffix, write_export
from ..evals._github import on_github, tell_github
from ..evals._manifest import new_run_id
from ..evals._overview import overview, worst
from ..evals._stopping import EARLY
from ._display import console, moment, moves, watching
from ._plan import Plan, check_key, plans_of
from ._selection import pairs, why_empty
from ._summary import Outcome, ending, harmless, plan_data, plan_text, run_data
from ._views import store_path

__all__ = [
    "check_output",
    "conclude",
    "first",
    "gate",
    "run_all",
    "shown_meanwhile",
    "write_line",
]

Step = Callable[[], Coroutine[Any, Any, None]]


def run_all(args: Namespace) -> int:
    """Run what the command line says; the exit code is the gravest of the suites."""
    data, to = sys.stdout, console()
    _check(args)
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for data alone
        plans = plans_of(args, stack)
        if len(plans) > 1 and (args.resume or args.output):
            option = "--resume" if args.resume else "--output"
            names = ", ".join(plan.command[3] for plan in plans)
            raise UsageError(
                f"expected one suite for {option}, got {len(plans)} - name one: {names}"
            )
        chosen = [plan for plan in plans if plan.total]
        if not chosen:
            whole = plans[0].suite.dataset
            to.print(f"wink: nothing selected: {why_empty(whole, args.filter)}", soft_wrap=True)
            return 4
        if args.dry_run:
            return _dry_run(args, chosen, data, to)
        check_key(args.model)
        check_key(args.judge_model)
        store = stack.enter_context(RunStore(store_path(args)))
        outcomes: list[Outcome] = []
        for plan in chosen:
            outcomes.append(_run(args, plan, store, data, to))
            if outcomes[-1].code == 130:
                break
        code = max(outcome.code for outcome in outcomes)
        if args.format == "json":
            write_line(data, {"exit_code": code, "runs": [run_data(each) for each in outcomes]})
    return code


def _check(args: Namespace) -> None:
    """What can be seen to be wrong before any of the user's code is imported."""
    if args.target is None and args.resume and args.resume.partition(":")[0].endswith(".py"):
        args.target, args.resume = args.resume, "latest"  # `--resume FILE.py`: it takes no file
    if args.retry_errors and args.resume is None:
        args.resume = "latest"
    check_output(args)


def check_output(args: Namespace) -> None:
    """Notice a format that does not exist before there is anything to write."""
    for path in map(Path, args.output):
        if not _is_folder(path):
            format_by_suffix(path)


def _is_folder(path: Path) -> bool:
    return not path.suffix or path.is_dir()


def _dry_run(args: Namespace, plans: list[Plan], data: TextIO, to: Console) -> int:
    if args.format == "text":
        for plan in plans:
            to.print(plan_text(plan), soft_wrap=True)
        to.print("Nothing was run.")
    else:
        write_line(data, {"plans": [plan_data(plan) for plan in plans]})
    return 0


def _run(args: Namespace, plan: Plan, store: RunStore, data: TextIO, to: Console) -> Outcome:
    run = _announced(args, plan, store, to)

    def emit(position: int, result: EvalResult[Any]) -> None:
        if args.format == "jsonl":
            write_line(data, result)

    moving = moves() and not (args.format == "jsonl" and data.isatty())
    unseen = args.quiet or args.no_progress
    began, interrupted = SYSTEM_CLOCK.monotonic(), False
    now = partial(moment, run, plan.total, began)
    watch = nullcontext(None) if unseen else watching(now, to=to, moving=moving)
    try:
        with watch as show:
            anyio.run(shown_meanwhile, partial(run.go, emit), show)
    except KeyboardInterrupt:
        if not hasattr(run, "engine"):  # before anything was stored
            raise
        interrupted = True
    except BaseExceptionGroup as group:
        raise first(group) from group
    found = overview(store, run.run_id)
    code, rule = gate(args, found.record)
    if interrupted:
        code, rule = 130, f"interrupted, {found.record.total:,} of {plan.total:,} are stored"
    outcome = Outcome(
        found=found,
        worst=worst(store, run.run_id),
        code=code,
        rule=rule,
        seconds=SYSTEM_CLOCK.monotonic() - began,
        epochs=plan.config.epochs,
        cache=plan.cache,
    )
    conclude(args, outcome, store, to)
    return outcome


def conclude(args: Namespace, outcome: Outcome, store: RunStore, to: Console) -> None:
    """Write the files that were asked for, and say how it ended."""
    run_id = outcome.found.record.manifest.run_id
    for path in () if outcome.code == 130 else map(Path, args.output):
        if _is_folder(path):
            store.report(run_id).save(path)
        else:
            write_export(store, run_id, path)
    to.print(ending(outcome, to, args.store, brief=args.quiet), soft_wrap=True)
    if on_github():
        notes = tell_github(
            outcome.found,
            outcome.worst,
            code=outcome.code,
            rule=outcome.rule,
            fail_under=args.fail_under,
        )
        for note in notes:
            print(note, file=sys.stderr)


def _announced(args: Namespace, plan: Plan, store: RunStore, to: Console) -> Run:
    """The run, ready to go; what it is and its id are said before it does."""
    earlier = None if args.resume is None else store.run(args.resume)
    run_id = new_run_id() if earlier is None else earlier.manifest.run_id
    if not args.quiet:
        by = ", ".join(plan.evaluators)
        to.print(harmless(f"{plan.name}: {plan.who}, {plan.how_many}, by {by}"))
        stored = "" if earlier is None else f", {earlier.total:,} of {plan.total:,} are stored"
        to.print(f"run {run_id}{stored}", style="dim")
    run = plan.suite.planned(
        samples=plan.samples,
        config=plan.config,
        store=store,
        run_id=run_id,
        resume=None if earlier is None else run_id,
        retry_errors=args.retry_errors,
        tags=pairs(args.tag, "--tag"),
        command=plan.command,
        on_note=lambda note: None if args.quiet else to.print(note, style="dim"),
    )
    if plan.judge is not None:
        run.adapter = plan.judge
    return run


async def shown_meanwhile(run: Step, show: Step | None) -> None:
    """Run to the end, shown meanwhile."""
    async with anyio.create_task_group() as group:
        if show is not None:
            group.start_soon(show)
        await run()
        group.cancel_scope.cancel()


def gate(args: Namespace, record: RunRecord) -> tuple[int, str]:
    """The exit code, and the rule that decided on it."""
    total, allowed = record.total, args.max_error_rate or 0.0
    if record.errors > allowed * total:
        return 3, (
            f"{record.errors} of {total} are errors ({record.errors / total:.1%}), "
            f"--max-error-rate allows {allowed:.1%}"
        )
    if record.status == "stopped" and not record.note.startswith(EARLY):
        return 3, f"{record.note}, before the last sample"
    if args.fail_under is None:
        return 0, "no gate failed"
    rate = record.passed / total if total else 0.0
    rule = f"{rate:.1%} passed, --fail-under asks for {args.fail_under:.1%}"
    return int(rate < args.fail_under), rule


def write_line(data: TextIO, value: Any) -> None:
    """One line of JSON, at once."""
    try:
        encoded = serde.encode(value)
    except SerializationError:  # an output with no JSON form; the store says so too
        encoded = serde.encode(replace(value, sample=None, trajectory=None, metadata={}))
    data.write(encoded.decode() + "\n")
    data.flush()


def first(error: BaseException) -> BaseException:
    """The first of the errors in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
