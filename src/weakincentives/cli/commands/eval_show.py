"""`wink eval show`: print one run, its verdict first; or one of its samples in full."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ... import serde
from ...errors import UsageError
from ...evals import RunStore
from ...evals.model.grouping import ABSENT
from ...evals.reporting.documents import changed_settings, overview_data, sample_data, slices_data
from ...evals.runs import FEW, Interval
from ...evals.runs.figures import Figures
from ...evals.store import StoredRow
from ...evals.store.find_rows import rows_of_keys
from ...evals.store.overview import Overview, overview as read_overview, stored_slices
from ...evals.store.run_store import RowKind
from ...evals.store.run_titles import agent_text, commit_text
from ...internal.formatting import duration
from ..console.json_output import benchmark_data
from ..console.sample_view import show_sample
from ..console.styled_text import ago, one_line, print_stderr
from ..console.summary import figures_of, numbers_text, spent
from ..console.text_tables import columns, label_width, print_stdout, rate_text, screen
from ..console.views import line_of, lines_of_errors
from ..options.parsing import allow_intermixed_args, whole_number
from ..options.runs import add_format, add_run, add_store, open_existing_store, same_store
from ..options.sample_selection import filter_of

MAX_PARTS = 12  # named parts of an agent's code
PAGE_ROWS = 200  # rows that are aligned together


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    allow_intermixed_args(parser)
    add_run(parser)
    add = parser.add_argument
    add("sample_id", nargs="?", metavar="SAMPLE", help="print this sample in full")
    add("--failed", action="store_true", help="list all samples that failed")
    add("--errors", action="store_true", help="list all samples with an error")
    add("--all", action="store_true", help="list all samples")
    add("--filter", action="append", default=[], metavar="KEY=GLOB",
        help="list only samples whose metadata (or id) matches; repeat to require all")  # fmt: skip
    add("--by", action="append", default=[], metavar="KEY",
        help="pass rate per value of this metadata key; repeat for further keys")  # fmt: skip
    add("--epoch", type=int, metavar="N", help="with SAMPLE: this epoch (default: the first)")
    add(
        "--full",
        action="store_true",
        help="with SAMPLE: do not shorten long texts and conversations",
    )
    add("--from-message", type=whole_number(1), metavar="N",
        help="with SAMPLE: print 200 messages from this one on")  # fmt: skip
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the verdict."""
    if args.by and args.sample_id is not None:
        raise UsageError("expected a SAMPLE, or --by for a whole run, got both")
    for option, value in (("--epoch", args.epoch), ("--from-message", args.from_message)):
        if value is not None and args.sample_id is None:
            raise UsageError(f"expected a SAMPLE with {option}, got none")
    with open_existing_store(args) as store:
        if args.sample_id is not None:
            return show_sample(store, args)
        overview = read_overview(store, args.run_id, check=True)
        slices = {key: _slices(store, overview, key) for key in args.by}
        figures = figures_of(store, overview)
        if args.format == "json":
            sys.stdout.writelines(_json(overview, slices, figures, _rows(store, overview, args)))
            return 0
        to = screen()
        if args.all or args.failed or args.errors or args.filter:
            print_stdout(to, *_head(overview))
            _print_rows(to, _rows(store, overview, args))
            return 0
        sliced = (part for key, each in slices.items() for part in _sliced(each, key, to.width))
        print_stdout(
            to, *_head(overview), *_numbers(overview, figures), *sliced, *_problems(overview)
        )
        rows = list(_rows(store, overview, args))
        if rows:
            print_stdout(to, Text("Worst samples", "bold"))
            _print_rows(to, rows)
            print_stdout(to, "")
        print_stdout(to, *_provenance(overview))
        _print_next_commands(overview, rows, same_store(args))
    return 0


def _rows(store: RunStore, overview: Overview, args: Namespace) -> Iterable[StoredRow]:
    run_id = overview.record.manifest.run_id
    shown: tuple[RowKind, ...] = ("failed", "errors")
    kinds = [kind for kind in shown if getattr(args, kind)]
    if args.all or kinds or args.filter:
        kinds, matches = [] if args.all else kinds, filter_of(args.filter)
        rows = store.rows(run_id, *kinds)
        return (row for row in rows if matches(row.result.sample_id, row.result.metadata))
    return rows_of_keys(store, run_id, overview.worst)


def _slices(store: RunStore, overview: Overview, by: str) -> dict[str, Figures]:
    run_id = overview.record.manifest.run_id
    slices = stored_slices(store, overview.record, by)
    if overview.figures.total and not slices.keys() - {ABSENT}:
        first = next(store.rows(run_id), None)
        known = ", ".join(first.result.metadata) if first is not None else ""
        raise UsageError(
            f"expected {by!r} in the metadata of samples, found it in none - the first one has "
            f"{known or 'no metadata'}"
        )
    return slices


# ── as text ─────────────────────────────────────────────────────────────────────────────────────


def _head(overview: Overview) -> Iterator[RenderableType]:
    record, manifest = overview.record, overview.record.manifest
    what = " on ".join(filter(None, (manifest.model or manifest.agent, manifest.dataset_name)))
    if manifest.suite not in ("", manifest.dataset_name):
        what = f"{manifest.suite}: {what}"
    when = ago(manifest.created_at)
    if record.active_seconds is not None and record.status != "running":
        when += f", took {duration(record.active_seconds)}"
    if record.status != "complete":
        when += f", {record.status}"
    yield Text.assemble((one_line(manifest.run_id), "bold"), f"  {one_line(what)}  ", (when, "dim"))
    yield ""
    yield Text(one_line(str(overview)), "bold")
    yield ""


def _numbers(overview: Overview, figures: Mapping[str, Interval]) -> Iterator[RenderableType]:
    for block in numbers_text(overview, figures):
        yield block
        yield ""
    errors = ", ".join(f"{count} {source}" for source, count in overview.figures.errors.items())
    if facts := [*([f"errors: {errors}"] if errors else []), *spent(overview)]:
        yield Text("   ".join(facts))
        yield ""


def _problems(overview: Overview) -> Iterator[RenderableType]:
    if overview.error_groups:
        yield Text("Errors", "bold")
        yield from lines_of_errors(overview.error_groups)
        yield ""
    if overview.type_mismatch:
        yield Text(f"warning: {one_line(overview.type_mismatch)}", "yellow")
        yield ""


def _sliced(slices: Mapping[str, Figures], by: str, width: int) -> Iterator[RenderableType]:
    figures, title = slices.values(), f"by {one_line(by)}"
    table = {
        title: [Text(one_line(name)) for name in slices],
        "n": [Text(f"{each.rate.n:,}", "dim") for each in figures],
        "rate (95%)": [rate_text(each.rate) for each in figures],
        "": [Text("few" if each.few else "", "yellow") for each in figures],
    }
    yield columns(table, width, right={"n", "rate (95%)"}, shrink=(title,))
    if any(each.few for each in figures):
        yield Text(FEW, "dim")
    yield ""


def _print_rows(to: Console, rows: Iterable[StoredRow]) -> None:
    """Print a line for each row, a page at a time."""
    results = (row.result for row in rows)
    width = 0
    while page := list(islice(results, PAGE_ROWS)):
        width = max(width, label_width(result.sample_id for result in page))
        epochs = any(result.epoch > 1 for result in page)
        lines = [line_of(result, width, epochs=epochs) for result in page]
        print_stdout(to, Text("\n", no_wrap=True, overflow="ellipsis").join(lines))


def _provenance(overview: Overview) -> Iterator[RenderableType]:
    """Yield what is needed to trust the numbers, and to reproduce them."""
    record, manifest, done = overview.record, overview.record.manifest, overview.record.stored
    rows = f"{done} of {manifest.planned} rows" if manifest.planned else f"{done} rows"
    digest = (manifest.dataset_digest or "")[:12]
    if not digest and record.status in ("running", "interrupted"):
        digest = "digest unknown"  # it is stored when the run ends
    dataset = (manifest.dataset_name or "unnamed", digest, rows)
    facts = {
        "suite": manifest.suite,
        "dataset": ", ".join(filter(None, dataset)),
        "agent": agent_text(manifest),
        "pinned to": manifest.expect,
        "code": _listed(manifest.agent_parts),
        "model": manifest.model,
        "evaluators": ", ".join(f"{c.name} {c.version}".strip() for c in manifest.criteria),
        "config": _pairs(changed_settings(manifest.config)) or "defaults",
        "judges": ", ".join(f"{name} by {by}" for name, by in manifest.judge_models.items()),
        "quarantined": _listed(manifest.quarantined),
        "tags": _pairs(manifest.tags),
        "commit": commit_text(manifest),
        "packages": ", ".join(f"{name} {number}" for name, number in manifest.packages.items()),
        "rescored": f"from run {manifest.parent}" if manifest.parent else "",
        "command": shlex.join(manifest.command),
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    for name, text in facts.items():
        if text:
            table.add_row(f"  {name}", Text(one_line(text), overflow="fold"))
    yield Text("Provenance", "bold")
    yield table


def _listed(names: Iterable[str]) -> str:
    first = list(islice(names, MAX_PARTS + 1))
    return ", ".join([*first[:MAX_PARTS], *(["..."] if len(first) > MAX_PARTS else [])])


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _print_next_commands(overview: Overview, rows: list[StoredRow], store_option: str) -> None:
    record = overview.record
    run_id = record.manifest.run_id
    notes = []
    if record.manifest.command and (
        overview.unreadable or record.status in ("interrupted", "stopped", "damaged")
    ):
        notes.append(f"To continue: wink eval resume {run_id}{store_option}")
    if rows:
        name = shlex.quote(rows[0].result.sample_id)
        notes.append(f"One sample in full: wink eval show {run_id} {name}{store_option}")
        if overview.figures.total - overview.figures.passed > len(rows):
            notes.append(f"All of these: wink eval show {run_id} --failed --errors{store_option}")
    if notes:
        print_stderr("", *map(one_line, notes))


# ── as data ─────────────────────────────────────────────────────────────────────────────────────


def _json(
    overview: Overview,
    slices: Mapping[str, Mapping[str, Figures]],
    figures: Mapping[str, Interval],
    rows: Iterable[StoredRow],
) -> Iterator[str]:
    """Yield one JSON object, whose samples are written as they are read."""
    head = {
        **overview_data(overview),
        **benchmark_data(figures),
        "slices": [each for key, found in slices.items() for each in slices_data(key, found)],
        "manifest": overview.record.manifest,
    }
    yield serde.encode(head).decode()[:-1] + ',"samples":['
    separator = "\n"
    for result in (row.result for row in rows):
        yield separator + serde.encode(sample_data(result)).decode()
        separator = ",\n"
    yield "\n]}\n"
