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

if TYPE_CHECKING:
    from .agreement import krippendorff_alpha as krippendorff_alpha
    from .basic import Z_95 as Z_95, mean as mean, std as std, wilson_interval as wilson_interval
    from .correction import (
        CorrectedRate as CorrectedRate,
        corrected_difference as corrected_difference,
        corrected_rate as corrected_rate,
        ppi_rate as ppi_rate,
    )
    from .differences import (
        Difference as Difference,
        mcnemar as mcnemar,
        paired_difference as paired_difference,
        unpaired_difference as unpaired_difference,
        wilcoxon as wilcoxon,
    )
    from .intervals import (
        Interval as Interval,
        clustered_rate_interval as clustered_rate_interval,
        mean_interval as mean_interval,
        percentile_interval as percentile_interval,
        rate_interval as rate_interval,
        standard_error as standard_error,
    )
    from .multiplicity import benjamini_hochberg as benjamini_hochberg, holm as holm
    from .power import (
        flip_power as flip_power,
        minimum_detectable_effect as minimum_detectable_effect,
        minimum_detectable_flips as minimum_detectable_flips,
        power_of as power_of,
        samples_needed as samples_needed,
        samples_needed_flips as samples_needed_flips,
    )
    from .rankings import (
        BradleyTerry as BradleyTerry,
        Contender as Contender,
        Match as Match,
        bradley_terry as bradley_terry,
        length_bias as length_bias,
    )
    from .repeats import (
        EpochStats as EpochStats,
        VarianceSplit as VarianceSplit,
        epoch_stats as epoch_stats,
        flaky as flaky,
        majority_at_k as majority_at_k,
        pass_at_k as pass_at_k,
        pass_hat_k as pass_hat_k,
        variance_split as variance_split,
    )
    from .resampling import (
        bootstrap_interval as bootstrap_interval,
        permutation_test as permutation_test,
    )
    from .sequential import ConfidenceSequence as ConfidenceSequence
    from .trends import (
        ChangePoint as ChangePoint,
        Trend as Trend,
        change_point as change_point,
        linear_trend as linear_trend,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
