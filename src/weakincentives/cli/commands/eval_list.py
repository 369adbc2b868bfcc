"""`wink eval list`: list the stored runs, newest first."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

from rich.text import Text

from ...errors import UsageError
from ...evals.comparison import describe_differences
from ...evals.model.corrections import Correction
from ...evals.reporting.documents import correction_data, record_data
from ...evals.runs.figures import Figures
from ...evals.store import RunManifest, RunRecord
from ...evals.store.run_titles import agent_labels, experiment_name, run_title, version_labels
from ...evals.store.stored_corrections import corrections_of
from ...internal.formatting import money
from ..console.json_output import write_line
from ..console.styled_text import ago, one_line, print_stderr
from ..console.text_tables import (
    WIDE,
    columns,
    print_stdout,
    rate_text,
    screen,
    short_ids,
    table_width,
    tags_text,
    without_empty,
)
from ..options.runs import (
    add_format,
    add_run_filters,
    add_store,
    matching_runs,
    open_existing_store,
    same_store,
    store_above,
    store_path,
    used_filters,
)

DEFAULT_LIMIT = 20
MAX_MODEL_CHARS = 12  # longer names of models lose their provider on a narrow terminal
SHRINK = ("suite", "dataset", "agent", "experiment", "tags")
RIGHT = {
    *("passed", "rate (95%)", "corrected", "pass@k", "pass^k", "flaky", "errors", "quarantined"),
    "cost",
}
MARKS = {
    "running": (">", "cyan"),
    "interrupted": ("!", "yellow"),
    "stopped": ("x", "yellow"),
    "cancelled": ("-", "yellow"),
    "damaged": ("?", "red"),
    "rescored": ("=", "dim"),
}

RatedRuns = Sequence[tuple[RunRecord, Figures, Sequence[Correction]]]


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--limit", type=int, metavar="N",
        help=f"maximum number of runs (default {DEFAULT_LIMIT} as text, all as JSON)")  # fmt: skip
    add_run_filters(parser)
    add_format(parser, "jsonl")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, even if there are no runs."""
    runs, more = _stored_runs(args)
    documents = (
        {
            **record_data(record, figures),
            "corrections": [*map(correction_data, corrections)],
        }
        for record, figures, corrections in runs
    )
    if args.format == "json":
        write_line(sys.stdout, list(documents))
    elif args.format == "jsonl":
        for document in documents:
            write_line(sys.stdout, document)
    elif runs:
        _print_runs(runs, more, same_store(args))
    else:
        _print_none(args)
    return 0


def _stored_runs(args: Namespace) -> tuple[RatedRuns, bool]:
    """Return the runs to list with their pass rates, and whether there are more."""
    limit = args.limit
    if limit is not None and limit < 1:
        raise UsageError(f"expected a number > 0 for --limit, got {limit}")
    if limit is None and args.format == "text":
        limit = DEFAULT_LIMIT
    filtered = bool(used_filters(args))
    matching_runs((), args)  # raises even if there is no store
    if not store_path(args).exists():
        return [], False
    with open_existing_store(args) as store:
        records = store.runs(None if filtered or limit is None else limit + 1)
        records = matching_runs(records, args)
        rated = [
            (
                record,
                store.figures(record),
                corrections_of(store, record.manifest),
            )
            for record in records[:limit]
        ]
    return rated, len(records) > len(rated)


def _costs(figures: Sequence[Figures]) -> list[str]:
    """Return what each run cost; nothing if no run knows it, and a bound if some rows do not."""
    if all(each.cost is None for each in figures):
        return [""] * len(figures)
    bounds = ["≥ " if each.without_cost else "" for each in figures]
    costs = [each.cost for each in figures]
    return [
        "unknown" if cost is None else bound + money(cost)
        for bound, cost in zip(bounds, costs, strict=True)
    ]


def _print_none(args: Namespace) -> None:
    path = store_path(args)
    if (filters := used_filters(args)) and path.exists():
        print_stderr(f"No run matches {one_line(filters)} ({path}).")
    elif above := store_above(path):
        print_stderr(f"No runs here ({path}).", f"Above: wink eval list --store {above}")
    else:
        print_stderr(f"No runs here yet ({path}).", "To begin: wink eval init")


def _print_runs(runs: RatedRuns, more: bool, store_option: str) -> None:
    to = screen()
    wide = to.width >= WIDE
    records = [record for record, *_ in runs]
    ids = short_ids(records, whole=wide)
    table = _table(runs, ids, wide=wide)
    if wide and table_width(table) > to.width:  # shorten ids before names
        ids = short_ids(records, whole=False)
        table = _table(runs, ids, wide=wide)
    if table_width(table) > to.width and not any(figures.errors for _, figures, _ in runs):
        del table["errors"]
    drop = [*(["dataset"] if "suite" in table else []), "tags", "when", "agent", "errors"]
    drop += ["flaky", "pass@k", "pass^k"]
    print_stdout(to, columns(table, to.width, right=RIGHT, shrink=SHRINK, drop=drop))
    states = {_state(record) for record, *_ in runs}
    notes = ["   ".join(f"{mark} {state}" for state, (mark, _) in MARKS.items() if state in states)]
    notes += _comparability(records)
    notes += [
        f"note: run {one_line(name)} {one_line(record.mixed)}"
        for name, record in zip(ids, records, strict=True)
        if record.mixed
    ]
    if more:
        notes.append("There are more: --limit N")
    notes.append(f"Details: wink eval show {one_line(shlex.quote(ids[0]))}{store_option}")
    print_stderr("", *filter(None, notes))


def _comparability(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a note for each suite whose headlines are not comparable."""
    suites: dict[str, list[RunManifest]] = {}
    for record in records:
        suites.setdefault(run_title(record.manifest), []).append(record.manifest)
    for name, manifests in suites.items():
        if problem := describe_differences(manifests):
            yield f"note: the runs of {one_line(name)} are {problem}"


def _table(runs: RatedRuns, ids: Sequence[str], *, wide: bool) -> dict[str, list[Text]]:
    records = [record for record, *_ in runs]
    figures = [found for _, found, _ in runs]
    stats = [found.epochs for found in figures]
    manifests = [record.manifest for record in records]
    agents = agent_labels([(each.agent, _model(each.model, wide=wide)) for each in manifests])
    versions = version_labels(agents, [each.agent_version for each in manifests])
    datasets = [each.dataset_name for each in manifests]
    names = {
        "suite": [each.suite for each in manifests],
        "dataset": datasets,
        "agent": agents,
        "version": versions,
        "experiment": [experiment_name(each) for each in manifests],
        "tags": [tags_text(each.tags) for each in manifests],
    }
    table = {
        "": [Text(*MARKS.get(_state(record), ("", ""))) for record in records],
        "run": [Text(one_line(run_id), "bold") for run_id in ids],
        "when": [Text(ago(record.manifest.created_at)) for record in records],
        **{title: [Text(one_line(name or "-")) for name in each] for title, each in names.items()},
        "passed": [Text(f"{each.passed}/{each.total}") for each in figures],
        "rate (95%)": [rate_text(each.rate) for each in figures],
        "corrected": [_corrected_text(corrections) for *_, corrections in runs],
        "pass@k": [Text(f"{s.pass_at_k:.1%} k={s.k}" if s else "") for s in stats],
        "pass^k": [Text(f"{s.pass_hat_k:.1%}" if s else "") for s in stats],
        "flaky": [Text(f"{len(s.flaky):,}" if s else "") for s in stats],
        "errors": [
            Text(str(n), "red" if n else "dim") for n in (each.error_count for each in figures)
        ],
        "quarantined": [Text(f"{f.quarantined:,}" if f.quarantined else "") for f in figures],
        "cost": [Text(each) for each in _costs(figures)],
    }
    for title in ("suite", "version", "experiment", "tags"):  # columns that say nothing
        if not any(names[title]) or names[title] == datasets:
            del table[title]
    if not wide:
        table.pop("tags", None)
        del table["cost"]
    of_epochs = ("pass@k", "pass^k", "flaky")
    return without_empty(table, "", "corrected", *of_epochs, "quarantined", "cost")


def _corrected_text(corrections: Sequence[Correction]) -> Text:
    """Return the first pass rate that people would give; if there is none, why in a word or two."""
    for each in corrections:
        if each.corrected is not None:
            return rate_text(each.corrected)
    unknown = any("the file is damaged" in each.problem for each in corrections)
    return Text("unreadable" if unknown else "judge changed" if corrections else "", "yellow")


def _model(name: str | None, *, wide: bool) -> str | None:
    """Return the name of a model; without its provider if that is too long here."""
    return name if wide or not name or len(name) <= MAX_MODEL_CHARS else name.rpartition("/")[2]


def _state(record: RunRecord) -> str:
    """Return the status of a run; of a complete one, whether it was rescored."""
    rescored = record.manifest.parent and record.status == "complete"
    return "rescored" if rescored else record.status
