"""`wink eval trend`: do the latest runs of a dataset get better or worse, and since when?

Runs of one suite, dataset, agent, model, judge model and experiment are one line of development.
Each line is shown separately: a difference between two agents is not a trend.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from ...errors import UsageError
from ...evals import RunStore
from ...evals.comparison import (
    Measure,
    RunOutcomes,
    RunTrend,
    compare_runs,
    describe_differences,
    run_trend,
)
from ...evals.comparison.outcomes import incomparable, stored_outcomes
from ...evals.comparison.trend import DEFAULT_LOOKS, MIN_RUNS, adjusted_steps
from ...evals.reporting.documents import record_data
from ...evals.runs import Interval
from ...evals.runs.figures import Figures
from ...evals.store import RunRecord
from ...evals.store.run_titles import agent_label, experiment_name, judge_model_name, version_labels
from ..console.comparison import COLOURS, measure_data, p_value_text
from ..console.json_output import write_line
from ..console.styled_text import ago, one_line, print_stderr
from ..console.text_tables import (
    WIDE,
    columns,
    print_stdout,
    rate_text,
    rate_title,
    screen,
    short_ids,
    tags_text,
    without_empty,
)
from ..options.parsing import whole_number
from ..options.runs import (
    add_confidence,
    add_format,
    add_run_filters,
    add_store,
    matching_runs,
    open_existing_store,
    same_store,
    used_filters,
)
from ..options.settings import add_setting

DEFAULT_RUNS = 10
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*#@"  # for encodings without block characters
RIGHT = {"passed", "quarantined", "step", "p"}


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--last", type=whole_number(1), default=DEFAULT_RUNS, metavar="N",
        help=f"number of runs of each agent (default {DEFAULT_RUNS})")  # fmt: skip
    add("--looks", type=whole_number(1), default=DEFAULT_LOOKS, metavar="N",
        help="how often you look at this trend, as after every run; 1 for a single look "
        f"(default {DEFAULT_LOOKS})")  # fmt: skip
    add_setting(add, "cluster_by", "default: that of the runs")
    add_run_filters(parser, " (default: that of the latest run)")
    add_format(parser)
    add_confidence(parser)
    add_store(parser)


@dataclass(frozen=True, slots=True)
class TrendStep:
    """A run and its change from the run before, or the reason why they are not comparable."""

    figures: Figures
    measure: Measure | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The runs of one suite, dataset, agent, model and experiment, oldest first."""

    records: Sequence[RunRecord]
    steps: Sequence[TrendStep]
    trend: RunTrend

    @property
    def title(self) -> str:
        """What the runs have in common, in words."""
        manifest = self.records[0].manifest
        suite = "" if manifest.suite == manifest.dataset_name else manifest.suite
        agent = agent_label(manifest.agent, manifest.model)
        names = [suite, manifest.dataset_name or "(no name)", agent, experiment_name(manifest)]
        if judge := judge_model_name(manifest):
            names.append(f"judged by {judge}")
        return one_line(", ".join(filter(None, names)))


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the trend."""
    with open_existing_store(args) as store:
        lines = [_line(store, records, args) for records in _groups(store, args)]
    if args.format == "json":
        data = [
            {
                **record_data(record, step.figures),
                "step": _step_data(step),
                "trend": _trend_data(line.trend) if record is line.records[-1] else None,
            }
            for line in lines
            for record, step in zip(line.records, line.steps, strict=True)
        ]
        write_line(sys.stdout, data)
        return 0
    to = screen()
    for line in lines:
        between = [Text()] if line is not lines[0] else []
        print_stdout(to, *between, *_view(line, to.width))
    _print_notes(lines, same_store(args), args.looks)
    return 0


def _line(store: RunStore, records: Sequence[RunRecord], args: Namespace) -> Line:
    runs = [
        stored_outcomes(
            store,
            record.manifest.run_id,
            cluster_by=args.cluster_by,
            confidence=args.confidence,
        )
        for record in records
    ]
    options = {"cluster_by": args.cluster_by, "confidence": args.confidence}
    return Line(records, _steps(runs, args), run_trend(runs, looks=args.looks, **options))


def _print_notes(lines: Sequence[Line], store_option: str, looks: int) -> None:
    notes = [
        f"note: {record.manifest.run_id} is not compared with the run before: {step.problem}"
        for line in lines
        for record, step in zip(line.records, line.steps, strict=True)
        if step.problem
    ]
    notes += [
        f"note: {warning}"
        for line in lines
        if len(line.records) >= MIN_RUNS
        for warning in line.trend.warnings
    ]
    notes += [
        f"note: the runs of {line.title} are {problem}"
        for line in lines
        if (problem := describe_differences([record.manifest for record in line.records]))
    ]
    notes += [
        f"note: run {record.manifest.run_id} {record.mixed}"
        for line in lines
        for record in line.records
        if record.mixed
    ]
    counts = [sum(step.measure is not None for step in line.steps) for line in lines]
    if max(counts) > 1:
        notes.append("note: p-values are adjusted for multiple comparisons (Holm)")
    if max(counts) > 0:
        notes.append(f"note: {_looks_text(looks)}")
    ids = [record.manifest.run_id for record in lines[0].records]
    if lines[0].steps[-1].measure is not None:
        notes.append(f"The last step: wink eval compare {ids[-2]} {ids[-1]}{store_option}")
    if notes:
        print_stderr("", *map(one_line, notes))


def _groups(store: RunStore, args: Namespace) -> list[list[RunRecord]]:
    """Return the latest complete runs by what they have in common, the newest group first."""
    complete = [each for each in store.runs() if each.status == "complete" and each.total]
    records = matching_runs(complete, args)
    if args.dataset is None and records:
        newest = records[0].manifest.dataset_name
        records = [record for record in records if record.manifest.dataset_name == newest]
    if not records:
        known = dict.fromkeys(record.manifest.dataset_name or "(no name)" for record in complete)
        listed = ", ".join([*known][:8]) or "there are none"
        raise UsageError(
            f"expected complete runs{f' with {used_filters(args)}' if complete else ''}, found "
            f"none - datasets with runs: {listed}"
        )
    groups: dict[tuple[str | None, ...], list[RunRecord]] = {}
    for record in records:
        manifest = record.manifest
        names = (manifest.suite, manifest.agent, manifest.model, experiment_name(manifest))
        key = (manifest.dataset_name, *names, judge_model_name(manifest))
        groups.setdefault(key, []).append(record)
    return [group[: args.last][::-1] for group in groups.values()]


def _steps(runs: Sequence[RunOutcomes], args: Namespace) -> list[TrendStep]:
    """Return one step for each run, with p-values adjusted together."""
    steps: list[TrendStep] = []
    before: RunOutcomes | None = None
    for after in runs:
        problems = incomparable(before, after) if before else []
        measure = None
        if before and not problems:
            measure = compare_runs(
                before, after, cluster_by=args.cluster_by, confidence=args.confidence
            ).measure
        steps.append(TrendStep(after.figures, measure, "; ".join(problems)))
        before = after
    p_values = [step.measure.difference.p_value for step in steps if step.measure is not None]
    adjusted = iter(adjusted_steps(p_values, args.looks))
    return [
        replace(step, measure=step.measure and replace(step.measure, adjusted=next(adjusted)))
        for step in steps
    ]


def _looks_text(looks: int) -> str:
    """Return what the false alarms are adjusted for."""
    if looks == 1:
        return "p-values are for a single look; if you look after every run: --looks N"
    return (
        f"p-values and the intervals of the trend are adjusted for {looks} looks, as after every "
        "run: equal runs give a false alarm in about 5% of such series (--looks)"
    )


def _view(line: Line, width: int) -> list[Text]:
    records, steps = line.records, line.steps
    figures = [step.figures for step in steps]
    rates = [step.figures.rate.estimate for step in steps]
    wide = width >= WIDE
    manifests = [record.manifest for record in records]
    versions = version_labels([""] * len(records), [each.agent_version for each in manifests])
    table = {
        "run": [Text(one_line(run_id), "bold") for run_id in short_ids(records, whole=wide)],
        "when": [Text(ago(record.manifest.created_at)) for record in records],
        "version": [Text(one_line(version or "-")) for version in versions],
        "tags": [Text(one_line(tags_text(each.tags) or "-")) for each in manifests],
        "passed": [Text(f"{each.passed}/{each.total}") for each in figures],
        "quarantined": [Text(f"{r.quarantined:,}" if r.quarantined else "") for r in records],
        rate_title(figures[0].rate): [rate_text(each.rate) for each in figures],
        "": [Text(bar) for bar in _bars(rates)],
    }
    cells = zip(*map(_cells, steps), strict=True)
    table |= {title: list(column) for title, column in zip(("step", "p", " "), cells, strict=True)}
    if not wide:
        del table["when"]  # the ids begin with it
    if not versions:
        del table["version"]
    if not any(manifest.tags for manifest in manifests):
        del table["tags"]
    scale = f"{min(rates):.1%} to {max(rates):.1%}" if len(rates) > 1 else ""
    head = Text.assemble((line.title, "bold"), f"  {_bars(rates)}  ", (scale, "dim"))
    table = without_empty(table, "quarantined")
    body = columns(
        table,
        width,
        right=RIGHT | {rate_title(figures[0].rate)},
        shrink=("tags",),
        drop=("tags", "passed", "version"),
    )
    sentences = [Text(one_line(each)) for each in line.trend.sentences()]
    return [head, Text(), body, *([Text()] if sentences else []), *sentences]


def _bars(rates: Sequence[float]) -> str:
    """Return a bar for each rate, scaled from the lowest to the highest."""
    try:
        BARS.encode(sys.stdout.encoding or "utf-8")
        bars = BARS
    except UnicodeEncodeError:
        bars = ASCII_BARS
    low, high = min(rates), max(rates)
    if low == high:
        return bars[3] * len(rates)
    return "".join(bars[round((rate - low) / (high - low) * (len(bars) - 1))] for rate in rates)


def _cells(step: TrendStep) -> tuple[Text, Text, Text]:
    """Return the change, its p-value and its outcome."""
    measure = step.measure
    if measure is None:
        return Text(), Text(), Text("no match" if step.problem else "", "yellow")
    change = measure.amount(measure.difference.delta.estimate, sign=True, unit=False)
    outcome = Text(measure.outcome.replace("none", ""), COLOURS[measure.outcome])
    return Text(change), Text(p_value_text(measure.adjusted)), outcome


def _step_data(step: TrendStep) -> dict[str, Any] | None:
    if step.measure is not None:
        return measure_data(step.measure)
    return {"problem": step.problem} if step.problem else None


def _trend_data(trend: RunTrend) -> dict[str, Any]:
    line, step = trend.line, trend.step
    return {
        "outcome": trend.outcome,
        "runs": [run.name for run in trend.runs],
        "looks": trend.looks,
        "line": line
        and {
            **_change_data(line.slope, line.p_value),
            "total": line.total.estimate,
            "n": line.slope.n,
            "clusters": line.slope.clusters,
        },
        "step": step
        and {
            **_change_data(step.difference, step.p_value),
            "shown": trend.stepped,
            "before": trend.runs[step.run - 1].name,
            "after": trend.runs[step.run].name,
        },
        "sentences": trend.sentences(),
        "warnings": trend.warnings,
    }


def _change_data(change: Interval, p_value: float | None) -> dict[str, Any]:
    ends = [change.low, change.high] if change.known else [None, None]
    return {
        "change": change.estimate,
        "interval": ends,
        "confidence": change.confidence,
        "p": p_value,
    }
