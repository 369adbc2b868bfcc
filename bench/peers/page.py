"""Write the comparison into `docs/benchmarks.md`, between two marks, and the plot beside it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .environments import OPENAI, TOOLS, Tool
from .measure import Outcome
from .measurements import FULL, Measurement
from .plot import draw

__all__ = [
    "BEGIN",
    "END",
    "QUOTE",
    "Comparison",
    "absent",
    "losses",
    "machine",
    "quote",
    "render",
    "write",
    "write_quote",
]

BEGIN = "<!-- peers: begin; written by `make bench-peers` -->"
END = "<!-- peers: end -->"
QUOTE = "<!-- two ratios of docs/benchmarks.md; written by `make bench-peers` -->"
PLOT = "benchmarks-peers.svg"
FLOOR, OURS, OURS_ON_SDK = "floor", "wink", "wink-sdk"

# What a reader has to know to judge the figures of a tool, none of it measured.
DIFFERENCES = {
    "floor": "A loop of 20 lines that appends one JSON line a sample. Over HTTP it writes to "
    "raw connections. It has no error handling, timeouts, statistics or transcripts.",
    "floor-sdk": "The same loop on the OpenAI SDK, the limit of every tool that calls models "
    "through it.",
    "wink": "`stream()` with a run store: each result with its trajectory and the manifest of the "
    "run go to SQLite, normally within 100 ms. Memory does not follow the dataset. Over HTTP it "
    "uses its own client (`http/…`), which frees a slot while a call waits out a 429. Each run has "
    "a fixed cost (modules that are imported on first use, the version of the agent's code, the "
    "state of git), which is most of its time with few samples.",
    "wink-sdk": "The same with `openai/…`, which calls the OpenAI SDK.",
    "pydantic-evals": "Keeps all results in memory and writes nothing; for *load*, the report was "
    "written with its own type adapter. It cannot resume.",
    "weakincentives": "Handles one sample at a time in a loop; over HTTP as many loops run in "
    "threads as calls are in flight. Results are in memory. Its adapters drive agent programs, so "
    "that ours calls the OpenAI SDK.",
    "langsmith": "`evaluate(upload_results=False)`: its service, which stores and shows results, "
    "is not part of the comparison. Samples run in threads; `aevaluate` sends runs even then.",
    "deepeval": "The outputs are collected by a loop of the user's, then `evaluate` scores them. "
    "Its cache is off, which makes it much faster. It writes one JSON file at the end.",
    "promptfoo": "Runs on Node.js. Results go to its SQLite database with prompts, variables and "
    "token counts. *load* and *resume* start its command, which is part of the time. It has "
    "8 GB of heap and as many connections as samples in flight; the default is 4.",
    "inspect": "Writes a log with the full transcript, the state and the events of each sample, "
    "which is more than any other tool stores. Display, realtime log and recorded model calls "
    "are off. `eval_retry` copies what was done into a new log.",
}


INTRODUCTION = """\
## The field

The same work in every tool: ask, compare with the expected output, keep the result as the tool
normally does. Each tool has an environment of its own and runs as its documentation recommends for
speed: without display, telemetry, cache or upload.

```sh
make bench-peers                             # the full size, {full:,}; writes this page
python -m bench.peers {run.size:<14}         # the size of the figures below
python -m bench.peers 2500 --only inspect    # one tool beside the bare loops and WINK
```

Measured in {run.date} with size {run.size:,} on {run.machine}; tools in turns, the best of
up to three rounds; a step may take {run.limit:,.0f} s. Absolute times do not carry over to
another machine; ratios within one run do.

![Times as multiples of a bare loop]({plot})
"""
CPU = """\
Of all threads of the tool's process, without the model server. It depends less on what else the
machine does than the times above. For *resume* it is a sample that was left to run."""
WORK = """\
### What is compared

*In process*: the agent answers at once, 10 samples in flight. *HTTP*: a chat API on loopback that
answers after 0 or 100 ms, with 50 or 200 requests in flight. *10 % 429s*: every tenth sample is
refused once, with `retry-after: 1`; 50 in flight. *load*: read stored results in a new process and
count. *resume*: Ctrl-C after that many samples, then run the other {remaining:,} in a new process.
*import*: a process that imports the tool and ends. Every tenth sample is expected to fail, and the
number of passes is checked. Times are without imports, except *import* and where a command has
to be started; memory is the highest of the process.
"""


@dataclass(frozen=True)
class Comparison:
    """All outcomes of one run, with what is needed to read them."""

    outcomes: Sequence[Outcome]
    measurements: Sequence[Measurement]
    size: int
    limit: float
    machine: str
    date: str

    def of(self, tool: str, measurement: str) -> Outcome | None:
        """Return the outcome of a tool in a measurement; None if it was not measured."""
        both = (tool, measurement)
        return next((each for each in self.outcomes if (each.tool, each.measurement) == both), None)

    def ratio(self, tool: str, measurement: str, to: str) -> float | None:
        """Return the time of a tool as a multiple of another's; None if one has no time."""
        outcome, base = self.of(tool, measurement), self.of(to, measurement)
        if not outcome or not base or not outcome.seconds or not base.seconds:
            return None
        return outcome.seconds / base.seconds

    def tools(self) -> list[Tool]:
        """Return the tools that were measured, in the order of `TOOLS`."""
        names = {each.tool for each in self.outcomes}
        return [tool for name, tool in TOOLS.items() if name in names]


def machine(python: str) -> str:
    """Describe the machine in general words."""
    return f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}, Python {python}"


def figure(value: float) -> str:
    """Return a number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def absent(outcome: Outcome | None) -> str:
    """Return a word for a cell without a time; the reason is below the table."""
    if outcome is None:
        return ""
    if outcome.missing.startswith("cannot"):
        return "cannot"
    if "not done in" in outcome.missing:
        return f"> {outcome.missing.split()[3]} s"
    return "failed" if outcome.missing.startswith("failed") else "–"


def table(
    comparison: Comparison, cell: Callable[[Outcome], str], which: Iterable[Measurement]
) -> list[str]:
    """Return a Markdown table: a row for each tool, a column for each measurement."""
    chosen = list(which)
    lines = [
        f"| | {' | '.join(each.title for each in chosen)} |",
        f"|---|{'--:|' * len(chosen)}",
    ]
    for tool in comparison.tools():
        cells = []
        for each in chosen:
            outcome = comparison.of(tool.name, each.name)
            mark = " *" if outcome and outcome.note else ""
            measured = outcome is not None and outcome.seconds is not None
            cells.append(cell(outcome) + mark if measured and outcome else absent(outcome))
        title = f"**{tool.title}**" if tool.name.startswith(OURS) else tool.title
        lines.append(f"| {' '.join((title, tool.version)).strip()} | {' | '.join(cells)} |")
    return lines


def ratios(comparison: Comparison, to: str) -> list[str]:
    """Return the table of times as multiples of one tool's."""

    def cell(outcome: Outcome) -> str:
        ratio = comparison.ratio(outcome.tool, outcome.measurement, to)
        return "" if ratio is None else figure(ratio)

    return table(comparison, cell, comparison.measurements)


def losses(comparison: Comparison) -> list[str]:
    """Return a sentence for each peer that was faster, or needed less memory, than WINK."""
    lines = []
    for tool in comparison.tools():
        if not tool.peer:
            continue
        for each in comparison.measurements:
            ratio = comparison.ratio(tool.name, each.name, OURS)
            if ratio is not None and ratio < 0.99:  # nearer than that is a tie
                lines.append(f"- {tool.title} is {figure(1 / ratio)} times as fast: {each.title}.")
            theirs, ours = comparison.of(tool.name, each.name), comparison.of(OURS, each.name)
            our_memory, their_memory = ours and ours.peak_mb, theirs and theirs.peak_mb
            if our_memory and their_memory and their_memory < our_memory:
                less = f"{their_memory:.0f} MB against {our_memory:.0f} MB"
                lines.append(f"- {tool.title} needs less memory, {less}: {each.title}.")
    return lines


def reasons(comparison: Comparison) -> list[str]:
    """Return what the tables abbreviate: why a cell is empty, and what is wrong with a result."""
    lines: dict[str, list[str]] = {}
    for each in comparison.outcomes:
        reason = each.missing or each.note
        if reason and "not done in" not in reason:
            titles = {wanted.name: wanted.title for wanted in comparison.measurements}
            title = TOOLS[each.tool].title
            lines.setdefault(f"{title}: {reason}", []).append(titles[each.measurement])
    return [f"- {reason} ({', '.join(where)})." for reason, where in lines.items()]


def plot(comparison: Comparison) -> str:
    """Draw the most telling measurements as multiples of the bare loop."""
    names = [each for each in comparison.measurements if each.steps == ("in_process",)][-1:]
    names += [each for each in comparison.measurements if each.name in ("http-0", "http-429")]
    names += [each for each in comparison.measurements if each.steps[-1] == "resume"][:1]
    panels = []
    for each in names:
        bars = [
            (tool.title, comparison.ratio(tool.name, each.name, FLOOR), absent(outcome))
            for tool in comparison.tools()
            if tool.name != FLOOR and (outcome := comparison.of(tool.name, each.name))
        ]
        panels.append((each.title, bars))
    return draw(panels, "Time as a multiple of a bare loop, logarithmic; shorter is better")


def render(comparison: Comparison) -> str:
    """Return the section of the page that `make bench-peers` writes."""
    with_memory = [each for each in comparison.measurements if each.steps != ("import",)]
    blanks = reasons(comparison)
    parts = (
        INTRODUCTION.format(run=comparison, plot=PLOT, full=FULL),
        section("Times the bare loop", ratios(comparison, FLOOR)),
        section("Times WINK", ["Under 1: faster than WINK.", "", *ratios(comparison, OURS)]),
        section(
            "Seconds",
            table(
                comparison, lambda outcome: figure(outcome.seconds or 0.0), comparison.measurements
            ),
        ),
        *cpu_section(comparison, with_memory),
        section(
            "Peak memory, MB",
            table(comparison, lambda outcome: figure(outcome.peak_mb or 0.0), with_memory),
        ),
        *(["\n".join(("Empty cells and marked results:", "", *blanks, ""))] if blanks else []),
        section(
            "Where WINK is not first",
            [
                "Among the tools; a bare loop is always faster.",
                "",
                *(losses(comparison) or ["- Nowhere in this run."]),
            ],
        ),
        WORK.format(remaining=comparison.size // 50),
        "\n".join(f"- **{tool.title}**: {DIFFERENCES[tool.name]}" for tool in comparison.tools()),
    )
    return "\n".join(parts)


def cpu_section(comparison: Comparison, which: Sequence[Measurement]) -> list[str]:
    """Return the section with the CPU time a sample, if it was measured."""
    if all(each.cpu_seconds is None for each in comparison.outcomes):
        return []
    counts = {each.name: each.count - each.done for each in which}

    def cell(outcome: Outcome) -> str:
        if outcome.cpu_seconds is None:
            return ""
        return figure(outcome.cpu_seconds / counts[outcome.measurement] * 1e6)

    return [section("CPU time, µs a sample", [CPU, "", *table(comparison, cell, which)])]


def section(title: str, lines: Sequence[str]) -> str:
    """Return a part of the page with its title."""
    return "\n".join((f"### {title}", "", *lines, ""))


def write(comparison: Comparison, page: Path) -> None:
    """Replace the section between the marks of the page, and write the plot."""
    _replace(page, BEGIN, render(comparison))
    page.with_name(PLOT).write_text(plot(comparison), "utf-8")


def write_quote(comparison: Comparison, readme: Path) -> None:
    """Replace the two ratios that the README quotes."""
    _replace(readme, QUOTE, quote(comparison))


def quote(comparison: Comparison) -> str:
    """Return how much longer the fastest other tool takes, in process and over HTTP."""
    in_process = [each for each in comparison.measurements if each.steps == ("in_process",)][-1:]
    over_http = [each for each in comparison.measurements if each.name == "http-100"]
    facts, on_sdk = [], ""
    for each in (*in_process, *over_http):
        ratios = {
            tool: ratio
            for tool in comparison.tools()
            if tool.peer and (ratio := comparison.ratio(tool.name, each.name, OURS))
        }
        if ratios:
            fastest = min(ratios, key=ratios.__getitem__)
            facts.append(f"{figure(ratios[fastest])} ({fastest.title}; {each.title} samples)")
            ratio = comparison.ratio(fastest.name, each.name, OURS_ON_SDK)
            if each.http and OPENAI in fastest.packages and ratio:
                on_sdk = (
                    " Over HTTP, WINK uses its own client; with the OpenAI SDK in both tools, the "
                    f"ratio is {figure(ratio)}."
                )
    return (
        f"Time of the fastest other tool, as a multiple of WINK's: {' and '.join(facts)}.{on_sdk}"
    )


def _replace(page: Path, begin: str, content: str) -> None:
    """Replace what is between two marks of a page."""
    text = page.read_text("utf-8")
    if text.count(begin) != 1 or text.count(END) != 1:
        sys.exit(f"expected the lines {begin!r} and {END!r} once in {page}")
    before, _, rest = text.partition(begin)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{begin}\n{content}\n{END}{after}", "utf-8")
