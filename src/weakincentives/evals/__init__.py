"""Evaluate agents: datasets, evaluators, runs and reports.

The names for everyday work are here. The sub-packages have more:

    datasets      files of samples: formats, limits, readers; `loaders` has the `load_…` functions
    model         results, reports and the events of a run
    evaluators    how evaluators are written, called and combined; `evaluators.math`
    judges        LLM judges: one, ready-made ones, a rubric, a panel, pairwise; their calibration
    benchmarks    public benchmarks: their files, and evaluators of their answers
    store         runs on disk
    engine        agents, attempts, retries, early stopping, resuming, rescoring
    distributed   the same over mailboxes: `EvalLoop`, submitting, collecting
    comparison    two runs or several, with intervals and tests; `analysis` has slices
    stats         intervals, differences, power; `statistics` offers them too
    audit         is the eval itself sound? and what each sample did over all runs
    reporting     HTML, JUnit, exports
"""

from typing import TYPE_CHECKING

from ..experiment import BASELINE, CONTROL, Experiment
from ..internal.error_details import ErrorDetails
from ..internal.lazy import lazy_exports as _lazy_exports
from ..rollouts import Trajectory
from ..runtime.session import SessionView, SliceView
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
from ._types import PASS_MARK, Dataset, EvalConfig, EvalContext, EvalRequest, Metric, Sample, Score
from .evaluators.criteria import (
    Criterion,
    Evaluator,
    ScoreFn,
    SessionEvaluator,
    Verdict,
    criterion,
    is_session_aware,
)
from .model.experiments import ExperimentComparison
from .model.explain import FailedCriterion, failed_criteria, why_failed
from .model.report import EvalReport, EvalResult
from .model.report_files import ReportWarning

if TYPE_CHECKING:
    from ..rollouts.agent_loop import run_agent
    from ..rollouts.endpoint import Endpoint
    from ..rollouts.environment import Environment
    from ._helpers import (
        cancel_run,
        collect_results,
        collect_results_async,
        submit_dataset,
        submit_experiments,
    )
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
    from ._loop import EvalLoop, EvalLoopConfig
    from .audit.audit import audit_suite
    from .audit.ledger import Ledger, LedgerEntry, read_ledger
    from .audit.report import AuditReport, Finding
    from .comparison.compare import compare_runs, compare_several
    from .comparison.result import RunComparison
    from .distributed.collector import Collector
    from .distributed.mailbox_agents import mailbox_agent
    from .distributed.submission import Submission
    from .engine.agents import (
        Agent,
        PrepareMessages,
        agent_of,
        endpoint_agent,
        function_agent,
        loop_agent,
        prompt_agent,
    )
    from .engine.attempts import attempt
    from .engine.processes import in_process
    from .engine.record import record
    from .engine.run import evaluate, stream
    from .engine.suite import EvalSuite
    from .evaluators.environments import environment_score
    from .evaluators.math import extract_boxed_answer, math_equal, normalized_equal, symbolic_equal
    from .judges.calibration import Calibration, Disagreement, calibrate, calibrate_async
    from .judges.pairwise import PairwiseJudge, Preference, pairwise_judge
    from .judges.panel import judge_panel
    from .judges.ready_made import (
        answer_relevance,
        context_relevance,
        correctness,
        goal_reached,
        groundedness,
        instruction_following,
        refusal,
        safety,
        tool_choice,
    )
    from .judges.rubric import llm_rubric
    from .loaders import (
        iter_rows,
        iter_samples,
        load_csv,
        load_json,
        load_jsonl,
        load_parquet,
        load_yaml,
    )
    from .model.events import EvalRunCompleted, EvalRunStarted, SampleEvaluated
    from .model.quarantine import (
        QuarantinedSample,
        add_quarantine,
        load_quarantine,
        remove_quarantine,
    )
    from .store.run_store import CriterionInfo, RunManifest, RunRecord, RunStore, StoredRow

__all__ = [
    "BASELINE",
    "CONTROL",
    "JUDGE_TEMPLATE",
    "PASSING_RATINGS",
    "PASS_MARK",
    "RATINGS",
    "RATING_VALUES",
    "Agent",
    "AuditReport",
    "Calibration",
    "Collector",
    "Criterion",
    "CriterionInfo",
    "Dataset",
    "Disagreement",
    "Endpoint",
    "Environment",
    "ErrorDetails",
    "EvalConfig",
    "EvalContext",
    "EvalLoop",
    "EvalLoopConfig",
    "EvalReport",
    "EvalRequest",
    "EvalResult",
    "EvalRunCompleted",
    "EvalRunStarted",
    "EvalSuite",
    "Evaluator",
    "Experiment",
    "ExperimentComparison",
    "FailedCriterion",
    "Finding",
    "JudgeOutput",
    "JudgeParams",
    "Ledger",
    "LedgerEntry",
    "Metric",
    "PairwiseJudge",
    "Preference",
    "PrepareMessages",
    "QuarantinedSample",
    "Rating",
    "ReportWarning",
    "RunComparison",
    "RunManifest",
    "RunRecord",
    "RunStore",
    "Sample",
    "SampleEvaluated",
    "Scale",
    "Score",
    "ScoreFn",
    "SessionEvaluator",
    "SessionView",
    "SliceView",
    "StoredRow",
    "Submission",
    "Trajectory",
    "Verdict",
    "adapt",
    "add_quarantine",
    "agent_of",
    "all_of",
    "all_tools_succeeded",
    "answer_relevance",
    "any_of",
    "attempt",
    "audit_suite",
    "calibrate",
    "calibrate_async",
    "cancel_run",
    "collect_results",
    "collect_results_async",
    "compare_runs",
    "compare_several",
    "composite",
    "contains",
    "context_relevance",
    "correctness",
    "cost_under",
    "criterion",
    "endpoint_agent",
    "environment_score",
    "evaluate",
    "exact_match",
    "extract_boxed_answer",
    "failed_criteria",
    "function_agent",
    "goal_reached",
    "groundedness",
    "ignoring",
    "in_process",
    "instruction_following",
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
    "load_quarantine",
    "load_yaml",
    "loop_agent",
    "mailbox_agent",
    "matches",
    "math_equal",
    "negate",
    "normalized_equal",
    "numeric",
    "one_of",
    "pairwise_judge",
    "prompt_agent",
    "read_ledger",
    "record",
    "refusal",
    "remove_quarantine",
    "run_agent",
    "safety",
    "similar",
    "slice_contains",
    "stream",
    "submit_dataset",
    "submit_experiments",
    "symbolic_equal",
    "token_usage_under",
    "tool_call_count",
    "tool_called",
    "tool_called_with",
    "tool_choice",
    "tool_not_called",
    "tools_called_in_order",
    "weighted",
    "why_failed",
    "within_tolerance",
]

# Judges need prompts and a store needs SQLite, which not every eval does.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "..rollouts": "Endpoint Environment run_agent",
        "._helpers": (
            "cancel_run collect_results collect_results_async submit_dataset submit_experiments"
        ),
        "._judge": "JUDGE_TEMPLATE JudgeOutput JudgeParams PASSING_RATINGS RATINGS RATING_VALUES "
        "Rating Scale llm_judge",
        "._loop": "EvalLoop EvalLoopConfig",
        ".audit.audit": "audit_suite",
        ".audit.ledger": "Ledger LedgerEntry read_ledger",
        ".audit.report": "AuditReport Finding",
        ".comparison.compare": "compare_runs compare_several",
        ".comparison.result": "RunComparison",
        ".distributed.collector": "Collector",
        ".distributed.mailbox_agents": "mailbox_agent",
        ".distributed.submission": "Submission",
        ".engine.agents": "Agent PrepareMessages agent_of endpoint_agent function_agent loop_agent "
        "prompt_agent",
        ".engine.attempts": "attempt",
        ".engine.processes": "in_process",
        ".engine.record": "record",
        ".engine.run": "evaluate stream",
        ".engine.suite": "EvalSuite",
        ".evaluators.environments": "environment_score",
        ".evaluators.math": "extract_boxed_answer math_equal normalized_equal symbolic_equal",
        ".judges.calibration": "Calibration Disagreement calibrate calibrate_async",
        ".judges.pairwise": "PairwiseJudge Preference pairwise_judge",
        ".judges.panel": "judge_panel",
        ".judges.ready_made": "answer_relevance context_relevance correctness goal_reached "
        "groundedness instruction_following refusal safety tool_choice",
        ".judges.rubric": "llm_rubric",
        ".loaders": "iter_rows iter_samples load_csv load_json load_jsonl load_parquet load_yaml",
        ".model.events": "EvalRunCompleted EvalRunStarted SampleEvaluated",
        ".model.quarantine": "QuarantinedSample add_quarantine load_quarantine remove_quarantine",
        "..view": "write_page",  # its earlier place, for one version
        ".store.run_store": "CriterionInfo RunManifest RunRecord RunStore StoredRow",
    },
)
