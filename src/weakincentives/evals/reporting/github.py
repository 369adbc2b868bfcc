"""GitHub Actions: a summary on the page of the job, and an annotation if a gate failed.

Use it only if `on_github` returns True.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...internal.escaping import escape_control_chars
from ..model.explain import failure_message, why_failed
from ..store.overview import Overview
from ..store.run_titles import experiment_name, run_title
from ..store.stored_row import StoredRow
from .export import error_table, inline, verdict_of
from .junit import case_name
from .usage import usage_of

CLAIM = "A difference is claimed if p is small enough and the interval excludes 0."


def on_github() -> bool:
    """Return whether this is a job of GitHub Actions with step summaries."""
    return os.environ.get("GITHUB_ACTIONS") == "true" and bool(
        os.environ.get("GITHUB_STEP_SUMMARY")
    )


def report_to_github(
    run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str, fail_under: float | None
) -> Iterator[str]:
    """Add a run to the step summary; yield the annotations to print."""
    name = run_title(run.record.manifest)
    yield from add_summary(name, summary(run, worst, code=code, rule=rule))
    if code:
        level = "warning" if code == 130 else "error"
        yield annotation(level, f"{name}: exit {code}", f"{rule}\n{run}")
    elif fail_under is not None and run.figures.rate.low < fail_under:
        warning = f"the gate holds, but the rate may be below {fail_under:.1%}"
        yield annotation("warning", name, f"{warning}\n{run}")


def report_gate_to_github(
    name: str, verdict: str, table: Iterable[str], *, code: int, rule: str
) -> Iterator[str]:
    """Add a gate to the step summary: verdict, rule and comparison; yield annotations."""
    head = [f"### {_mark(code)} {inline(name)}", f"exit {code}: {inline(rule)}"]
    yield from add_summary(name, "\n".join(["\n\n".join(head), "", *table]))
    if code:
        message = "\n".join(filter(None, (rule, verdict)))
        yield annotation("error", f"{name}: exit {code}", message)


def report_comparison_to_github(
    name: str, outcomes: Mapping[str, str], table: Iterable[str]
) -> Iterator[str]:
    """Add comparisons to the step summary; `outcomes` maps each verdict to "better" or "worse"."""
    yield from add_summary(name, "\n".join([f"### {inline(name)}", "", *table, "", f"_{CLAIM}_"]))
    levels = {"better": "notice", "worse": "warning"}
    for verdict, outcome in outcomes.items():
        if outcome in levels:
            yield annotation(levels[outcome], name, f"{verdict}\n{CLAIM}")


def add_summary(name: str, markdown: str) -> Iterator[str]:
    """Append to the step summary; yield an annotation if that fails."""
    try:
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
            file.write(f"\n{markdown}\n")
    except OSError as error:  # this does not change the verdict
        yield annotation("warning", name, f"the summary could not be written: {error}")


def _mark(code: int) -> str:
    return {0: "✅", 5: "❔"}.get(code, "❌")  # 5: more samples would decide


def annotation(level: str, title: str, message: str) -> str:
    """Return a workflow command; `level` is "error", "warning" or "notice".

    >>> annotation("error", "sums: failed", "2 of 4\\nfailed")
    '::error title=sums%3A failed::2 of 4%0Afailed'
    """
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return escape_control_chars(text).replace("%", "%25").replace("\n", "%0A")


def summary(run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str) -> str:
    """Return a run in Markdown: headline, rule, criteria, and the worst samples folded."""
    return "\n".join(_lines(run, worst, code=code, rule=rule))


def _lines(run: Overview, worst: Sequence[StoredRow], *, code: int, rule: str) -> Iterator[str]:
    manifest = run.record.manifest
    yield f"### {_mark(code)} {inline(run_title(manifest))}"
    yield f"\n**{inline(str(run))}**"
    yield f"\nexit {code}: {inline(rule)}"
    about = [
        ("dataset", manifest.dataset_name if manifest.suite else ""),
        ("experiment", experiment_name(manifest)),
        ("agent", " ".join(filter(None, (manifest.agent, manifest.agent_version[:7])))),
        ("model", manifest.model),
        ("tags", " ".join(f"{name}={value}" for name, value in manifest.tags.items())),
        ("run", manifest.run_id),
    ]
    named = [f"{name} {inline(value)}" for name, value in about if value]
    yield "\n" + ", ".join([*named, *map(inline, usage_of(run.figures).values())])
    if run.figures.criteria:
        yield "\n| criterion | mean |\n|---|--:|"
        yield from (
            f"| {inline(name)} | {mean:.3f} |" for name, mean in run.figures.criteria.items()
        )
    yield from error_table(run.error_groups)
    if run.type_mismatch:
        yield f"\n⚠️ {inline(run.type_mismatch)}"
    if worst:
        yield "\n<details><summary>Worst samples</summary>\n"
        yield "| sample | verdict | why |\n|---|---|---|"
        epochs = manifest.config.get("epochs", 1) != 1
        for row in worst:
            result = row.result
            name = inline(case_name(result.sample_id, result.epoch, epochs=epochs))
            why = failure_message(result) if result.success else why_failed(result)
            yield f"| {name} | {verdict_of(result)} | {inline(why)} |"
        yield "\n</details>"
    yield ""
