"""A part of a dataset, drawn by strata: groups of samples that are alike, such as equally hard.

Every sample has the same chance to be drawn, so the estimate is unbiased whatever the strata. The
more alike the samples of a stratum are, the more certain it is.
(W. G. Cochran, Sampling Techniques, 3rd edition 1977, chapter 5.)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from .basic import wilson_interval
from .distributions import t_quantile
from .intervals import Interval, two_sided

STRATIFIED = "stratified, of a dataset of "
_MIN_DRAWN = 3  # expected of each stratum: with fewer, its spread is hardly known
_PSEUDO_WEIGHT = 0.5  # added passes and failures per stratum, in the variance only

K = TypeVar("K", bound=Hashable)


def strata_by_rate(rates: Mapping[K, float | None], n: int) -> list[list[K]]:
    """Return strata of neighbouring rates, for a draw of `n`; None, an unknown rate, comes last."""
    groups: dict[float, list[K]] = {}
    for key, rate in rates.items():
        groups.setdefault(2.0 if rate is None else rate, []).append(key)
    strata: list[list[K]] = []
    for rate in sorted(groups):
        is_small = strata and len(strata[-1]) * n < _MIN_DRAWN * len(rates)
        if is_small:
            strata[-1] = strata[-1] + groups[rate]
        else:
            strata.append(groups[rate])
    if len(strata) > 1 and len(strata[-1]) * n < _MIN_DRAWN * len(rates):
        strata[-2:] = [strata[-2] + strata[-1]]
    return strata


def draw(strata: Sequence[Sequence[K]], n: int, seed: int) -> list[list[K]]:
    """Draw `n` at random, each with the same chance, from each stratum its share."""
    rng, total = Random(seed), sum(map(len, strata))
    n = min(n, total)
    # The shares are rounded up or down at random, so that they are right on average.
    reached, begin, drawn = 0.0, rng.random(), []
    for stratum in strata:
        before, reached = reached, reached + len(stratum) * n / total
        # To 9 digits, because 0.1 + 0.2 is not 0.3.
        count = math.floor(round(reached + begin, 9)) - math.floor(round(before + begin, 9))
        drawn.append(rng.sample(list(stratum), min(count, len(stratum))))
    return drawn


def stratified_rate(
    strata: Iterable[tuple[int, Sequence[float]]],
    *,
    confidence: float = 0.95,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the pass rate of a dataset from strata: their sizes, and the means of drawn samples.

    Wilson's interval for the effective number of samples. It holds the rate of the dataset, and of
    all samples like it. Strata of which nothing was drawn count with the mean of the others.
    `clusters` are those of the drawn samples, in order, if some depend on each other.
    """
    two_sided(confidence)
    known = [(size, means) for size, means in strata if means]
    total = sum(size for size, _ in known)
    n = sum(len(means) for _, means in known)
    if not n:
        return Interval(0.0, 0.0, 1.0, 0, None, confidence, f"{STRATIFIED}{total}")
    estimate = variance = 0.0
    smoothed = []
    for size, means in known:
        share, drawn = size / total, len(means)
        estimate += share * math.fsum(means) / drawn
        rate = (math.fsum(means) + _PSEUDO_WEIGHT) / (drawn + 2 * _PSEUDO_WEIGHT)
        squares = math.fsum((value - rate) ** 2 for value in means)
        squares += _PSEUDO_WEIGHT * ((1 - rate) ** 2 + rate**2)
        variance += share**2 * squares / (drawn + 2 * _PSEUDO_WEIGHT) / drawn
        smoothed.append((share, rate))
    centre = math.fsum(share * rate for share, rate in smoothed)
    # The strata of the dataset are themselves drawn from all samples like it.
    variance += math.fsum(share * (rate - centre) ** 2 for share, rate in smoothed) / total
    freedom, groups = n - len(known), None
    if clusters is not None:
        groups = len(set(clusters))
        freedom = min(freedom, groups - 1)
        variance *= _design_effect(known, smoothed, clusters)
    effective_n = centre * (1 - centre) / variance
    quantile = t_quantile((1 + confidence) / 2, max(1, freedom))
    low, high = wilson_interval(estimate * effective_n, effective_n, z=quantile)
    return Interval(estimate, low, high, n, groups, confidence, f"{STRATIFIED}{total}")


def _design_effect(
    strata: Sequence[tuple[int, Sequence[float]]],
    smoothed: Sequence[tuple[float, float]],
    clusters: Sequence[Hashable],
) -> float:
    """Return how many times as large the variance is because samples of a cluster are alike.

    The residuals of a cluster may cancel out; that is never taken as more certainty.
    """
    residuals = [
        share / len(means) * (value - rate)
        for (_, means), (share, rate) in zip(strata, smoothed, strict=True)
        for value in means
    ]
    sums: dict[Hashable, float] = {}
    for cluster, residual in zip(clusters, residuals, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + residual
    independent = math.fsum(residual**2 for residual in residuals)
    together = math.fsum(each**2 for each in sums.values())
    return max(1.0, together / independent) if independent else 1.0
