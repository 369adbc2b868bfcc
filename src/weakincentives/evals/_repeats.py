"""Several attempts at each sample: what k of them would do, and where the variance comes from.

Groups are the attempts of each sample: `{"sample-1": [1.0, 0.0, 1.0], …}`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import UsageError
from ._intervals import Interval, finite_values, rate_interval
from .statistics import mean

__all__ = [
    "VarianceSplit",
    "flaky",
    "majority_at_k",
    "pass_at_k",
    "pass_hat_k",
    "variance_split",
]

K = TypeVar("K", bound=Hashable)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` attempts passes, from `c` passes in `n` attempts.

    Unbiased, unlike 1 - (1 - c/n)^k. (M. Chen et al., arXiv:2107.03374, 2021.)

    >>> pass_at_k(5, 2, 2)
    0.7
    """
    _check(n, c, k)
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def pass_hat_k(n: int, c: int, k: int) -> float:
    """pass^k: the chance that all of `k` attempts pass. (S. Yao et al., arXiv:2406.12045, 2024.)

    >>> pass_hat_k(5, 2, 2)
    0.1
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def majority_at_k(n: int, c: int, k: int) -> float:
    """The chance that more than half of `k` attempts pass; a tie counts half.

    >>> majority_at_k(5, 2, 3)
    0.3
    """
    _check(n, c, k)
    # Twice the number of choices, so that half a tie is a whole number.
    won = sum(
        (2 if 2 * right > k else 1) * math.comb(c, right) * math.comb(n - c, k - right)
        for right in range((k + 1) // 2, k + 1)
    )
    return won / (2 * math.comb(n, k))


@dataclass(frozen=True, slots=True)
class VarianceSplit:
    """How much of the variance is between samples, and how much within: the agent's own luck."""

    between: float
    within: float
    groups: int
    n: int

    @property
    def share_within(self) -> float:
        """The share of the variance that a second attempt at the same sample would change."""
        total = self.between + self.within
        return self.within / total if total else 0.0

    def standard_error(self, samples: int, epochs: int) -> float:
        """The standard error to expect of a run with so many samples and attempts at each."""
        if min(samples, epochs) < 1:
            raise UsageError(f"expected at least 1 of both, got {samples} and {epochs}")
        return math.sqrt((self.between + self.within / epochs) / samples)


def variance_split(groups: Mapping[K, Sequence[float]]) -> VarianceSplit:
    """One-way analysis of variance with random groups; groups may differ in size.

    `between` never falls below 0. (S. R. Searle et al., Variance Components, 1992, section 3.6.)
    """
    found = [finite_values(values) for values in groups.values() if len(values)]
    n = sum(map(len, found))
    if len(found) < 2 or n == len(found):
        raise UsageError(
            f"expected two samples or more, one with several attempts; got {len(found)} samples "
            f"with {n} attempts - run with epochs of 2 or more"
        )
    centre = mean([value for values in found for value in values])
    inside = math.fsum((value - mean(values)) ** 2 for values in found for value in values)
    across = math.fsum(len(values) * (mean(values) - centre) ** 2 for values in found)
    within = inside / (n - len(found))
    size = (n - sum(len(values) ** 2 for values in found) / n) / (len(found) - 1)
    between = max(0.0, (across / (len(found) - 1) - within) / size)
    return VarianceSplit(between, within, len(found), n)


def flaky(groups: Mapping[K, Sequence[float]], *, pass_mark: float = 0.5) -> dict[K, Interval]:
    """The samples that both passed and failed, with their pass rates; the least certain first."""
    found = {}
    for key, values in groups.items():
        passed = sum(value >= pass_mark for value in values)
        if 0 < passed < len(values):
            found[key] = rate_interval(passed, len(values))
    return dict(sorted(found.items(), key=lambda item: abs(item[1].estimate - 0.5)))


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise UsageError(f"expected 0 <= c <= n, got {c} passes in {n} attempts")
    if not 1 <= k <= n:
        raise UsageError(f"expected 1 <= k <= n, got k = {k} of {n} attempts - run more epochs")
