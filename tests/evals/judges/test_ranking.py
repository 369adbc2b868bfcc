"""Runs ranked by a pairwise judge: strengths, and the biases of the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from weakincentives import ChatMessage, TokenUsage
from weakincentives.adapters import ModelReply, ModelRequest, ScriptedAdapter
from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import EvalReport, EvalResult, Sample, Score, Trajectory
from weakincentives.evals.judges import (
    PairwiseJudge,
    pairwise_judge,
    rank_reports,
    rank_reports_async,
)

Pick = Callable[[str, str], str]


def judge_with(pick: Pick) -> PairwiseJudge:
    """Return a judge that picks A, B or tie from the two outputs in their order in the prompt."""

    def reply(request: ModelRequest) -> ModelReply:
        lines = request.messages[1].content.splitlines()
        a, b = (json.loads(line.split(": ", 1)[1]) for line in lines if "Candidate" in line)
        text = json.dumps({"reason": "so", "winner": pick(a, b)})
        return ModelReply(message=ChatMessage("assistant", text), usage=TokenUsage(10, 5))

    return pairwise_judge(ScriptedAdapter(reply), "Better", name="better")


def prefer_higher(a: str, b: str) -> str:
    """Prefer the output with the higher number, independent of its position."""
    x, y = int(a.split()[0]), int(b.split()[0])
    return "tie" if x == y else "A" if x > y else "B"


def result(sample_id: str, output: Any, **changes: Any) -> EvalResult[Any]:
    sample = Sample(sample_id, f"question {sample_id}", "4")
    fields = {"score": Score(1.0), "sample": sample, "trajectory": Trajectory(output=output)}
    return EvalResult(sample_id, **{**fields, **changes})


def report(outputs: Sequence[Any]) -> EvalReport[Any]:
    return EvalReport([result(str(n), output) for n, output in enumerate(outputs)])


def report_at_level(level: int, count: int = 30) -> EvalReport[Any]:
    """Return a report of outputs with this number; in each ten, one is 99 and one is 0."""
    unusual = {3: 99, 7: 0}
    return report([f"{unusual.get((n + level) % 10, level):02} cats" for n in range(count)])


def test_runs_are_ranked_by_how_often_their_outputs_win() -> None:
    ranking = rank_reports(
        judge_with(prefer_higher),
        {"low": report_at_level(1), "high": report_at_level(9), "mid": report_at_level(5)},
    )

    assert [(contender.name, contender.rank) for contender in ranking.table.contenders] == [
        ("high", "1"),
        ("mid", "2"),
        ("low", "3"),
    ]
    assert ranking.consistency.estimate == 1.0
    assert ranking.position_bias.estimate == 0.5
    assert ranking.usage is not None
    assert ranking.usage.total_tokens == 15 * 3 * 30 * 2
    assert ranking.warnings == ()


def test_a_judge_of_the_position_ranks_no_run_and_its_bias_is_reported() -> None:
    ranking = rank_reports(
        judge_with(lambda a, b: "A"), {"x": report_at_level(1), "y": report_at_level(9)}
    )

    assert [contender.rank for contender in ranking.table.contenders] == ["1-2", "1-2"]
    assert ranking.position_bias.estimate == 1.0
    assert ranking.consistency.estimate == 0.0
    assert "the judge prefers the output that stands first" in ranking.warnings[0]


def test_a_judge_that_prefers_long_outputs_is_reported() -> None:
    first = report(["x" * (10 if n % 3 else 2) for n in range(60)])
    second = report(["y" * (5 if n % 2 else 7) for n in range(60)])

    def prefer_longer(a: str, b: str) -> str:
        return "A" if len(a) > len(b) else "B"

    ranking = rank_reports(judge_with(prefer_longer), {"x": first, "y": second})

    assert ranking.length_bias.low > 0.6
    assert any("prefers longer outputs" in warning for warning in ranking.warnings)
    assert "the longer of two equally good outputs wins: 9" in str(ranking)


def test_an_agent_that_raised_loses_and_infrastructure_is_left_out() -> None:
    good = [result(str(n), "5 cats") for n in range(6)]
    bad = [result(str(n), "5 dogs") for n in range(4)]
    bad += [
        result("4", None, error="boom", error_source="agent"),
        result("5", None, error="503", error_source="infrastructure"),
    ]

    ranking = rank_reports(
        judge_with(prefer_higher), {"good": EvalReport(good), "bad": EvalReport(bad)}
    )

    assert ranking.table.contenders[0].name == "good"
    assert ranking.left_out == 1
    assert len(ranking.judgements) == 5
    assert ranking.usage is not None
    assert ranking.usage.total_tokens == 15 * 4 * 2  # the judge is not called for the other two
    assert ranking.warnings == (
        "1 comparison decided by an error of an agent, which loses",
        "1 attempt left out because of infrastructure errors",
    )


def test_samples_that_differ_between_the_runs_are_left_out() -> None:
    other = Sample("0", "another question", "4")
    changed = EvalReport([result("0", "9 cats", sample=other), *report_at_level(9, 5).results[1:]])

    ranking = rank_reports(judge_with(prefer_higher), {"a": report_at_level(1, 5), "b": changed})

    assert (ranking.changed, ranking.table.samples) == (1, 4)


def test_epochs_of_one_sample_are_one_observation() -> None:
    def with_second_epoch(report: EvalReport[Any]) -> EvalReport[Any]:
        second_epoch = [result(each.sample_id, each.output, epoch=2) for each in report.results]
        return EvalReport([*report.results, *second_epoch])

    once = {"a": report_at_level(1), "b": report_at_level(5)}
    twice = {name: with_second_epoch(each) for name, each in once.items()}

    assert rank_reports(judge_with(prefer_higher), twice).table.samples == 30
    assert (
        rank_reports(judge_with(prefer_higher), twice).table.contenders
        == rank_reports(judge_with(prefer_higher), once).table.contenders
    )


def test_equal_outputs_tie_without_a_call_of_the_judge() -> None:
    ranking = rank_reports(
        judge_with(prefer_higher), {"a": report_at_level(5), "b": report_at_level(5)}
    )

    assert ranking.usage is None
    assert [contender.rank for contender in ranking.table.contenders] == ["1-2", "1-2"]
    assert "the output that stands first wins: unknown" in str(ranking)


@pytest.mark.anyio
async def test_a_comparison_without_a_verdict_is_not_counted() -> None:
    def sometimes_invalid(a: str, b: str) -> str:
        return "neither" if "00 cats" in (a, b) else prefer_higher(a, b)

    ranking = await rank_reports_async(
        judge_with(sometimes_invalid), {"a": report_at_level(1), "b": report_at_level(9)}
    )

    assert len(ranking.errors) == 6
    assert len(ranking.judgements) == 24
    assert "expected A, B or tie" in ranking.errors[0][1]


def test_a_judge_that_never_gives_a_verdict_is_an_error() -> None:
    with pytest.raises(EvaluatorError, match="expected answers from the judge `better`, got none"):
        rank_reports(
            judge_with(lambda a, b: "neither"),
            {"a": report_at_level(1, 2), "b": report_at_level(9, 2)},
        )


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ({"a": report_at_level(1)}, "at least two reports"),
        ({"a": report_at_level(1, 1), "b": report([])}, "samples that all of a, b have"),
        ({name: EvalReport([result("1", name, sample=None)]) for name in "ab"}, "their samples"),
    ],
)
def test_reports_that_cannot_be_compared_are_refused(
    reports: dict[str, EvalReport[Any]], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        rank_reports(judge_with(prefer_higher), reports)


def test_a_judge_of_single_outputs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected a `pairwise_judge\(...\)`"):
        rank_reports(prefer_higher, {"a": report_at_level(1), "b": report_at_level(2)})  # type: ignore[arg-type]
