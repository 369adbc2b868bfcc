"""The pass rate of a run with its interval: one rule for every place that prints it.

1. An error is not a pass.
2. Attempts at one sample are a cluster. With one attempt per sample, the interval is Wilson's.
   With a `cluster_by`, all attempts at samples with the same value in their metadata are a cluster.
3. A run with a rule to stop early has an interval that is valid when it stops: see `RateRule`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from .distributions import normal_cdf
from .intervals import (
    Counts,
    Interval,
    cluster_counts,
    counted_rate_interval,
    ends_text,
    rate_interval,
)
from .sequential import anytime_ends, betting_ends, dataset_ends
from .strata import STRATIFIED

ANYTIME = "confidence sequence"
_BY = " by "  # in the method of an interval, before the key that clusters have in common
_OF_DATASET = f"{ANYTIME} of a dataset of "
_MIN_SAMPLES = 20
FEW = f"few: fewer than {_MIN_SAMPLES} samples, too few to say much"
# Between 1.96 and 2.1 lies the price of looking at the width (Y. S. Chow and H. Robbins, Annals of
# Mathematical Statistics 36, 1965; the size of the price by `python -m bench stats`).
_WIDTH_CONFIDENCE = 2 * normal_cdf(2.1) - 1  # used for an interval that is reported as 95 %

RateKind = Literal["fixed", "width", "population", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRule:
    """The stopping rule of a run, on which the interval of its pass rate depends.

    "fixed": it may not stop early. "width": it stops once the interval is narrow, wherever it lies.
    "population" and "dataset": it stops once the rate of all samples like these, or of the `size`
    samples of its dataset, is shown to be above or below another one. `low` and `high` are the ends
    of the interval when it stopped: they stay valid.
    """

    kind: RateKind = "fixed"
    size: int = 0
    low: float = 0.0
    high: float = 1.0

    @property
    def of_parts(self) -> RateRule:
        """The rule for a part of the run: a slice, or one criterion."""
        return RateRule(kind="population" if self.kind == "dataset" else self.kind)


FIXED = RateRule()


def pass_rate(
    attempts: Iterable[tuple[Hashable, bool]],
    *,
    rule: RateRule = FIXED,
    confidence: float = 0.95,
    cluster_by: str | None = None,
) -> Interval:
    """Return the share that passed, of attempts given by their cluster and whether they passed.

    A cluster is a sample, or the samples with the same value of the metadata key `cluster_by`.
    """
    rate = counted_rate(cluster_counts(attempts), rule=rule, confidence=confidence)
    return rate if cluster_by is None else named_clusters(rate, cluster_by)


def named_clusters(rate: Interval, cluster_by: str) -> Interval:
    """Return the rate with the key of the metadata that its clusters have in common."""
    if rate.clusters is None:
        return rate
    return replace(rate, method=f"{rate.method}{_BY}{cluster_by}")


def counted_rate(counts: Counts, *, rule: RateRule = FIXED, confidence: float = 0.95) -> Interval:
    """Return the pass rate of counts: the number of samples by attempts and passes."""
    repeated = any(size > 1 for size, _ in counts)
    total = sum(size * times for (size, _), times in counts.items())
    passed = sum(good * times for (_, good), times in counts.items())
    if rule.kind in ("fixed", "width"):
        wider = max(confidence, _WIDTH_CONFIDENCE) if rule.kind == "width" else confidence
        found = (
            counted_rate_interval(counts, confidence=wider)
            if repeated
            else rate_interval(passed, total, confidence=wider)
        )
        return replace(found, confidence=confidence)
    low, high, method = 0.0, 1.0, ANYTIME
    if rule.kind == "population":
        low, high = population_ends(counts, confidence)
    else:
        method = f"{_OF_DATASET}{rule.size}"
        if not repeated and total <= rule.size:  # else it depends on the order of the samples
            low, high = dataset_ends(passed, total, rule.size, confidence)
    low, high = max(low, rule.low), min(high, rule.high)
    if low > high:  # at most one run in twenty: the ends at the stop stay valid
        low, high = rule.low, rule.high
    clusters = sum(counts.values()) if repeated else None
    rate = passed / total if total else 0.0
    return Interval(rate, low, high, total, clusters, confidence, method)


def population_ends(counts: Counts, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval, valid at all times, of the pass rate of all samples like these.

    Each sample counts once, by its mean, and only if none of its attempts is missing.
    """
    attempts = max((size for size, _ in counts), default=1)
    complete = {good: times for (size, good), times in counts.items() if size == attempts}
    if attempts == 1:
        return anytime_ends(complete.get(1, 0), sum(complete.values()), confidence)
    return betting_ends({good / attempts: n for good, n in complete.items()}, confidence)


def too_few(interval: Interval) -> bool:
    """Return whether an interval is based on too few samples to say much."""
    return (interval.n if interval.clusters is None else interval.clusters) < _MIN_SAMPLES


def rate_words(rate: Interval) -> str:
    """Return `95% interval 9.5% to 90.5%, n = 2`, and the number of samples if they differ."""
    kind = "anytime-valid interval" if rate.method.startswith(ANYTIME) else "interval"
    method, by, key = rate.method.partition(_BY)
    size = method.removeprefix(_OF_DATASET).removeprefix(STRATIFIED)
    of = "" if size == method else f" of all {int(size):,} samples"
    if rate.method.startswith(STRATIFIED):
        of += ", chosen by strata of earlier pass rates"
    seen = f"n = {rate.n:,}"
    if rate.clusters is not None and rate.clusters != rate.n:
        seen += f" in {rate.clusters:,} {'cluster' if by else 'sample'}"
        seen += ("" if rate.clusters == 1 else "s") + f"{by}{key}"
    low, high = rate_ends(rate)
    return f"{rate.confidence * 100:g}% {kind} {low}% to {high}%{of}, {seen}"


def rate_ends(rate: Interval) -> tuple[str, str]:
    """Return the ends of an interval of rates in percent, with as many digits as it takes.

    >>> rate_ends(rate_interval(20_000, 20_000))
    ('99.98', '100.00')
    """
    return ends_text(rate.low * 100, rate.high * 100)
