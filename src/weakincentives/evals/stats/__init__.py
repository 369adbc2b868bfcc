"""Numbers with their uncertainty: pure functions, explained in docs/statistics.md.

basic          mean, standard deviation, Wilson's interval
distributions  the normal, Student's t and the binomial distribution
intervals      of rates, means and percentiles, clustered by sample if there are epochs
pass_rate      the one interval rule for a pass rate
differences    paired and unpaired tests of two runs
multiplicity   p-values of several tests at once
power          how many samples a test needs
ratios         F1, and ratios of two sums
repeats        pass@k, pass^k, flaky samples, where the variance comes from
resampling     bootstrap and permutation (extra `stats`)
sequential     confidence sequences, valid at every look
group_sequential  a paired test that may stop at one of ten looks
strata         the rate of a dataset from a part of it, drawn by strata
trends         a line and a step through several runs
rankings       strengths of contenders, from comparisons of two at a time
correction     the rate of a judge, corrected by labels of people
agreement      how far people agree in their labels
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .agreement import krippendorff_alpha
    from .basic import Z_95, mean, std, wilson_interval
    from .correction import CorrectedRate, corrected_difference, corrected_rate, ppi_rate
    from .differences import Difference, mcnemar, paired_difference, unpaired_difference, wilcoxon
    from .intervals import (
        Interval,
        clustered_rate_interval,
        mean_interval,
        percentile_interval,
        rate_interval,
        standard_error,
    )
    from .multiplicity import benjamini_hochberg, holm
    from .power import (
        flip_power,
        minimum_detectable_effect,
        minimum_detectable_flips,
        power_of,
        samples_needed,
        samples_needed_flips,
    )
    from .rankings import BradleyTerry, Contender, Match, bradley_terry, length_bias
    from .repeats import (
        EpochStats,
        VarianceSplit,
        epoch_stats,
        flaky,
        majority_at_k,
        pass_at_k,
        pass_hat_k,
        variance_split,
    )
    from .resampling import bootstrap_interval, permutation_test
    from .sequential import ConfidenceSequence
    from .trends import ChangePoint, Trend, change_point, linear_trend

__all__ = [
    "Z_95",
    "BradleyTerry",
    "ChangePoint",
    "ConfidenceSequence",
    "Contender",
    "CorrectedRate",
    "Difference",
    "EpochStats",
    "Interval",
    "Match",
    "Trend",
    "VarianceSplit",
    "benjamini_hochberg",
    "bootstrap_interval",
    "bradley_terry",
    "change_point",
    "clustered_rate_interval",
    "corrected_difference",
    "corrected_rate",
    "epoch_stats",
    "flaky",
    "flip_power",
    "holm",
    "krippendorff_alpha",
    "length_bias",
    "linear_trend",
    "majority_at_k",
    "mcnemar",
    "mean",
    "mean_interval",
    "minimum_detectable_effect",
    "minimum_detectable_flips",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "percentile_interval",
    "permutation_test",
    "power_of",
    "ppi_rate",
    "rate_interval",
    "samples_needed",
    "samples_needed_flips",
    "standard_error",
    "std",
    "unpaired_difference",
    "variance_split",
    "wilcoxon",
    "wilson_interval",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".agreement": "krippendorff_alpha",
        ".basic": "Z_95 mean std wilson_interval",
        ".correction": "CorrectedRate corrected_difference corrected_rate ppi_rate",
        ".differences": "Difference mcnemar paired_difference unpaired_difference wilcoxon",
        ".intervals": "Interval clustered_rate_interval mean_interval percentile_interval "
        "rate_interval standard_error",
        ".multiplicity": "benjamini_hochberg holm",
        ".power": "flip_power minimum_detectable_effect minimum_detectable_flips power_of "
        "samples_needed samples_needed_flips",
        ".rankings": "BradleyTerry Contender Match bradley_terry length_bias",
        ".repeats": "EpochStats VarianceSplit epoch_stats flaky majority_at_k pass_at_k pass_hat_k "
        "variance_split",
        ".resampling": "bootstrap_interval permutation_test",
        ".sequential": "ConfidenceSequence",
        ".trends": "ChangePoint Trend change_point linear_trend",
    },
)
