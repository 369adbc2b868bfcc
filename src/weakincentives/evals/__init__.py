"""How good was it? Datasets, evaluators, results and reports."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
from ..experiment import BASELINE, CONTROL, Experiment
from ..rollouts import Trajectory
from ..runtime.session import SessionView, SliceView
from ._agents import Agent, function_agent
from ._attempt import attempt
from ._criterion import (
    Criterion,
    Evaluator,
    ScoreFn,
    SessionEvaluator,
    Verdict,
    criterion,
    is_session_aware,
)
from ._evaluators import (
    adapt,
    all_of,
    any_of,
    composite,
    contains,
    exact_match,
    ignoring,
    json_schema,
    json_subset,
    matches,
    negate,
    numeric,
    one_of,
    similar,
    weighted,
    within_tolerance,
)
from ._report import EvalReport, EvalResult, ExperimentComparison
from ._report_files import ReportWarning
from ._session_evaluators import (
    all_tools_succeeded,
    cost_under,
    latency_under,
    slice_contains,
    token_usage_under,
    tool_call_count,
    tool_called,
    tool_called_with,
    tool_not_called,
    tools_called_in_order,
)
from ._types import (
    PASS_MARK,
    Dataset,
    EvalConfig,
    EvalContext,
    EvalRequest,
    Metric,
    Sample,
    Score,
)
from .loaders import iter_rows, iter_samples, load_csv, load_json, load_jsonl, load_parquet

if TYPE_CHECKING:
    from ._calibration import Calibration, Disagreement, calibrate, calibrate_async
    from ._judge import (
        JUDGE_TEMPLATE,
        PASSING_RATINGS,
        RATING_VALUES,
        RATINGS,
        JudgeOutput,
        JudgeParams,
        Rating,
        Scale,
        llm_judge,
    )
    from ._judge_panel import judge_panel
    from ._pairwise import PairwiseJudge, Preference, pairwise_judge
    from ._rubric import llm_rubric

__all__ = [
    "BASELINE",
    "CONTROL",
    "JUDGE_TEMPLATE",
    "PASSING_RATINGS",
    "PASS_MARK",
    "RATINGS",
    "RATING_VALUES",
    "Agent",
    "Calibration",
    "Criterion",
    "Dataset",
    "Disagreement",
    "EvalConfig",
    "EvalContext",
    "EvalReport",
    "EvalRequest",
    "EvalResult",
    "Evaluator",
    "Experiment",
    "ExperimentComparison",
    "JudgeOutput",
    "JudgeParams",
    "Metric",
    "PairwiseJudge",
    "Preference",
    "Rating",
    "ReportWarning",
    "Sample",
    "Scale",
    "Score",
    "ScoreFn",
    "SessionEvaluator",
    "SessionView",
    "SliceView",
    "Trajectory",
    "Verdict",
    "adapt",
    "all_of",
    "all_tools_succeeded",
    "any_of",
    "attempt",
    "calibrate",
    "calibrate_async",
    "composite",
    "contains",
    "cost_under",
    "criterion",
    "exact_match",
    "function_agent",
    "ignoring",
    "is_session_aware",
    "iter_rows",
    "iter_samples",
    "json_schema",
    "json_subset",
    "judge_panel",
    "latency_under",
    "llm_judge",
    "llm_rubric",
    "load_csv",
    "load_json",
    "load_jsonl",
    "load_parquet",
    "matches",
    "negate",
    "numeric",
    "one_of",
    "pairwise_judge",
    "similar",
    "slice_contains",
    "token_usage_under",
    "tool_call_count",
    "tool_called",
    "tool_called_with",
    "tool_not_called",
    "tools_called_in_order",
    "weighted",
    "within_tolerance",
]

# Judges need prompts, which most evals do without.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "JUDGE_TEMPLATE": "._judge",
        "PASSING_RATINGS": "._judge",
        "RATINGS": "._judge",
        "RATING_VALUES": "._judge",
        "JudgeOutput": "._judge",
        "JudgeParams": "._judge",
        "Rating": "._judge",
        "Scale": "._judge",
        "llm_judge": "._judge",
        "Calibration": "._calibration",
        "Disagreement": "._calibration",
        "PairwiseJudge": "._pairwise",
        "Preference": "._pairwise",
        "calibrate": "._calibration",
        "calibrate_async": "._calibration",
        "judge_panel": "._judge_panel",
        "llm_rubric": "._rubric",
        "pairwise_judge": "._pairwise",
    },
)
