"""Results and reports: the values that a run produces.

result        `EvalResult`
report        `EvalReport`
decision      what a run knew when its rule stopped it
selection     samples that were drawn by strata
explain       why a sample failed, in words
errors        errors in groups, by type and place
corrections   the pass rate of a judge, corrected by people's labels
report_files  a report as a folder of JSON
experiments   two experiments of one report, compared
grouping      grouping by a key, and slices by metadata
events        the events that a run publishes on its bus
versions      the versions of agent and evaluators behind the results of a queue
quarantine    samples that do not count until a date
redacted_ids  sample ids without secrets, still distinct
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from ...internal.error_details import ErrorDetails
    from .._types import clustered_by, stops_early
    from .corrections import Correction
    from .events import EvalRunCompleted, EvalRunStarted, SampleEvaluated
    from .experiments import ExperimentComparison
    from .explain import FailedCriterion, failed_criteria, why_failed
    from .quarantine import (
        QuarantinedSample,
        add_quarantine,
        load_quarantine,
        remove_quarantine,
    )
    from .report import EvalReport
    from .report_files import ReportWarning
    from .result import ErrorSource, EvalResult
    from .versions import WorkerNotice, WorkerVersion

__all__ = [
    "Correction",
    "ErrorDetails",
    "ErrorSource",
    "EvalReport",
    "EvalResult",
    "EvalRunCompleted",
    "EvalRunStarted",
    "ExperimentComparison",
    "FailedCriterion",
    "QuarantinedSample",
    "ReportWarning",
    "SampleEvaluated",
    "WorkerNotice",
    "WorkerVersion",
    "add_quarantine",
    "clustered_by",
    "failed_criteria",
    "load_quarantine",
    "remove_quarantine",
    "stops_early",
    "why_failed",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".._types": "clustered_by stops_early",
        ".corrections": "Correction",
        ".events": "EvalRunCompleted EvalRunStarted SampleEvaluated",
        ".experiments": "ExperimentComparison",
        ".explain": "FailedCriterion failed_criteria why_failed",
        ".quarantine": "QuarantinedSample add_quarantine load_quarantine remove_quarantine",
        ".report": "EvalReport",
        ".report_files": "ReportWarning",
        ".result": "ErrorDetails ErrorSource EvalResult",
        ".versions": "WorkerNotice WorkerVersion",
    },
)
