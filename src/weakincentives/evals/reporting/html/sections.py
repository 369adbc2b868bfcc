"""The static parts of the page: headline, plots, tables, provenance."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

from ....internal.escaping import as_text, escape_control_chars
from ....internal.formatting import duration, file_size, number, pluralize
from ...model.decision import rate_rule
from ...model.errors import ErrorGroup
from ...model.quarantine import quarantine_line
from ...stats.intervals import Interval
from ...stats.pass_rate import FEW, RateRule, rate_words, too_few
from ...stats.repeats import EpochStats
from ...store.labels import agent_text, commit_text
from ...store.overview import Overview
from ...store.records import not_counted_line
from ...store.run_store import RunRecord
from ..documents import changed_settings
from ..usage import usage_of
from .markup import Html, breakable, join, table, tag
from .numbers import Numbers, Tally
from .plots import histogram, interval_bar
from .rows import Table

TO = " to\N{NO-BREAK SPACE}"  # an interval wraps into two lines, not three
_MAX_ERRORS = 30  # groups of errors that are listed
_MAX_FLAKY = 100  # flaky samples that are listed


def name_of(record: RunRecord) -> str:
    """Return the name of a run: model or agent, and dataset."""
    manifest = record.manifest
    what = manifest.model or manifest.agent
    return " on ".join(filter(None, (what, manifest.dataset_name))) or manifest.run_id


def section(name: str, title: str, *children: object) -> Html:
    """Return a part of the page, with its heading."""
    heading = f"{name}-heading"
    return tag("section", tag("h2", title, id=heading), *children, id=name, aria_labelledby=heading)


def between(interval: Interval, *, share: bool = True) -> str:
    """Return the two ends of an interval in words."""
    if not interval.known or not interval.n:
        return "unknown"
    ends = (interval.low, interval.high)
    return TO.join(f"{end:.1%}" if share else number(end) for end in ends)


# ── the headline ────────────────────────────────────────────────────────────────────────────────


def headline(run: Overview, numbers: Numbers) -> Html:
    """Return counts first, then the rate with its interval, then the usage."""
    record = run.record
    manifest = record.manifest
    rate = run.rate
    errors = pluralize(record.errors, "error")
    verdict: tuple[object, ...] = (
        tag("p", f"{rate.estimate:.1%}", class_="rate"),
        tag(
            "div",
            tag("p", tag("b", f"{record.passed:,} of {record.total:,} passed"), f", {errors}"),
            tag("p", rate_words(rate)),
            *(tag("p", f"{capitalized(str(each))}.") for each in run.corrections),
            interval_bar(rate),
            tag(
                "div",
                *(tag("span", f"{n}%") for n in (0, 50, 100)),
                class_="axis",
                aria_hidden="true",
            ),
        ),
    )
    if not record.total:
        verdict = (tag("div", tag("p", tag("b", "No sample has a result yet."))),)
    notes = []
    if record.status != "complete":
        planned = f" of {manifest.planned:,}" if manifest.planned else ""
        why = f": {record.note}" if record.note else ""
        end = f"is not complete ({record.status}{why})"
        if record.stop_reason == "rule":  # it stopped by its own rule
            end = record.note
        notes.append(f"This run {end}; it has {record.stored:,}{planned} rows.")
    elif record.note:
        notes.append(record.note)
    compared = "" if manifest.decision is None else manifest.decision.verdict
    outside = quarantine_line(record.quarantined, manifest.quarantine_expired)
    lines = (compared, not_counted_line(record), record.mixed, outside)
    notes += [f"{line}." for line in lines if line]
    if run.unreadable_note:
        notes.append(f"{run.unreadable_note}: each counts as an error.")
    return tag(
        "header",
        tag("p", "Evaluation report", class_="kicker"),
        tag("h1", name_of(record)),
        tag("p", f"Run {manifest.run_id}, {_when(record)}", class_="byline"),
        tag("p", " ".join(notes), class_="note", role="note") if notes else None,
        tag("div", *verdict, class_="verdict-line"),
        tag("dl", *_pairs(_usage(run, numbers)), class_="took"),
    )


def capitalized(text: str) -> str:
    """Return a sentence as it begins a line."""
    return text[:1].upper() + text[1:]


def _when(record: RunRecord) -> str:
    when = f"{record.manifest.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if record.active_seconds is not None:
        when += f", took {duration(record.active_seconds)}"
    return when


def _usage(run: Overview, numbers: Numbers) -> dict[str, str]:
    record = run.record
    score = numbers.score()
    facts = {}
    if score.n:
        over = ", without errors" if record.errors else ""
        facts[f"Mean score{over}"] = f"{number(score.estimate)} ({between(score, share=False)})"
    if run.latency_p50_ms is not None and run.latency_p95_ms is not None:
        facts["Latency, median"] = duration(run.latency_p50_ms / 1000)
        facts["Latency, 95th percentile"] = duration(run.latency_p95_ms / 1000)
    used = usage_of(record).items()
    return facts | {name.title(): text.replace(f" {name}", "") for name, text in used}


def _pairs(facts: Mapping[str, object]) -> Iterator[Html]:
    for name, value in facts.items():
        yield tag("div", tag("dt", name), tag("dd", value))


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def results(run: Overview, numbers: Numbers) -> Iterator[Html]:
    """Yield the distribution, slices, criteria, epochs and errors: each if there is any."""
    record = run.record
    manifest = record.manifest
    whole = rate_rule(manifest.config, manifest.decision, complete=record.status == "complete")
    rule = whole.of_parts
    left: list[Html] = []
    if numbers.passed.n or numbers.failed.n:
        plot = histogram(numbers.passed.values, numbers.failed.values)
        left.append(section("scores", "Distribution of scores", plot))
        over = tag("p", "Of rows without an error.", class_="legend") if record.errors else None
        left.append(section("criteria", "Criteria", _criteria(record, numbers), over))
    groups = list(numbers.slices())
    if groups:
        few = any(too_few(tally.rate()) for _, by_name in groups for tally in by_name.values())
        note = tag("p", f"{FEW}.", class_="legend") if few else None
        tables = (_slice(key, by_name, rule=rule) for key, by_name in groups)
        right = section("slices", "Slices", *tables, note)
        yield tag("div", tag("div", *left), tag("div", right), class_="columns")
    else:
        yield from left
    if run.epoch_stats is not None:
        yield section("epochs", "Epochs", *_epochs(run.epoch_stats, numbers.several_experiments))
    if run.error_groups:
        yield section("errors", "Errors", _errors(run.error_groups))


def _criteria(record: RunRecord, numbers: Numbers) -> Html:
    versions = {info.name: info.version for info in record.manifest.criteria}
    rows = []
    for name, scores in numbers.criteria.items():
        rate, mean = scores.rate(), scores.mean()
        version = f"version {versions[name]}" if versions.get(name) else None
        rows.append(
            (
                tag("span", breakable(name), title=version),
                f"{rate.estimate:.1%}",
                between(rate),
                number(mean.estimate),
                between(mean, share=False),
                f"{mean.n:,}",
            )
        )
    head = ("Criterion", "Pass rate", "95% interval", "Mean", "95% interval", "n")
    return table("Criteria, over rows without an error", head, rows, numbers=(1, 2, 3, 4, 5))


def _slice(key: str, groups: Mapping[str, Tally], *, rule: RateRule) -> Html:
    rows = []
    for name, tally in groups.items():
        rate = tally.rate(rule=rule)
        rows.append(
            (
                join((breakable(name), tag("i", " few") if too_few(rate) else None)),
                f"{rate.estimate:.1%}",
                interval_bar(rate),
                between(rate),
                f"{tally.passed:,}/{rate.n:,}",
            )
        )
    head = (key, "Pass rate", "0 to 100%", "95% interval", "Passed")
    return table(f"Pass rate by {key}", head, rows, numbers=(1, 3, 4))


def _epochs(stats: EpochStats, several_experiments: bool) -> Iterator[Html | None]:
    yield tag("p", tag("b", str(stats)), ".")
    yield tag(
        "p",
        f"pass@{stats.k}: the share of samples that passed at least once in {stats.k} epochs; "
        f"pass^{stats.k}: in every one. A flaky sample passed in some epochs and not in others.",
        class_="legend",
    )
    rows: list[tuple[object, ...]] = [
        # The name of a sample of several experiments is followed by that of its experiment.
        (name if several_experiments else link_to(name), f"{passed}/{n}", f"{passed / n:.1%}")
        for name, (passed, n) in islice(stats.flaky.items(), _MAX_FLAKY)
    ]
    if more := len(stats.flaky) - len(rows):
        rows.append((f"{more:,} more", "", ""))
    if rows:
        yield table("Flaky samples", ("Flaky sample", "Passed", "Share"), rows, numbers=(1, 2))


def link_to(sample_id: str) -> Html:
    """Return a link that opens a sample."""
    # The page knows the id as it shows it.
    name = escape_control_chars(sample_id)
    return tag("a", breakable(name), href=f"#sample={quote(name, safe='')}")


def _errors(groups: Sequence[ErrorGroup]) -> Html:
    rows: list[tuple[object, ...]] = [
        (
            group.source,
            replace(group, source="agent").label,  # the source has its own column
            f"{group.count:,}",
            join(part for name in group.samples for part in (link_to(name), " ")),
        )
        for group in groups[:_MAX_ERRORS]
    ]
    if rest := groups[_MAX_ERRORS:]:
        count = sum(group.count for group in rest)
        rows.append(("others", f"{len(rest):,} more kinds", f"{count:,}", ""))
    head = ("Source", "Type, place and message", "Rows", "Samples")
    return table("Errors by type and place", head, rows, numbers=(2,))


# ── samples and provenance ──────────────────────────────────────────────────────────────────────


def left_out_note(total: int, left_out: int) -> str:
    """Return what a page with too many rows contains, and what it leaves out."""
    return (
        f"This page has the texts and transcripts of {total - left_out:,} of {total:,} rows, "
        "failures first; of the other rows it has only what the table shows."
    )


def samples(rows: Table, full_command: str) -> Html:
    """Return the place of the table of samples, and notes on what is not on the page."""
    notes: list[tuple[object, ...]] = []
    if rows.left_out:
        everything = (" A page with everything: ", tag("code", full_command))
        notes.append((left_out_note(rows.total, rows.left_out), *everything))
    if more := len(rows.criteria.left_out):
        notes.append((f"{more:,} more criteria have no column: open a sample to see them.",))
    wait = tag("noscript", tag("p", "The table of samples needs JavaScript.", class_="note"))
    place = tag("div", wait, id="samples-table", data_label="Samples")
    return section(
        "samples",
        "Samples",
        *(tag("p", *note, class_="note", role="note") for note in notes),
        place if rows.total else tag("p", "None."),
    )


def footer(size: int, *, folder: bool) -> Html:
    """Return the size of the page."""
    what = "This folder" if folder else "This file"
    return tag("footer", tag("p", f"{what} has {file_size(size)}.", class_="legend"))


def provenance(record: RunRecord) -> Html:
    """Return what is needed to trust the numbers, or to reproduce them."""
    manifest = record.manifest
    rows = f"{record.stored:,}" + (f" of {manifest.planned:,}" if manifest.planned else "")
    rows += " row" if rows == "1" else " rows"
    facts: dict[str, object] = {
        "Run": manifest.run_id,
        "Started": _utc(manifest.created_at),
        "Ended": _utc(record.finished_at) if record.finished_at else "",
        "Status": record.status,
        "Dataset": f"{manifest.dataset_name or 'unnamed'}, {rows}",
        "Dataset hash": manifest.dataset_digest or "",
        "Agent": agent_text(manifest),
        "Pinned to": manifest.expect,
        "Model": manifest.model or "",
        "Evaluators": ", ".join(f"{c.name} {c.version}".strip() for c in manifest.criteria),
        "Config": _listed(changed_settings(manifest.config)) or "defaults",
        "Tags": _listed(manifest.tags),
        "Commit": commit_text(manifest),
        "Versions": ", ".join(f"{name} {n}" for name, n in manifest.packages.items()),
        "Rescored": f"from run {manifest.parent}" if manifest.parent else "",
        "Command": shlex.join(manifest.command),
    }
    known = {name: value for name, value in facts.items() if value}
    return section("provenance", "Provenance", tag("dl", *_pairs(known), class_="provenance"))


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
