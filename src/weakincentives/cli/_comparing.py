"""What the verbs that compare runs share: how a run is named, and how a comparison looks."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._views import columns, names_width, open_store, rate_data, rate_text, say

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from ..evals import RunStore
    from ..evals._comparison import Flip, Measure, RunComparison
    from ..evals._outcomes import RunOutcomes

__all__ = [
    "Finder",
    "add_confidence",
    "comparison_data",
    "comparison_markdown",
    "comparison_text",
    "facts_line",
    "measure_data",
    "say_warnings",
]

RUN_HELP = "an id, latest, latest~1, a folder of a saved report, or a baseline file"
COLOURS = {"better": "green", "worse": "red", "none": "dim"}
RIGHT = {"A", "B", "change", "p", "n"}
WIDE = 110  # columns from which on there is room for what is the same everywhere
SHARES = (0.5, 0.95)


def add_confidence(parser: ArgumentParser) -> None:
    """The option that says how sure to be."""
    parser.add_argument(
        "--confidence", type=_confidence, default=0.95, metavar="SHARE",
        help="how sure to be: 0.95 (the default), 99%%",
    )  # fmt: skip


def _confidence(text: str) -> float:
    from ._eval_run import share

    found = share(text)
    if not 0.5 <= found < 1:
        raise ArgumentTypeError(f"expected 0.5 to 0.999, or 50% to 99.9%, got {text!r}")
    return found


class Finder:
    """Finds runs by the words that name them; the store is opened when a word needs it."""

    def __init__(self, args: Namespace, stack: ExitStack) -> None:
        self._args, self._stack = args, stack
        self._store: RunStore | None = None

    @property
    def store(self) -> RunStore:
        """The store of the command line."""
        if self._store is None:
            self._store = self._stack.enter_context(open_store(self._args))
        return self._store

    def find(self, word: str, by: str | None = None) -> RunOutcomes:
        """The run that the word names; with `by`, sliced by that key."""
        from ..errors import UsageError
        from ..evals import EvalReport
        from ..evals._outcomes import load_baseline, report_outcomes, stored_outcomes

        path = Path(word)
        if path.is_file():
            return load_baseline(path)
        if (path / "config.json").is_file():
            return report_outcomes(EvalReport.load(path), by)
        store = self.store
        try:
            found = store.run(word).manifest.run_id
        except UsageError as error:
            if path.suffix or len(path.parts) > 1:  # it was meant as a path
                raise UsageError(f"{error}; nor is there a file or a folder {word!r}") from None
            raise
        return stored_outcomes(store, found, by)


def say_warnings(notes: Iterable[str]) -> None:
    """Each warning once, on stderr; on a terminal no id is cut at the edge."""
    from ._summary import harmless

    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 1_000_000
    wrap = partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
    if lines := [f"note: {harmless(note)}" for note in dict.fromkeys(notes)]:
        say("", *map(wrap, lines))


def _latency(run: RunOutcomes, share: float) -> int | None:
    """The latency that this share of all rows does not exceed."""
    times = sorted(row.latency_ms for row in run.rows if row.latency_ms is not None)
    return times[max(0, math.ceil(share * len(times)) - 1)] if times else None


# ── in words ────────────────────────────────────────────────────────────────────────────────────


def facts_line(run: RunOutcomes) -> str:
    """`31/40 passed, 2 errors`."""
    errors = f"{run.errors} {'error' if run.errors == 1 else 'errors'}"
    return f"{run.passed}/{len(run.rows)} passed, {errors}"


def comparison_text(
    comparisons: Sequence[RunComparison], width: int, flips: int
) -> Iterator[RenderableType]:
    """Who was compared, then each comparison: its verdict, its numbers, slices and flips."""
    from rich.text import Text

    from ..evals._rate import FEW
    from ._summary import harmless

    runs = [comparisons[0].before, *(each.after for each in comparisons)]
    labels = ["A", *(each.label for each in comparisons)]
    table = {
        "": [Text(label, "bold") for label in labels],
        "run": [Text(harmless(run.name)) for run in runs],
        "agent": [Text(harmless(run.who or "-")) for run in runs],
        "dataset": [Text(harmless(run.dataset_name or "-")) for run in runs],
        "passed": [Text(f"{run.passed}/{len(run.rows)}") for run in runs],
        "rate (95%)": [rate_text(run.rate) for run in runs],
        "errors": [Text(str(run.errors), "red" if run.errors else "dim") for run in runs],
    }
    if width < WIDE and len({run.dataset_name for run in runs}) == 1:
        del table["dataset"]
    right = {"passed", "rate (95%)", "errors"}
    yield columns(table, width, right=right, shrink=("agent", "dataset"), drop=("dataset", "agent"))
    for each in comparisons:
        yield ""
        style = {"better": "bold green", "worse": "bold red"}.get(each.measure.outcome, "bold")
        yield Text(harmless(str(each)), style)
        yield ""
        yield _numbers(each, width)
        yield ""
        yield from map(Text, _counts(each))
        if each.slices:
            yield ""
            yield _slices(each, width)
            if any(of.small for of in each.slices):
                yield Text(FEW, "dim")
        yield from _flips(each, flips)


def _p(measure: Measure) -> str:
    p = measure.difference.p_value if measure.adjusted is None else measure.adjusted
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def comparison_markdown(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    """The verdicts and the numbers as Markdown, for a pull request."""
    from ..evals._export import inline
    from ..evals._rate import FEW

    def line(*cells: str) -> str:
        return f"| {' | '.join(map(inline, cells))} |"

    first = comparisons[0]
    runs = [("A", first.before), *((each.label, each.after) for each in comparisons)]
    yield line("", "run", "agent", "passed", "rate (95%)")
    yield "|---|---|---|---|---|"
    for label, of in runs:
        yield line(label, of.name, of.who or "-", facts_line(of), str(rate_text(of.rate)))
    for each in comparisons:
        yield ""
        yield f"**{inline(str(each))}**"
        yield ""
        interval = f"{each.measure.difference.delta.confidence * 100:g} % interval"
        yield line("", "n", "A", each.label, "change", interval, "p")
        yield "|---|--:|--:|--:|--:|--:|--:|"
        few = {True: " (few)", False: ""}
        slices = {f"{each.by} = {of.value}{few[of.small]}": of.measure for of in each.slices}
        for name, measure in {**each.measures, **slices}.items():
            yield line(name, f"{measure.difference.delta.n:,}", *row_of(measure))
        yield ""
        yield f"{each.fixed:,} fixed, {each.broken:,} broken"
        if any(of.small for of in each.slices):
            yield ""
            yield FEW


def row_of(measure: Measure) -> tuple[str, str, str, str, str]:
    """Before, after, change, interval and p of a measure."""
    delta = measure.difference.delta
    known = math.isfinite(delta.low) and math.isfinite(delta.high)
    low, high = (measure.amount(end, unit=False) for end in (delta.low, delta.high))
    return (
        measure.amount(measure.before, unit=False),
        measure.amount(measure.after, unit=False),
        measure.amount(delta.estimate, sign=True, unit=False),
        f"{low} to {high}" if known else "unknown",
        _p(measure),
    )


NAMES = {"passed": "passed %", "latency_ms": "latency ms", "cost": "cost $"}


def _numbers(compared: RunComparison, width: int) -> Text:
    return _table(
        "", [(NAMES.get(name, name), each) for name, each in compared.measures.items()],
        compared, width,
    )  # fmt: skip


def _slices(compared: RunComparison, width: int) -> Text:
    rows = [(each.value, each.measure) for each in compared.slices]
    notes = ["few" if each.small else "" for each in compared.slices]
    return _table(f"by {compared.by}", rows, compared, width, notes)


def _table(
    title: str,
    rows: Sequence[tuple[str, Measure]],
    compared: RunComparison,
    width: int,
    notes: Sequence[str] = (),
) -> Text:
    from rich.text import Text

    from ._summary import harmless

    cells = [row_of(measure) for _, measure in rows]
    interval = f"{compared.measure.difference.delta.confidence * 100:g}% interval"
    table = {
        title: [Text(harmless(name)) for name, _ in rows],
        "n": [Text(f"{measure.difference.delta.n:,}", "dim") for _, measure in rows],
    }
    if not title and len({measure.difference.delta.n for _, measure in rows}) == 1:
        del table["n"]  # the verdict has it
    for at, name in enumerate(("A", compared.label, "change", interval, "p")):
        table[name] = [Text(row[at]) for row in cells]
    table[" "] = [
        Text(
            " ".join(filter(None, (m.outcome if m.outcome != "none" else "", note))),
            COLOURS[m.outcome],
        )
        for (_, m), note in zip(rows, notes or [""] * len(rows), strict=True)
    ]
    return columns(table, width, right=RIGHT | {compared.label, interval}, shrink=(title,))


def _counts(compared: RunComparison) -> Iterator[str]:
    from ..evals._words import duration

    facts = []
    if compared.pairing != "none":
        facts = [
            f"passed in both {compared.both:,}, in neither {compared.neither:,}, "
            f"fixed {compared.fixed:,}, broken {compared.broken:,}"
        ]
    size = compared.measure.difference.effect_size
    if size is not None:
        facts.append(f"effect size {size:+.2f}")
    yield ", ".join(facts)
    times = []
    for share in SHARES:
        was, now = _latency(compared.before, share), _latency(compared.after, share)
        if was is not None and now is not None:
            times.append(f"p{share * 100:.0f} {duration(was / 1000)} to {duration(now / 1000)}")
    if times:
        yield f"latency {', '.join(times)}"


def _flips(compared: RunComparison, most: int) -> Iterator[RenderableType]:
    from rich.text import Text

    from ._summary import harmless

    for title, fixed in (("Broken", False), ("Fixed", True)):
        found = [flip for flip in compared.flips if flip.fixed is fixed]
        if not found or not most:
            continue
        yield ""
        yield Text(f"{title}: {len(found):,}", "red" if not fixed else "green")
        width = names_width((flip.sample for flip in found[:most]), 60)
        for flip in found[:most]:
            name = Text(harmless(flip.sample))
            name.truncate(width, overflow="ellipsis", pad=True)
            yield Text.assemble("  ", name, (f"  {_told(flip, compared)}", "dim"))
        if len(found) > most:
            yield Text(f"  and {len(found) - most:,} more: --flips N", "dim")


def _told(flip: Flip, compared: RunComparison) -> str:
    epochs = flip.epoch is not None and compared.after.epochs > 1
    was = f"an error in {'A' if flip.fixed else compared.label}" if flip.error else ""
    return ", ".join(filter(None, (f"epoch {flip.epoch}" if epochs else "", was)))


# ── as data ─────────────────────────────────────────────────────────────────────────────────────


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def measure_data(measure: Measure) -> dict[str, Any]:
    """A measure as data; what is unknown is null."""
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
        "agent": run.who,
        "dataset": run.dataset_name,
        "total": len(run.rows),
        "passed": run.passed,
        "errors": run.errors,
        **rate_data(run.rate),
        "latency_ms": {f"p{share * 100:.0f}": _latency(run, share) for share in SHARES},
    }


def comparison_data(comparisons: Sequence[RunComparison], flips: int | None) -> dict[str, Any]:
    """All of it as data; with `flips`, at most so many of each comparison."""
    first = comparisons[0]
    return {
        "metric": first.metric,
        "runs": [
            _run_data("A", first.before),
            *(_run_data(each.label, each.after) for each in comparisons),
        ],
        "comparisons": [
            {
                "before": "A",
                "after": each.label,
                "outcome": each.measure.outcome,
                "verdict": str(each),
                "pairing": each.pairing,
                "measures": {name: measure_data(m) for name, m in each.measures.items()},
                "both": each.both,
                "neither": each.neither,
                "fixed": each.fixed,
                "broken": each.broken,
                "flips": each.flips[:flips],
                "by": each.by,
                "slices": [
                    {"value": of.value, "small": of.small, **measure_data(of.measure)}
                    for of in each.slices
                ],
                "warnings": each.warnings,
            }
            for each in comparisons
        ],
    }
