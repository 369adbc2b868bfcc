"""`wink eval trend`: the last runs of a dataset, and which of the steps are differences."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._comparing import COLOURS, add_confidence, measure_data
from ._eval_run import whole
from ._views import (
    add_store,
    ago,
    columns,
    open_store,
    out,
    rate_text,
    record_data,
    same_store,
    say,
    screen,
    short_ids,
)

if TYPE_CHECKING:
    from rich.text import Text

    from ..evals import RunRecord, RunStore
    from ..evals._comparison import Measure
    from ..evals._outcomes import RunOutcomes
    from ..evals.statistics import Interval

__all__ = ["configure", "run"]

LAST = 10
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-=+*#@"  # where the encoding has no bars
RIGHT = {"passed", "rate (95%)", "step", "p"}


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    add = parser.add_argument
    add("--last", type=whole(1), default=LAST, metavar="N", help=f"how many runs ({LAST})")
    add("--dataset", metavar="NAME", help="of which dataset (that of the latest run)")
    add("--format", choices=("text", "json"), default="text", help="text to read, or data")
    add_confidence(parser)
    add_store(parser)


@dataclass(frozen=True, slots=True)
class Step:
    """A run, and what came before it: how the pass rate differs, or why that cannot be said."""

    rate: Interval
    measure: Measure | None = None
    problem: str = ""


def run(args: Namespace) -> int:
    """Exit code 0: this only looks."""
    from .. import serde

    with open_store(args) as store:
        records = _records(store, args)
        steps = _steps(store, records, args.confidence)
    if args.format == "json":
        data = [
            {**record_data(record, step.rate), "step": _step_data(step)}
            for record, step in zip(records, steps, strict=True)
        ]
        sys.stdout.write(serde.encode(data).decode() + "\n")
        return 0
    to = screen()
    out(to, *_told(records, steps, to.width))
    _say(records, steps, same_store(args))
    return 0


def _say(records: Sequence[RunRecord], steps: Sequence[Step], where: str) -> None:
    from ._summary import harmless

    ids = [record.manifest.run_id for record in records]
    notes = [
        f"note: {run_id} is not compared with the one before: {step.problem}"
        for run_id, step in zip(ids, steps, strict=True)
        if step.problem
    ]
    if sum(step.measure is not None for step in steps) > 1:
        notes.append("note: p is raised (after Holm): several steps are looked at together")
    if steps[-1].measure is not None:
        notes.append(f"The last step: wink eval compare {ids[-2]} {ids[-1]}{where}")
    if notes:
        say("", *map(harmless, notes))


def _records(store: RunStore, args: Namespace) -> list[RunRecord]:
    """The last complete runs of the dataset, oldest first."""
    found = [each for each in store.runs() if each.status == "complete" and each.total]
    known = list(dict.fromkeys(each.manifest.dataset_name for each in found))
    name = args.dataset if args.dataset is not None else next(iter(known), None)
    found = [each for each in found if each.manifest.dataset_name == name]
    if not found:
        listed = ", ".join(each or "(no name)" for each in known[:8]) or "there are none"
        raise UsageError(
            f"expected complete runs of {'a dataset' if name is None else repr(name)}, found none "
            f"- datasets with runs: {listed}"
        )
    return found[: args.last][::-1]


def _steps(store: RunStore, records: Sequence[RunRecord], confidence: float) -> list[Step]:
    """One for each run; their p-values are adjusted together, after Holm."""
    from ..evals._compare import compare_runs
    from ..evals._outcomes import incomparable, stored_outcomes
    from ..evals.statistics import holm

    steps: list[Step] = []
    before: RunOutcomes | None = None
    for record in records:
        after = stored_outcomes(store, record.manifest.run_id)
        problems = incomparable(before, after) if before else []
        measure = None
        if before and not problems:
            measure = compare_runs(before, after, confidence=confidence).measure
        steps.append(Step(after.rate, measure, "; ".join(problems)))
        before = after
    judged = [step.measure.difference.p_value for step in steps if step.measure is not None]
    adjusted = iter(holm([1.0 if p is None else p for p in judged]))
    return [
        replace(step, measure=step.measure and replace(step.measure, adjusted=next(adjusted)))
        for step in steps
    ]


def _told(records: Sequence[RunRecord], steps: Sequence[Step], width: int) -> list[Text]:
    from rich.text import Text

    from ._summary import harmless

    rates = [step.rate.estimate for step in steps]
    name = records[0].manifest.dataset_name or "(no name)"
    wide = width >= 110
    table = {
        "run": [Text(harmless(name), "bold") for name in short_ids(records, whole=wide)],
        "when": [Text(ago(record.manifest.created_at)) for record in records],
        "agent": [Text(harmless(r.manifest.model or r.manifest.agent or "-")) for r in records],
        "passed": [Text(f"{record.passed}/{record.total}") for record in records],
        "rate (95%)": [rate_text(step.rate) for step in steps],
        "": [Text(bar) for bar in _bars(rates)],
        "step": [Text(_change(step)) for step in steps],
        "p": [Text(_p(step)) for step in steps],
        " ": [_word(step) for step in steps],
    }
    if not wide:
        del table["when"]  # ids begin with it
    head = Text.assemble((harmless(name), "bold"), f"  {_bars(rates)}  ", (_scale(rates), "dim"))
    told = columns(table, width, right=RIGHT, shrink=("agent",), drop=("agent", "passed"))
    return [head, Text(), told]


def _bars(rates: Sequence[float]) -> str:
    """A bar for each rate, from the lowest to the highest there is."""
    try:
        BARS.encode(sys.stdout.encoding or "utf-8")
        bars = BARS
    except UnicodeEncodeError:
        bars = PLAIN_BARS
    low, high = min(rates), max(rates)
    if low == high:
        return bars[3] * len(rates)
    return "".join(bars[round((rate - low) / (high - low) * (len(bars) - 1))] for rate in rates)


def _scale(rates: Sequence[float]) -> str:
    return f"{min(rates):.0%} to {max(rates):.0%}" if len(rates) > 1 else ""


def _change(step: Step) -> str:
    measure = step.measure
    if measure is None:
        return ""
    return measure.amount(measure.difference.delta.estimate, sign=True, unit=False)


def _p(step: Step) -> str:
    if step.measure is None or step.measure.adjusted is None:
        return ""
    return "<0.001" if step.measure.adjusted < 0.001 else f"{step.measure.adjusted:.3f}"


def _word(step: Step) -> Text:
    from rich.text import Text

    if step.measure is None:
        return Text("no match" if step.problem else "", "yellow")
    outcome = step.measure.outcome
    return Text("" if outcome == "none" else outcome, COLOURS[outcome])


def _step_data(step: Step) -> dict[str, Any] | None:
    if step.measure is not None:
        return measure_data(step.measure)
    return {"problem": step.problem} if step.problem else None
