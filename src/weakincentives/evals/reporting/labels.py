"""The labels of people as files: one row for each label, or pairs for preference training.

    key                                  of the draw; empty if the output was not drawn at random
    run, id, epoch, experiment, input, expected, output
    label, note, category, labeller, created_at, blind, settled
    criterion, judge_version, verdict    the criterion, its version, and what it says
    probability                          of the draw

Such a file can be read again (`wink judge calibrate --run RUN FILE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...internal.formatting import verdict_word
from ..model.grouping import group_values
from ..model.result import EvalResult
from ..review.label_files import write_row_file
from ..review.labelling import current_labels
from ..review.queue import review_criterion
from ..store.categories import categories_of
from ..store.human_labels import (
    HumanLabel,
    content_of,
    key_of,
    labels_by_criterion,
    people_verdict,
    verdict_on,
)
from ..store.run_store import RunStore
from ..store.run_titles import run_title
from ..store.stored_row import RowKey
from .training_data import preference_pair

COLUMNS = (
    *("key", "run", "id", "epoch", "experiment", "input", "expected", "output"),
    *("label", "note", "category", "labeller", "created_at", "blind", "settled"),
    *("criterion", "judge_version", "verdict", "probability"),
)


def label_rows(
    store: RunStore, run_id: str, *, criterion: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the labels and notes on the outputs of a run, with the outputs."""
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    categories = categories_of(store, run_title(manifest))
    only = len(manifest.criteria) <= 1
    for label in current_labels(store, manifest.run_id, name):
        if label.passed is None and not label.note:
            continue
        stored = store.row(manifest.run_id, *label.row)
        if stored is None or stored.problem:
            raise _unreadable(manifest.run_id, label.row)
        result = stored.result
        sample, (verdict, _) = result.sample, verdict_on(result, name, only=only)
        key = "" if label.probability is None else key_of(manifest.run_id, name, label.row)
        values = (
            *(key, manifest.run_id),
            *(label.sample_id, label.epoch, label.experiment),
            *(sample.input if sample else None, sample.expected if sample else None, result.output),
            *(verdict_word(label.passed), label.note or ""),
            *(categories.names.get(categories.resolve(label.category), ""), label.labeller),
            *(label.created_at.isoformat(), label.blind, label.settled, name),
            *(label.judge_version, verdict_word(verdict), label.probability),
        )
        yield dict(zip(COLUMNS, values, strict=True))


def label_pairs(
    store: RunStore, run_id: str, *, criterion: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a pair for each sample of which people passed one output and failed another.

    The outputs may be of several epochs, and of several runs of the same suite or dataset. Each
    pair has `prompt`, `chosen` and `rejected` as messages, and the runs of both.
    """
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    title = run_title(manifest)
    runs = {
        record.manifest.run_id for record in store.runs() if run_title(record.manifest) == title
    }
    given = [label for label in labels_by_criterion(store, name) if label.run_id in runs]
    by_output = group_values(given, ((label.sample_id, label.content) for label in given))
    samples: dict[str, dict[bool, EvalResult[Any]]] = {}
    for (sample_id, _), labels in by_output.items():
        verdict, result = people_verdict(labels), _result(store, labels)
        if verdict is not None and result is not None and result.trajectory is not None:
            samples.setdefault(sample_id, {})[verdict] = result
    for sample_id, found in samples.items():
        if len(found) == 2 and _input(found[True]) == _input(found[False]):
            yield {
                **preference_pair(found[True], found[False]),
                "sample_id": sample_id,
                "chosen_run": found[True].run_id,
                "rejected_run": found[False].run_id,
            }


def _result(store: RunStore, labels: Sequence[HumanLabel]) -> EvalResult[Any] | None:
    """Return the labelled output, as a run still has it."""
    for label in reversed(labels):
        stored = store.row(label.run_id, *label.row)
        if stored and stored.problem:
            raise _unreadable(label.run_id, label.row)
        if stored and content_of(stored.result) == label.content:
            return stored.result
    return None


def _unreadable(run_id: str, row: RowKey) -> StoreError:
    return StoreError(
        f"expected the output of sample {row[1]!r} in run {run_id} as it was written, but it "
        "cannot be read - resume the run to run its sample again"
    )


def _input(result: EvalResult[Any]) -> Any:
    return None if result.sample is None else result.sample.input


def write_labels(rows: Iterable[Mapping[str, Any]], path: Path | str) -> int:
    """Write rows to a `.csv` or `.jsonl` file and return how many there are."""
    listed = list(rows)
    write_row_file(listed, [*listed[0]] if listed else COLUMNS, path)
    return len(listed)
