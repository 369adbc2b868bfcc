"""Confidence sequences: intervals that remain valid at every look, so that a run may stop."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

from ...errors import UsageError, short_repr
from .differences import bisect_decreasing
from .distributions import log_beta, log_choose
from .intervals import Interval, two_sided

_STAKES = [(j + 0.5) / 24 for j in range(24)]


class ConfidenceSequence:
    """The mean of values from `low` to `high`, with an interval that is valid at all times.

    Stopping as soon as an ordinary interval looks good (optional stopping) raises the error rate
    well above 5 %. This interval covers the truth at all times together with 95 %, so a run may
    stop on it. It is wider in return.

    >>> seen = ConfidenceSequence()
    >>> for value in [1, 1, 0, 1] * 50:
    ...     seen.add(value)
    >>> str(seen.interval)
    '0.75, 95% interval 0.6368 to 0.844, n = 200'
    """

    __slots__ = ("_confidence", "_high", "_low", "_n", "_sum")

    def __init__(self, low: float = 0.0, high: float = 1.0, *, confidence: float = 0.95) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(f"expected low < high, got {short_repr(low)} and {short_repr(high)}")
        two_sided(confidence)
        self._low, self._high, self._confidence = low, high, confidence
        self._n, self._sum = 0, 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        if not self._low <= value <= self._high:
            raise UsageError(
                f"expected a value from {self._low} to {self._high}, got {short_repr(value)}"
            )
        self._n += 1
        self._sum += (value - self._low) / (self._high - self._low)

    @property
    def interval(self) -> Interval:
        """The mean of the values so far, with its interval."""
        n, total = self._n, min(self._sum, self._n)
        ends = anytime_ends(total, n, self._confidence)
        rate = total / n if n else 0.5
        rate, low, high = (self._low + x * (self._high - self._low) for x in (rate, *ends))
        return Interval(rate, low, high, n, None, self._confidence, "confidence sequence")


def anytime_ends(passed: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval, valid at all times, of the mean of `n` values in 0..1 with this sum."""
    failed = n - passed
    # A bet against each mean m, on a Beta(1/2, 1/2) mixture of all others. If m is true,
    # it reaches 1 / alpha at any time with a chance of at most alpha (Ville's inequality).
    limit = math.log(1 - confidence)
    limit += log_beta(passed + 0.5, failed + 0.5) - log_beta(0.5, 0.5)

    def likelihood(m: float) -> float:
        return (passed and passed * math.log(m)) + (failed and failed * math.log1p(-m))

    rate = passed / n if n else 0.5
    low = bisect_decreasing(-limit, lambda m: -likelihood(m), 0.0, rate) if passed else 0.0
    high = bisect_decreasing(limit, likelihood, rate, 1.0) if failed else 1.0
    return low, high


def betting_ends(values: Mapping[float, int], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval, valid at all times, of the mean of values in 0..1, given with counts.

    Narrower than `anytime_ends` if the values are not all 0 or 1: it bets on means above and below
    m with 24 stakes each, and leaves out the m against which it won too much.
    (I. Waudby-Smith and A. Ramdas, Journal of the Royal Statistical Society B 86, 2024.)
    """
    limit = math.log(2 / (1 - confidence))  # half of the error on each side
    mirrored = {1 - value: count for value, count in values.items()}
    centre = _mean_of(values)
    low = bisect_decreasing(limit, lambda m: _winnings(values, m), 0.0, centre)
    high = 1 - bisect_decreasing(limit, lambda m: _winnings(mirrored, m), 0.0, 1 - centre)
    return low, high


def betting_excludes(values: Mapping[float, int], m: float, confidence: float = 0.95) -> bool:
    """Return whether `betting_ends` leaves out the mean `m`, without computing the ends."""
    mirrored = {1 - value: count for value, count in values.items()}
    limit = math.log(2 / (1 - confidence))
    return max(_winnings(values, m), _winnings(mirrored, 1 - m)) >= limit


def _winnings(values: Mapping[float, int], m: float) -> float:
    """Return the logarithm of what was won by betting that the mean is above `m`; it falls in m."""
    if m <= 0:
        return math.inf if _mean_of(values) > 0 else 0.0
    return _log_mean(
        [
            math.fsum(
                count * math.log1p(stake * (value / m - 1))
                for value, count in values.items()
                if count
            )
            for stake in _STAKES
        ]
    )


def _log_mean(logs: list[float]) -> float:
    """Return the logarithm of the mean of numbers that are given by their logarithms."""
    if (largest := max(logs)) == math.inf:
        return math.inf
    return largest + math.log(math.fsum(math.exp(each - largest) for each in logs) / len(logs))


def _mean_of(values: Mapping[float, int]) -> float:
    n = sum(values.values())
    return math.fsum(value * count for value, count in values.items()) / n if n else 0.5


def dataset_ends(passed: int, n: int, size: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval, valid at all times, of the rate of a dataset of which `n` were tried.

    For samples drawn in random order from a dataset of this size: it becomes exact as the rest is
    tried. (I. Waudby-Smith and A. Ramdas, NeurIPS 2020: the prior of all rates, divided by the
    posterior, reaches 1 / alpha at any time with a chance of at most alpha.)
    """
    failed = n - passed
    # In terms of the number of passes in the whole dataset, from what is certain.
    smallest, largest = passed, size - failed
    limit = math.log(1 - confidence) + log_choose(size, n) - math.log(n + 1)

    def likelihood(total: int) -> float:
        return log_choose(total, passed) + log_choose(size - total, failed)

    centre = min(max(round(size * passed / n) if n else size // 2, smallest), largest)
    low = bisect_left(range(smallest, centre), limit, key=likelihood) + smallest
    high = largest - bisect_left(
        range(largest - centre), limit, key=lambda k: likelihood(largest - k)
    )
    return low / size, high / size


class DatasetBets:
    """The mean of a dataset whose values, in 0..1, are drawn in random order.

    Like `dataset_ends`, but for values between 0 and 1 too, such as the means of epochs. It bets
    against the mean `m` of all values: if it is true, the mean of those not drawn yet is known.
    """

    def __init__(self, size: int, m: float, confidence: float = 0.95) -> None:
        self._size = size
        self._limit = math.log(2 / (1 - confidence))
        self._values: list[float] = []
        self._above, self._below = _Bets(size, m), _Bets(size, 1 - m)

    def add(self, value: float) -> None:
        """Add the next value that was drawn."""
        self._values.append(value)
        self._above.add(value)
        self._below.add(1 - value)

    @property
    def excludes(self) -> bool:
        """Return whether the mean of all values is shown not to be `m`."""
        return max(self._above.winnings, self._below.winnings) >= self._limit

    def ends(self) -> tuple[float, float]:
        """Return the interval of the mean of all values, valid at all times."""
        drawn, n = math.fsum(self._values), len(self._values)
        minimum, maximum = drawn / self._size, 1 - (n - drawn) / self._size
        estimate = drawn / n if n else 0.5
        low = self._crossing(self._values, minimum, estimate)
        high = 1 - self._crossing([1 - value for value in self._values], 1 - maximum, 1 - estimate)
        return low, high

    def _crossing(self, values: list[float], left: float, right: float) -> float:
        """Return the smallest mean, to a millionth, against which too little was won."""

        def is_excluded(m: float) -> bool:
            bets = _Bets(self._size, m)
            for value in values:
                bets.add(value)
            return bets.winnings >= self._limit

        while right - left > 1e-6:
            middle = (left + right) / 2
            left, right = (middle, right) if is_excluded(middle) else (left, middle)
        return left


class _Bets:
    """The winnings of betting that the mean of a dataset is above `m`, by 24 stakes."""

    def __init__(self, size: int, m: float) -> None:
        self._left, self._sum = size, size * m  # of values not drawn yet, if m is true
        self._logs = [0.0] * len(_STAKES)

    def add(self, value: float) -> None:
        """Bet on the next value."""
        expected = self._sum / self._left
        if expected > 1e-12:
            ratio = value / expected - 1
            self._logs = [
                log + math.log1p(stake * ratio)
                for log, stake in zip(self._logs, _STAKES, strict=True)
            ]
        elif value > 1e-12:  # more than there can be
            self._logs = [math.inf] * len(_STAKES)
        self._left, self._sum = self._left - 1, self._sum - value

    @property
    def winnings(self) -> float:
        """Return the logarithm of what was won."""
        return _log_mean(self._logs)
