"""Bootstrap and permutation tests, without assumptions about the distribution.

Both need NumPy, are seeded, and do not depend on the order of the values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ...errors import MissingExtraError, UsageError, short_repr
from .distributions import normal_cdf, normal_quantile
from .intervals import Interval, finite_values, mean_interval, two_sided

_MAX_NUMBERS = 1 << 20
"""Random numbers in memory at a time; more is no faster."""


def bootstrap_interval(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean with its BCa bootstrap interval, which adapts to skewed distributions.

    Whole clusters are drawn. (B. Efron, Journal of the American Statistical Association 82, 1987.)
    """
    np = _numpy("a bootstrap interval")
    _at_least_one(resamples)
    plain = mean_interval(values, clusters=clusters, confidence=confidence)
    if plain.method != "t" or not plain.known:  # resampling has nothing to vary
        return plain
    sums, sizes = _by_cluster(np, values, clusters)
    means = np.sort(_resampled_means(np, sums, sizes, resamples, np.random.default_rng(seed)))
    low, high = _bca(np, means, sums, sizes, confidence)
    return Interval(
        plain.estimate,
        min(low, plain.estimate),
        max(high, plain.estimate),
        plain.n,
        plain.clusters,
        confidence,
        "bootstrap, BCa",
    )


def permutation_test(
    differences: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> float:
    """Return the p-value of paired differences under random signs.

    The signs of a cluster change together. All signs are tried if there are few; otherwise the
    observed ones count among the random ones, so that p is never 0.
    """
    np = _numpy("a permutation test")
    _at_least_one(resamples)
    sums, _ = _by_cluster(np, differences, clusters)
    sizes, counts = np.unique(np.abs(sums[sums != 0]), return_counts=True)
    n, total = int(counts.sum()), float(sizes @ counts)
    observed = abs(sums.sum()) - 1e-12 * total  # equal except for rounding counts as equal
    if 2**n <= min(resamples, _MAX_NUMBERS >> 4):
        signs = 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1) - 1
        return float(np.mean(np.abs(signs @ np.repeat(sizes, counts)) >= observed))
    few = len(sizes) <= n // 8
    if not few:
        sizes = np.repeat(sizes, counts)
    rng, extreme = np.random.default_rng(seed), 0
    for rows in _portions(resamples, len(sizes)):
        if few:  # the number of positive ones is binomial
            positive = rng.binomial(counts, 0.5, size=(rows, len(sizes)))
        else:
            coins = np.frombuffer(rng.bytes(rows * n // 8 + 1), np.uint8)
            positive = np.unpackbits(coins, count=rows * n).reshape(rows, n)
        sides = 2 * (positive.astype(float) @ sizes) - total
        extreme += int(np.count_nonzero(np.abs(sides) >= observed))
    return (extreme + 1) / (resamples + 1)


def _by_cluster(np: Any, values: Sequence[float], clusters: Sequence[Hashable] | None) -> Any:
    """Return the sum and the size of each cluster, in an order independent of the values'."""
    sums = np.array(finite_values(values))
    sizes = np.ones_like(sums)
    if clusters is not None:
        if len(clusters) != len(values):
            raise UsageError(
                f"expected a cluster for each of {len(values)} values, got {len(clusters)}"
            )
        numbers: dict[Hashable, int] = {}
        of = np.array([numbers.setdefault(name, len(numbers)) for name in clusters], dtype=int)
        order = np.lexsort((sums, of))
        sums, sizes = np.bincount(of[order], sums[order]), np.bincount(of).astype(float)
    order = np.lexsort((sizes, sums))
    return sums[order], sizes[order]


def _resampled_means(np: Any, sums: Any, sizes: Any, resamples: int, rng: Any) -> Any:
    distinct, counts = np.unique(np.stack((sums, sizes)), axis=1, return_counts=True)
    n, levels = len(sums), len(counts)
    means = []
    if levels <= n // 8:  # for few distinct values, draw the count of each
        for rows in _portions(resamples, levels):
            times = rng.multinomial(n, counts / n, size=rows)
            means.append((times @ distinct[0]) / (times @ distinct[1]))
        return np.concatenate(means)
    even = sizes.min() == sizes.max()
    for rows in _portions(resamples, n):
        drawn = rng.integers(n, size=(rows, n))
        total = n * sizes[0] if even else sizes[drawn].sum(axis=1)
        means.append(sums[drawn].sum(axis=1) / total)
    return np.concatenate(means)


def _bca(np: Any, means: Any, sums: Any, sizes: Any, confidence: float) -> tuple[float, float]:
    """Return the bias-corrected and accelerated percentiles of the sorted means."""
    estimate = sums.sum() / sizes.sum()
    rounding = 1e-12 * np.abs(means).max()  # a mean equal to the estimate counts half
    below = np.searchsorted(means, (estimate - rounding, estimate + rounding)).mean() / len(means)
    bias = normal_quantile(float(np.clip(below, 0.5 / len(means), 1 - 0.5 / len(means))))
    without = (sums.sum() - sums) / (sizes.sum() - sizes)  # the mean without each cluster
    pull = without.mean() - without
    pull /= np.abs(pull).max() or 1.0  # the cubes of small values would vanish
    skew = float((pull**3).sum() / (6 * (pull**2).sum() ** 1.5)) if pull.any() else 0.0

    def end(z: float) -> float:
        left = 1 - skew * (bias + z)
        # One outlier can make the denominator negative.
        share = normal_cdf(bias + (bias + z) / left) if left > 0 else float(bias + z > 0)
        return float(np.quantile(means, share))

    return end(-two_sided(confidence)), end(two_sided(confidence))


def _portions(rows: int, width: int) -> Iterator[int]:
    """Yield numbers of rows whose random numbers are about `_MAX_NUMBERS`."""
    batch = max(1, _MAX_NUMBERS // width)
    while rows > 0:
        yield min(rows, batch)
        rows -= batch


def _at_least_one(resamples: int) -> None:
    if resamples < 1:
        raise UsageError(f"expected at least 1 of `resamples`, got {short_repr(resamples)}")


def _numpy(purpose: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise MissingExtraError("numpy", "stats", purpose) from None
    return numpy
