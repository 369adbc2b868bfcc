"""Results: the values that a run produces for each sample, and what is known about a run.

result        `EvalResult`
decision      what a run knew when its rule stopped it
selection     samples that were drawn by strata
explain       why a sample failed, in words
error_groups  errors in groups, by type and place
corrections   the pass rate of a judge, corrected by people's labels
grouping      grouping by a key, and slices by metadata
judge_calls   the prompts and answers of judges
timing        where the time of an attempt went
run_events    the events that a run publishes on its bus
versions      the versions of agent and evaluators behind the results of a queue
quarantine    samples that do not count until a date
redacted_ids  sample ids without secrets, still distinct
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...internal.error_details import ErrorDetails as ErrorDetails
    from .._types import clustered_by as clustered_by, stops_early as stops_early
    from .corrections import Correction as Correction
    from .explain import (
        FailedCriterion as FailedCriterion,
        failed_criteria as failed_criteria,
        why_failed as why_failed,
    )
    from .quarantine import (
        QuarantinedSample as QuarantinedSample,
        add_quarantine as add_quarantine,
        load_quarantine as load_quarantine,
        remove_quarantine as remove_quarantine,
    )
    from .result import ErrorSource as ErrorSource, EvalResult as EvalResult
    from .run_events import (
        EvalRunCompleted as EvalRunCompleted,
        EvalRunStarted as EvalRunStarted,
        SampleEvaluated as SampleEvaluated,
    )
    from .versions import WorkerNotice as WorkerNotice, WorkerVersion as WorkerVersion
else:
    from ...internal.lazy import lazy_names as _lazy_names

    _MOVED = {"weakincentives.evals.runs": "EvalReport ExperimentComparison ReportWarning"}
    __getattr__, __dir__ = _lazy_names(__name__, _MOVED)
