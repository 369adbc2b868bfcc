"""On GitHub Actions: a summary on the page of the job, and a note where a gate failed.

Nothing here happens outside: `on_github` is True only where GitHub says that it is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ._export import inline, verdict_of
from ._junit import case_name, why_failed
from ._overview import Overview
from ._store import StoredRow
from ._visible import visible

__all__ = ["annotation", "on_github", "summary", "tell_comparison", "tell_gate", "tell_github"]

CLAIM = "A difference is claimed where p is small enough and the interval leaves out 0."


def on_github() -> bool:
    """True inside a job of GitHub Actions that takes summaries."""
    return os.environ.get("GITHUB_ACTIONS") == "true" and bool(
        os.environ.get("GITHUB_STEP_SUMMARY")
    )


def tell_github(
    run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str, fail_under: float | None
) -> Iterator[str]:
    """Add to the summary of this step; the lines to print, which become notes on the page."""
    name = run.record.manifest.dataset_name or run.record.manifest.run_id
    yield from add_summary(name, summary(run, worst, code=code, rule=rule))
    if code:
        level = "warning" if code == 130 else "error"
        yield annotation(level, f"{name}: exit {code}", f"{rule}\n{run}")
    elif fail_under is not None and run.rate.low < fail_under:
        doubt = f"the gate holds, but the rate may be below {fail_under:.1%}"
        yield annotation("warning", name, f"{doubt}\n{run}")


def tell_gate(
    name: str, verdict: str, table: Iterable[str], *, code: int, rule: str
) -> Iterator[str]:
    """The same for a gate: its verdict, its rule, and what was compared, in Markdown."""
    head = [f"### {_mark(code)} {inline(name)}", f"exit {code}: {inline(rule)}"]
    yield from add_summary(name, "\n".join(["\n\n".join(head), "", *table]))
    if code:
        told = "\n".join(filter(None, (rule, verdict)))
        yield annotation("error", f"{name}: exit {code}", told)


def tell_comparison(name: str, outcomes: Mapping[str, str], table: Iterable[str]) -> Iterator[str]:
    """The same for comparisons: their verdicts, each with "better", "worse" or "none"."""
    yield from add_summary(name, "\n".join([f"### {inline(name)}", "", *table, "", f"_{CLAIM}_"]))
    levels = {"better": "notice", "worse": "warning"}
    for verdict, outcome in outcomes.items():
        if outcome in levels:
            yield annotation(levels[outcome], name, f"{verdict}\n{CLAIM}")


def add_summary(name: str, markdown: str) -> Iterator[str]:
    """Add to the summary of this step; a note to print where that cannot be."""
    try:
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
            file.write(f"\n{markdown}\n")
    except OSError as error:  # which changes nothing of the verdict
        yield annotation("warning", name, f"the summary could not be written: {error}")


def _mark(code: int) -> str:
    return "❌" if code else "✅"


def annotation(level: str, title: str, message: str) -> str:
    """The line that becomes a note on the page; `level` is "error", "warning" or "notice".

    >>> annotation("error", "sums: failed", "2 of 4\\nfailed")
    '::error title=sums%3A failed::2 of 4%0Afailed'
    """
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\n", "%0A")


def summary(run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str) -> str:
    """The run in Markdown: headline, rule, criteria, and its worst samples folded."""
    return "\n".join(_lines(run, worst, code=code, rule=rule))


def _lines(run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str) -> Iterator[str]:
    manifest = run.record.manifest
    yield f"### {_mark(code)} {inline(manifest.dataset_name or manifest.run_id)}"
    yield f"\n**{inline(str(run))}**"
    yield f"\nexit {code}: {inline(rule)}"
    about = [("agent", manifest.agent), ("model", manifest.model), ("run", manifest.run_id)]
    yield "\n" + ", ".join(f"{name} {inline(value)}" for name, value in about if value)
    if run.criteria:
        yield "\n| criterion | mean |\n|---|--:|"
        yield from (f"| {inline(name)} | {mean:.3f} |" for name, mean in run.criteria.items())
    if worst:
        yield "\n<details><summary>Worst samples</summary>\n"
        yield "| sample | verdict | why |\n|---|---|---|"
        epochs = manifest.config.get("epochs", 1) != 1
        for row in worst:
            result = row.result
            name = inline(case_name(result.sample_id, result.epoch, epochs=epochs))
            error = f"{result.error_source or 'agent'}: {result.error}"
            why = why_failed(result) if result.error is None else error
            yield f"| {name} | {verdict_of(result)} | {inline(why)} |"
        yield "\n</details>"
    yield ""
