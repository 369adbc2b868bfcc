"""Is B better than A? Comparisons of runs, baselines and gates.

outcomes       what a comparison needs of a run
baselines      several runs pooled, and saved as a file
comparability  which runs can be compared, and what differs between others
columns        the outcomes of a run by column, about 150 bytes each
measures       the difference in one number of two runs
compare        `compare_runs`
corrected      the difference that people would see, by their labels
result         `RunComparison`, and its verdict in words
alignment      the steps of two trajectories side by side, and where they first diverge
flips          what changed in samples whose verdict changed
matrix         two and more runs side by side, sample by sample
gates          whether a run is good enough, by itself or against a baseline
trend          whether several runs get better or worse
halving        the best of several models within a budget
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from ...internal.matching import Work
    from .alignment import (
        AlignedStep,
        Divergence,
        DivergenceCount,
        FlipDivergences,
        Step,
        align,
        count_divergences,
        describe_divergences,
        divergence,
        flip_divergences,
        steps_of,
    )
    from .baselines import load_baseline, pool_outcomes, save_baseline
    from .comparability import describe_differences
    from .compare import compare_runs, compare_several
    from .flips import CriterionFlip, FlipDetails, FlipSide, flip_details
    from .gates import BaselineRule, GateResult, check_baseline, check_rate, check_run
    from .matrix import SampleVerdicts, SideVerdict, count_kinds, sample_matrix
    from .outcomes import RunOutcomes, sample_clusters
    from .result import Flip, Measure, RunComparison, Slice
    from .trend import RunTrend, run_trend

__all__ = [
    "AlignedStep",
    "BaselineRule",
    "CriterionFlip",
    "Divergence",
    "DivergenceCount",
    "Flip",
    "FlipDetails",
    "FlipDivergences",
    "FlipSide",
    "GateResult",
    "Measure",
    "RunComparison",
    "RunOutcomes",
    "RunTrend",
    "SampleVerdicts",
    "SideVerdict",
    "Slice",
    "Step",
    "Work",
    "align",
    "check_baseline",
    "check_rate",
    "check_run",
    "compare_runs",
    "compare_several",
    "count_divergences",
    "count_kinds",
    "describe_differences",
    "describe_divergences",
    "divergence",
    "flip_details",
    "flip_divergences",
    "load_baseline",
    "pool_outcomes",
    "run_trend",
    "sample_clusters",
    "sample_matrix",
    "save_baseline",
    "steps_of",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "...internal.matching": "Work",
        ".alignment": "AlignedStep Divergence DivergenceCount FlipDivergences Step align "
        "count_divergences describe_divergences divergence flip_divergences steps_of",
        ".baselines": "load_baseline pool_outcomes save_baseline",
        ".comparability": "describe_differences",
        ".compare": "compare_runs compare_several",
        ".flips": "CriterionFlip FlipDetails FlipSide flip_details",
        ".gates": "BaselineRule GateResult check_baseline check_rate check_run",
        ".matrix": "SampleVerdicts SideVerdict count_kinds sample_matrix",
        ".outcomes": "RunOutcomes sample_clusters",
        ".result": "Flip Measure RunComparison Slice",
        ".trend": "RunTrend run_trend",
    },
)
