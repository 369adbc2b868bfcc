"""Rubrics: one call gives a verdict for each of several criteria, or an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judging import SAMPLE, Plain, Recording, saying, values, verdict
from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import EvalContext, EvalReport, Sample, composite, llm_judge
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.evals.judges import JudgeOutput, Scale
from weakincentives.evals.judges.rubric import llm_rubric

CRITERIA = {"accuracy": "Factually accurate", "tone": "Polite"}


def test_a_rubric_is_one_call_and_one_score_with_a_metric_for_each_criterion() -> None:
    model = Recording({"accuracy": verdict("good", "right"), "tone": verdict("poor", "rude")})

    score = llm_rubric(ScriptedAdapter(model), CRITERIA)("out", "4")

    assert len(model.requests) == 1
    assert (score.value, score.passed, score.criterion) == (0.5, False, "rubric")
    assert score.reason == "accuracy: right; tone: rude"
    assert [(part.criterion, part.value, part.passed) for part in score.parts] == [
        ("accuracy", 0.75, True),
        ("tone", 0.25, False),
    ]
    assert "judge_tokens" in values(score)
    assert (
        '- "accuracy": Factually accurate\n- "tone": Polite'
        in model.requests[0].messages[0].content
    )


@pytest.mark.anyio
async def test_a_report_has_each_criterion_of_a_rubric() -> None:
    rubric = llm_rubric(
        saying({"accuracy": verdict("good"), "tone": verdict("excellent")}), CRITERIA
    )
    result = await attempt(function_agent(str.upper), Sample("1", "in", "IN"), rubric)

    report = EvalReport((result,))
    assert report.scores_by_criterion == {"accuracy": 0.75, "tone": 1.0}


def test_weights_are_applied_and_weight_0_is_only_recorded() -> None:
    answer = {"accuracy": verdict("good"), "tone": verdict("wrong")}

    heavy = llm_rubric(saying(answer), CRITERIA, weights={"accuracy": 3})("o", "e")
    tracked = llm_rubric(saying(answer), CRITERIA, weights={"tone": 0}, name="mine")("o", "e")

    assert heavy.value == pytest.approx(0.75 * 3 / 4)
    assert not heavy.passed
    assert (tracked.value, tracked.passed, tracked.criterion) == (0.75, True, "mine")
    assert values(tracked)["tone"] == 0.0


def test_a_rubric_can_have_any_names_and_a_custom_scale() -> None:
    scale = Scale({"yes": 1.0, "no": 0.0}, frozenset({"yes"}))
    model = Recording({"Well-formatted, really?": verdict("yes"), "judge_tokens": verdict("no")})
    criteria = {"Well-formatted, really?": "Markdown", "judge_tokens": "A name of ours"}

    score = llm_rubric(ScriptedAdapter(model), criteria, scale=scale)("o", "e")

    assert score.value == 0.5
    names = [metric.name for metric in score.metrics]
    assert len(set(names)) == len(names) == 3
    schema: Any = model.requests[0].output_schema
    assert set(schema["required"]) == set(criteria)
    assert schema["additionalProperties"] is False


def test_a_composite_has_each_criterion_of_a_rubric_and_uses_the_adapter_of_the_context() -> None:
    both = composite(llm_rubric(CRITERIA), llm_judge("Brief"))

    def model(request: ModelRequest) -> Any:
        several = "several criteria" in request.messages[0].content
        good = verdict("good")
        return {"accuracy": good, "tone": good} if several else good

    scores = both(SAMPLE, "4", context=EvalContext(adapter=ScriptedAdapter(model)))
    assert [score.criterion for score in scores] == ["accuracy", "tone", "Brief"]
    with pytest.raises(EvaluatorError, match="the judge `rubric` has no adapter"):
        llm_rubric(CRITERIA)("o", "e")


@pytest.mark.parametrize(
    "answer",
    [
        {"accuracy": verdict("good")},
        {"accuracy": verdict("good"), "tone": verdict("good"), "style": verdict("good")},
        {"accuracy": verdict("good"), "style": verdict("good")},
        {"accuracy": verdict("good"), "tone": verdict("splendid")},
        {"accuracy": verdict("good"), "tone": {"rating": "good"}},
        {"accuracy": verdict("good"), "tone": "good"},
        verdict("good"),
        "All fine.",
        TimeoutError("too slow"),
    ],
)
def test_an_incomplete_reply_is_an_error(answer: Any) -> None:
    with pytest.raises(EvaluatorError, match="rubric"):
        llm_rubric(ScriptedAdapter(Recording(answer)), CRITERIA)("o", "e")


RIGHT: Any = JudgeOutput(reason="r", rating="good")


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (None, "expected a verdict on each of accuracy, tone .* got None"),
        ({"accuracy": RIGHT}, "expected a verdict on each of accuracy, tone"),
        ({"accuracy": RIGHT, "tone": "good"}, "expected a verdict from the judge, got 'good'"),
        ({"accuracy": RIGHT, "tone": JudgeOutput(reason="", rating=9)}, "for `tone`, got 9"),
    ],
)
def test_an_incomplete_reply_of_a_users_adapter_is_an_error(output: Any, problem: str) -> None:
    with pytest.raises(EvaluatorError, match=problem):
        llm_rubric(Plain(output), CRITERIA)("o", "e")

    score = llm_rubric(Plain({"accuracy": RIGHT, "tone": RIGHT}), CRITERIA)("o", "e")
    assert (score.value, values(score)["judge_cost"]) == (0.75, 0.5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: llm_rubric(),
        lambda: llm_rubric({}),
        lambda: llm_rubric(saying(), {}),
        lambda: llm_rubric(saying(), ["accuracy"]),
        lambda: llm_rubric("adapter", CRITERIA),
        lambda: llm_rubric(saying(), {"accuracy": ""}),
        lambda: llm_rubric(saying(), {" ": "x"}),
        lambda: llm_rubric(saying(), CRITERIA, weights={"style": 1}),
        lambda: llm_rubric(saying(), CRITERIA, weights={"tone": -1}),
        lambda: llm_rubric(saying(), CRITERIA, weights={"tone": 0, "accuracy": 0}),
    ],
)
def test_misuse_is_refused(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()
