"""The samples of a run that were drawn by strata of a dataset, and its estimated pass rate."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from ..stats.basic import means_by_name
from ..stats.intervals import Interval
from ..stats.pass_rate import named_clusters
from ..stats.strata import stratified_rate


@dataclass(frozen=True, slots=True)
class Stratum:
    """Samples with similar earlier pass rates: how many there are, and which were drawn."""

    size: int
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The samples that were drawn by strata of their pass rates in earlier runs."""

    by: tuple[str, ...]
    strata: tuple[Stratum, ...]


def selected_rate(
    selection: Selection,
    attempts: Iterable[tuple[tuple[str, Hashable], bool]],
    *,
    confidence: float = 0.95,
    cluster_by: str | None = None,
) -> Interval | None:
    """Return the estimated pass rate of the whole dataset; None while samples are missing.

    `attempts` are the stored ids of the samples with their clusters, and whether they passed.
    """
    attempts = list(attempts)
    clusters = {sample: cluster for (sample, cluster), _ in attempts}
    means = means_by_name((sample, passed) for (sample, _), passed in attempts)
    drawn = [name for stratum in selection.strata for name in stratum.samples]
    if not drawn or any(name not in means for name in drawn):
        return None
    found = stratified_rate(
        ((stratum.size, [means[name] for name in stratum.samples]) for stratum in selection.strata),
        confidence=confidence,
        clusters=None if cluster_by is None else [clusters[name] for name in drawn],
    )
    several = len(attempts) > len(means)
    if cluster_by is not None:
        return named_clusters(replace(found, n=len(attempts)), cluster_by)
    return replace(found, n=len(attempts), clusters=len(means) if several else None)
