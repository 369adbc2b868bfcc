"""The explanation of a failure, which is the same in every output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from weakincentives.evals import (
    Criterion,
    EvalResult,
    Metric,
    Sample,
    Score,
    Trajectory,
    all_of,
    any_of,
    composite,
    contains,
    criterion,
    exact_match,
    matches,
    negate,
    weighted,
    why_failed,
)
from weakincentives.evals.model import ErrorDetails, FailedCriterion, failed_criteria
from weakincentives.evals.model.explain import failure_message, type_mismatch
from weakincentives.evals.model.judge_calls import JudgeCall, judge_labels

BRIEF = Metric("brief", 0.0, 1, {"passed": False, "reason": "too long"})
EXACT = Metric("exact", 0.0, 1, {"passed": False})
SAMPLE = Sample("1", "2 + 2", "4")
GOT = "got '5', expected '4'"


@pytest.mark.parametrize(
    ("score", "changes", "explanation"),
    [
        (Score(0.0, reason="off by one"), {}, "off by one"),
        (Score(0.0, reason="off by one", criterion="sum"), {}, "sum: off by one"),
        (Score(0.0, criterion="exact"), {}, "exact: failed with 0"),
        (Score(0.0), {}, "failed with 0"),
        (Score(metrics=(BRIEF, EXACT)), {}, "brief: too long; exact: failed with 0"),
        (Score(metrics=(EXACT,)), {}, "exact: failed with 0"),
        (Score(reason="the user's", metrics=(EXACT,)), {}, "the user's"),
        (Score(0.0), {"error": "boom"}, "agent: boom"),
        (Score(0.0), {"error": "boom", "error_source": "evaluator"}, "evaluator: boom"),
        (
            Score(0.0),
            {"error": "division by zero", "error_details": ErrorDetails("ZeroDivisionError")},
            "agent: ZeroDivisionError: division by zero",
        ),
        (Score(1.0, reason="equal"), {}, "equal"),
        (Score(1.0), {}, ""),
    ],
)
def test_a_failure_is_explained(score: Score, changes: dict[str, Any], explanation: str) -> None:
    fields = {"sample": SAMPLE, "trajectory": Trajectory(output="5"), **changes}

    assert why_failed(EvalResult("1", score, **fields)) == explanation


def test_a_failure_message_has_the_score() -> None:
    result = EvalResult("1", Score(0.25, reason="off by one"))

    assert failure_message(result) == "score 0.25 does not pass: off by one"


# ── combinations ────────────────────────────────────────────────────────────────────────────────


def judge(name: str, value: float, reason: str = "", passed: bool | None = None) -> Criterion:
    return criterion(lambda output, expected: Score(value, passed, reason), name=name)


GOOD, BAD = judge("polite", 1.0, "It is polite."), judge("cites", 0.0, "It cites nothing.")


def failed(evaluator: Criterion, output: Any = "5", expected: Any = "4") -> list[str]:
    """Return the failed criteria, after a check that the reason of the score names them."""
    score = evaluator(output, expected)
    result = EvalResult("1", score, sample=SAMPLE, trajectory=Trajectory(output=output))
    criteria = failed_criteria(result)
    assert bool(criteria) is not score.passed
    assert not score.parts or all(failure.criterion in score.reason for failure in criteria)
    return [str(failure) for failure in criteria]


@pytest.mark.parametrize("combine", [all_of, composite])
def test_only_the_parts_that_failed_are_named(combine: Any) -> None:
    evaluator = combine(GOOD, BAD, contains)

    assert failed(evaluator) == [
        "cites: It cites nothing.",
        "contains: got '5', expected it to contain '4'",
    ]
    assert "polite" not in evaluator("5", "4").reason


def test_every_part_of_any_of_is_named() -> None:
    assert failed(any_of(BAD, exact_match)) == ["cites: It cites nothing.", f"exact_match: {GOT}"]


def test_an_evaluator_of_a_bool_or_a_number_is_explained_by_what_it_returned() -> None:
    short = criterion(lambda output, expected: False, name="short")
    close = criterion(lambda output, expected: 0.1 + 0.2, name="close")

    assert failed(all_of(GOOD, short)) == ["short: returned False"]
    assert failed(negate(negate(short))) == ["not_not_short: not_short passed: returned False"]
    assert failed(close) == ["close: returned 0.3"]


def test_a_part_without_a_reason_is_named_too() -> None:
    assert failed(all_of(GOOD, judge("short", 0.0))) == ["short: failed with 0"]


def test_the_reason_of_a_judge_begins_with_its_label() -> None:
    def call(judge: str, answer: str, problem: str = "") -> JudgeCall:
        return JudgeCall(judge, (), answer, problem)

    tone = call("rubric", '{"tone": {"reason": "Rude.", "rating": "poor"}}')
    correct = call("correct", 'Well: {"reason": "", "rating": "partly correct"}')
    unusable = call("correct", '{"rating": "quite"}', "expected one of ...")
    score = all_of(judge("correct", 0.25, "No year."), judge("tone", 0.0))("5", "4")
    calls = (unusable, correct, tone)

    assert why_failed(EvalResult("1", score, judge_calls=calls)) == (
        "correct: partly correct: No year.; tone: poor: failed with 0"
    )
    other = call("correct", '{"rating": "wrong"}')
    assert judge_labels((*calls, other)) == {"tone": "poor"}


def test_a_combination_is_explained_by_its_own_parts() -> None:
    inner = all_of(GOOD, BAD)

    assert failed(all_of(inner, exact_match)) == [
        "cites: It cites nothing.",
        f"exact_match: {GOT}",
    ]
    assert failed(all_of(GOOD, any_of(BAD, matches("z")))) == [
        "cites: It cites nothing.",
        "matches: got '5', no match: z",
    ]
    assert failed(all_of(all_of(inner, GOOD), all_of(GOOD, all_of(GOOD, GOOD)))) == [
        "cites: It cites nothing."
    ]


def test_parts_with_the_same_name_are_distinguished() -> None:
    evaluator = all_of(all_of(judge("fit", 0.0, "a")), all_of(judge("fit", 0.0, "b")))

    assert failed(evaluator) == ["fit: a", "all_of_2/fit: b"]


def test_the_parts_that_lower_a_weighted_mean_are_named() -> None:
    fair, poor = judge("fair", 0.75), judge("poor", 0.5, "It rambles.")

    assert failed(weighted((GOOD, 1), (fair, 1), (poor, 2), pass_mark=0.8)) == [
        "poor: its value of 0.5 lowers the mean to 0.6875: It rambles.",
    ]
    assert failed(weighted((GOOD, 1), (BAD, 3))) == ["cites: It cites nothing."]
    assert failed(weighted((judge("a", 0.0), 1), (BAD, 0))) == ["a: failed with 0"]
    assert failed(all_of(weighted((judge("a", 0.0, "no"), 1), (BAD, 0)))) == ["a: no"]


def test_a_negation_fails_because_its_part_passed() -> None:
    assert failed(negate(GOOD)) == ["not_polite: polite passed: It is polite."]
    assert negate(BAD)("5", "4").reason == "It cites nothing."


def test_a_score_that_passed_has_the_reasons_of_the_parts_that_passed() -> None:
    assert any_of(GOOD, BAD)("5", "4").reason == "polite: It is polite."
    assert all_of(GOOD, exact_match)("4", "4").reason == "polite: It is polite."
    assert all_of(contains, exact_match)("4", "4").reason == ""


def test_invalid_names_of_parts_are_ignored() -> None:
    invalid = [["a"], [1, None], "a", ["b"], {"a": 1}]
    metrics = [
        Metric(name, 0.0, 1, {"parts": parts}) for name, parts in zip("abcde", invalid, strict=True)
    ]
    loop = [Metric(name, 0.0, 1, {"parts": [other]}) for name, other in ("xy", "yz", "zy")]
    result = EvalResult("1", Score(metrics=[*metrics, *loop]))

    assert failed_criteria(result)


# ── types that can never be equal ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class QAOutput:
    answer: str


def test_a_run_whose_outputs_can_never_be_equal_gets_a_warning() -> None:
    def result(output: Any) -> EvalResult[Any]:
        return EvalResult("1", exact_match(output, "4"))

    assert type_mismatch([result(QAOutput("4")), result(QAOutput("5"))]) == (
        "every sample failed because outputs are `QAOutput` and expected values are `str`, which "
        "are never equal - return a `str` from the agent, or compare a field of the output in an "
        "evaluator"
    )
    assert type_mismatch([]) == ""
    assert type_mismatch([result(QAOutput("4")), result("4")]) == ""
    assert type_mismatch([result(QAOutput("4")), result("5")]) == ""
    assert type_mismatch([result(QAOutput("4")), result(["4"])]) == ""


def test_a_failed_criterion_is_a_pair() -> None:
    name, reason = FailedCriterion("brief", "too long")

    assert (name, reason) == ("brief", "too long")
