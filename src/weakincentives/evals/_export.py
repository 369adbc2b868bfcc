"""A stored run as a file for others: CSV, JSON, JSONL, Parquet, Markdown, JUnit XML.

JSON and JSONL are exact: every result whole, as `EvalReport.save` writes it. The tables, CSV and
Parquet, have one row a result and these columns:

    run_id, sample_id, epoch, experiment, attempt
    verdict         pass, fail or error
    value, reason   of the score; empty after an error
    error, error_source
    input, expected, output, metadata    texts as they are, other data as JSON
    latency_ms, tokens, cost             cost in US dollars, empty where unknown
    score.NAME      the value of each criterion

Rules of this file:
1. Rows are written as they are read: memory does not follow the run.
2. A cell of CSV that a spreadsheet would run as a formula gets an apostrophe in front. Numbers stay
   numbers. Control characters become visible (`\\x1b`).
3. Nothing of a run ever becomes part of a path.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from .. import serde
from ..errors import MissingExtraError, StoreError, UsageError
from ._files import write_whole
from ._junit import junit
from ._overview import Overview, overview
from ._report import EvalResult
from ._store import RunStore, StoredRow
from ._visible import as_text, visible

__all__ = [
    "COLUMNS",
    "FORMATS",
    "export",
    "format_by_suffix",
    "inline",
    "verdict_of",
    "write_export",
]

COLUMNS = {
    "run_id": str,
    "sample_id": str,
    "epoch": int,
    "experiment": str,
    "attempt": int,
    "verdict": str,
    "value": float,
    "reason": str,
    "error": str,
    "error_source": str,
    "input": str,
    "expected": str,
    "output": str,
    "metadata": str,
    "latency_ms": int,
    "tokens": int,
    "cost": float,
}
"""The columns of a table and their types; one `score.NAME` for each criterion follows."""

_BATCH = 1_000  # rows that Parquet keeps together
_LONGEST = 300  # characters of a cell in Markdown


def write_export(
    store: RunStore, run_id: str, target: Path | str | BinaryIO, format: str | None = None
) -> None:
    """Write a stored run to a path or an open file; without a `format`, the suffix says it.

    A file appears whole or not at all.
    """
    if isinstance(target, str):
        target = Path(target)
    if format is None:
        format = format_by_suffix(target) if isinstance(target, Path) else "jsonl"
    run = overview(store, run_id)
    rows = store.rows(run.record.manifest.run_id)
    if not isinstance(target, Path):
        export(rows, format, target, run)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, _chunks(rows, format, run))
    except OSError as error:
        raise StoreError(f"expected a file to write to, got: {error} ({target})") from None


def export(rows: Iterable[StoredRow], format: str, file: BinaryIO, run: Overview) -> None:
    """Write rows to an open file; `run` has the names of their criteria."""
    file.writelines(_chunks(rows, format, run))


def format_by_suffix(path: Path) -> str:
    """The format that a file's name asks for."""
    suffix = path.suffix[1:].lower()
    format = {"markdown": "md", "ndjson": "jsonl", "xml": "junit"}.get(suffix, suffix)
    if format not in FORMATS:
        known = ", ".join(".xml" if name == "junit" else f".{name}" for name in FORMATS)
        raise UsageError(f"expected a file that ends in one of {known}, got `{path.name}`")
    return format


def verdict_of(result: EvalResult[Any]) -> str:
    """Pass, fail or error."""
    return "error" if result.error is not None else "pass" if result.passed else "fail"


def _chunks(rows: Iterable[StoredRow], format: str, run: Overview) -> Iterator[bytes]:
    if format not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)} as format, got {format!r}")
    return FORMATS[format]((row.result for row in rows), run)


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
    """The values of the columns, in their order."""
    scored = result.error is None
    values = {score.criterion or "score": score.value for score in result.scores}
    sample, trajectory = result.sample, result.trajectory
    given, wanted = (sample.input, sample.expected) if sample else (None, None)
    return [
        result.run_id,
        result.sample_id,
        result.epoch,
        result.experiment_name,
        result.attempt,
        verdict_of(result),
        result.score.value if scored else None,
        result.score.reason if scored else None,
        result.error,
        result.error_source,
        *(None if it is None else as_text(it) for it in (given, wanted, result.output)),
        as_text(result.metadata or None),
        result.latency_ms,
        result.tokens_used,
        trajectory.cost if trajectory else None,
        *(values.get(name) for name in criteria),
    ]


def _header(run: Overview) -> list[str]:
    return [*COLUMNS, *(f"score.{name}" for name in run.criteria)]


# As the first character that counts: what stands before it is skipped by one program or another.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\x00-\x1f\"'`‘’“”\u200b-\u200d\u2060\ufeff]*[=+\-@＝＋－＠]"
).match
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z").match


def _safe(cell: Any) -> Any:
    """The cell as a spreadsheet will show it, and not run it."""
    if not isinstance(cell, str):
        return cell
    guard = "'" if _FORMULA(cell) and not _NUMBER(cell) else ""
    return guard + visible(cell)


def _csv(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(map(_safe, _header(run)))
    for result in results:
        yield lines.getvalue().encode()
        lines.seek(0)
        lines.truncate()
        writer.writerow(map(_safe, _cells(result, [*run.criteria])))
    yield lines.getvalue().encode()


class _Sink(io.RawIOBase):
    """Where Parquet writes to; what has come so far can be taken away."""

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

    def taken(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _parquet(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "writing .parquet files") from None
    arrow = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    types = [*COLUMNS.values(), *(float for _ in run.criteria)]
    fields = zip(_header(run), types, strict=True)
    schema = pyarrow.schema([(_unicode(name), arrow[kind]) for name, kind in fields])
    rest, sink, names = iter(results), _Sink(), [*run.criteria]
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        while batch := [_cells(result, names) for result in islice(rest, _BATCH)]:
            columns = [[_unicode(cell) for cell in column] for column in zip(*batch, strict=True)]
            arrays = [
                pyarrow.array(column, field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            yield sink.taken()
    yield sink.taken()


def _unicode(cell: Any) -> Any:
    """A lone surrogate has no place in Parquet's texts."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


# ── for people ──────────────────────────────────────────────────────────────────────────────────


def _markdown(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    manifest = run.record.manifest
    head = [f"# {inline(manifest.dataset_name or manifest.run_id)}", "", f"**{inline(str(run))}**"]
    about = {
        "run": manifest.run_id,
        "when": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC",
        "agent": manifest.agent,
        "model": manifest.model,
        "commit": manifest.git_commit,
    }
    head += ["", *(f"- {name}: {inline(value)}" for name, value in about.items() if value)]
    if run.criteria:
        head += ["", "| criterion | mean |", "|---|--:|"]
        head += [f"| {inline(name)} | {value:.3f} |" for name, value in run.criteria.items()]
    head += ["", "| sample | epoch | verdict | value | why |", "|---|--:|---|--:|---|", ""]
    yield "\n".join(head).encode()
    for result in results:
        verdict = verdict_of(result)
        shout = verdict if verdict == "pass" else f"**{verdict}**"
        value = "" if result.error is not None else f"{result.score.value:.3f}"
        why = inline(result.error or result.score.reason)
        name = inline(result.sample_id)
        yield f"| {name} | {result.epoch} | {shout} | {value} | {why} |\n".encode()


_MARKUP = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)|:(?=//)|@(?=\w)")


def inline(text: str) -> str:
    """Somebody's text in a line of Markdown that means nothing but itself: no link, no image."""
    line = " ".join(visible(text).split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return _MARKUP.sub(lambda found: f"\\{found[0]}", line)


FORMATS: dict[str, Callable[[Iterable[EvalResult[Any]], Overview], Iterator[bytes]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "md": _markdown,
    "junit": junit,
}
"""What writes each format."""
