"""Is B better than A? Comparisons of runs, baselines and gates.

outcomes       what a comparison needs of a run
baseline_files  several runs pooled, and saved as a file
comparability  which runs can be compared, and what differs between others
measures       the difference in one number of two runs
compare        `compare_runs`
corrected      the difference that people would see, by their labels
run_comparison  `RunComparison`, and its verdict in words
alignment      the steps of two trajectories side by side, and where they first diverge
flips          what changed in samples whose verdict changed
matrix         two and more runs side by side, sample by sample
gates          whether a run is good enough, by itself or against a baseline
trend          whether several runs get better or worse
halving        the best of several models within a budget
vendors        two providers of one model, by their tool calls
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...internal.matching import Work as Work
    from .alignment import (
        AlignedStep as AlignedStep,
        Divergence as Divergence,
        DivergenceCount as DivergenceCount,
        FlipDivergences as FlipDivergences,
        Step as Step,
        align as align,
        count_divergences as count_divergences,
        describe_divergences as describe_divergences,
        divergence as divergence,
        flip_divergences as flip_divergences,
        steps_of as steps_of,
    )
    from .baseline_files import (
        load_baseline as load_baseline,
        pool_outcomes as pool_outcomes,
        save_baseline as save_baseline,
    )
    from .comparability import describe_differences as describe_differences
    from .compare import compare_runs as compare_runs, compare_several as compare_several
    from .flips import (
        CriterionFlip as CriterionFlip,
        FlipDetails as FlipDetails,
        FlipSide as FlipSide,
        flip_details as flip_details,
    )
    from .gates import (
        BaselineRule as BaselineRule,
        GateResult as GateResult,
        check_baseline as check_baseline,
        check_rate as check_rate,
        check_run as check_run,
    )
    from .matrix import (
        SampleVerdicts as SampleVerdicts,
        SideVerdict as SideVerdict,
        count_kinds as count_kinds,
        sample_matrix as sample_matrix,
    )
    from .outcomes import RunOutcomes as RunOutcomes, sample_clusters as sample_clusters
    from .run_comparison import (
        Flip as Flip,
        Measure as Measure,
        RunComparison as RunComparison,
        SliceComparison as SliceComparison,
    )
    from .trend import RunTrend as RunTrend, run_trend as run_trend
else:
    from ...internal.lazy import lazy_names as _lazy_names

    _MOVED = {__name__: "Slice=SliceComparison what_differs=describe_differences"}
    __getattr__, __dir__ = _lazy_names(__name__, _MOVED)
