"""A stored run as a file for other programs: CSV, JSON, JSONL, Parquet, Markdown, JUnit XML.

JSON and JSONL are exact: complete results, as `EvalReport.save` writes them. The tables, CSV and
Parquet, have one row for each result and these columns:

    run_id, sample_id, epoch, experiment, attempt
    verdict         pass, fail or error
    value           of the score; empty after an error
    reason          the criteria that failed, with their reasons; or the reason of a pass
    error, error_source, error_type, error_where
    input, expected, output, metadata    texts as they are, other data as JSON
    latency_ms, tokens, cost             cost in US dollars; each is empty if it is unknown
    score.NAME      the value of each criterion

Rules of this file:
1. Rows are written as they are read: memory does not grow with the run.
2. A cell of CSV that a spreadsheet would run as a formula is prefixed with an apostrophe. Numbers
   stay numbers. Control characters are escaped (`\\x1b`).
3. No content of a run ever becomes part of a path.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ... import serde
from ...errors import MissingExtraError, StoreError, UsageError
from ...internal.atomic_write import write_whole
from ...internal.escaping import as_text, escape_control_chars, spreadsheet_cells as _safe
from ..comparison.gates import GateResult
from ..model.error_groups import ErrorGroup
from ..model.explain import why_failed
from ..model.result import EvalResult, criterion_values
from ..model.versions import UNKNOWN
from ..runs.table import known_latency
from ..store.overview import Overview, overview
from ..store.run_store import RunStore
from ..store.run_titles import agent_text, commit_text, experiment_name, run_title
from ..store.stored_row import StoredRow
from .junit import JUnitRun, junit, junit_document
from .usage import usage_of


def verdict_of(result: EvalResult[Any]) -> str:
    """Return "pass", "fail" or "error"."""
    return "error" if result.error is not None else "pass" if result.passed else "fail"


def _text(value: Any) -> str | None:
    return None if value is None else as_text(value)


COLUMNS: dict[str, tuple[type, Callable[[EvalResult[Any]], Any]]] = {
    "run_id": (str, lambda result: result.run_id),
    "sample_id": (str, lambda result: result.sample_id),
    "epoch": (int, lambda result: result.epoch),
    "experiment": (str, lambda result: result.experiment_name),
    "attempt": (int, lambda result: result.attempt),
    "verdict": (str, verdict_of),
    "value": (float, lambda result: result.score.value if result.error is None else None),
    "reason": (str, lambda result: why_failed(result) if result.error is None else None),
    "error": (str, lambda result: result.error),
    "error_source": (str, lambda result: result.error_source),
    "error_type": (str, lambda result: result.error_details and result.error_details.type),
    "error_where": (str, lambda result: result.error_details and result.error_details.where),
    "input": (str, lambda result: _text(result.sample and result.sample.input)),
    "expected": (str, lambda result: _text(result.sample and result.sample.expected)),
    "output": (str, lambda result: _text(result.output)),
    "metadata": (str, lambda result: as_text(result.metadata or None)),
    "latency_ms": (int, lambda result: known_latency(result.latency_ms, result.error_source)),
    "tokens": (int, lambda result: result.agent_tokens),
    "cost": (float, lambda result: result.cost),
    "judge_tokens": (int, lambda result: result.judge_tokens or None),
    "judge_cost": (float, lambda result: result.judge_cost),
}
"""The columns of a table: their types and values; one `score.NAME` for each criterion follows.

`tokens` and `cost` are the agent's.
"""

_PARQUET_ROWS = 1_000  # in a row group
_CSV_ROWS, _CSV_CHARS = 100, 100_000  # maximum that is written at once
_MAX_INTEGER = 2**63 - 1  # in Parquet
_MARKDOWN_CHARS = 300  # per cell
_MARKDOWN_GROUPS = 10  # listed groups of errors
_WITH_COUNTS = {"json", "md", "junit"}  # formats that begin with the counts of the run


def write_export(
    store: RunStore, run_id: str, target: Path | str | BinaryIO, format: str | None = None
) -> Overview:
    """Write a stored run to a path or an open file, and return its numbers.

    Without a `format`, the suffix decides. A file is written completely or not at all. A row that
    cannot be read is written as an error.
    """
    if isinstance(target, str):
        target = Path(target)
    if format is None:
        format = format_by_suffix(target) if isinstance(target, Path) else "jsonl"
    run = overview(store, run_id, check=format in _WITH_COUNTS)
    run_id = run.record.manifest.run_id
    problems: list[str] = []
    rows = _noting_problems(store.rows(run_id), problems)
    if not isinstance(target, Path):
        target.writelines(_chunks(rows, format, run))
    else:
        _write_file(target, _chunks(rows, format, run))
    return overview(store, run_id, check=True) if problems else run


def write_junit(
    store: RunStore, runs: Iterable[tuple[str, GateResult | None]], path: Path | str
) -> None:
    """Write stored runs as one JUnit file, a test suite each.

    With the result of a gate, the failures of a run follow that: see `reporting/junit.py`.
    """
    suites = []
    for run_id, gate in runs:
        run = overview(store, run_id, check=True)
        results = (row.result for row in store.rows(run.record.manifest.run_id))
        suites.append(JUnitRun(results, run, gate))
    _write_file(Path(path), junit_document(suites))


def _write_file(path: Path, chunks: Iterable[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, chunks)
    except OSError as error:
        raise StoreError(f"expected a file to write to, got: {error} ({path})") from None


def _noting_problems(rows: Iterable[StoredRow], problems: list[str]) -> Iterator[StoredRow]:
    for row in rows:
        if row.problem:
            problems.append(row.problem)
        yield row


def format_by_suffix(path: Path) -> str:
    """Return the format of a file by its suffix."""
    suffix = path.suffix[1:].lower()
    format = {"markdown": "md", "ndjson": "jsonl", "xml": "junit"}.get(suffix, suffix)
    if format not in FORMATS:
        known = ", ".join(".xml" if name == "junit" else f".{name}" for name in FORMATS)
        raise UsageError(f"expected a file that ends in one of {known}, got `{path.name}`")
    return format


def _chunks(rows: Iterable[StoredRow], format: str, run: Overview) -> Iterator[bytes]:
    if format not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)} as format, got {format!r}")
    if run.record.mixed:
        return FORMATS[format](map(_with_version, rows), run)
    return FORMATS[format]((row.result for row in rows), run)


def _with_version(row: StoredRow) -> EvalResult[Any]:
    """Return the result of a run that mixes versions of an agent, with its own in the metadata."""
    metadata = {**row.result.metadata, "agent_version": row.agent_version or UNKNOWN}
    return replace(row.result, metadata=metadata)


# ── exact ───────────────────────────────────────────────────────────────────────────────────────


def _jsonl(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    for result in results:
        yield serde.encode(result) + b"\n"


def _json(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    yield b'{"run":' + serde.encode(run) + b',\n"results":['
    between = b"\n"
    for result in results:
        yield between + serde.encode(result)
        between = b",\n"
    yield b"\n]}\n"


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def _cells(result: EvalResult[Any], criteria: Sequence[str]) -> list[Any]:
    """Return the values of the columns, in order."""
    values = criterion_values(result.score) if result.error is None else {}
    return [*(read(result) for _, read in COLUMNS.values()), *map(values.get, criteria)]


def _header(run: Overview) -> list[str]:
    return [*COLUMNS, *(f"score.{name}" for name in run.figures.criteria)]


def _csv(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(_safe(_header(run)))
    types = _types(run)
    for batch in _batches(results, [*run.figures.criteria]):
        columns = zip(types, zip(*batch, strict=True), strict=True)
        safe = [_safe(cells) if type is str else cells for type, cells in columns]
        writer.writerows(zip(*safe, strict=True))
        yield lines.getvalue().encode()
        lines.seek(0)
        lines.truncate()
    yield lines.getvalue().encode()


def _batches(results: Iterable[EvalResult[Any]], criteria: list[str]) -> Iterator[list[list[Any]]]:
    """Yield the cells of a few rows at a time: fewer, if they are long."""
    batch, chars = [], 0
    for result in results:
        batch.append(cells := _cells(result, criteria))
        chars += sum(len(cell) for cell in cells if cell.__class__ is str)
        if len(batch) == _CSV_ROWS or chars > _CSV_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _types(run: Overview) -> list[type]:
    return [*(kind for kind, _ in COLUMNS.values()), *(float for _ in run.figures.criteria)]


class _Sink(io.RawIOBase):
    """A file that Parquet writes to, and that is emptied while it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._written += len(part)
        return len(part)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _parquet(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "writing .parquet files") from None
    arrow = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    fields = zip(_header(run), _types(run), strict=True)
    schema = pyarrow.schema([(_unicode(name), arrow[kind]) for name, kind in fields])
    rest, sink, names = iter(results), _Sink(), [*run.figures.criteria]
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        while batch := [_cells(result, names) for result in islice(rest, _PARQUET_ROWS)]:
            columns = [[_arrow(cell) for cell in column] for column in zip(*batch, strict=True)]
            arrays = [
                pyarrow.array(column, field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            yield sink.take()
    yield sink.take()


def _arrow(cell: Any) -> Any:
    """Return the cell as Parquet can store it: integers have 64 bits."""
    return max(-_MAX_INTEGER, min(cell, _MAX_INTEGER)) if cell.__class__ is int else _unicode(cell)


def _unicode(cell: Any) -> Any:
    """Escape lone surrogates, which Parquet cannot store."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


# ── for people ──────────────────────────────────────────────────────────────────────────────────


def _markdown(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    manifest = run.record.manifest
    head = [f"# {inline(run_title(manifest))}", "", f"**{inline(str(run))}**"]
    about = {
        "run": manifest.run_id,
        "when": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC",
        "dataset": manifest.dataset_name if manifest.suite else "",
        "experiment": experiment_name(manifest),
        "tags": ", ".join(f"{name}={value}" for name, value in manifest.tags.items()),
        "agent": agent_text(manifest),
        "model": manifest.model,
        "commit": commit_text(manifest),
        **usage_of(run.figures),
    }
    head += ["", *(f"- {name}: {inline(value)}" for name, value in about.items() if value)]
    if run.figures.criteria:
        head += ["", "| criterion | mean |", "|---|--:|"]
        head += [
            f"| {inline(name)} | {value:.3f} |" for name, value in run.figures.criteria.items()
        ]
    head += error_table(run.error_groups)
    head += ["", "| sample | epoch | verdict | value | why |", "|---|--:|---|--:|---|", ""]
    yield "\n".join(head).encode()
    for result in results:
        verdict = verdict_of(result)
        cell = verdict if verdict == "pass" else f"**{verdict}**"
        value = "" if result.error is not None else f"{result.score.value:.3f}"
        why = inline(why_failed(result))
        name = inline(result.sample_id)
        yield f"| {name} | {result.epoch} | {cell} | {value} | {why} |\n".encode()


def error_table(groups: Sequence[ErrorGroup]) -> list[str]:
    """Return the errors of a run as a table of Markdown; nothing if there are none."""
    if not groups:
        return []
    rows = [f"| {group.count:,} | {inline(group.label)} |" for group in groups[:_MARKDOWN_GROUPS]]
    if more := sum(group.count for group in groups[_MARKDOWN_GROUPS:]):
        rows.append(f"| {more:,} | others |")
    return ["", "| errors | type and place |", "|--:|---|", *rows]


_MARKUP = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)|:(?=//)|@(?=\w)")


def inline(text: str) -> str:
    """Escape a text for a line of Markdown: no link, no image, no markup."""
    line = " ".join(escape_control_chars(text).split())
    line = line if len(line) <= _MARKDOWN_CHARS else f"{line[: _MARKDOWN_CHARS - 1]}…"
    return _MARKUP.sub(lambda match: f"\\{match[0]}", line)


FORMATS: dict[str, Callable[[Iterable[EvalResult[Any]], Overview], Iterator[bytes]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "md": _markdown,
    "junit": junit,
}
"""The writer of each format."""
