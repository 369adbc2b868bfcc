"""Numbers with their uncertainty: pure functions, explained in docs/statistics.md.

Reports need the three functions here; the others are loaded when they are first used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily

if TYPE_CHECKING:
    from ._differences import Difference, mcnemar, paired_difference, unpaired_difference, wilcoxon
    from ._intervals import (
        Interval,
        clustered_rate_interval,
        mean_interval,
        percentile_interval,
        rate_interval,
        standard_error,
    )
    from ._multiplicity import benjamini_hochberg, holm
    from ._power import minimum_detectable_effect, power_of, samples_needed
    from ._repeats import (
        VarianceSplit,
        flaky,
        majority_at_k,
        pass_at_k,
        pass_hat_k,
        variance_split,
    )
    from ._resampling import bootstrap_interval, permutation_test
    from ._sequential import ConfidenceSequence

__all__ = [
    "Z_95",
    "ConfidenceSequence",
    "Difference",
    "Interval",
    "VarianceSplit",
    "benjamini_hochberg",
    "bootstrap_interval",
    "clustered_rate_interval",
    "flaky",
    "holm",
    "majority_at_k",
    "mcnemar",
    "mean",
    "mean_interval",
    "minimum_detectable_effect",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "percentile_interval",
    "permutation_test",
    "power_of",
    "rate_interval",
    "samples_needed",
    "standard_error",
    "std",
    "unpaired_difference",
    "variance_split",
    "wilcoxon",
    "wilson_interval",
]

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""


def mean(values: Sequence[float]) -> float:
    """The mean; 0.0 of nothing. The order of the values never shows in it."""
    try:
        return math.fsum(values) / len(values) if values else 0.0
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n - 1); 0.0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    largest = max(abs(value - centre) for value in values) or 1.0
    # Squares of what is at most 1: the squares of large rewards would overflow.
    squares = math.fsum(((value - centre) / largest) ** 2 for value in values)
    return largest * math.sqrt(squares / (len(values) - 1))


def wilson_interval(passed: float, n: float, *, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a rate; with no observation, everything is possible.

    Unlike the textbook ± it never has width 0: after 0 of 3 the rate may well be a half.
    (E. B. Wilson, Journal of the American Statistical Association 22, 1927.)
    """
    if n == 0:
        return 0.0, 1.0
    rate = passed / n
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    centre = rate + z * z / (2 * n)
    scale = 1 + z * z / n
    # At 0 of n and n of n the ends are exactly 0 and 1; rounding would leave them just beside.
    low = 0.0 if passed == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if passed == n else min(1.0, (centre + spread) / scale)
    return low, high


__getattr__, __dir__ = _lazily(
    __name__,
    {
        "ConfidenceSequence": ".._sequential",
        "Difference": ".._differences",
        "Interval": ".._intervals",
        "VarianceSplit": ".._repeats",
        "benjamini_hochberg": ".._multiplicity",
        "bootstrap_interval": ".._resampling",
        "clustered_rate_interval": ".._intervals",
        "flaky": ".._repeats",
        "holm": ".._multiplicity",
        "majority_at_k": ".._repeats",
        "mcnemar": ".._differences",
        "mean_interval": ".._intervals",
        "minimum_detectable_effect": ".._power",
        "paired_difference": ".._differences",
        "pass_at_k": ".._repeats",
        "pass_hat_k": ".._repeats",
        "percentile_interval": ".._intervals",
        "permutation_test": ".._resampling",
        "power_of": ".._power",
        "rate_interval": ".._intervals",
        "samples_needed": ".._power",
        "standard_error": ".._intervals",
        "unpaired_difference": ".._differences",
        "variance_split": ".._repeats",
        "wilcoxon": ".._differences",
    },
)
