"""`wink eval score`: score a stored run with other evaluators. No agent runs; judges ask a model.

The result is a new run; the old one stays as it is.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from asyncio import CancelledError
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...errors import RunIncompleteError
from ...evals import Criterion, EvalResult, RunStore, all_of, criterion
from ...evals.engine.rescoring import rescore
from ...evals.model.quarantine import quarantine_line
from ...evals.reporting.documents import record_data
from ...evals.reporting.export import verdict_of
from ...evals.runs.figures import Figures
from ...evals.store import RunRecord
from ...evals.store.overview import overview
from ...internal.event_loop import run_sync
from ..console.json_output import write_line
from ..console.progress_bar import console
from ..console.styled_text import one_line, pluralize, print_stderr
from ..console.views import lines_of_failures
from ..options.execution import add_gates, add_judge_model, add_tag, check_gates
from ..options.parsing import pairs
from ..options.runs import add_format, add_run, add_store, open_existing_store, same_store
from ..options.settings import add_setting
from ..plan import judge_model
from ..runner import EXIT_CODES, gate, ungated
from ..targets import load_reference

MAX_LISTED = 5
PARTS = ("input", "expected", "output")
UNTYPED = "'dict' object has no attribute"


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    add = parser.add_argument
    add("--evaluator", action="append", required=True, metavar="REF",
        help="contains, ..., or your own: module:object, path.py:object; repeatable")  # fmt: skip
    for part in PARTS:
        add(f"--{part}-type", metavar="REF",
            help=f"class of each {part} value, if no evaluator is annotated with it")  # fmt: skip
    add_judge_model(add)
    add_setting(add, "max_concurrent", "default 8", default=8)
    add_tag(add)
    add_gates(add, output=False)
    add_format(parser)
    add_store(parser)


class Changes:
    """The number of changed verdicts, and the first few of them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: list[EvalResult[Any]] = []
        self.untyped = False

    def record(self, before: EvalResult[Any], after: EvalResult[Any]) -> None:
        """Compare the new result of a row with the old one."""
        self.untyped |= after.error is not None and UNTYPED in after.error
        was, now = verdict_of(before), verdict_of(after)
        if was != now:
            change = f"{was} to {now}"
            self.counts[change] = self.counts.get(change, 0) + 1
            self.first = [*self.first, after][:MAX_LISTED]

    def __str__(self) -> str:
        total = sum(self.counts.values())
        kinds = ", ".join(f"{count} from {change}" for change, count in self.counts.items())
        line = f"{pluralize(total, 'verdict')} changed"
        return f"{line}: {kinds}" if total else line


class EventLoopEnded(Exception):
    """An evaluator cancelled our tasks, stopped the event loop, or exited in a callback."""


def run(args: Namespace) -> int:
    """Return the exit codes of `wink eval run`."""
    check_gates(args)
    data, changes = sys.stdout, Changes()
    with redirect_stdout(sys.stderr), open_existing_store(args) as store:  # stdout is for data only
        before = store.run(args.run_id)
        if not before.stored:
            print_stderr(f"wink: nothing selected: run {before.manifest.run_id} has no rows")
            return 4
        try:
            after = store.run(_rescore(args, store, before, changes))
        except KeyboardInterrupt:
            print_stderr("wink: interrupted - the run is unchanged; run the command again")
            return 130
        except EventLoopEnded as error:
            print_stderr(
                f"wink: an evaluator or a callback ended the event loop ({error}) - "
                "the run is unchanged; run the command again"
            )
            return 3
        figures = [store.figures(each.manifest.run_id) for each in (before, after)]
        found = overview(store, after.manifest.run_id)
        decided = gate(args, store, found)
    code, rule = EXIT_CODES[decided.outcome], decided.reason
    if problem := ungated(args, [found]):
        code, rule = 2, problem
    to = console()
    to.print(
        Group(
            *_lines((before, after), figures, changes, to),
            Text(f"exit {code}: {rule}", "" if code else "dim"),
            Text.assemble(
                ("details: ", "dim"), f"wink eval show {after.manifest.run_id}{same_store(args)}"
            ),
        )
    )
    if args.format == "json":
        document = {
            "exit_code": code,
            "rule": rule,
            "changed": changes.counts,
            "before": record_data(before, figures[0]),
            "after": record_data(after, figures[1]),
        }
        write_line(data, document)
    return code


def _rescore(args: Namespace, store: RunStore, before: RunRecord, changes: Changes) -> str:
    """Score the run with the new evaluators, and return the id of the new run."""
    call = partial(
        rescore,
        store,
        before.manifest.run_id,
        _criterion(args.evaluator),
        adapter=judge_model(args),
        types=_types(args),
        tags=pairs(args.tag, "--tag"),
        max_concurrent=args.max_concurrent,
        on_result=changes.record,
    )
    try:
        return run_sync(call)
    except (CancelledError, SystemExit, RunIncompleteError) as error:
        raise EventLoopEnded(type(error).__name__) from error
    except RuntimeError as error:
        if "Event loop stopped before Future completed" not in str(error):
            raise
        raise EventLoopEnded("loop.stop()") from error


def _criterion(references: list[str]) -> Criterion:
    evaluators = [load_reference(reference, "evaluator") for reference in references]
    return criterion(evaluators[0]) if len(evaluators) == 1 else all_of(*evaluators)


def _types(args: Namespace) -> dict[str, Any]:
    references = {f"{part}_type": getattr(args, f"{part}_type") for part in PARTS}
    return {
        name: load_reference(reference, name.replace("_", "-"))
        for name, reference in references.items()
        if reference
    }


def _lines(
    records: Sequence[RunRecord], figures: Sequence[Figures], changes: Changes, to: Console
) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for label, record, found in zip(("before", "after"), records, figures, strict=True):
        names = ", ".join(info.name for info in record.manifest.criteria)
        lines.append(Text.assemble((f"{label:<8}", "dim"), one_line(names)))
        outside = quarantine_line(found.quarantined)
        words = " - ".join(filter(None, (str(found), outside)))
        lines.append(Text(f"        {words}", "bold"))
    epochs = any(result.epoch > 1 for result in changes.first)
    lines += ["", Text(str(changes)), *lines_of_failures(changes.first, to, epochs=epochs)]
    if changes.untyped:
        lines.append("Stored outputs are plain data: annotate `output`, or use --output-type REF.")
    return [*lines, ""]
