"""LLM judges beyond the single one of `evals/_judge.py`.

ready_made   correctness, groundedness, tool choice, ...: one call each
rubric       several criteria in one call
rubric_files rubrics as JSON, for outcomes and for single replies
panel        several judges, one verdict
pairwise     which of two outputs is better, asked in both orders
ranking      several runs by strength, from pairwise judgements; biases of the judge
calibration  agreement of a judge with people; Cohen's kappa
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .._judge import (
        JUDGE_TEMPLATE,
        PASSING_RATINGS,
        RATING_VALUES,
        RATINGS,
        Answer,
        JudgeAdapter,
        JudgeOutput,
        JudgeParams,
        Question,
        QuotedSection,
        Rating,
        Scale,
        llm_judge,
    )
    from .calibration import Calibration, Disagreement, Label, Labelled, calibrate, calibrate_async
    from .pairwise import PairwiseJudge, Preference, Winner, pairwise_judge
    from .panel import Aggregate, judge_panel
    from .ranking import Judgement, Ranking, rank_reports, rank_reports_async
    from .ready_made import (
        READY_MADE,
        ReadyMade,
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
    from .rubric import llm_rubric
    from .rubric_files import (
        Rubric,
        RubricCriterion,
        RubricExample,
        event_rubric,
        load_rubric,
        outcome_rubric,
    )

__all__ = [
    "JUDGE_TEMPLATE",
    "PASSING_RATINGS",
    "RATINGS",
    "RATING_VALUES",
    "READY_MADE",
    "Aggregate",
    "Answer",
    "Calibration",
    "Disagreement",
    "JudgeAdapter",
    "JudgeOutput",
    "JudgeParams",
    "Judgement",
    "Label",
    "Labelled",
    "PairwiseJudge",
    "Preference",
    "Question",
    "QuotedSection",
    "Ranking",
    "Rating",
    "ReadyMade",
    "Rubric",
    "RubricCriterion",
    "RubricExample",
    "Scale",
    "Winner",
    "answer_relevance",
    "calibrate",
    "calibrate_async",
    "context_relevance",
    "correctness",
    "event_rubric",
    "goal_reached",
    "groundedness",
    "instruction_following",
    "judge_panel",
    "llm_judge",
    "llm_rubric",
    "load_rubric",
    "outcome_rubric",
    "pairwise_judge",
    "rank_reports",
    "rank_reports_async",
    "refusal",
    "safety",
    "tool_choice",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".._judge": "JUDGE_TEMPLATE PASSING_RATINGS RATINGS RATING_VALUES JudgeOutput "
        "Answer JudgeAdapter JudgeParams Question QuotedSection Rating Scale llm_judge",
        ".calibration": "Calibration Disagreement Label Labelled calibrate calibrate_async",
        ".pairwise": "PairwiseJudge Preference Winner pairwise_judge",
        ".panel": "Aggregate judge_panel",
        ".ranking": "Judgement Ranking rank_reports rank_reports_async",
        ".ready_made": "READY_MADE ReadyMade answer_relevance context_relevance correctness "
        "goal_reached groundedness instruction_following refusal safety tool_choice",
        ".rubric": "llm_rubric",
        ".rubric_files": "Rubric RubricCriterion RubricExample event_rubric load_rubric "
        "outcome_rubric",
    },
)
