"""Benchmarks whose answers a model judges: SimpleQA, BrowseComp, HealthBench.

The judges are ours (see docs/judges.md): they pick a label after a reason, what they judge is
quoted, and an unparsable verdict is requested again, and then an error. In simple-evals it counts
as "not attempted" or "no".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import EvaluatorError, short_repr
from ...internal.checks import finite
from .._judge import (
    JUDGE_TEMPLATE,
    JudgeModel,
    JudgeOutput,
    Question,
    Scale,
    adapter_of,
    judge_adapter,
    judge_prompt,
    output_type,
    params_of,
    score_of,
    verdict_problem,
    with_output_type,
)
from .._types import EvalContext, Metric, Sample, Score
from ..evaluators.criteria import Criterion, built_in

_SIMPLEQA = Scale(
    {"correct": 1.0, "incorrect": 0.0, "not attempted": 0.0},
    frozenset({"correct"}),
    {
        "correct": "Has all of the reference answer, and nothing that contradicts it; hedging and "
        "more detail are fine, and so are other spellings and names of the same thing",
        "incorrect": "Has a statement that contradicts the reference answer, also a hedged one",
        "not attempted": "Lacks a part of the reference answer, and contradicts none of it: it "
        "declines, says that it does not know, or answers something else",
    },
)
_SIMPLEQA_CRITERION = (
    "The output answers the question as the reference answer does. Judge only what the question "
    "asks for; a number must agree to the last digit that the reference answer gives."
)
_BROWSECOMP = Scale(
    {"yes": 1.0, "no": 0.0},
    frozenset({"yes"}),
    {
        "yes": "The final answer is the reference answer, or a number within a small margin of it",
        "no": "It differs in meaning, is ambiguous, or there is no final answer",
    },
)
_BROWSECOMP_CRITERION = (
    "The final answer of the output is the reference answer. Do not solve the problem, and do not "
    "argue for another answer: compare the two."
)
_HEALTHBENCH = Scale({"met": 1.0, "not met": 0.0}, frozenset({"met"}))
_HEALTHBENCH_TASK = (
    "The output, the last turn of the conversation, has this property:\n\n{}\n\n"
    "The property may be undesirable: judge whether the output has it, not whether it is good. If "
    "there are several parts, all have to be there; of examples (such as, including) one is enough."
)


def simpleqa(adapter: JudgeModel = None) -> Criterion:
    """Judge a short answer as correct, incorrect or not attempted, as SimpleQA does.

    Only a correct one passes. The metrics `is_correct`, `is_incorrect` and `is_not_attempted` say
    which it was; `simpleqa_summary(report)` has the figures of a run.
    """
    return _judge_of("simpleqa", adapter, _SIMPLEQA_CRITERION, _SIMPLEQA)


def browsecomp(adapter: JudgeModel = None) -> Criterion:
    """Judge whether the final answer is the reference answer, yes or no, as BrowseComp does."""
    return _judge_of("browsecomp", adapter, _BROWSECOMP_CRITERION, _BROWSECOMP)


def _judge_of(name: str, adapter: Any, criterion: str, scale: Scale) -> Criterion:
    model = judge_adapter(adapter)

    async def judge(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        verdict, metrics = await _ask(name, model, criterion, scale, context)
        outcomes = [
            Metric(f"is_{label.replace(' ', '_')}", float(label == verdict.rating))
            for label in scale.labels
        ]
        return replace(score_of(verdict, scale, name), metrics=(*outcomes, *metrics))

    return built_in(name, 1, model, blocking=True, adapters=(model,))(judge)


async def _ask(
    name: str, model: Any, criterion: str, scale: Scale, context: EvalContext
) -> tuple[JudgeOutput, tuple[Metric, ...]]:
    """Return the verdict of the judge, and what it used."""
    prompt, sources = judge_prompt(JUDGE_TEMPLATE, (), None)
    question = Question(
        name,
        f"one of {', '.join(scale.labels)}",
        with_output_type(prompt, output_type(scale)),
        lambda output: verdict_problem(output, scale, f"the judge `{name}`"),
    )
    params = params_of(criterion, scale, sources, context, name)
    answer = await question.ask(adapter_of(context, model, name), params)
    return answer.output, answer.metrics


def healthbench(adapter: JudgeModel = None) -> Criterion:
    """Judge each item of the sample's rubric separately, and add up its points.

    `expected` is the rubric: a list of `{"criterion": ..., "points": ..., "tags": [...]}`. The
    value is the points of what was met, divided by all positive points: points may be negative,
    and so may the value. `healthbench_mean(report)` clips the mean of a run, and only that.
    """
    model = judge_adapter(adapter)

    async def judge(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        from ...internal.concurrency import gather

        items = _rubric(sample.expected)
        tasks = [_HEALTHBENCH_TASK.format(item["criterion"]) for item in items]
        seen = replace(context, sample=replace(sample, expected=None))
        answers = await gather(
            partial(_ask, "healthbench", model, task, _HEALTHBENCH, seen) for task in tasks
        )
        verdicts = [verdict for verdict, _ in answers]
        used: dict[str, float] = {}
        for _, metrics in answers:
            for metric in metrics:
                used[metric.name] = used.get(metric.name, 0.0) + metric.value
        return _points_score(items, verdicts, [Metric(*pair) for pair in used.items()])

    return built_in("healthbench", 1, model, blocking=True, adapters=(model,))(judge)


def _rubric(expected: Any) -> list[dict[str, Any]]:
    """Check a rubric, and return its items."""
    where = "a list of items with `criterion` and `points` as `expected`"
    if not isinstance(expected, list | tuple) or not expected:
        raise EvaluatorError(f"expected {where}, got {short_repr(expected)}")
    for item in expected:
        if not isinstance(item, Mapping) or not isinstance(item.get("criterion"), str):
            raise EvaluatorError(f"expected {where}, got {short_repr(item)}")
        finite(item.get("points"), "points")
    if not any(item["points"] > 0 for item in expected):
        raise EvaluatorError("expected a rubric with positive points, got none")
    return [dict(item) for item in expected]


def _points_score(
    items: list[dict[str, Any]], verdicts: list[JudgeOutput], used: list[Metric]
) -> Score:
    met = [verdict.rating == "met" for verdict in verdicts]  # type: ignore[comparison-overlap]
    judged = list(zip(items, met, strict=True))
    value = _share(judged)
    assert value is not None  # `_rubric` refuses one without positive points
    points = sum(item["points"] for item, is_met in judged if is_met)
    details = [
        {**item, "met": is_met, "reason": verdict.reason}
        for (item, is_met), verdict in zip(judged, verdicts, strict=True)
    ]
    metrics = [Metric("points", points, metadata={"items": details})]
    for tag in dict.fromkeys(tag for item in items for tag in item.get("tags", ())):
        of_tag = _share([each for each in judged if tag in each[0].get("tags", ())])
        if of_tag is not None:
            metrics.append(Metric(str(tag), of_tag))
    wrong = [item["criterion"] for item, is_met in judged if is_met is (item["points"] < 0)]
    reason = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return Score(value, reason=f"missed: {reason}" if wrong else "", metrics=(*metrics, *used))


def _share(judged: list[tuple[dict[str, Any], bool]]) -> float | None:
    """Return the points of what was met as a share of all positive ones; None without those."""
    possible = sum(item["points"] for item, _ in judged if item["points"] > 0)
    achieved = sum(item["points"] for item, is_met in judged if is_met)
    return achieved / possible if possible else None
