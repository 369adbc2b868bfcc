"""Looking while it runs: an interval that stays right however often one looks, and may stop."""

from __future__ import annotations

import math

from ..errors import UsageError, shown
from ._differences import falls_to
from ._distributions import log_beta
from ._intervals import Interval, two_sided

__all__ = ["ConfidenceSequence", "anytime_ends"]


class ConfidenceSequence:
    """The mean of values from `low` to `high`, so far, with an interval that is valid at all times.

    An ordinary interval may be looked at once: who stops as soon as it looks good is wrong far
    more often than 5 %. This one holds the truth at all times together with 95 %, so that a run
    may stop by it. It is wider for that.

    >>> seen = ConfidenceSequence()
    >>> for value in [1, 1, 0, 1] * 50:
    ...     seen.add(value)
    >>> str(seen.interval)
    '0.75, 95 % interval 0.6368 to 0.844, n = 200'
    """

    __slots__ = ("_confidence", "_high", "_low", "_n", "_sum")

    def __init__(self, low: float = 0.0, high: float = 1.0, *, confidence: float = 0.95) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(f"expected low < high, got {shown(low)} and {shown(high)}")
        two_sided(confidence)
        self._low, self._high, self._confidence = low, high, confidence
        self._n, self._sum = 0, 0.0

    def add(self, value: float) -> None:
        """Count one more value in."""
        if not self._low <= value <= self._high:
            raise UsageError(
                f"expected a value from {self._low} to {self._high}, got {shown(value)}"
            )
        self._n += 1
        self._sum += (value - self._low) / (self._high - self._low)

    @property
    def interval(self) -> Interval:
        """The mean of what was added, and where the true mean is."""
        n, total = self._n, min(self._sum, self._n)
        ends = anytime_ends(total, n, self._confidence)
        rate = total / n if n else 0.5
        rate, low, high = (self._low + x * (self._high - self._low) for x in (rate, *ends))
        return Interval(rate, low, high, n, None, self._confidence, "confidence sequence")


def anytime_ends(passed: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where the mean of values from 0 to 1 is, of which `n` add up to `passed`; at all times."""
    failed = n - passed
    # A bet against each mean m, on a Beta(1/2, 1/2) mixture of all others. If m is true,
    # it reaches 1 / alpha at any time with a chance of at most alpha (Ville's inequality).
    limit = math.log(1 - confidence)
    limit += log_beta(passed + 0.5, failed + 0.5) - log_beta(0.5, 0.5)

    def likelihood(m: float) -> float:
        return (passed and passed * math.log(m)) + (failed and failed * math.log1p(-m))

    rate = passed / n if n else 0.5
    low = falls_to(-limit, lambda m: -likelihood(m), 0.0, rate) if passed else 0.0
    high = falls_to(limit, likelihood, rate, 1.0) if failed else 1.0
    return low, high
