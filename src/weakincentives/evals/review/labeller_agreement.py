"""Several reviewers: how far they agree, where they differ, and what was decided there.

Decisions are not labels: agreement is computed from the labels before a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from ..stats.agreement import krippendorff_alpha
from ..stats.intervals import Interval, rate_interval
from ..store.human_labels import HumanLabel
from ..store.run_store import RunStore
from ..store.stored_row import RowKey
from .labelling import current_labels
from .queue import review_criterion


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two reviewers, and the share of the outputs that both labelled on which they agree."""

    first: str
    second: str
    agreed: int
    rate: Interval


@dataclass(frozen=True, slots=True)
class ReviewDisagreement:
    """An output that people label differently, and the decision, if there is one."""

    row: RowKey
    labels: tuple[HumanLabel, ...]
    decision: HumanLabel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAgreement:
    """The reviewers of a run by a criterion.

    `labels` counts the verdicts of each reviewer, `shared` the outputs that at least two of them
    labelled. `agreement` is the share of those on which all agree; `alpha` is Krippendorff's. Both
    are None if there is nothing to compare; alpha is also None if all labels are the same.
    """

    run_id: str
    criterion: str
    labels: dict[str, int]
    shared: int
    agreement: Interval | None
    alpha: Interval | None
    pairs: tuple[PairAgreement, ...]
    disagreements: tuple[ReviewDisagreement, ...]

    @property
    def open(self) -> int:
        """The number of disagreements that are not settled yet."""
        return sum(each.decision is None for each in self.disagreements)


def review_agreement(
    store: RunStore, run_id: str, *, criterion: str | None = None
) -> ReviewAgreement:
    """Return how far the reviewers of a run agree, with the outputs on which they do not."""
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    by_row: dict[RowKey, dict[str, HumanLabel]] = {}
    decisions: dict[RowKey, HumanLabel] = {}
    for label in current_labels(store, manifest.run_id, name):
        if label.passed is None:
            continue
        if label.settled:
            decisions[label.row] = label
        else:
            by_row.setdefault(label.row, {})[label.labeller] = label
    counts = Counter(labeller for labels in by_row.values() for labeller in labels)
    shared = {row: labels for row, labels in by_row.items() if len(labels) > 1}
    units = [[label.passed for label in labels.values()] for labels in shared.values()]
    agreed = sum(len(set(unit)) == 1 for unit in units)
    disagreements = tuple(
        ReviewDisagreement(row, tuple(labels.values()), decisions.get(row))
        for row, labels in shared.items()
        if len({label.passed for label in labels.values()}) > 1
    )
    return ReviewAgreement(
        run_id=manifest.run_id,
        criterion=name,
        labels=dict(sorted(counts.items())),
        shared=len(shared),
        agreement=rate_interval(agreed, len(shared)) if shared else None,
        alpha=krippendorff_alpha(units),
        pairs=tuple(_pairs(shared, sorted(counts))),
        disagreements=disagreements,
    )


def _pairs(
    shared: dict[RowKey, dict[str, HumanLabel]], labellers: list[str]
) -> Iterator[PairAgreement]:
    for first, second in combinations(labellers, 2):
        both = [each for each in shared.values() if first in each and second in each]
        agreed = sum(each[first].passed is each[second].passed for each in both)
        if both:
            yield PairAgreement(first, second, agreed, rate_interval(agreed, len(both)))
