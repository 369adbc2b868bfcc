"""The pass rate of a run with its interval: one rule for every place that shows it.

1. An error is not a pass.
2. Attempts at one sample are a cluster. Where every sample has one, the interval is Wilson's.
3. A run with a rule to stop early has an interval that holds whenever it stops.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ._intervals import Counts, Interval, counted, counted_rate_interval, rate_interval
from ._sequential import anytime_ends

__all__ = ["ANYTIME", "FEW", "counted_rate", "pass_rate", "rate_words", "too_few"]

ANYTIME = "confidence sequence"
_SMALL = 20
FEW = f"few: fewer than {_SMALL} samples, too few to say much"


def pass_rate(
    attempts: Iterable[tuple[Hashable, bool]], *, anytime: bool = False, confidence: float = 0.95
) -> Interval:
    """The share that passed, of attempts given by their sample and whether they passed."""
    return counted_rate(counted(attempts), anytime=anytime, confidence=confidence)


def counted_rate(counts: Counts, *, anytime: bool = False, confidence: float = 0.95) -> Interval:
    """The same of what was counted: how many samples had so many attempts and passes."""
    repeated = any(size > 1 for size, _ in counts)
    total = sum(size * times for (size, _), times in counts.items())
    passed = sum(good * times for (_, good), times in counts.items())
    if not anytime and not repeated:
        return rate_interval(passed, total, confidence=confidence)
    if not anytime:
        return counted_rate_interval(counts, confidence=confidence)
    # Each sample counts once, by its mean, and only where none of its attempts is missing.
    most = max((size for size, _ in counts), default=1)
    whole = {good: times for (size, good), times in counts.items() if size == most}
    n = sum(whole.values())
    ends = anytime_ends(sum(good * times for good, times in whole.items()) / most, n, confidence)
    clusters = sum(counts.values()) if repeated else None
    rate = passed / total if total else 0.0
    return Interval(rate, *ends, total, clusters, confidence, ANYTIME)


def too_few(interval: Interval) -> bool:
    """True where so few samples are behind it that it says little."""
    return (interval.n if interval.clusters is None else interval.clusters) < _SMALL


def rate_words(rate: Interval) -> str:
    """`95% interval 9.5% to 90.5%, n = 2`, and how many samples these are attempts at."""
    kind = "anytime-valid interval" if rate.method == ANYTIME else "interval"
    seen = f"n = {rate.n:,}"
    if rate.clusters is not None and rate.clusters != rate.n:
        seen += f" in {rate.clusters:,} sample{'' if rate.clusters == 1 else 's'}"
    return f"{rate.confidence * 100:g}% {kind} {rate.low:.1%} to {rate.high:.1%}, {seen}"
