"""`wink eval show`: one run, its verdict first; or one sample of it, whole."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ._views import (
    add_store,
    ago,
    columns,
    line_of,
    names_width,
    open_store,
    out,
    rate_data,
    rate_text,
    record_data,
    same_store,
    say,
    screen,
    words_anywhere,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..evals import RunStore, StoredRow
    from ..evals._overview import Overview
    from ..evals.statistics import Interval

__all__ = ["configure", "run"]

WORST = 5
PAGE = 200  # rows that are looked at together, to line them up


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    words_anywhere(parser)
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help="which run (latest)")
    add("sample_id", nargs="?", metavar="SAMPLE", help="one of its samples, whole")
    add("--failed", action="store_true", help="every sample that failed")
    add("--errors", action="store_true", help="every sample that ended in an error")
    add("--all", action="store_true", help="every sample")
    add("--by", metavar="KEY", help="slices: the pass rate for each value in the metadata")
    add("--epoch", type=int, metavar="N", help="with SAMPLE: this epoch of it")
    add("--format", choices=("text", "json"), default="text", help="text to read, or data")
    add_store(parser)


def run(args: Namespace) -> int:
    """Exit code 0, whatever the verdict: this only looks."""
    from ..errors import UsageError
    from ..evals._overview import overview

    if args.by and args.sample_id is not None:
        raise UsageError("expected a SAMPLE, or --by for a whole run, got both")
    if args.epoch is not None and args.sample_id is None:
        raise UsageError("expected a SAMPLE with --epoch, got none")
    with open_store(args) as store:
        if args.sample_id is not None:
            from ._sample_view import show_sample

            return show_sample(store, args)
        found = overview(store, args.run_id)
        slices = _slices(store, found, args.by) if args.by else {}
        if args.format == "json":
            sys.stdout.writelines(_data(found, slices, _rows(store, found, args)))
            return 0
        to = screen()
        if args.all or args.failed or args.errors:
            out(to, *_head(found))
            _list(to, _rows(store, found, args))
        else:
            out(to, *_head(found), *_numbers(found), *_sliced(slices, args.by, to.width))
            worst = list(_rows(store, found, args))
            if worst:
                out(to, _title("Worst samples"))
                _list(to, worst)
                out(to, "")
            out(to, *_provenance(found))
            _say_next(found, worst, same_store(args))
    return 0


def _rows(store: RunStore, found: Overview, args: Namespace) -> Iterable[StoredRow]:
    from ..evals._overview import rows_where, worst

    run_id = found.record.manifest.run_id
    kinds = [kind for kind in ("failed", "errors") if getattr(args, kind)]
    if args.all or kinds:
        return rows_where(store, run_id, *([] if args.all else kinds))
    return worst(store, run_id, WORST)


def _slices(store: RunStore, found: Overview, by: str) -> dict[str, Interval]:
    from ..errors import UsageError
    from ..evals._outcomes import ABSENT, stored_outcomes

    run_id = found.record.manifest.run_id
    slices = stored_outcomes(store, run_id, by).by_slice()
    if not slices.keys() - {ABSENT}:
        first = next(store.rows(run_id), None)
        known = ", ".join(first.result.metadata) if first is not None else ""
        raise UsageError(
            f"expected {by!r} in the metadata of samples, found it in none - the first one has "
            f"{known or 'no metadata'}"
        )
    return slices


# ── in words ────────────────────────────────────────────────────────────────────────────────────


def _title(text: str) -> Text:
    from rich.text import Text

    return Text(text, "bold")


def _head(found: Overview) -> Iterator[Any]:
    from rich.text import Text

    from ..evals._words import duration
    from ._summary import harmless

    record = found.record
    manifest = record.manifest
    what = " on ".join(filter(None, (manifest.model or manifest.agent, manifest.dataset_name)))
    when = ago(manifest.created_at)
    if record.finished_at is not None:
        when += f", took {duration((record.finished_at - manifest.created_at).total_seconds())}"
    if record.status != "complete":
        when += f", {record.status}"
    yield Text.assemble((harmless(manifest.run_id), "bold"), f"  {harmless(what)}  ", (when, "dim"))
    yield ""
    yield Text(harmless(str(found)), "bold")
    yield ""


def _numbers(found: Overview) -> Iterator[Any]:
    from rich.text import Text

    from ..evals._words import duration, money
    from ._summary import harmless

    record = found.record
    width = names_width(found.criteria, 48)
    for name, mean in found.criteria.items():
        label = Text(f"  {harmless(name)}")
        label.truncate(width + 2, overflow="ellipsis", pad=True)
        yield Text.assemble(label, f"  {mean:6.3f}")
    if found.criteria:
        yield ""
    facts = []
    if found.errors:
        facts.append("errors: " + ", ".join(f"{n} {source}" for source, n in found.errors.items()))
    if found.latency_p50_ms is not None and found.latency_p95_ms is not None:
        p50, p95 = (duration(ms / 1000) for ms in (found.latency_p50_ms, found.latency_p95_ms))
        facts.append(f"latency: p50 {p50}, p95 {p95}")
    if record.tokens:
        facts.append(f"{record.tokens:,} tokens")
    if record.cost is not None:
        facts.append(money(record.cost))
    if facts:
        yield Text("   ".join(facts))
        yield ""


def _sliced(slices: Mapping[str, Interval], by: str, width: int) -> Iterator[Any]:
    from rich.text import Text

    from ..evals._rate import FEW, too_few
    from ._summary import harmless

    if not slices:
        return
    rates = slices.values()
    table = {
        f"by {harmless(by)}": [Text(harmless(name)) for name in slices],
        "n": [Text(f"{rate.n:,}", "dim") for rate in rates],
        "rate (95%)": [rate_text(rate) for rate in rates],
        "": [Text("few" if too_few(rate) else "", "yellow") for rate in rates],
    }
    yield columns(table, width, right={"n", "rate (95%)"}, shrink=(f"by {harmless(by)}",))
    if any(map(too_few, rates)):
        yield Text(FEW, "dim")
    yield ""


def _list(to: Console, rows: Iterable[StoredRow]) -> None:
    """The rows, a page of them at a time."""
    from rich.text import Text

    rest = (row.result for row in rows)
    width = 0
    while page := list(islice(rest, PAGE)):
        width = max(width, names_width(result.sample_id for result in page))
        epochs = any(result.epoch > 1 for result in page)
        lines = [line_of(result, width, epochs=epochs) for result in page]
        out(to, Text("\n", no_wrap=True, overflow="ellipsis").join(lines))


def _provenance(found: Overview) -> Iterator[Any]:
    """What one needs to know to believe the numbers, or to get them again."""
    from rich.table import Table
    from rich.text import Text

    from ..evals import EvalConfig
    from ._summary import harmless

    manifest = found.record.manifest
    usual = EvalConfig()
    config = {
        name: value
        for name, value in manifest.config.items()
        if name not in usual or value != usual[name]
    }
    digest = manifest.dataset_digest
    done = found.record.total
    facts = {
        "dataset": f"{manifest.dataset_name or 'unnamed'}"
        + (f", {digest[:12]}" if digest else "")
        + (f", {done} of {manifest.planned} rows" if manifest.planned else f", {done} rows"),
        "agent": " ".join(filter(None, (manifest.agent, manifest.agent_version))),
        "model": manifest.model,
        "evaluators": ", ".join(f"{c.name} {c.version}".strip() for c in manifest.criteria),
        "config": _pairs(config) or "as usual",
        "tags": _pairs(manifest.tags),
        "commit": manifest.git_commit,
        "packages": ", ".join(f"{name} {number}" for name, number in manifest.packages.items()),
        "scored anew": f"from run {manifest.parent}" if manifest.parent else "",
        "command": shlex.join(manifest.command),
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    for name, text in facts.items():
        if text:
            table.add_row(f"  {name}", Text(harmless(text), overflow="fold"))
    yield _title("Where it comes from")
    yield table


def _pairs(values: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _say_next(found: Overview, worst: list[StoredRow], where: str) -> None:
    from ._summary import harmless

    record = found.record
    run_id = record.manifest.run_id
    notes = []
    if record.status in ("interrupted", "stopped") and record.manifest.command:
        notes.append(f"To go on: wink eval resume {run_id}{where}")
    if worst:
        name = worst[0].result.sample_id
        notes.append(f"One sample, whole: wink eval show {run_id} {shlex.quote(name)}{where}")
        if record.total - record.passed > len(worst):
            notes.append(f"All of these: wink eval show {run_id} --failed --errors{where}")
    if notes:
        say("", *map(harmless, notes))


# ── as data ─────────────────────────────────────────────────────────────────────────────────────


def _data(
    found: Overview, slices: Mapping[str, Interval], rows: Iterable[StoredRow]
) -> Iterator[str]:
    """One JSON object, whose samples are written as they are read."""
    from .. import serde
    from ..evals._export import verdict_of

    head = {
        **record_data(found.record, found.rate),
        "errors_by_source": found.errors,
        "criteria": found.criteria,
        "latency_ms": {"p50": found.latency_p50_ms, "p95": found.latency_p95_ms},
        "slices": [{"value": name, "n": r.n, **rate_data(r)} for name, r in slices.items()],
        "manifest": found.record.manifest,
    }
    yield serde.encode(head).decode()[:-1] + ',"samples":['
    between = "\n"
    for result in (row.result for row in rows):
        sample = {
            "sample_id": result.sample_id,
            "epoch": result.epoch,
            "experiment": result.experiment_name,
            "verdict": verdict_of(result),
            "value": None if result.error is not None else result.score.value,
            "reason": result.score.reason,
            "error": result.error,
            "error_source": result.error_source,
        }
        yield between + serde.encode(sample).decode()
        between = ",\n"
    yield "\n]}\n"
