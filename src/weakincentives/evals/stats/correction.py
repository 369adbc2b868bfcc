"""The pass rate that people would give, from a judge on every sample and people on some of them.

A judge that is right in 90 % of the cases can be wrong by ten points about a rate. Labels of people
on a random part of the samples show how often the judge's passes and failures are right, and the
rate is corrected by that. It is unbiased for any judge; a good judge makes the interval narrower
than that of the labels alone.

Rules of this file:
1. Within each verdict of the judge, the labelled samples must be a random choice: picked by the
   verdict, or by nothing (`wink judge sample` does that).
2. An estimate is never moved by a prior; only its variance is, so that a few labels that agree are
   not taken for certainty.
3. An error of the agent or the judge is not a pass, whatever people say about other outputs.
4. Rows of one sample (its epochs) are a cluster; labels should be of different samples.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ...errors import UsageError
from .basic import wilson_interval
from .distributions import normal_quantile, t_quantile
from .intervals import Interval, drawn_interval, rate_interval, two_sided

K = TypeVar("K", bound=Hashable)

_METHOD = "post-stratified by verdict"
_PSEUDO_COUNT = 0.75
"""Labels of each kind that are added to every verdict, in the variance only.

By `python -m bench stats`: the smallest in steps of 0.25 with a coverage of at least 94 % in all of
its settings.
"""
_KAPPA_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """The judge's pass rate, and the one that people would give."""

    judged: Interval
    corrected: Interval
    labels: int
    unlabelled: tuple[str, ...] = ()
    """Verdicts of the judge without any label: the interval allows everything for them."""


@dataclass(frozen=True, slots=True)
class VerdictLabels:
    """The labels of the outputs with one verdict of the judge.

    `passed` of `labels` are passes. Labels that were drawn with different probabilities are
    weighted, and both numbers are effective ones; `count` is the number of labels as they are.
    """

    labels: float = 0.0
    passed: float = 0.0
    count: int = 0

    @property
    def rate(self) -> float:
        """The share that passes; 0.5 without a label."""
        return self.passed / self.labels if self.labels else 0.5

    @property
    def smoothed(self) -> float:
        """The share, further from 0 and 1, for the variance."""
        return (self.passed + _PSEUDO_COUNT) / (self.labels + 2 * _PSEUDO_COUNT)

    @property
    def variance(self) -> float:
        """The variance of the share."""
        return self.smoothed * (1 - self.smoothed) / max(self.labels, 1)


Strata = Mapping[bool, VerdictLabels]
Verdicts = Mapping[K, bool | None]
"""The judge's verdicts; None is an error, which is not a pass."""


def labels_by_verdict(
    judged: Verdicts[K], labels: Mapping[K, bool], probabilities: Mapping[K, float] | None = None
) -> dict[bool, VerdictLabels]:
    """Return the labels by the judge's verdict on the same output.

    With `probabilities`, a label counts for as many outputs as it was drawn for (Horvitz-Thompson,
    as a ratio within each verdict). Labels of outputs without a verdict are left out.
    """
    weights: dict[bool, list[tuple[float, bool]]] = {False: [], True: []}
    for key, label in labels.items():
        verdict = judged.get(key)
        if verdict is not None:
            probability = (probabilities or {}).get(key, 1.0)
            if not 0 < probability <= 1:
                raise UsageError(f"expected a probability above 0, at most 1, got {probability}")
            weights[verdict].append((1 / probability, label))
    if labels and not any(weights.values()):
        raise UsageError(f"expected labels of judged samples, got {len(labels)} of others")
    return {verdict: _weighted(each) for verdict, each in weights.items()}


def _weighted(labels: list[tuple[float, bool]]) -> VerdictLabels:
    if not labels:
        return VerdictLabels()
    total = math.fsum(weight for weight, _ in labels)
    effective = total**2 / math.fsum(weight**2 for weight, _ in labels)  # Kish
    share = math.fsum(weight for weight, passed in labels if passed) / total
    return VerdictLabels(effective, share * effective, len(labels))


def corrected_rate(
    judged: Verdicts[K],
    labels: Mapping[K, bool],
    *,
    probabilities: Mapping[K, float] | None = None,
    confidence: float = 0.95,
) -> CorrectedRate:
    """Return the pass rate of the judged samples, corrected by the labels of people.

    Post-stratified by the judge's verdict, with Wilson's interval for the effective number of
    samples. `probabilities` are those with which the labelled samples were drawn, if they differ
    within a verdict.

    >>> judged = {n: n < 80 for n in range(100)}
    >>> labels = {n: n < 70 for n in range(0, 100, 2)}  # people fail ten that the judge passed
    >>> rate = corrected_rate(judged, labels)
    >>> round(rate.judged.estimate, 3), round(rate.corrected.estimate, 3)
    (0.8, 0.7)
    """
    if not judged:
        raise UsageError("expected judged samples, got none")
    strata = labels_by_verdict(judged, labels, probabilities)
    return corrected_rate_by(judged, strata, confidence=confidence)


def corrected_rate_by(
    judged: Verdicts[K],
    strata: Strata,
    *,
    cluster: Callable[[K], Hashable] | None = None,
    confidence: float = 0.95,
) -> CorrectedRate:
    """Return the pass rate of judged samples, corrected by labels that are counted already.

    The labels may be of another run, if the judge's verdicts are right as often in this one.
    `cluster` returns what the rows of one sample have in common.
    """
    quantile = _quantile(strata.values(), confidence)
    shares = _shares(judged)
    used = {verdict: strata.get(verdict, VerdictLabels()) for verdict in shares}
    estimate = math.fsum(share * used[verdict].rate for verdict, share in shares.items())
    centre = math.fsum(share * used[verdict].smoothed for verdict, share in shares.items())
    variance = math.fsum(share**2 * used[verdict].variance for verdict, share in shares.items())
    deviations = {key: _value(used, verdict) - centre for key, verdict in judged.items()}
    variance += _variance_of_mean(deviations, cluster)
    n = len(judged)
    effective_n = min(centre * (1 - centre) / variance, n) if variance else n
    low, high = wilson_interval(estimate * effective_n, effective_n, z=quantile)
    missing = [verdict for verdict in sorted(shares) if not used[verdict].labels]
    if missing:  # anything may be true of these
        half = math.fsum(shares[verdict] for verdict in missing) / 2
        low, high = max(0.0, low - half), min(1.0, high + half)
    if len(missing) == len(shares) and missing:
        low, high = 0.0, math.fsum(shares.values())
    return CorrectedRate(
        judged=rate_interval(sum(map(bool, judged.values())), n, confidence=confidence),
        corrected=Interval(estimate, low, high, n, None, confidence, _METHOD),
        labels=sum(each.count for each in used.values()),
        unlabelled=tuple("passed" if verdict else "failed" for verdict in missing),
    )


def corrected_agreement(
    judged: Verdicts[K], strata: Strata, *, confidence: float = 0.95
) -> Interval:
    """Return how often people agree with the judge, over all of its verdicts."""
    agreed = {verdict: each if verdict else _opposite(each) for verdict, each in strata.items()}
    verdicts = {key: verdict for key, verdict in judged.items() if verdict is not None}
    return corrected_rate_by(verdicts, agreed, confidence=confidence).corrected


def _opposite(labels: VerdictLabels) -> VerdictLabels:
    return VerdictLabels(labels.labels, labels.labels - labels.passed, labels.count)


def corrected_kappa(judged: Verdicts[K], strata: Strata, *, confidence: float = 0.95) -> Interval:
    """Return Cohen's kappa of judge and people over all verdicts, with its interval.

    The interval is from the quantiles of draws of the rates of both verdicts, each from its beta
    distribution with half a label of each kind added.
    """
    two_sided(confidence)
    shares = _shares({key: verdict for key, verdict in judged.items() if verdict is not None})
    used = {verdict: strata.get(verdict, VerdictLabels()) for verdict in (False, True)}
    passing = shares.get(True, 0.0)
    generator = random.Random(0)
    drawn = (
        _kappa(
            passing,
            *(
                generator.betavariate(each.passed + 0.5, each.labels - each.passed + 0.5)
                for each in used.values()
            ),
        )
        for _ in range(_KAPPA_DRAWS)
    )
    estimate = _kappa(passing, used[False].rate, used[True].rate)
    n = sum(each.count for each in used.values())
    return drawn_interval(estimate, drawn, n, confidence, "beta draws by verdict")


def _kappa(passing: float, failed_right: float, passed_right: float) -> float:
    """Return kappa from the judge's pass rate, and that of people within each of its verdicts."""
    agreement = passing * passed_right + (1 - passing) * (1 - failed_right)
    people = passing * passed_right + (1 - passing) * failed_right
    chance = passing * people + (1 - passing) * (1 - people)
    return (agreement - chance) / (1 - chance) if chance < 1 else 0.0


def corrected_difference(
    before: tuple[Verdicts[K], Mapping[K, bool]],
    after: tuple[Verdicts[K], Mapping[K, bool]],
    *,
    confidence: float = 0.95,
) -> Interval:
    """Return the change of the corrected pass rate between two runs of the same samples.

    Each run is a pair of the judge's verdicts and the labels of people on its own outputs. The
    verdicts are compared sample by sample, so the difficulty of the samples cancels out. (One flip
    in each direction is added to the variance, after D. G. Bonett and R. M. Price, Journal of
    Educational and Behavioral Statistics 37, 2012.)
    """
    pairs = [(judged, labels_by_verdict(judged, labels)) for judged, labels in (before, after)]
    return corrected_difference_by(pairs[0], pairs[1], confidence=confidence)


def corrected_difference_by(
    before: tuple[Verdicts[K], Strata],
    after: tuple[Verdicts[K], Strata],
    *,
    cluster: Callable[[K], Hashable] | None = None,
    same_labels: bool = False,
    confidence: float = 0.95,
) -> Interval:
    """Return the change of the corrected pass rate, by labels that are counted already.

    With `same_labels` both runs are corrected by the same ones: their uncertainty affects both in
    the same way, and largely cancels out.
    """
    shared = [key for key in before[0] if key in after[0]]
    if not shared:
        raise UsageError("expected runs with samples in common, got none")
    sides = [({key: judged[key] for key in shared}, strata) for judged, strata in (before, after)]
    shares = [_shares(judged) for judged, _ in sides]
    a, b = (
        {verdict: strata.get(verdict, VerdictLabels()) for verdict in (False, True)}
        for _, strata in sides
    )
    estimate = math.fsum(
        sign * share * used[verdict].rate
        for sign, used, own in ((-1, a, shares[0]), (1, b, shares[1]))
        for verdict, share in own.items()
    )
    changes = {key: _value(b, after[0][key]) - _value(a, before[0][key]) for key in shared}
    centre = math.fsum(changes.values()) / len(changes)
    variance = _variance_of_mean({key: change - centre for key, change in changes.items()}, cluster)
    # One more flip in each direction (Bonett and Price): no flip is not certainty.
    samples = len(shared) if cluster is None else len({cluster(key) for key in shared})
    flips = (b[verdict].smoothed - a[not verdict].smoothed for verdict in (False, True))
    variance += math.fsum(flip**2 for flip in flips) / samples**2
    for verdict in (False, True):
        shares_of = [own.get(verdict, 0.0) for own in shares]
        if same_labels:
            variance += (shares_of[1] - shares_of[0]) ** 2 * a[verdict].variance
        else:
            variance += shares_of[0] ** 2 * a[verdict].variance
            variance += shares_of[1] ** 2 * b[verdict].variance
    fewest = min((a, b), key=lambda used: sum(each.labels for each in used.values()))
    half = _quantile(fewest.values(), confidence) * math.sqrt(variance)
    low, high = max(-1.0, estimate - half), min(1.0, estimate + half)
    return Interval(estimate, low, high, len(shared), None, confidence, _METHOD)


def ppi_rate(
    judged: Mapping[K, bool], labels: Mapping[K, bool], *, confidence: float = 0.95
) -> Interval:
    """Return the rate by prediction-powered inference, with the best weight for the judge.

    A little narrower than `corrected_rate`, and below its confidence with fewer than about 100
    labels. The labelled samples must be a random choice of all. (A. N. Angelopoulos et al.,
    PPI++, arXiv:2311.01453, 2023.)
    """
    two_sided(confidence)
    pairs = [(float(judged[key]), float(label)) for key, label in labels.items() if key in judged]
    n, size = len(pairs), len(judged)
    if n < 2:
        raise UsageError(f"expected at least 2 labels of judged samples, got {n}")
    judge_mean, label_mean = (math.fsum(pair[at] for pair in pairs) / n for at in (0, 1))
    all_mean = sum(judged.values()) / size
    judge_variance = all_mean * (1 - all_mean)
    covariance = math.fsum((j - judge_mean) * (y - label_mean) for j, y in pairs) / (n - 1)
    weight = covariance / (judge_variance * (1 + n / size)) if judge_variance else 0.0
    weight = min(max(weight, 0.0), 1.0)
    estimate = label_mean + weight * (all_mean - judge_mean)
    errors = [y - weight * j for j, y in pairs]
    centre = math.fsum(errors) / n
    spread = math.fsum((error - centre) ** 2 for error in errors) / (n - 1)
    half = normal_quantile((1 + confidence) / 2) * math.sqrt(
        spread / n + weight**2 * judge_variance / size
    )
    low, high = max(0.0, estimate - half), min(1.0, estimate + half)
    return Interval(estimate, low, high, size, None, confidence, "PPI++")


def _shares(judged: Verdicts[K]) -> dict[bool, float]:
    """Return the share of each verdict in all rows; errors have none."""
    if not judged:
        raise UsageError("expected judged samples, got none")
    verdicts = list(judged.values())
    counts = {verdict: verdicts.count(verdict) for verdict in (False, True)}
    return {verdict: count / len(verdicts) for verdict, count in counts.items() if count}


def _value(strata: Strata, verdict: bool | None) -> float:
    """Return the pass rate that people give rows of this verdict; an error does not pass."""
    return 0.0 if verdict is None else strata[verdict].smoothed


def _variance_of_mean(
    deviations: Mapping[K, float], cluster: Callable[[K], Hashable] | None
) -> float:
    """Return the variance of the mean: another set of samples has other verdicts."""
    sums: dict[Hashable, float] = defaultdict(float)
    for key, deviation in deviations.items():
        sums[key if cluster is None else cluster(key)] += deviation
    return math.fsum(total**2 for total in sums.values()) / len(deviations) ** 2


def _quantile(strata: Iterable[VerdictLabels], confidence: float) -> float:
    """Return the quantile of Student's t for this many labels."""
    normal = two_sided(confidence)
    labels = int(math.fsum(each.labels for each in strata))
    return t_quantile((1 + confidence) / 2, labels - 2) if labels > 2 else normal
