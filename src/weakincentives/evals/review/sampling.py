"""Draw the outputs of a run that people label.

Theory of operation
-------------------
The rate that people would give is estimated within each verdict of the judge, so outputs are drawn
within each verdict: in proportion to its size, but at least a fifth of all for either verdict, so
that a judge that passes nearly everything is checked on its few failures too. Of a sample with
several epochs, one is taken at random, since its epochs say much the same.

Outputs are ordered by a hash of the seed and their key. The same seed draws the
same outputs again, and a larger number draws the same ones and more. In another run of the same
samples it draws the same samples, as far as their verdicts allow: labels on both are then about the
same questions. The probability of each is stored with the draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ..model.result import EvalResult
from ..store.human_labels import (
    LabelDraw,
    Verdict,
    add_draws,
    content_of,
    criterion_of,
    key_of,
    labels_of,
    verdict_on,
    verdicts_of,
)
from ..store.manifest import RunManifest
from ..store.run_store import RunStore
from ..store.stored_row import RowKey

_MIN_SHARE = 5  # at least one in five of the drawn outputs has the rarer verdict


@dataclass(frozen=True, slots=True)
class SheetRow:
    """An output to label, with the verdict of the judge and its reason."""

    draw: LabelDraw
    result: EvalResult[Any]
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class LabelSheet:
    """The outputs to label. `labelled` of those that were drawn have a label already."""

    run_id: str
    criterion: str
    rows: tuple[SheetRow, ...]
    labelled: int = 0


def draw_for_labels(
    store: RunStore,
    run_id: str,
    n: int,
    *,
    criterion: str | None = None,
    seed: int = 0,
    relabel: bool = False,
) -> LabelSheet:
    """Draw `n` outputs of a run to be labelled by people, and store the draw.

    `criterion` is needed if the run has several judges. With `relabel`, outputs that have a label
    are returned too, for a second person.
    """
    if type(n) is not int or n < 1:
        raise UsageError(f"expected at least 1 output, got {n}")
    manifest = store.run(run_id).manifest
    name = criterion_of(manifest, criterion)
    drawn = draw_rows(verdicts_of(store, manifest, name), n, seed)
    if not drawn:
        raise UsageError(f"expected a run with verdicts of {name!r}, got none in {manifest.run_id}")
    rows = [*sheet_rows(store, manifest, name, drawn)]
    add_draws(store, [row.draw for row in rows])
    known = {
        (label.row, label.content)
        for label in labels_of(store, manifest.run_id, name)
        if label.passed is not None
    }
    todo = [row for row in rows if relabel or (row.draw.row, row.draw.content) not in known]
    return LabelSheet(manifest.run_id, name, tuple(todo), len(rows) - len(todo))


def draw_rows(verdicts: Mapping[RowKey, Verdict], n: int, seed: int) -> dict[RowKey, float]:
    """Return the keys of `n` rows, in random order, and the probability of each to be drawn."""
    order: dict[RowKey, bytes] = {}
    epochs: dict[tuple[str, str], list[RowKey]] = {}
    for row, verdict in verdicts.items():
        if verdict is not None:
            order[row] = random_bytes(seed, row)
            epochs.setdefault(row[:2], []).append(row)
    chosen = {min(rows, key=order.__getitem__): len(rows) for rows in epochs.values()}
    strata: dict[bool, list[RowKey]] = {False: [], True: []}
    for row in sorted(chosen, key=order.__getitem__):
        strata[bool(verdicts[row])].append(row)
    counts = _allocated(n, {verdict: len(rows) for verdict, rows in strata.items()})
    drawn = {
        row: counts[verdict] / len(rows) / chosen[row]
        for verdict, rows in strata.items()
        for row in rows[: counts[verdict]]
    }
    return {row: drawn[row] for row in sorted(drawn, key=order.__getitem__)}


def random_bytes(seed: int, row: RowKey) -> bytes:
    """Return the bytes that decide which rows come first: the same for the same seed."""
    text = "\0".join((str(seed), *map(str, row)))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _allocated(n: int, sizes: Mapping[bool, int]) -> dict[bool, int]:
    """Return how many to draw of each verdict."""
    total = sum(sizes.values())
    n, total = min(n, total), max(total, 1)
    rare = min(sizes, key=lambda verdict: sizes[verdict])
    wanted = max(round(n * sizes[rare] / total), n // _MIN_SHARE)
    few = max(min(wanted, sizes[rare]), n - sizes[not rare])
    return {rare: few, not rare: n - few}


def sheet_rows(
    store: RunStore, manifest: RunManifest, criterion: str, drawn: Mapping[RowKey, float]
) -> Iterator[SheetRow]:
    """Yield the drawn rows of a run that can be read, with the judge's verdict."""
    only = len(manifest.criteria) <= 1
    versions = (info.version for info in manifest.criteria if info.name == criterion)
    version = next(versions, "")
    now = SYSTEM_CLOCK.now()
    for row, probability in drawn.items():
        stored = store.row(manifest.run_id, *row)
        if stored is None or stored.problem:
            continue
        passed, reason = verdict_on(stored.result, criterion, only=only)
        experiment, sample_id, epoch = row
        draw = LabelDraw(
            key=key_of(manifest.run_id, criterion, row),
            run_id=manifest.run_id,
            experiment=experiment,
            sample_id=sample_id,
            epoch=epoch,
            content=content_of(stored.result),
            criterion=criterion,
            judge_version=version,
            probability=probability,
            created_at=now,
        )
        yield SheetRow(draw, stored.result, bool(passed), reason)
