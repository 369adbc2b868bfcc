"""Run plans, with progress, and apply the gates to the results.

The outcome of a run is read from the store, so that it agrees with `wink eval show`.
"""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from ..clock import SYSTEM_CLOCK
from ..errors import RunIncompleteError, UsageError, WinkError
from ..evals import EvalResult, RunStore, open_store
from ..evals.comparison.gates import PASSED, GateResult, check_run, two_sided_confidence
from ..evals.engine.baselines import Baseline
from ..evals.engine.progress import progress_snapshot
from ..evals.engine.run import Run
from ..evals.engine.run_manifest import new_run_id
from ..evals.engine.run_options import RunOptions
from ..evals.model.redacted_ids import redact_ids
from ..evals.reporting.export import format_by_suffix, write_export, write_junit
from ..evals.reporting.github import on_github, report_to_github
from ..evals.runs import Interval
from ..evals.runs.figures import criterion_rates
from ..evals.store.find_rows import rows_of_keys
from ..evals.store.overview import Overview, overview
from ..evals.store.run_record import scope_of
from ..internal.concurrency import unwrap_exception_group
from ..internal.names import file_name
from .console.comparison import outcomes_of_file
from .console.json_output import run_data, write_line
from .console.progress_bar import console, run_showing_progress
from .console.streams import print_commands
from .console.styled_text import one_line
from .console.summary import RunEnding, ending, figures_of, suites_text
from .guard import report_run
from .options.execution import command_of
from .options.parsing import minimums, pairs
from .options.runs import store_path
from .options.sample_selection import why_empty
from .plan import Plan, check_api_key, plan_data, plan_text, plans_of

EXIT_CODES = {"passed": 0, "failed": 1, "undecided": 3, "inconclusive": 5}


def run_all(args: Namespace) -> int:
    """Run the suites of a command line and return the highest of their exit codes."""
    data, to = sys.stdout, console()
    _check(args)
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for data alone
        plans = plans_of(args, stack)
        if len(plans) > 1 and args.resume:
            names = ", ".join(plan.target for plan in plans)
            raise UsageError(
                f"expected one suite for --resume, got {len(plans)} - name one: {names}"
            )
        chosen = [plan for plan in plans if plan.total]
        if not chosen:
            reason = why_empty(plans[0].suite.dataset, args.filter)
            to.print(f"wink: nothing selected: {reason}", soft_wrap=True)
            return 4
        if args.dry_run:
            return _dry_run(args, chosen, data, to)
        check_api_key(args.model)
        check_api_key(args.judge_model)
        store = stack.enter_context(open_store(store_path(args)))
        outcomes: list[RunEnding] = []
        several = len(plans) > 1
        for plan, own_args in _separate_outputs(args, chosen) if several else [(chosen[0], args)]:
            outcomes.append(_run(own_args, plan, store, data, to, alone=not several))
            if outcomes[-1].code == 130:
                break
        else:
            if several:
                outcomes = _write_together(args, outcomes, store, to)
        if several:
            to.print(suites_text(outcomes), soft_wrap=True)
        code = max(outcome.code for outcome in outcomes)
        if (
            several
            and code != 130
            and (problem := ungated(args, (each.found for each in outcomes)))
        ):
            to.print(f"wink: {problem}", soft_wrap=True, style="red")
            code = max(code, 2)
        if args.format == "json":
            write_line(data, {"exit_code": code, "runs": [*map(run_data, outcomes)]})
    return code


def _check(args: Namespace) -> None:
    """Complete and check the options, before any user code is imported."""
    if not args.targets and args.resume and args.resume.partition(":")[0].endswith(".py"):
        args.targets, args.resume = [args.resume], "latest"  # `--resume FILE.py`: it takes no file
    if args.retry_errors and args.resume is None:
        args.resume = "latest"
    check_output(args)


def check_output(args: Namespace) -> None:
    """Raise UsageError for an unknown format of --output, before there are results to write."""
    for path in map(Path, args.output):
        if not _is_folder(path):
            format_by_suffix(path)
    minimums(args.fail_under)


def _separate_outputs(args: Namespace, plans: list[Plan]) -> Iterator[tuple[Plan, Namespace]]:
    """Yield each plan with its own files of --output: `out-NAME.csv` and `folder/NAME`.

    JUnit XML has room for several suites, and is written when all have run.
    """
    taken: set[str] = set()
    for plan in plans:
        name, number = file_name(plan.name), 1
        while name in taken:
            number += 1
            name = f"{file_name(plan.name)}-{number}"
        taken.add(name)
        paths = {path: _suite_path(Path(path), name) for path in args.output}
        separate = [str(own) for path, own in paths.items() if not _is_junit(Path(path))]
        # Resuming this suite alone must not overwrite the results of the others.
        alone = Namespace(**{**vars(args), "output": [*map(str, paths.values())]})
        plan = replace(plan, command=command_of(alone, plan.target))
        yield plan, Namespace(**{**vars(args), "output": separate})


def _suite_path(path: Path, name: str) -> Path:
    return path / name if _is_folder(path) else path.with_name(f"{path.stem}-{name}{path.suffix}")


def _is_junit(path: Path) -> bool:
    return not _is_folder(path) and format_by_suffix(path) == "junit"


def _write_together(
    args: Namespace, outcomes: list[RunEnding], store: RunStore, to: Console
) -> list[RunEnding]:
    """Write all suites into the JUnit files of --output."""
    runs = [_junit_run(args, outcome) for outcome in outcomes]
    for path in filter(_is_junit, map(Path, args.output)):
        try:
            write_junit(store, runs, path)
        except (OSError, WinkError) as error:
            last = _not_written(args, outcomes[-1], path, error, to)
            outcomes = [*outcomes[:-1], last]
    return outcomes


def _junit_run(args: Namespace, outcome: RunEnding) -> tuple[str, GateResult | None]:
    """Return the run, with its gate if the failures in JUnit XML follow that."""
    run_id = outcome.found.record.manifest.run_id
    return run_id, outcome.gate if args.junit_failures == "gate" else None


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


def _run(
    args: Namespace, plan: Plan, store: RunStore, data: TextIO, to: Console, *, alone: bool
) -> RunEnding:
    run = _build_run(args, plan, store, to)

    async def emit(position: int, result: EvalResult[Any]) -> None:
        if args.format == "jsonl":
            write_line(data, redact_ids(result))

    again = ["wink", "eval", "resume", run.run_id, *(["--store", args.store] if args.store else [])]
    in_flight = store.in_flight_file(run.run_id)
    report_run(run.run_id, shlex.join(again), store.location, in_flight)
    began = SYSTEM_CLOCK.monotonic()
    interrupted, ended_by = False, ""
    now = partial(progress_snapshot, run, plan.total, began)
    try:
        run_showing_progress(partial(run.execute, emit), now, args, to, data)
    except KeyboardInterrupt:
        if not hasattr(run, "engine"):  # before anything was stored
            raise
        interrupted = True
    except BaseException as raised:
        error = unwrap_exception_group(raised)
        if not (isinstance(error, RunIncompleteError) or run.ended_from_inside(error)):
            raise error from raised.__cause__
        ended_by = f"{type(error).__name__}: {error}".rstrip(": ")
    seconds = SYSTEM_CLOCK.monotonic() - began
    outcome = outcome_of(args, store, run.run_id, seconds, plan.config.epochs, alone=alone)
    record = outcome.found.record
    stored = f"{record.stored:,} of {plan.total:,} are stored"
    decision = record.manifest.decision
    code, rule = outcome.code, outcome.rule
    if code == 0 and decision is not None and decision.outcome == "worse":
        code, rule = 1, decision.verdict
    if ended_by:
        what = one_line(f"the agent, an evaluator or a callback ended the event loop ({ended_by})")
        code, rule = 3, f"{what}; {stored}"
    if interrupted:
        code, rule = 130, f"interrupted, {stored}"
    return finish(args, replace(outcome, code=code, rule=rule, cache=plan.cache), store, to)


def outcome_of(
    args: Namespace, store: RunStore, run_id: str, seconds: float, epochs: int, *, alone: bool
) -> RunEnding:
    """Return how a run ended, with the exit code that the gates decide.

    A run `alone` must have all criteria of --fail-under; of several suites, one must have each.
    """
    found = overview(store, run_id)
    decided = gate(args, store, found)
    code = EXIT_CODES[decided.outcome]
    if alone and code != 3 and (problem := ungated(args, [found])):
        decided, code = GateResult("undecided", problem), 2
    return RunEnding(
        found=found,
        worst=rows_of_keys(store, run_id, found.worst),
        code=code,
        rule=decided.reason,
        gate=decided,
        seconds=seconds,
        epochs=epochs,
        figures=figures_of(store, found),
    )


def finish(args: Namespace, outcome: RunEnding, store: RunStore, to: Console) -> RunEnding:
    """Print how the run ended, then write the files of --output.

    In this order, so that the verdict is printed even if a file cannot be written (exit code 2).
    """
    to.print(ending(outcome, to, args.store, brief=args.quiet), soft_wrap=True)
    if on_github():
        notes = report_to_github(
            outcome.found,
            outcome.worst,
            code=outcome.code,
            rule=outcome.rule,
            fail_under=minimums(args.fail_under).get(PASSED),
        )
        print_commands(notes)
    if outcome.code == 130:
        return outcome
    for path in map(Path, args.output):
        try:
            _write_output(args, outcome, store, path)
        except (OSError, WinkError) as error:
            outcome = _not_written(args, outcome, path, error, to)
    return outcome


def _write_output(args: Namespace, outcome: RunEnding, store: RunStore, path: Path) -> None:
    run_id = outcome.found.record.manifest.run_id
    if _is_folder(path):
        store.report(run_id).save(path)
    elif _is_junit(path):
        write_junit(store, [_junit_run(args, outcome)], path)
    else:
        write_export(store, run_id, path)


def _not_written(
    args: Namespace, outcome: RunEnding, path: Path, error: Exception, to: Console
) -> RunEnding:
    run_id = outcome.found.record.manifest.run_id
    store = ["--store", args.store] if args.store else []
    again = shlex.join(["wink", "eval", "export", run_id, *store, "-o", str(path)])
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    rule = one_line(
        f"the results could not be written to {path}: {reason} - the run is stored "
        f"({store_path(args)}), so export it again: {again}"
    )
    to.print(f"wink: {rule}", soft_wrap=True, style="red")
    return replace(outcome, code=2, rule=rule)


def _build_run(args: Namespace, plan: Plan, store: RunStore, to: Console) -> Run:
    """Return the run, ready to start; print what it is and its id first."""
    earlier = None if args.resume is None else store.run(args.resume)
    run_id = new_run_id() if earlier is None else earlier.manifest.run_id
    if not args.quiet:
        by = ", ".join(plan.evaluators)
        to.print(one_line(f"{plan.name}: {plan.agent_label}, {plan.how_many}, by {by}"))
        if plan.warning:
            to.print(f"warning: {plan.warning}", style="yellow", soft_wrap=True)
        stored = "" if earlier is None else f", {_progress(earlier.stored, plan.total)} are stored"
        to.print(f"run {run_id}{stored}", style="dim")
    options = RunOptions(
        store=store,
        run_id=run_id,
        resume=None if earlier is None else run_id,
        retry_errors=args.retry_errors,
        force=args.force,
        suite=plan.suite_name,
        tags=pairs(args.tag, "--tag"),
        command=plan.command,
        on_note=lambda note: None if args.quiet else to.print(note, style="dim"),
        baseline=_baseline_of_file(plan.config.against),
    )
    run = plan.suite.build_run(options, samples=plan.samples, config=plan.config)
    if plan.judge is not None:
        run.adapter = plan.judge
    return run


def _baseline_of_file(reference: str | None) -> Baseline | None:
    """Return the run of --against if it is a file or a folder; None if it is in the store."""
    if reference is None or (outcomes := outcomes_of_file(reference)) is None:
        return None
    passes: dict[str, tuple[int, int, str]] = {}
    for row in outcomes.rows:
        if not row.error:  # such a file does not say whether an error was the agent's
            passed, attempts, _ = passes.get(row.sample, (0, 0, ""))
            passes[row.sample] = passed + row.passed, attempts + 1, row.digest
    return Baseline(outcomes.name, passes)


def _progress(stored: int, planned: int) -> str:
    """Return `3 of 10`; without the total, if fewer are planned now than are stored."""
    return f"{stored:,} of {planned:,}" if stored <= planned else f"{stored:,} results"


def gate(args: Namespace, store: RunStore, found: Overview) -> GateResult:
    """Check a run against --max-error-rate and those of --fail-under that concern its criteria."""
    record, known, figures = found.record, _gated_names(found), found.figures
    limits = {name: rate for name, rate in minimums(args.fail_under).items() if name in known}
    rates: dict[str, Interval] = {}
    level = 0.95 if args.confidence is None else two_sided_confidence(args.confidence)
    if args.confidence is not None:
        figures = store.figures(record.manifest.run_id, confidence=level)
    if limits.keys() - {PASSED}:
        scope = scope_of(record, confidence=level)
        table = store.table(record.manifest.run_id, scope.keys, verdicts=True)
        rates = criterion_rates(table, scope)
    return check_run(
        record,
        figures,
        fail_under=limits,
        max_error_rate=args.max_error_rate or 0.0,
        rates=rates,
        confidence=args.confidence,
        force=args.force,
    )


def _gated_names(found: Overview) -> set[str]:
    """Return the names that --fail-under can refer to in a run."""
    return {
        PASSED,
        *found.figures.criteria,
        *(info.name for info in found.record.manifest.criteria),
    }


def ungated(args: Namespace, runs: Iterable[Overview]) -> str:
    """Return what is wrong with --fail-under if it names a criterion that no run has."""
    known = set().union(*map(_gated_names, runs))
    unknown = [name for name in minimums(args.fail_under) if name not in known]
    if not unknown:
        return ""
    return (
        f"expected a criterion for --fail-under, got {unknown[0]!r} - there are: "
        f"{', '.join(sorted(known - {PASSED}))}; the results are stored"
    )
