"""A paired test that may stop at one of a few planned looks, and is right at all of them together.

The boundary is that of P. C. O'Brien and T. R. Fleming, Biometrics 35, 1979: at look k of 10 the
statistic must reach 2.087 * sqrt(10 / k). Early looks need strong evidence, so that the last one
costs little. At each look the test is that of `paired_difference`: McNemar's mid-p test for passes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from operator import mul

from .differences import Difference, paired_difference
from .distributions import normal_cdf, normal_quantile

LOOKS = 10
_BOUNDARY = 2.087  # for ten looks and an error of 5 %, both sides together
_CELL = 0.1  # grid spacing; a step of the walk is about 0.3


def look_sizes(samples: int) -> list[int]:
    """Return after how many samples the looks are, the last one after all."""
    return sorted({math.ceil(samples * look / LOOKS) for look in range(1, LOOKS + 1)})


def sequential_difference(
    before: Sequence[float],
    after: Sequence[float],
    share: float,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> Difference | None:
    """Return the change after this share of the samples, as one look of the sequential test.

    Its interval is valid at all looks together with 95 %, and so is its p-value. It is None at a
    look before the last one that shows no difference.
    (C. Jennison and B. W. Turnbull, Journal of the Royal Statistical Society B 51, 1989.)
    """
    nominal = 2 * normal_cdf(-_BOUNDARY / math.sqrt(share))
    confidence = min(1 - nominal, 1 - 1e-12)
    found = paired_difference(before, after, clusters=clusters, confidence=confidence)
    p = 1.0 if found.p_value is None else found.p_value
    if share < 1 and (p > nominal or 0 in found.delta):
        return None
    delta = replace(found.delta, confidence=0.95, method=f"{found.delta.method}, sequential")
    if p < 1:
        p = sequential_p(-normal_quantile(max(p, 1e-300) / 2) * math.sqrt(share))
    test = f"{found.test.partition(',')[0]}, sequential"
    return replace(found, delta=delta, p_value=p, test=test)


def sequential_p(boundary: float) -> float:
    """Return the chance that a statistic without any effect reaches this boundary at some look.

    The boundary at look k of 10 is `boundary * sqrt(10 / k)`.

    >>> round(sequential_p(2.087), 3)
    0.05
    """
    if boundary <= 0:
        return 1.0
    # The sum of the evidence is a random walk of ten normal steps with variance 1/10. Its density
    # between the boundaries, where it would have ended, is integrated by Simpson's rule.
    boundary = min(boundary, 5.0)  # reached once in a million cases
    halves = math.ceil(boundary / _CELL)
    cell = boundary / halves
    n = 2 * halves + 1
    weights = [cell / 3 * (1 if at in (0, n - 1) else 4 if at % 2 else 2) for at in range(n)]
    step = [math.sqrt(LOOKS / math.tau) * math.exp(-LOOKS * (d * cell) ** 2 / 2) for d in range(n)]
    density = [step[abs(at - halves)] for at in range(n)]
    for _ in range(LOOKS - 1):
        mass = [weight * each for weight, each in zip(weights, density, strict=True)]
        # step[|to - at|] for all places `at`, as one slice of the steps to either side of `to`
        density = [sum(map(mul, mass, step[to:0:-1] + step[: n - to])) for to in range(n)]
    reached: float = 1 - sum(map(mul, weights, density))
    return min(1.0, max(0.0, reached))
