"""Several attempts at each sample: pass@k, pass^k, and the sources of variance.

Groups are the attempts of each sample: `{"sample-1": [1.0, 0.0, 1.0], …}`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...errors import UsageError, short_repr
from .basic import mean
from .intervals import Interval, finite_values, rate_interval

K = TypeVar("K", bound=Hashable)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return pass@k: the probability that at least one of `k` attempts passes.

    `c` is the number of passes in `n` attempts.
    Unbiased, unlike 1 - (1 - c/n)^k. (M. Chen et al., arXiv:2107.03374, 2021.)

    >>> pass_at_k(5, 2, 2)
    0.7
    """
    _check(n, c, k)
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return pass^k: the probability that all of `k` attempts pass.

    (S. Yao et al., arXiv:2406.12045, 2024.)

    >>> pass_hat_k(5, 2, 2)
    0.1
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def majority_at_k(n: int, c: int, k: int) -> float:
    """Return the probability that more than half of `k` attempts pass; a tie counts half.

    >>> majority_at_k(5, 2, 3)
    0.3
    """
    _check(n, c, k)
    # Twice the number of choices, so that half a tie is an integer.
    won = sum(
        (2 if 2 * right > k else 1) * math.comb(c, right) * math.comb(n - c, k - right)
        for right in range((k + 1) // 2, k + 1)
    )
    return won / (2 * math.comb(n, k))


@dataclass(frozen=True, slots=True)
class VarianceSplit:
    """The variance between samples, and within them: the randomness of the agent."""

    between: float
    within: float
    groups: int
    n: int

    @property
    def share_within(self) -> float:
        """The share of the variance that is within samples."""
        total = self.between + self.within
        return self.within / total if total else 0.0

    def standard_error(self, samples: int, epochs: int) -> float:
        """Return the expected standard error of a run with this many samples and epochs."""
        if min(samples, epochs) < 1:
            raise UsageError(f"expected at least 1 of both, got {samples} and {epochs}")
        return math.sqrt((self.between + self.within / epochs) / samples)


def variance_split(groups: Mapping[K, Sequence[float]]) -> VarianceSplit:
    """Return the variance components by one-way analysis of variance with random groups.

    Groups may differ in size. `between` is at least 0.
    (S. R. Searle et al., Variance Components, 1992, section 3.6.)
    """
    attempts = [finite_values(values) for values in groups.values() if len(values)]
    n = sum(map(len, attempts))
    if len(attempts) < 2 or n == len(attempts):
        raise UsageError(
            f"expected two samples or more, one with several attempts; got {len(attempts)} samples "
            f"with {n} attempts - run with epochs of 2 or more"
        )
    centre = mean([value for values in attempts for value in values])
    inside = math.fsum((value - mean(values)) ** 2 for values in attempts for value in values)
    across = math.fsum(len(values) * (mean(values) - centre) ** 2 for values in attempts)
    within = inside / (n - len(attempts))
    size = (n - sum(len(values) ** 2 for values in attempts) / n) / (len(attempts) - 1)
    between = max(0.0, (across / (len(attempts) - 1) - within) / size)
    return VarianceSplit(between, within, len(attempts), n)


@dataclass(frozen=True, slots=True)
class EpochStats:
    """Statistics over the epochs of a run. `str(...)` is one line.

    `k` is the number of epochs. `pass_at_k` is the share of samples that passed at least once,
    `pass_hat_k` the share that passed every time; a sample with fewer than `k` attempts counts in
    neither, and `samples` is the number of the others. `flaky` has the samples that both passed and
    failed: how often each passed, and of how many attempts.
    """

    k: int
    samples: int
    pass_at_k: float
    pass_hat_k: float
    flaky: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        flaky = f"{len(self.flaky):,} of {self.samples:,} samples flaky"
        return f"pass@{self.k} {self.pass_at_k:.1%}, pass^{self.k} {self.pass_hat_k:.1%}, {flaky}"


def epoch_stats(counts: Mapping[str, tuple[int, int]]) -> EpochStats | None:
    """Return what epochs show, from the number of passes and of attempts of each sample.

    Return None if no sample was tried twice. An error is an attempt that did not pass.

    >>> str(epoch_stats({"a": (3, 3), "b": (1, 3), "c": (0, 3), "d": (2, 3)}))
    'pass@3 75.0%, pass^3 25.0%, 2 of 4 samples flaky'
    """
    k = max((attempts for _, attempts in counts.values()), default=0)
    if k < 2:
        return None
    whole = [(passed, n) for passed, n in counts.values() if n == k]
    return EpochStats(
        k,
        len(whole),
        mean([pass_at_k(n, passed, k) for passed, n in whole]),
        mean([pass_hat_k(n, passed, k) for passed, n in whole]),
        {key: (passed, n) for key, (passed, n) in counts.items() if 0 < passed < n},
    )


def flaky(groups: Mapping[K, Sequence[float]], *, pass_mark: float = 0.5) -> dict[K, Interval]:
    """Return the samples that both passed and failed, with their rates; closest to 0.5 first.

    Of a report, use `flaky` of `weakincentives.evals.analysis`.
    """
    if not isinstance(groups, Mapping):
        raise UsageError(
            f"expected the values of each sample as a mapping, got {short_repr(groups)} - for a "
            "report or its results, use weakincentives.evals.analysis.flaky"
        )
    rates = {}
    for key, values in groups.items():
        passed = sum(value >= pass_mark for value in values)
        if 0 < passed < len(values):
            rates[key] = rate_interval(passed, len(values))
    return dict(sorted(rates.items(), key=lambda item: abs(item[1].estimate - 0.5)))


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise UsageError(f"expected 0 <= c <= n, got {c} passes in {n} attempts")
    if not 1 <= k <= n:
        raise UsageError(f"expected 1 <= k <= n, got k = {k} of {n} attempts - run more epochs")
