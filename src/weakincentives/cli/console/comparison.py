"""Comparisons of runs: which runs, and how they read as text, as Markdown and as JSON."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ...evals import EvalReport, RunStore
from ...evals.comparison import (
    Flip,
    FlipDetails,
    FlipDivergences,
    FlipSide,
    Measure,
    RunComparison,
    RunOutcomes,
    Work,
    count_divergences,
    describe_divergences,
    flip_details,
    flip_divergences,
    load_baseline,
)
from ...evals.comparison.corrected import CorrectedChange
from ...evals.comparison.outcomes import report_outcomes, stored_outcomes
from ...evals.reporting.documents import figures_data
from ...evals.reporting.export import inline
from ...evals.runs import FEW
from ...evals.store.run_titles import agent_labels, version_labels
from ...internal.escaping import escape_control_chars
from ...internal.formatting import duration, verdict_word
from ...internal.matching import ANSWER_STEPS
from ...internal.text_differences import DiffPart
from ..options.runs import open_existing_store
from .styled_text import one_line, pluralize, print_stderr
from .text_tables import WIDE, columns, label_width, rate_text, rate_title, table_width, tags_text

COLOURS = {"better": "green", "worse": "red", "none": "dim"}
DIFF_COLOURS = {"same": "", "removed": "red", "added": "green"}
RIGHT = {"A", "B", "change", "p", "n"}
LABELS = {"passed": "passed %", "latency_ms": "latency ms", "cost": "cost $"}
MAX_MARKDOWN_CHANGES = 20
INDENT = " " * 6
TOO_MUCH_TEXT = "(too much text: not everything was compared word by word)"


def find_runs(
    args: Namespace,
    references: Iterable[str],
    by: str | None = None,
    cluster_by: str | None = None,
) -> list[RunOutcomes]:
    """Return the outcomes of runs; with `by` and `cluster_by`, sliced and clustered by those keys.

    The store is opened only if a reference needs it.
    """
    with ExitStack() as stack:
        store = cache(lambda: stack.enter_context(open_existing_store(args)))
        return [_find_run(reference, store, by, cluster_by) for reference in references]


def _find_run(
    reference: str, open_once: Callable[[], RunStore], by: str | None, cluster_by: str | None
) -> RunOutcomes:
    if (outcomes := outcomes_of_file(reference, by, cluster_by)) is not None:
        return outcomes
    path, store = Path(reference), open_once()
    try:
        run_id = store.run(reference).manifest.run_id
    except UsageError as error:
        if path.suffix or len(path.parts) > 1:  # the user meant a path
            raise UsageError(f"{error}; nor is there a file or a folder {reference!r}") from None
        raise
    return stored_outcomes(store, run_id, by, cluster_by)


def outcomes_of_file(
    reference: str, by: str | None = None, cluster_by: str | None = None
) -> RunOutcomes | None:
    """Return the outcomes of a baseline file or of a saved report; None if it is neither."""
    path = Path(reference)
    if path.is_file():
        return load_baseline(path)
    if (path / "config.json").is_file():
        return report_outcomes(EvalReport.load(path), by, cluster_by)
    return None


def read_flips(
    args: Namespace,
    references: Sequence[str],
    comparisons: Sequence[RunComparison],
    maximum: int | None,
    *,
    diverging: bool = False,
) -> tuple[list[tuple[FlipDetails, ...]], list[FlipDivergences]]:
    """Return, for each comparison, the texts of the flips that are listed (None: of all).

    With `diverging`, also return where the trajectories of all flips first diverge.
    """
    details, divergences = [], []
    comparing, aligning = Work(ANSWER_STEPS), Work(ANSWER_STEPS)  # for all comparisons together
    with ExitStack() as stack:
        store = cache(lambda: stack.enter_context(open_existing_store(args)))
        before, *others = [_source_of(reference, store) for reference in references]
        others = others or [before] * len(comparisons)  # one run: its experiments
        for comparison, after in zip(comparisons, others, strict=True):
            listed = _listed(comparison, maximum)
            details.append(flip_details(comparison, before, after, listed, comparing))
            if diverging:
                divergences.append(flip_divergences(comparison, before, after, work=aligning))
    return details, divergences


def _source_of(
    reference: str, open_once: Callable[[], RunStore]
) -> EvalReport[Any] | RunStore | None:
    """Return where the texts of a run are; None for a baseline, which has none."""
    path = Path(reference)
    if path.is_file():
        return None
    return EvalReport.load(path) if (path / "config.json").is_file() else open_once()


def _listed(comparison: RunComparison, maximum: int | None) -> list[Flip]:
    """Return the flips that are listed, the broken ones first."""
    groups = ([f for f in comparison.flips if f.fixed is fixed] for fixed in (False, True))
    return [flip for group in groups for flip in group[:maximum]]


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning once, to stderr; on a terminal, wrap without cutting ids."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 1_000_000
    wrap = partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
    if lines := [f"note: {one_line(warning)}" for warning in dict.fromkeys(warnings)]:
        print_stderr("", *map(wrap, lines))


# ── as text ─────────────────────────────────────────────────────────────────────────────────────


def facts_line(run: RunOutcomes) -> str:
    """Return `31/40 passed, 2 errors`, and the number of quarantined samples."""
    found = run.figures
    # A baseline has no rows of samples in quarantine, but their ids.
    outside = found.quarantined or (len(run.quarantined) if run.runs else 0)
    errors = pluralize(found.error_count, "error")
    note = f", {outside:,} quarantined" if outside else ""
    return f"{found.passed}/{found.total} passed, {errors}{note}"


def age_of(run: RunOutcomes) -> str:
    """Return how old a baseline is, and how many runs it was made of: `2 runs, 3 days old`."""
    runs = f"{pluralize(len(run.runs), 'run')}, " if len(run.runs) > 1 else ""
    if run.created_at is None:
        return f"{runs}age unknown"
    days = (SYSTEM_CLOCK.now() - run.created_at).days
    return f"{runs}{pluralize(days, 'day') if days > 0 else 'less than a day'} old"


def _labelled_runs(comparisons: Sequence[RunComparison]) -> list[tuple[str, RunOutcomes]]:
    others = ((comparison.label, comparison.after) for comparison in comparisons)
    return [("A", comparisons[0].before), *others]


def _names(runs: Sequence[RunOutcomes]) -> dict[str, list[str]]:
    """Return what names the runs, by column: without columns that say nothing."""
    agents = agent_labels([(run.agent, run.model) for run in runs])
    names = {
        "suite": [run.suite for run in runs],
        "agent": agents,
        "version": version_labels(agents, [run.agent_version for run in runs]),
        "tags": [tags_text(run.tags) for run in runs],
    }
    return {title: each for title, each in names.items() if title == "agent" or any(each)}


def comparison_text(
    comparisons: Sequence[RunComparison],
    width: int,
    flips: int,
    details: Sequence[Sequence[FlipDetails]],
    divergences: Sequence[FlipDivergences] = (),
) -> Iterator[RenderableType]:
    """Yield the runs, then each comparison: its verdict, its numbers, slices and flips."""
    labelled = _labelled_runs(comparisons)
    runs = [run for _, run in labelled]
    figures = [run.figures for run in runs]
    rate = rate_title(figures[0].rate)
    table = {
        "": [Text(label, "bold") for label, _ in labelled],
        "run": [Text(one_line(run.name)) for run in runs],
        **{
            title: [Text(one_line(name or "-")) for name in names]
            for title, names in _names(runs).items()
        },
        "dataset": [Text(one_line(run.dataset_name or "-")) for run in runs],
        "passed": [Text(f"{each.passed}/{each.total}") for each in figures],
        rate: [rate_text(each.rate) for each in figures],
        "errors": [Text(str(n), "red" if n else "dim") for n in (f.error_count for f in figures)],
    }
    if width < WIDE and len({run.dataset_name for run in runs}) == 1:
        del table["dataset"]
    if table_width(table) > width and len({run.suite for run in runs}) == 1:
        table.pop("suite", None)  # leave more room for the names that differ
    right = {"passed", rate, "errors"}
    shrink = ("suite", "tags", "agent", "dataset")
    drop = ("dataset", "tags", "agent", "suite")
    yield columns(table, width, right=right, shrink=shrink, drop=drop)
    for number, (comparison, changes) in enumerate(zip(comparisons, details, strict=True)):
        yield ""
        outcome = comparison.measure.outcome
        style = {"better": "bold green", "worse": "bold red"}.get(outcome, "bold")
        yield Text(one_line(str(comparison)), style)
        if comparison.corrected is not None:
            yield Text(one_line(str(comparison.corrected)))
        yield ""
        measures = [(LABELS.get(name, name), m) for name, m in comparison.measures.items()]
        yield _table("", measures, comparison, width)
        yield ""
        yield from map(Text, _counts(comparison))
        if comparison.slices:
            slices = [(slice.value, slice.measure) for slice in comparison.slices]
            notes = ["few" if slice.small else "" for slice in comparison.slices]
            yield ""
            yield _table(f"by {comparison.by}", slices, comparison, width, notes)
            if any(notes):
                yield Text(FEW, "dim")
        diverging = divergences[number] if divergences else FlipDivergences(0)
        yield from _flips(comparison, flips, changes, diverging)
        if summary := describe_divergences(count_divergences(diverging)):
            yield ""
            yield Text(f"Trajectories: {one_line(summary)}", "bold")
        if diverging.cut_off:
            yield Text(diverging.cut_off, "dim")


def p_value_text(p: float | None) -> str:
    """Return a p-value with three digits."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def comparison_markdown(
    comparisons: Sequence[RunComparison], details: Sequence[Sequence[FlipDetails]] = ()
) -> Iterator[str]:
    """Yield the verdicts and the numbers as Markdown, for a pull request."""

    def line(*cells: str) -> str:
        return f"| {' | '.join(map(inline, cells))} |"

    labelled = _labelled_runs(comparisons)
    names = _names([run for _, run in labelled])
    yield line("", "run", *names, "passed", rate_title(labelled[0][1].figures.rate))
    yield "|---" * (len(names) + 4) + "|"
    for (label, run), own in zip(labelled, zip(*names.values(), strict=True), strict=True):
        cells = (name or "-" for name in own)
        yield line(label, run.name, *cells, facts_line(run), str(rate_text(run.figures.rate)))
    for number, comparison in enumerate(comparisons):
        yield ""
        yield f"**{inline(str(comparison))}**"
        yield ""
        if comparison.corrected is not None:
            yield inline(str(comparison.corrected))
            yield ""
        interval = f"{comparison.measure.difference.delta.confidence * 100:g}% interval"
        yield line("", "n", "A", comparison.label, "change", interval, "p")
        yield "|---|--:|--:|--:|--:|--:|--:|"
        slices = {
            f"{comparison.by} = {slice.value}{' (few)' if slice.small else ''}": slice.measure
            for slice in comparison.slices
        }
        for name, measure in {**comparison.measures, **slices}.items():
            yield line(name, f"{measure.difference.delta.n:,}", *_cells(measure))
        yield ""
        yield f"{comparison.fixed:,} fixed, {comparison.broken:,} broken"
        if any(slice.small for slice in comparison.slices):
            yield ""
            yield FEW
        if details and details[number]:
            yield from _changes_markdown(comparison, details[number])


def _changes_markdown(comparison: RunComparison, changes: Sequence[FlipDetails]) -> Iterator[str]:
    """Yield a folded table of the samples that flipped: verdicts, reasons and the new output."""
    changes = changes[:MAX_MARKDOWN_CHANGES]
    more = len(comparison.flips) - len(changes)
    title = f"{len(changes):,} of {len(comparison.flips):,}" if more else f"{len(changes):,}"
    yield ""
    yield f"<details><summary>Changed samples: {title}</summary>"
    yield ""
    yield f"| sample | A | {comparison.label} | criteria | output |"
    yield "|---|---|---|---|---|"
    for change in changes:
        facts = _flip_facts(change.flip, comparison)
        name = f"{change.flip.sample} ({facts})" if facts else change.flip.sample
        cells = [name, *map(_side_text, (change.before, change.after)), _criteria_text(change)]
        parts = "".join(_marked_down(part) for part in change.diff) or _same_output(change)
        yield f"| {' | '.join(map(inline, cells))} | {parts} |"
    yield ""
    yield "</details>"


def _side_text(side: FlipSide | None) -> str:
    return "" if side is None else f"{side.verdict}: {side.why}" if side.why else side.verdict


def _marked_down(part: DiffPart) -> str:
    """Return a part of a diff in Markdown: ~~removed~~ and **added**."""
    text = inline(part.text)
    mark = {"removed": "~~", "added": "**"}.get(part.kind, "") if text else ""
    # A mark counts only next to a letter, so the spaces go outside.
    before, after = (
        " " if space else "" for space in (part.text[:1].isspace(), part.text[-1:].isspace())
    )
    return f"{before}{mark}{text}{mark}{after}"


def _cells(measure: Measure) -> tuple[str, str, str, str, str]:
    """Return before, after, change, interval and p of a measure."""
    delta = measure.difference.delta
    adjusted = measure.adjusted
    return (
        measure.amount(measure.before, unit=False),
        measure.amount(measure.after, unit=False),
        measure.amount(delta.estimate, sign=True, unit=False),
        measure.ends(),
        p_value_text(measure.difference.p_value if adjusted is None else adjusted),
    )


def _table(
    title: str,
    rows: Sequence[tuple[str, Measure]],
    comparison: RunComparison,
    width: int,
    notes: Sequence[str] = (),
) -> Text:
    interval = f"{comparison.measure.difference.delta.confidence * 100:g}% interval"
    table = {
        title: [Text(one_line(name)) for name, _ in rows],
        "n": [Text(f"{measure.difference.delta.n:,}", "dim") for _, measure in rows],
    }
    if not title and len({measure.difference.delta.n for _, measure in rows}) == 1:
        del table["n"]  # the verdict has it
    cells = zip(*(_cells(measure) for _, measure in rows), strict=True)
    for name, column in zip(("A", comparison.label, "change", interval, "p"), cells, strict=True):
        table[name] = [Text(cell) for cell in column]
    table[" "] = [
        Text(" ".join(filter(None, (m.outcome.replace("none", ""), note))), COLOURS[m.outcome])
        for (_, m), note in zip(rows, notes or [""] * len(rows), strict=True)
    ]
    return columns(table, width, right=RIGHT | {comparison.label, interval}, shrink=(title,))


def _counts(comparison: RunComparison) -> Iterator[str]:
    facts = []
    if comparison.pairing != "none":
        facts = [
            f"passed in both {comparison.both:,}, in neither {comparison.neither:,}, "
            f"fixed {comparison.fixed:,}, broken {comparison.broken:,}"
        ]
    size = comparison.measure.difference.effect_size
    if size is not None:
        facts.append(f"effect size {size:+.2f}")
    yield ", ".join(facts)
    was, now = comparison.before.figures.latency, comparison.after.figures.latency
    if was is not None and now is not None:
        pairs = (("p50", was.p50, now.p50), ("p95", was.p95, now.p95))
        times = (f"{name} {duration(a / 1000)} to {duration(b / 1000)}" for name, a, b in pairs)
        yield f"latency {', '.join(times)}"


def _flips(
    comparison: RunComparison,
    maximum: int,
    details: Sequence[FlipDetails],
    divergences: FlipDivergences,
) -> Iterator[RenderableType]:
    changes = {change.flip: change for change in details}
    for title, fixed in (("Broken", False), ("Fixed", True)):
        flips = [flip for flip in comparison.flips if flip.fixed is fixed]
        if not flips or not maximum:
            continue
        yield ""
        yield Text(f"{title}: {len(flips):,}", "red" if not fixed else "green")
        width = label_width((flip.sample for flip in flips[:maximum]), 60)
        for flip in flips[:maximum]:
            name = Text(one_line(flip.sample))
            name.truncate(width, overflow="ellipsis", pad=True)
            change = changes.get(flip)
            facts = (_flip_facts(flip, comparison), one_line(change.input) if change else "")
            yield Text.assemble("  ", name, ("".join(f"  {f}" for f in facts if f), "dim"))
            if change is not None:
                yield from _change(change, comparison.label)
            if (found := divergences.get(flip)) is not None:
                yield Text.assemble((f"{INDENT}diverge at  ", "dim"), one_line(str(found)))
        if len(flips) > maximum:
            yield Text(f"  and {len(flips) - maximum:,} more: --flips N", "dim")


def _change(change: FlipDetails, label: str) -> Iterator[RenderableType]:
    """Yield both verdicts with their reasons, the criteria that flipped, and the new output."""
    for name, side in (("A", change.before), (label, change.after)):
        if side is not None:
            text = f"{side.verdict:<5} {one_line(side.why)}".rstrip()
            yield Text(f"{INDENT}{name}  {text}")
    if len(change.criteria) > 1:  # a single one is named by the reason
        yield Text(f"{INDENT}{one_line(_criteria_text(change))}", "dim")
    if output := diff_text(change.diff) if change.diff else Text(_same_output(change), "dim"):
        yield Text.assemble((f"{INDENT}output  ", "dim"), output)
    if not change.compared:
        yield Text(f"{INDENT}{TOO_MUCH_TEXT}", "dim")


def _criteria_text(change: FlipDetails) -> str:
    """Return the criteria that flipped: `contains pass > fail`."""
    return ", ".join(
        f"{each.criterion} {verdict_word(each.before)} > {verdict_word(each.after)}"
        for each in change.criteria
    )


def diff_text(parts: Iterable[DiffPart]) -> Text:
    """Return a diff in one line, with colours and marks: [-removed-]{+added+}."""
    return Text().join(Text(_marked(part), DIFF_COLOURS[part.kind]) for part in parts)


def _same_output(change: FlipDetails) -> str:
    a, b = change.before, change.after
    return "the same in both" if a and b and a.output == b.output != "" else ""


def _marked(part: DiffPart) -> str:
    """Return a part of a diff as it is also legible without colours: [-removed-]{+added+}."""
    text = escape_control_chars(part.text).replace("\n", "↵")
    return {"removed": f"[-{text}-]", "added": f"{{+{text}+}}"}.get(part.kind, text)


def _flip_facts(flip: Flip, comparison: RunComparison) -> str:
    epochs = flip.epoch is not None and comparison.after.epochs > 1
    error = f"an error in {'A' if flip.fixed else comparison.label}" if flip.error else ""
    return ", ".join(filter(None, (f"epoch {flip.epoch}" if epochs else "", error)))


# ── as data ─────────────────────────────────────────────────────────────────────────────────────


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def measure_data(measure: Measure) -> dict[str, Any]:
    """Return a measure as data; unknown values are null."""
    difference = measure.difference
    delta = difference.delta
    return {
        "before": measure.before,
        "after": measure.after,
        "delta": delta.estimate,
        "interval": [_finite(delta.low), _finite(delta.high)],
        "confidence": delta.confidence,
        "n": delta.n,
        "clusters": delta.clusters,
        "method": delta.method,
        "test": difference.test,
        "p": _finite(difference.p_value),
        "p_adjusted": measure.adjusted,
        "effect_size": _finite(difference.effect_size),
        "detectable": _finite(measure.detectable),
        "outcome": measure.outcome,
    }


def _run_data(label: str, run: RunOutcomes) -> dict[str, Any]:
    return {
        "label": label,
        "run": run.name,
        "suite": run.suite,
        "agent": run.model or run.agent,
        "agent_name": run.agent,
        "agent_version": run.agent_version,
        "tags": run.tags,
        "dataset": run.dataset_name,
        **figures_data(run.figures),
    }


def _flip_data(flip: Flip, change: FlipDetails | None) -> dict[str, Any]:
    facts = {"sample": flip.sample, "epoch": flip.epoch, "fixed": flip.fixed, "error": flip.error}
    if change is None:
        return facts
    return {
        **facts,
        "input": change.input,
        "before": change.before,
        "after": change.after,
        "criteria": change.criteria,
        "diff": change.diff,
        **({} if change.compared else {"compared": False}),
    }


def _divergence_data(divergences: FlipDivergences) -> dict[str, Any]:
    counts = count_divergences(divergences)
    return {
        "divergences": counts,
        "divergence_summary": describe_divergences(counts),
        "flips_aligned": divergences.aligned,
    }


def _corrected_data(change: CorrectedChange | None) -> dict[str, Any] | None:
    if change is None:
        return None
    delta = change.delta
    return {
        "criterion": change.criterion,
        "delta": delta.estimate,
        "interval": [delta.low, delta.high],
        "confidence": delta.confidence,
        "n": delta.n,
        "same_labels": change.same_labels,
        "assumption": change.assumption,
    }


def comparison_data(
    comparisons: Sequence[RunComparison],
    flips: int | None,
    details: Sequence[Sequence[FlipDetails]] = (),
    divergences: Sequence[FlipDivergences] = (),
) -> dict[str, Any]:
    """Return comparisons as data, with at most `flips` flips each (None: all)."""
    changes = [{change.flip: change for change in each} for each in details]
    return {
        "metric": comparisons[0].metric,
        "runs": [_run_data(label, run) for label, run in _labelled_runs(comparisons)],
        "comparisons": [
            {
                "before": "A",
                "after": comparison.label,
                "outcome": comparison.measure.outcome,
                "verdict": str(comparison),
                "pairing": comparison.pairing,
                "measures": {name: measure_data(m) for name, m in comparison.measures.items()},
                "both": comparison.both,
                "neither": comparison.neither,
                "fixed": comparison.fixed,
                "broken": comparison.broken,
                "flips": [
                    _flip_data(flip, changes[number].get(flip) if changes else None)
                    for flip in comparison.flips[:flips]
                ],
                **(_divergence_data(divergences[number]) if divergences else {}),
                "by": comparison.by,
                "slices": [
                    {"value": slice.value, "small": slice.small, **measure_data(slice.measure)}
                    for slice in comparison.slices
                ],
                "corrected": _corrected_data(comparison.corrected),
                "warnings": comparison.warnings,
            }
            for number, comparison in enumerate(comparisons)
        ],
    }
