"""The parts of the page that stand still: headline, plots, tables, provenance."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .._config import EvalConfig, stops_early
from .._intervals import Interval
from .._overview import Overview
from .._rate import FEW, rate_words, too_few
from .._stopping import EARLY
from .._store import RunRecord
from .._visible import as_text
from .._words import duration, money, number
from ._markup import Html, breakable, join, table, tag
from ._numbers import Group, criteria, failures, mean_of, percent, rate_of, slices
from ._plots import histogram, interval_bar
from ._rows import Archive, Line

__all__ = ["TO", "bar_of", "between", "headline", "name_of", "provenance", "results", "samples"]

TO = " to\N{NO-BREAK SPACE}"  # in two lines, where it must be, not in three
_REASONS = 30  # errors that are told apart, at most


def name_of(record: RunRecord) -> str:
    """What was run on what."""
    manifest = record.manifest
    what = manifest.model or manifest.agent
    return " on ".join(filter(None, (what, manifest.dataset_name))) or manifest.run_id


def section(name: str, title: str, *children: object) -> Html:
    """A part of the page, with its heading."""
    heading = f"{name}-heading"
    return tag("section", tag("h2", title, id=heading), *children, id=name, aria_labelledby=heading)


def between(interval: Interval, *, share: bool = True) -> str:
    """The two ends in words."""
    if not interval.known or not interval.n:
        return "unknown"
    ends = (interval.low, interval.high)
    return TO.join(percent(end) if share else number(end) for end in ends)


def bar_of(interval: Interval) -> Html:
    """A rate and its interval, drawn."""
    return interval_bar(interval.estimate, interval.low, interval.high) if interval.n else Html()


# ── the headline ────────────────────────────────────────────────────────────────────────────────


def headline(found: Overview, lines: Sequence[Line]) -> Html:
    """Counts first, then the rate with its interval, then what it took."""
    record = found.record
    manifest = record.manifest
    rate = found.rate
    errors = f"{record.errors:,} {'error' if record.errors == 1 else 'errors'}"
    verdict: tuple[object, ...] = (
        tag("p", percent(rate.estimate), class_="rate"),
        tag(
            "div",
            tag("p", tag("b", f"{record.passed:,} of {record.total:,} passed"), f", {errors}"),
            tag("p", rate_words(rate)),
            bar_of(rate),
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
    note = None
    if record.status != "complete":
        planned = f" of {manifest.planned:,}" if manifest.planned else ""
        why = f": {record.note}" if record.note else ""
        note = f"is not complete ({record.status}{why})"
        if record.note.startswith(EARLY):  # by its own rule
            note = record.note
        note = f"This run {note}; it has {record.total:,}{planned} rows."
    elif record.note:
        note = record.note
    return tag(
        "header",
        tag("p", "Evaluation report", class_="kicker"),
        tag("h1", name_of(record)),
        tag("p", f"Run {manifest.run_id}, {_when(record)}", class_="byline"),
        tag("p", note, class_="note", role="note") if note else None,
        tag("div", *verdict, class_="verdict-line"),
        tag("dl", *_pairs(_took(found, lines)), class_="took"),
    )


def _when(record: RunRecord) -> str:
    when = f"{record.manifest.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if record.finished_at is not None:
        when += (
            f", took {duration((record.finished_at - record.manifest.created_at).total_seconds())}"
        )
    return when


def _took(found: Overview, lines: Sequence[Line]) -> dict[str, str]:
    record = found.record
    score = mean_of([(line, line.value) for line in lines if not line.error])
    facts = {}
    if score.n:
        over = ", without errors" if record.errors else ""
        facts[f"Mean score{over}"] = f"{number(score.estimate)} ({between(score, share=False)})"
    if found.latency_p50_ms is not None and found.latency_p95_ms is not None:
        facts["Latency, median"] = duration(found.latency_p50_ms / 1000)
        facts["Latency, 95th percentile"] = duration(found.latency_p95_ms / 1000)
    if record.tokens:
        facts["Tokens"] = f"{record.tokens:,}"
    if record.cost is not None:
        facts["Cost"] = money(record.cost)
    return facts


def _pairs(facts: Mapping[str, object]) -> Iterator[Html]:
    for name, value in facts.items():
        yield tag("div", tag("dt", name), tag("dd", value))


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def results(record: RunRecord, lines: Sequence[Line]) -> Iterator[Html]:
    """Distribution, slices, criteria and errors: each where there is something to tell."""
    anytime = stops_early(record.manifest.config)
    passed = [line.value for line in lines if line.passed]
    failed = [line.value for line in lines if line.verdict == "fail"]
    left: list[Html] = []
    if passed or failed:
        left.append(section("scores", "Distribution of scores", histogram(passed, failed)))
        over = tag("p", "Of rows without an error.", class_="legend") if record.errors else None
        left.append(section("criteria", "Criteria", _criteria(record, lines), over))
    found = list(slices(lines))
    sliced = [_slice(key, groups, anytime=anytime) for key, groups in found]
    if sliced:
        few = any(too_few(rate_of(group.lines)) for _, groups in found for group in groups)
        note = tag("p", f"{FEW}.", class_="legend") if few else None
        right = section("slices", "Slices", *sliced, note)
        yield tag("div", tag("div", *left), tag("div", right), class_="columns")
    else:
        yield from left
    if errors := failures(lines):
        yield section("errors", "Errors", _errors(errors, lines))


def _criteria(record: RunRecord, lines: Sequence[Line]) -> Html:
    versions = {each.name: each.version for each in record.manifest.criteria}
    rows = [
        (
            tag(
                "span",
                breakable(each),
                title=f"version {versions[each]}" if versions.get(each) else None,
            ),
            percent(rate.estimate),
            between(rate),
            number(mean.estimate),
            between(mean, share=False),
            f"{mean.n:,}",
        )
        for each, (rate, mean) in criteria(lines).items()
    ]
    head = ("Criterion", "Pass rate", "95% interval", "Mean", "95% interval", "n")
    return table("Criteria, over rows without an error", head, rows, numbers=(1, 2, 3, 4, 5))


def _slice(key: str, groups: Sequence[Group], *, anytime: bool) -> Html:
    rows = []
    for group in groups:
        rate = rate_of(group.lines, anytime=anytime)
        rows.append(
            (
                join((breakable(group.name), tag("i", " few") if too_few(rate) else None)),
                percent(rate.estimate),
                bar_of(rate),
                between(rate),
                f"{sum(line.passed for line in group.lines):,}/{rate.n:,}",
            )
        )
    head = (key, "Pass rate", "0 to 100%", "95% interval", "Passed")
    return table(f"Pass rate by {key}", head, rows, numbers=(1, 3, 4))


def _errors(errors: Sequence[tuple[str, str, int, int]], lines: Sequence[Line]) -> Html:
    rows: list[tuple[object, ...]] = [
        (source, reason, f"{n:,}", tag("a", lines[first].sample_id, href=f"#row-{first}"))
        for source, reason, n, first in errors[:_REASONS]
    ]
    if rest := errors[_REASONS:]:
        rows.append(("others", f"{len(rest):,} more reasons", f"{sum(e[2] for e in rest):,}", ""))
    head = ("Source", "Reason", "Rows", "First")
    return table("Errors by source and reason", head, rows, numbers=(2,))


# ── samples and provenance ──────────────────────────────────────────────────────────────────────


def samples(archive: Archive, total: int, run_id: str) -> Html:
    """Where the table of samples goes, and what of it is not on this page."""
    notes = []
    show = f"wink eval show {run_id} SAMPLE"
    cores, transcripts = archive.cores.left_out, archive.transcripts.left_out
    if cores:
        notes.append(f"Inputs, outputs and scores of {cores:,} rows")
    if transcripts:
        notes.append(f"transcripts of {transcripts:,} of {archive.with_transcript:,} rows")
    note = None
    if notes:
        told = " and ".join(notes)
        told = told[0].upper() + told[1:]
        note = tag(
            "p", f"{told} are left out, to keep this page small. To see one: ", tag("code", show),
            class_="note", role="note",
        )  # fmt: skip
    wait = tag("noscript", tag("p", "The table of samples needs JavaScript.", class_="note"))
    place = tag("div", wait, id="samples-table", data_label="Samples")
    return section("samples", "Samples", note, place if total else tag("p", "None."))


def provenance(record: RunRecord) -> Html:
    """What one needs to know to believe the numbers, or to get them again."""
    manifest = record.manifest
    usual = EvalConfig()
    config = {
        name: value
        for name, value in manifest.config.items()
        if name not in usual or value != usual[name]
    }
    rows = f"{record.total:,}" + (f" of {manifest.planned:,}" if manifest.planned else "")
    rows += " row" if rows == "1" else " rows"
    facts: dict[str, object] = {
        "Run": manifest.run_id,
        "Started": _utc(manifest.created_at),
        "Ended": _utc(record.finished_at) if record.finished_at else "",
        "Status": record.status,
        "Dataset": f"{manifest.dataset_name or 'unnamed'}, {rows}",
        "Dataset hash": manifest.dataset_digest or "",
        "Agent": " ".join(filter(None, (manifest.agent, manifest.agent_version))),
        "Model": manifest.model or "",
        "Evaluators": ", ".join(f"{c.name} {c.version}".strip() for c in manifest.criteria),
        "Config": _listed(config) or "as usual",
        "Tags": _listed(manifest.tags),
        "Commit": manifest.git_commit or "",
        "Versions": ", ".join(f"{name} {n}" for name, n in manifest.packages.items()),
        "Scored anew": f"from run {manifest.parent}" if manifest.parent else "",
        "Command": shlex.join(manifest.command),
    }
    told = {name: value for name, value in facts.items() if value}
    return section("provenance", "Provenance", tag("dl", *_pairs(told), class_="provenance"))


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
