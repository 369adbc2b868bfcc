"""Evaluate agents: datasets, evaluators, runs and reports.

The names for the first weeks are here. The sub-packages have the rest:

    datasets      files of samples: formats, limits, readers; `loaders` has the `load_…` functions
    model         results, and the events of a run
    runs          the figures of a run, and `EvalReport`
    evaluators    how evaluators are written, called and combined; `evaluators.math`
    judges        LLM judges: one, ready-made ones, a rubric, a panel, pairwise; their calibration
    benchmarks    public benchmarks: their files, and evaluators of their answers
    store         where runs are kept
    engine        agents, attempts, retries, early stopping, resuming, rescoring
    distributed   the same over mailboxes: `EvalLoop`, submitting, collecting
    comparison    two runs or several, with intervals and tests; `analysis` has slices
    stats         intervals, differences, power
    audit         is the eval itself sound? and what each sample did over all runs
    review        labels of people, and what they say of judges
    reporting     JSON, CSV, Parquet, Markdown, JUnit, GitHub
    built_ins     evaluators by their names
"""

from typing import TYPE_CHECKING

# A type that was sent or stored is known once it is imported.
from ._types import (
    Dataset as Dataset,
    EvalConfig as EvalConfig,
    EvalContext as EvalContext,
    EvalRequest as EvalRequest,
    Metric as Metric,
    Sample as Sample,
    Score as Score,
)
from .model.result import EvalResult as EvalResult
from .runs.report import EvalReport as EvalReport

if TYPE_CHECKING:
    from ..rollouts import Trajectory as Trajectory
    from ..runtime.session import SessionView as SessionView
    from ._evaluators import (
        adapt as adapt,
        all_of as all_of,
        any_of as any_of,
        composite as composite,
        contains as contains,
        exact_match as exact_match,
        ignoring as ignoring,
        json_schema as json_schema,
        json_subset as json_subset,
        matches as matches,
        negate as negate,
        numeric as numeric,
        one_of as one_of,
        similar as similar,
        weighted as weighted,
        within_tolerance as within_tolerance,
    )
    from ._helpers import (
        cancel_run as cancel_run,
        collect_results as collect_results,
        collect_results_async as collect_results_async,
        submit_dataset as submit_dataset,
        submit_experiments as submit_experiments,
    )
    from ._judge import llm_judge as llm_judge
    from ._loop import EvalLoop as EvalLoop, EvalLoopConfig as EvalLoopConfig
    from ._session_evaluators import (
        all_tools_succeeded as all_tools_succeeded,
        cost_under as cost_under,
        latency_under as latency_under,
        slice_contains as slice_contains,
        token_usage_under as token_usage_under,
        tool_call_count as tool_call_count,
        tool_called as tool_called,
        tool_called_with as tool_called_with,
        tool_not_called as tool_not_called,
        tools_called_in_order as tools_called_in_order,
    )
    from .comparison.compare import compare_runs as compare_runs
    from .engine.record import record as record
    from .engine.run import evaluate as evaluate, stream as stream
    from .engine.suite import EvalSuite as EvalSuite
    from .evaluators.criteria import (
        Criterion as Criterion,
        Evaluator as Evaluator,
        criterion as criterion,
    )
    from .loaders import load_jsonl as load_jsonl
    from .model.explain import why_failed as why_failed
    from .store.location import open_store as open_store
    from .store.run_store import RunStore as RunStore
else:
    from ..internal.lazy import lazy_names as _lazy_names

    # Importable for one more version, with a warning that says from where.
    _MOVED = {
        "weakincentives": "BASELINE CONTROL Experiment",
        "weakincentives.evals.audit": (
            "AuditReport Finding Ledger LedgerEntry audit_suite read_ledger"
        ),
        "weakincentives.evals.comparison": "RunComparison compare_several",
        "weakincentives.evals.distributed": "Collector Submission mailbox_agent",
        "weakincentives.evals.engine": (
            "Agent PrepareMessages agent_of attempt endpoint_agent function_agent in_process "
            "loop_agent prompt_agent"
        ),
        "weakincentives.evals.evaluators": (
            "PASS_MARK ScoreFn SessionEvaluator Verdict environment_score is_session_aware"
        ),
        "weakincentives.evals.evaluators.math": (
            "extract_boxed_answer math_equal normalized_equal symbolic_equal"
        ),
        "weakincentives.evals.judges": (
            "JUDGE_TEMPLATE PASSING_RATINGS RATINGS RATING_VALUES Calibration Disagreement "
            "JudgeOutput JudgeParams PairwiseJudge Preference Rating Scale answer_relevance "
            "calibrate calibrate_async context_relevance correctness goal_reached groundedness "
            "instruction_following judge_panel llm_rubric pairwise_judge refusal safety "
            "tool_choice"
        ),
        "weakincentives.evals.loaders": (
            "iter_rows iter_samples load_csv load_json load_parquet load_yaml"
        ),
        "weakincentives.evals.model": (
            "ErrorDetails EvalRunCompleted EvalRunStarted FailedCriterion QuarantinedSample "
            "SampleEvaluated add_quarantine failed_criteria load_quarantine remove_quarantine"
        ),
        "weakincentives.evals.runs": "ExperimentComparison ReportWarning",
        "weakincentives.evals.store": "CriterionInfo RunManifest RunRecord StoredRow",
        "weakincentives.rollouts": "Endpoint Environment run_agent",
        "weakincentives.runtime": "SliceView",
        "weakincentives.view": "write_page",
    }
    __getattr__, __dir__ = _lazy_names(__name__, _MOVED)
