"""The outputs that a person reviews, the most informative first.

Theory of operation
-------------------
One half of the queue is drawn at random, as `wink judge sample` draws (`review/sampling.py`): its
probabilities are stored, and only its labels correct a pass rate. The other half are the most
informative outputs: criteria or judges that disagree, samples that pass in one epoch or run and
fail in another, values near the threshold. These are chosen because of what they are, so they have
no probability, and a calibration leaves them out.

Both halves are mixed evenly, the random one in random order. So whenever a reviewer stops, the
random outputs that were reviewed are still a random choice. The same seed gives everyone the same
queue, and a longer queue has the random outputs of a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import UsageError, short_repr
from ..runs.table import TableRow
from ..store.human_labels import Verdict, add_draws, criterion_of, draws_of, verdicts_of
from ..store.manifest import RunManifest
from ..store.run_store import RunStore
from ..store.run_titles import run_title
from ..store.sample_passes import passes_by_sample
from ..store.stored_row import RowKey
from .sampling import draw_rows, random_bytes, sheet_rows

QueueOrder = Literal["informative", "random", "dataset"]
"""Half random and half informative outputs, only random ones, or all in the order of the run."""

DEFAULT_LENGTH = 50
_RANDOM = "random"
_DISAGREEMENT = "disagreement"  # the metric of a panel of judges
_EARLIER_RUNS = 5  # runs of the same suite that are read to find unstable samples


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """An output to review, and why: "random", or what makes it informative."""

    row: RowKey
    reasons: tuple[str, ...] = ()
    probability: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewQueue:
    """The outputs of a run to review, in order."""

    run_id: str
    criterion: str
    order: QueueOrder
    items: tuple[ReviewItem, ...]

    @property
    def drawn(self) -> int:
        """The number of outputs that were drawn at random."""
        return sum(item.probability is not None for item in self.items)


def review_criterion(manifest: RunManifest, name: str | None = None) -> str:
    """Return the criterion that people review by: the one named, else the run's first judge.

    "" is the verdict of a run whose criteria are not stored.
    """
    if name:
        return criterion_of(manifest, name)
    names = [info.name for info in manifest.criteria]
    judges = [info.name for info in manifest.criteria if info.judge]
    return (judges or names or [""])[0]


def review_queue(
    store: RunStore,
    run_id: str,
    *,
    criterion: str | None = None,
    n: int = DEFAULT_LENGTH,
    order: QueueOrder = "informative",
    seed: int = 0,
) -> ReviewQueue:
    """Return `n` outputs of a run to review, and store which of them were drawn at random."""
    if type(n) is not int or n < 1:
        raise UsageError(f"expected at least 1 output, got {n}")
    if order not in get_args(QueueOrder):
        names = ", ".join(get_args(QueueOrder))
        raise UsageError(f"expected an order ({names}), got {short_repr(order)}")
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    verdicts = verdicts_of(store, manifest, name)
    if order == "dataset":
        rows = [row for row, verdict in verdicts.items() if verdict is not None][:n]
        items = [ReviewItem(row) for row in rows]
    else:
        drawn = _drawn(
            store, manifest, name, verdicts, n if order == "random" else (n + 1) // 2, seed
        )
        random = [ReviewItem(row, (_RANDOM,), chance) for row, chance in drawn.items()]
        chosen = [] if order == "random" else _informative(store, manifest, verdicts, drawn, seed)
        items = _mixed(random, chosen, n)
    return ReviewQueue(run_id=manifest.run_id, criterion=name, order=order, items=tuple(items))


def _drawn(
    store: RunStore,
    manifest: RunManifest,
    criterion: str,
    verdicts: Mapping[RowKey, Verdict],
    n: int,
    seed: int,
) -> dict[RowKey, float]:
    """Draw `n` outputs at random, and store the draw unless it is stored already."""
    drawn = draw_rows(verdicts, n, seed)
    known = draws_of(store, manifest.run_id, criterion)
    if any(row not in known or known[row].probability < drawn[row] for row in drawn):
        rows = [*sheet_rows(store, manifest, criterion, drawn)]
        add_draws(store, [row.draw for row in rows])
        drawn = {row.draw.row: row.draw.probability for row in rows}
    return {
        row: max(chance, known[row].probability) if row in known else chance
        for row, chance in drawn.items()
    }


def _informative(
    store: RunStore,
    manifest: RunManifest,
    verdicts: Mapping[RowKey, Verdict],
    drawn: Mapping[RowKey, float],
    seed: int,
) -> list[ReviewItem]:
    """Return other outputs, the most informative first; one of each sample."""
    rates = _pass_rates(store, manifest)
    ranked = []
    for outcome in store.table(manifest.run_id):
        row = outcome.experiment, outcome.sample, outcome.epoch
        if verdicts.get(row) is not None and row not in drawn:
            signals = dict(_signals(outcome, rates.get(outcome.sample, ())))
            ranked.append((-sum(signals.values()), random_bytes(seed, row), row, signals))
    ranked.sort(key=lambda each: each[:2])
    items: list[ReviewItem] = []
    samples = {row[:2] for row in drawn}
    for _, _, row, signals in ranked:
        if row[:2] not in samples:
            samples.add(row[:2])
            reasons = sorted(signals, key=lambda name: -signals[name])
            items.append(ReviewItem(row, tuple(reasons)))
    return items


def _pass_rates(store: RunStore, manifest: RunManifest) -> dict[str, list[float]]:
    """Return for each sample its pass rate in this run, then in earlier runs of the suite."""
    title = run_title(manifest)
    earlier = [
        record.manifest.run_id
        for record in store.runs()
        if run_title(record.manifest) == title
        and record.manifest.created_at < manifest.created_at
        and record.manifest.parent is None
    ]
    own = passes_by_sample(store, manifest.run_id)
    rates = {sample: [passed / total] for sample, (passed, total, _) in own.items()}
    for run_id in earlier[:_EARLIER_RUNS]:
        for sample, (passed, total, digest) in passes_by_sample(store, run_id).items():
            if sample in own and digest == own[sample][2]:
                rates[sample].append(passed / total)
    return rates


def _signals(outcome: TableRow, rates: Sequence[float]) -> Iterator[tuple[str, float]]:
    """Yield what can be learned from an output, each with a weight from 0 to 1."""
    values = [min(max(value, 0.0), 1.0) for value in outcome.scores.values()]
    panel = outcome.scores.get(_DISAGREEMENT, 0.0)
    if (spread := max([max(values) - min(values) if values else 0.0, panel])) > 0:
        yield "criteria disagree", spread
    if 0 < rates[0] < 1 if rates else False:
        yield "flaky over epochs", _variation(rates[0])
    if len(rates) > 1 and 0 < (mean := sum(rates) / len(rates)) < 1:
        yield "changes between runs", _variation(mean)
    if 0 < outcome.value < 1:
        yield "near the threshold", 1 - 2 * abs(outcome.value - 0.5)


def _variation(rate: float) -> float:
    return 4 * rate * (1 - rate)


def _mixed(random: Sequence[ReviewItem], chosen: Sequence[ReviewItem], n: int) -> list[ReviewItem]:
    """Interleave both, a random one first; if one runs out, the other fills the rest."""
    mixed: list[ReviewItem] = []
    at = 0
    for place in range(min(n, len(random) + len(chosen))):
        take_random = at < len(random) and (2 * at <= place or place - at >= len(chosen))
        mixed.append(random[at] if take_random else chosen[place - at])
        at += take_random
    return mixed
