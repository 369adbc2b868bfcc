"""A file of outputs for people to label: CSV for spreadsheets, or JSONL.

    key                       names the output; leave it as it is
    id, input, expected, output
    verdict, reason           the judge's, unless the file is blind
    label                     to fill: pass or fail
    note                      to fill, if there is something to say

Only `key`, `label`, `note` and `labeller` are read back. A file without `key` is read by `id` (and
`epoch`): it is unknown how such outputs were chosen, and a calibration says so.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import serde
from ...clock import SYSTEM_CLOCK
from ...errors import UsageError, short_repr
from ...internal.atomic_write import write_whole
from ...internal.escaping import as_text, spreadsheet_cells
from ...secrets import redact_bytes, redact_message
from ..datasets.reader import read_numbered_rows
from ..datasets.sample_records import Defect
from ..store.find_rows import rows_of_sample
from ..store.human_labels import HumanLabel, LabelDraw, content_of, draws_by_key
from ..store.run_store import RunStore
from .sampling import LabelSheet, SheetRow

LABELS = {"pass": True, "true": True, "yes": True, "fail": False, "false": False, "no": False}
"""The labels that people may write, in any case."""


def check_label_file(path: Path | str) -> Path:
    """Return the path of a new file of labels; raise a `UsageError` if it cannot be one."""
    path = _checked_suffix(path)
    if path.exists():
        raise UsageError(f"expected a new file, got {path}, which may have labels in it")
    return path


def write_label_file(sheet: LabelSheet, path: Path | str, *, blind: bool = False) -> None:
    """Write the outputs of a sheet to a new `.csv` or `.jsonl` file; `blind` without verdicts."""
    verdict = () if blind else ("verdict", "reason")
    columns = ("key", "id", "input", "expected", "output", *verdict, "label", "note")
    rows = [_fields(row, blind=blind) for row in sheet.rows]
    write_row_file(rows, columns, check_label_file(path))


def write_row_file(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], path: Path | str
) -> None:
    """Write rows to a `.csv` file with these columns, or to a `.jsonl` file."""
    path = _checked_suffix(path)
    lines = csv_lines(rows, columns) if path.suffix.lower() == ".csv" else jsonl_lines(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lines)
    except OSError as error:
        raise UsageError(f"expected a file to write to, got: {error}") from None


def _checked_suffix(path: Path | str) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"expected a file that ends in .csv or .jsonl, got `{path.name}`")
    return path


def _fields(row: SheetRow, *, blind: bool) -> dict[str, Any]:
    sample = row.result.sample
    verdict = {"verdict": "pass" if row.passed else "fail", "reason": row.reason}
    return {
        "key": row.draw.key,
        "id": row.draw.sample_id,
        "input": sample.input if sample else None,
        "expected": sample.expected if sample else None,
        "output": row.result.output,
        **({} if blind else verdict),
        "label": "",
        "note": "",
    }


def jsonl_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield rows as JSONL, redacted."""
    for row in rows:
        yield redact_bytes(serde.encode(row)) + b"\n"


def csv_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[bytes]:
    """Yield rows as CSV that a spreadsheet shows and does not run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(spreadsheet_cells([as_text(row[name]) for name in columns]))
    yield text.getvalue().encode("utf-8", "backslashreplace")


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def read_label_file(
    store: RunStore, path: Path | str, run_id: str, criterion: str, *, labeller: str = ""
) -> list[HumanLabel]:
    """Return the labels of a filled file; rows without a label are not labelled yet.

    Raise a `DatasetError` that names file, line and field.
    """
    labels: list[HumanLabel] = []
    seen: dict[tuple[Any, ...], int] = {}
    draws = draws_by_key(store)
    for line, row in read_numbered_rows(path):
        try:
            label = _label(store, draws, row, run_id, criterion, labeller)
        except Defect as defect:
            raise defect.at(path, line) from None
        if label is None:
            continue
        key = (label.row, label.labeller)
        if key in seen:
            problem = f"expected each output once, got {label.sample_id!r} as in line {seen[key]}"
            raise Defect(problem, "$.key").at(path, line)
        seen[key] = line
        labels.append(label)
    return labels


def _label(
    store: RunStore,
    draws: Mapping[str, LabelDraw],
    row: Mapping[str, Any],
    run_id: str,
    criterion: str,
    labeller: str,
) -> HumanLabel | None:
    if "label" not in row:
        raise Defect(f"expected a `label`, got {', '.join(row) or 'nothing'}", "$.label")
    if (passed := _passed(row["label"])) is None:
        return None
    if row.get("key"):
        drawn = _by_key(draws, row, run_id, criterion)
    else:
        drawn = _by_id(store, row, run_id, criterion)
    return HumanLabel(
        **drawn,
        passed=passed,
        created_at=SYSTEM_CLOCK.now(),
        labeller=redact_message(as_text(row.get("labeller")) or labeller),
        note=redact_message(as_text(row.get("note"))),
    )


def _passed(label: Any) -> bool | None:
    if label is None or isinstance(label, bool):
        return label
    text = label.strip().lower() if isinstance(label, str) else None
    if text == "":
        return None
    if text is None or text not in LABELS:
        raise Defect(f"expected pass or fail, got {short_repr(label)}", "$.label")
    return LABELS[text]


def _by_key(
    draws: Mapping[str, LabelDraw], row: Mapping[str, Any], run_id: str, criterion: str
) -> dict[str, Any]:
    """Return which output a row is about, and how it was drawn."""
    given = as_text(row["key"]).strip()
    draw = draws.get(given)
    if draw is None:
        raise Defect(
            f"expected a key of `wink judge sample`, got {short_repr(given)}, which this store "
            "does not know",
            "$.key",
        )
    if (draw.run_id, draw.criterion) != (run_id, criterion):
        raise Defect(
            f"expected an output of run {run_id} by {criterion!r}, got one of run {draw.run_id} "
            f"by {draw.criterion!r}",
            "$.key",
        )
    key = ("run_id", "experiment", "sample_id", "epoch", "content", "criterion")
    return {name: getattr(draw, name) for name in (*key, "judge_version", "probability")}


def _by_id(store: RunStore, row: Mapping[str, Any], run_id: str, criterion: str) -> dict[str, Any]:
    sample_id = as_text(row.get("id"))
    if not sample_id:
        raise Defect(f"expected a `key` or an `id`, got {', '.join(row)}", "$.key")
    try:
        found = rows_of_sample(store, run_id, sample_id)
    except UsageError as error:
        raise Defect(str(error), "$.id") from None
    epoch = as_text(row.get("epoch"))
    matching = [each.result for each in found if epoch in ("", str(each.result.epoch))]
    if len(matching) != 1:
        raise Defect(
            f"expected the epoch of one output, got {epoch or 'none'}: sample {sample_id!r} has "
            f"{len(found)}",
            "$.epoch",
        )
    (result,) = matching
    return {
        "run_id": run_id,
        "experiment": result.experiment_name,
        "sample_id": result.sample_id,
        "epoch": result.epoch,
        "content": content_of(result),
        "criterion": criterion,
    }
