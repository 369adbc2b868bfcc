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

if TYPE_CHECKING:
    from .._judge import (
        JUDGE_TEMPLATE as JUDGE_TEMPLATE,
        PASSING_RATINGS as PASSING_RATINGS,
        RATING_VALUES as RATING_VALUES,
        RATINGS as RATINGS,
        Answer as Answer,
        JudgeAdapter as JudgeAdapter,
        JudgeOutput as JudgeOutput,
        JudgeParams as JudgeParams,
        Question as Question,
        QuotedSection as QuotedSection,
        Rating as Rating,
        Scale as Scale,
        llm_judge as llm_judge,
    )
    from .calibration import (
        Calibration as Calibration,
        Disagreement as Disagreement,
        Label as Label,
        Labelled as Labelled,
        calibrate as calibrate,
        calibrate_async as calibrate_async,
    )
    from .pairwise import (
        PairwiseJudge as PairwiseJudge,
        Preference as Preference,
        Winner as Winner,
        pairwise_judge as pairwise_judge,
    )
    from .panel import Aggregate as Aggregate, judge_panel as judge_panel
    from .ranking import (
        Judgement as Judgement,
        Ranking as Ranking,
        rank_reports as rank_reports,
        rank_reports_async as rank_reports_async,
    )
    from .ready_made import (
        READY_MADE as READY_MADE,
        ReadyMade as ReadyMade,
        answer_relevance as answer_relevance,
        context_relevance as context_relevance,
        correctness as correctness,
        goal_reached as goal_reached,
        groundedness as groundedness,
        instruction_following as instruction_following,
        refusal as refusal,
        safety as safety,
        tool_choice as tool_choice,
    )
    from .rubric import llm_rubric as llm_rubric
    from .rubric_files import (
        Rubric as Rubric,
        RubricCriterion as RubricCriterion,
        RubricExample as RubricExample,
        event_rubric as event_rubric,
        load_rubric as load_rubric,
        outcome_rubric as outcome_rubric,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
