"""Runs ranked by a pairwise judge: strengths, and how far the judge can be trusted."""

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


def judge(pick: Pick) -> PairwiseJudge:
    """A judge that picks A, B or tie by the two outputs, in the order in which it sees them."""

    def reply(request: ModelRequest) -> ModelReply:
        lines = request.messages[1].content.splitlines()
        a, b = (json.loads(line.split(": ", 1)[1]) for line in lines if "Candidate" in line)
        text = json.dumps({"reason": "so", "winner": pick(a, b)})
        return ModelReply(message=ChatMessage("assistant", text), usage=TokenUsage(10, 5))

    return pairwise_judge(ScriptedAdapter(reply), "Better", name="better")


def higher(a: str, b: str) -> str:
    """Prefer the output with the higher number, wherever it stands."""
    x, y = int(a.split()[0]), int(b.split()[0])
    return "tie" if x == y else "A" if x > y else "B"


def result(sample_id: str, output: Any, **more: Any) -> EvalResult[Any]:
    sample = Sample(sample_id, f"question {sample_id}", "4")
    fields = {"score": Score(1.0), "sample": sample, "trajectory": Trajectory(output=output)}
    return EvalResult(sample_id, **{**fields, **more})


def report(outputs: Sequence[Any]) -> EvalReport[Any]:
    return EvalReport([result(str(n), output) for n, output in enumerate(outputs)])


def numbers(level: int, count: int = 30) -> EvalReport[Any]:
    """Outputs with the number of the level; of each ten, one is the highest and one the lowest."""
    unusual = {3: 99, 7: 0}
    return report([f"{unusual.get((n + level) % 10, level):02} cats" for n in range(count)])


def test_runs_are_ranked_by_how_often_their_outputs_win() -> None:
    ranking = rank_reports(
        judge(higher), {"low": numbers(1), "high": numbers(9), "mid": numbers(5)}
    )

    assert [(each.name, each.rank) for each in ranking.table.contenders] == [
        ("high", "1"),
        ("mid", "2"),
        ("low", "3"),
    ]
    assert ranking.consistency.estimate == 1.0
    assert ranking.position_bias.estimate == 0.5
    assert ranking.usage is not None
    assert ranking.usage.total_tokens == 15 * 3 * 30 * 2
    assert ranking.warnings == ()


def test_a_judge_that_sees_the_place_alone_ranks_nobody_and_is_found_out() -> None:
    ranking = rank_reports(judge(lambda a, b: "A"), {"x": numbers(1), "y": numbers(9)})

    assert [each.rank for each in ranking.table.contenders] == ["1-2", "1-2"]
    assert ranking.position_bias.estimate == 1.0
    assert ranking.consistency.estimate == 0.0
    assert "the judge prefers the output that stands first" in ranking.warnings[0]


def test_a_judge_that_likes_long_outputs_is_found_out() -> None:
    first = report(["x" * (10 if n % 3 else 2) for n in range(60)])
    second = report(["y" * (5 if n % 2 else 7) for n in range(60)])

    def longer(a: str, b: str) -> str:
        return "A" if len(a) > len(b) else "B"

    ranking = rank_reports(judge(longer), {"x": first, "y": second})

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

    ranking = rank_reports(judge(higher), {"good": EvalReport(good), "bad": EvalReport(bad)})

    assert ranking.table.contenders[0].name == "good"
    assert ranking.left_out == 1
    assert len(ranking.judgements) == 5
    assert ranking.usage is not None
    assert ranking.usage.total_tokens == 15 * 4 * 2  # not asked about the other two
    assert ranking.warnings == (
        "1 comparison decided by an error of an agent, which loses",
        "1 attempt left out because of infrastructure errors",
    )


def test_samples_that_differ_between_the_runs_are_left_out() -> None:
    other = Sample("0", "another question", "4")
    changed = EvalReport([result("0", "9 cats", sample=other), *numbers(9, 5).results[1:]])

    ranking = rank_reports(judge(higher), {"a": numbers(1, 5), "b": changed})

    assert (ranking.changed, ranking.table.samples) == (1, 4)


def test_epochs_of_one_sample_are_one_observation() -> None:
    def epochs(report: EvalReport[Any]) -> EvalReport[Any]:
        again = [result(each.sample_id, each.output, epoch=2) for each in report.results]
        return EvalReport([*report.results, *again])

    once = {"a": numbers(1), "b": numbers(5)}
    twice = {name: epochs(each) for name, each in once.items()}

    assert rank_reports(judge(higher), twice).table.samples == 30
    assert (
        rank_reports(judge(higher), twice).table.contenders
        == rank_reports(judge(higher), once).table.contenders
    )


def test_equal_outputs_tie_without_a_question() -> None:
    ranking = rank_reports(judge(higher), {"a": numbers(5), "b": numbers(5)})

    assert ranking.usage is None
    assert [each.rank for each in ranking.table.contenders] == ["1-2", "1-2"]
    assert "the output that stands first wins: unknown" in str(ranking)


@pytest.mark.anyio
async def test_a_question_without_an_answer_counts_for_nobody() -> None:
    def moody(a: str, b: str) -> str:
        return "neither" if "00 cats" in (a, b) else higher(a, b)

    ranking = await rank_reports_async(judge(moody), {"a": numbers(1), "b": numbers(9)})

    assert len(ranking.errors) == 6
    assert len(ranking.judgements) == 24
    assert "expected A, B or tie" in ranking.errors[0][1]


def test_a_judge_that_never_answers_is_an_error() -> None:
    with pytest.raises(EvaluatorError, match="expected answers of the judge `better`, got none"):
        rank_reports(judge(lambda a, b: "neither"), {"a": numbers(1, 2), "b": numbers(9, 2)})


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ({"a": numbers(1)}, "at least two reports"),
        ({"a": numbers(1, 1), "b": report([])}, "samples that all of a, b have"),
        ({name: EvalReport([result("1", name, sample=None)]) for name in "ab"}, "their samples"),
    ],
)
def test_reports_that_cannot_be_compared_are_refused(
    reports: dict[str, EvalReport[Any]], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        rank_reports(judge(higher), reports)


def test_a_judge_of_single_outputs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected a `pairwise_judge\(...\)`"):
        rank_reports(higher, {"a": numbers(1), "b": numbers(2)})  # type: ignore[arg-type]
