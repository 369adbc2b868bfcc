"""The end of a run, for people: the verdict, what led to it, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...adapters import ResponseCache
from ...evals import RunStore
from ...evals.comparison.gates import GateResult
from ...evals.reporting.usage import usage_of
from ...evals.runs import EpochStats, Interval, ends_text
from ...evals.store import Overview, StoredRow
from ...internal.formatting import duration
from .styled_text import one_line, pluralize
from .text_tables import two_columns
from .views import lines_of_errors, lines_of_failures

MAX_FLAKY = 8  # samples that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run ended: what is stored, the exit code, and the rule that decided it."""

    found: Overview
    worst: list[StoredRow]
    code: int
    rule: str
    seconds: float
    gate: GateResult
    epochs: int = 1
    cache: ResponseCache | None = None
    figures: Mapping[str, Interval] = field(default_factory=dict)


def ending(outcome: RunEnding, to: Console, store: str | None, *, brief: bool) -> RenderableType:
    """Return the verdict, then what led to it, then what to type next."""
    so_far = "so far " if outcome.found.record.status == "interrupted" else ""
    verdict = Text(f"{so_far}{outcome.found}", "bold" if outcome.code == 0 else "bold red")
    rule = Text(f"exit {outcome.code}: {outcome.rule}", "dim" if outcome.code == 0 else "")
    if to.is_terminal:  # a terminal would break words; elsewhere keep one line, for grep
        verdict.overflow = rule.overflow = "fold"
        verdict.no_wrap = rule.no_wrap = False
    if brief:
        return Group(verdict, rule) if outcome.code else verdict
    blocks = (verdict, *_details(outcome, to), Group(rule, *_next_commands(outcome, store)))
    return Group(*(part for block in blocks for part in ("", block)))


def suites_text(outcomes: Iterable[RunEnding]) -> RenderableType:
    """Return a line for each of several suites, with its exit code and the rule that failed."""

    def line(outcome: RunEnding) -> tuple[str, str]:
        record, rule = outcome.found.record, f": {outcome.rule}" if outcome.code else ""
        found = outcome.found.figures
        passed = f"{found.passed:,}/{found.total:,} passed, {pluralize(found.error_count, 'error')}"
        passed += f", {found.quarantined:,} quarantined" if found.quarantined else ""
        return one_line(record.manifest.suite), f"{passed}, exit {outcome.code}{rule}"

    return Group("", Text("Suites", "dim"), two_columns(map(line, outcomes)))


def _details(outcome: RunEnding, to: Console) -> Iterator[RenderableType]:
    overview, cache = outcome.found, outcome.cache
    yield from numbers_text(overview, outcome.figures)
    if overview.error_groups:
        yield Group(Text("Errors", "dim"), *lines_of_errors(overview.error_groups))
    if overview.type_mismatch:
        yield Text(f"warning: {one_line(overview.type_mismatch)}", "yellow")
    if outcome.worst:
        results = [row.result for row in outcome.worst]
        lines = lines_of_failures(results, to, epochs=outcome.epochs > 1)
        yield Group(Text("Worst", "dim"), *lines)
    facts = [duration(outcome.seconds), *spent(overview)]
    yield Text(", ".join(facts if cache is None else [*facts, f"cache: {cache}"]))


def figures_of(store: RunStore, overview: Overview) -> dict[str, Interval]:
    """Return the figures of a benchmark that its pass rate does not give; none for most runs."""
    from ...evals.benchmarks import FIGURES, benchmark_figures

    if not any(name in FIGURES for name in overview.figures.criteria):
        return {}  # most runs, whose rows are not read
    return benchmark_figures(store.report(overview.record.manifest.run_id))


def numbers_text(overview: Overview, figures: Mapping[str, Interval]) -> Iterator[Text]:
    """Yield the mean of each criterion, the figures of a benchmark, and those of the epochs."""
    if overview.figures.criteria:
        means = overview.figures.criteria.items()
        yield two_columns((one_line(name), f"{mean:.3f}") for name, mean in means)
    if figures:
        yield two_columns(
            (
                name.replace("_", " "),
                f"{each.estimate:.3f}  95% {' to '.join(ends_text(each.low, each.high, 3))}",
            )
            for name, each in figures.items()
        )
    if overview.figures.epochs is not None:
        yield _epochs_text(overview.figures.epochs)


def _epochs_text(stats: EpochStats) -> Text:
    """Return pass@k and pass^k, then the flaky samples, with how often each passed."""
    listed = [f"{one_line(name)} {passed}/{n}" for name, (passed, n) in stats.flaky.items()]
    more = len(listed) - MAX_FLAKY
    names = ", ".join(listed[:MAX_FLAKY]) + (f", and {more:,} more" if more > 0 else "")
    return Text(f"{stats}: {names}" if names else str(stats))


def spent(overview: Overview) -> Iterator[str]:
    """Yield the pass rate without errors, latencies, tokens and cost, as far as they are known."""
    found = overview.figures
    if found.errors and found.scored:
        share = found.pass_rate_without_errors
        yield f"{share:.1%} passed of the {found.scored:,} without an error"
    if found.latency is not None:
        p50, p95 = (duration(ms / 1000) for ms in (found.latency.p50, found.latency.p95))
        yield f"latency p50 {p50}, p95 {p95}"
    yield from usage_of(found).values()


def _next_commands(outcome: RunEnding, store: str | None) -> Iterator[Text]:
    record = outcome.found.record
    run_id = record.manifest.run_id
    where = ["--store", store] if store else []
    verb = "collect" if record.manifest.kind == "submission" else "resume"
    resume = ["wink", "eval", verb, run_id, *where]
    if record.status not in ("complete", "cancelled"):  # a cancelled run stays that
        yield _command("continue", resume)
    elif outcome.found.figures.errors:
        yield _command("retry errors", [*resume, "--retry-errors"])
    if groups := outcome.found.error_groups:
        sample = groups[0].samples[0]
        yield _command("traceback", ["wink", "eval", "show", run_id, sample, *where])
    yield _command("details", ["wink", "eval", "show", run_id, *where])


def _command(what: str, words: list[str]) -> Text:
    return Text.assemble((f"{what}: ", "dim"), shlex.join(words))
