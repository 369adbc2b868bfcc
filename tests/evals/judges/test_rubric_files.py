"""Rubrics in JSON files, for outcomes and for single replies; results as training data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.cli import main
from weakincentives.contrib.importers import store_report
from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import EvalReport, EvalResult, Sample, Score, Trajectory, open_store
from weakincentives.evals.engine.fingerprint import criteria_fingerprint
from weakincentives.evals.judges import event_rubric, load_rubric, outcome_rubric
from weakincentives.evals.reporting import preference_rows, sft_rows

DATA = {
    "version": "1.1",
    "goal_text": "Book a seat.",
    "criteria": [
        {"id": "seat", "description": "Names the seat", "weight": 3, "required": True},
        {"id": "tone", "description": "Is polite", "weight": 1},
    ],
    "aggregation": "weighted_sum",
}


def example(**fields: Any) -> dict[str, Any]:
    return {"content": "Gladly!", "expected_score": 0, **fields}


def criterion(*examples: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "a", "description": "x", "examples": list(examples), **fields}


def verdict(**ratings: str) -> dict[str, Any]:
    return {
        name: {"reason": f"{name} is {rating}", "rating": rating}
        for name, rating in ratings.items()
    }


def test_an_outcome_rubric_weighs_its_criteria() -> None:
    judge = outcome_rubric(
        load_rubric(DATA), ScriptedAdapter([verdict(seat="excellent", tone="fair")])
    )
    score = judge("Seat 12A.", None)
    metrics = {metric.name: metric.value for metric in score.metrics}

    assert (score.value, score.passed) == (0.875, True)
    assert (metrics["seat"], metrics["tone"], metrics["total"]) == (1.0, 0.5, 3.5)


def test_a_required_criterion_fails_the_rubric() -> None:
    data = {
        **DATA,
        "criteria": [{**DATA["criteria"][0], "weight": 1}, {**DATA["criteria"][1], "weight": 9}],
    }  # type: ignore[dict-item]
    judge = outcome_rubric(
        load_rubric(data), ScriptedAdapter([verdict(seat="poor", tone="excellent")])
    )
    score = judge("Thank you!", None)

    assert (round(score.value, 3), score.passed) == (0.925, False)
    assert score.reason.startswith("required: seat; ")


def test_with_sum_all_criteria_have_equal_weight(tmp_path: Path) -> None:
    file = tmp_path / "rubric.json"
    file.write_text(json.dumps({**DATA, "aggregation": "sum"}))
    judge = outcome_rubric(
        load_rubric(file), ScriptedAdapter([verdict(seat="excellent", tone="wrong")])
    )

    assert judge("Seat 12A.", None).value == 0.5


def test_an_event_rubric_rates_each_reply() -> None:
    adapter = ScriptedAdapter(
        [verdict(seat="excellent", tone="good"), verdict(seat="wrong", tone="good")]
    )
    call = ToolCall("c", "find_seat", {"row": 12})
    messages = (
        ChatMessage("user", "A seat, please."),
        ChatMessage("assistant", "Let me look.", (call,)),
        ChatMessage("tool", "12A", tool_call_id="c"),
        ChatMessage("assistant", "Bye."),
    )
    score = event_rubric(load_rubric(DATA), adapter)(Trajectory(messages, "Bye."), Sample("1", "?"))
    values = [metric.value for metric in score.metrics if metric.name.startswith("event_")]

    assert sorted(values) == [0.1875, 0.9375]
    assert (score.passed, round(score.value, 4)) == (False, 0.5625)
    assert "required: seat" in score.reason
    with pytest.raises(EvaluatorError, match="the model's messages to rate"):
        event_rubric(load_rubric(DATA), adapter)("Bye.", None)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"criteria": []}, "criteria with different ids"),
        ({"criteria": [{"id": "a", "description": "x"}] * 2}, "criteria with different ids"),
        ({"criteria": [{"id": "a", "description": " "}]}, "a text for `description`"),
        ({"criteria": [{"id": "a", "description": "x", "weight": 0}]}, "a weight > 0 for 'a'"),
        ({"criteria": [criterion(scale_max=0)]}, "`scale_max` > 0 for 'a'"),
        ({"criteria": [criterion(scale=10)]}, "no field `scale` in criteria, got it - known: id,"),
        ({"judge": "gpt"}, "no field `judge` in a rubric"),
        ({"criteria": [criterion(examples=[{"content": "x"}])]}, "missing .*`expected_score`"),
        ({"criteria": [criterion(example(score=1))]}, "no field `score` in examples"),
        (
            {"criteria": [criterion(example(expected_score=7))]},
            "from 0 to 1 .* got 7",
        ),
        ({"criteria": [criterion(example(expected_score=11), scale_max=10)]}, "from 0 to 10"),
        ({"aggregation": "custom"}, "which is code"),
        ({"aggregation": "best"}, "expected a rubric"),
        ({"criteria": "all"}, "expected a rubric"),
    ],
)
def test_an_invalid_rubric_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_rubric({**DATA, **changes})


def test_examples_are_shown_to_the_judge_with_the_label_of_their_score() -> None:
    examples = [example(expected_score=7, explanation="polite, but long"), example(content="No.")]
    data = {**DATA, "criteria": [{**criterion(*examples, scale_max=10), "description": "Polite"}]}
    prompts: list[str] = []

    def judge(request: Any) -> dict[str, Any]:
        prompts.append(request.messages[0].content)
        return verdict(a="fair")

    score = outcome_rubric(load_rubric(data), ScriptedAdapter(judge))("Seat 12A.", None)

    assert (
        '- "a": Polite The goal of the task: Book a seat. '
        'Rated "good": "Gladly!" (polite, but long). Rated "wrong": "No.".'
    ) in prompts[0]
    assert score.value == 0.5


def test_all_fields_that_synth_writes_are_accepted() -> None:
    data = {**DATA, "goal_text": None, "metadata": {"owner": "x"}, "aggregation": "weighted_mean"}
    data["criteria"] = [criterion(weight=3, required=False, scale_max=None), criterion(id="b")]

    assert load_rubric(data).weights == {"a": 3.0, "b": 1.0}
    assert load_rubric({**data, "aggregation": "mean"}).weights == {"a": 1.0, "b": 1.0}


def test_a_rubric_without_examples_keeps_its_fingerprint() -> None:
    """It is the same judge as before rubrics had examples, so its calibrations stay valid."""
    judge = outcome_rubric(load_rubric(DATA), "demo/large")

    assert criteria_fingerprint(judge) == "921cd30c3291 5605f62f5b53"


# ── training data ───────────────────────────────────────────────────────────────────────────────


def judged_result(
    sample_id: str, epoch: int, answer: str, value: float, **more: Any
) -> EvalResult[Any]:
    messages = (ChatMessage("user", f"Question {sample_id}"), ChatMessage("assistant", answer))
    return EvalResult(
        sample_id,
        Score(value, criterion="judge"),
        sample=Sample(sample_id, f"Question {sample_id}"),
        trajectory=Trajectory(messages, answer),
        epoch=epoch,
        **more,
    )


RESULTS = [
    judged_result("a", 1, "bad", 0.1),
    judged_result("a", 2, "good", 0.9),
    judged_result("a", 3, "lost", 0.0, error="lost", error_source="evaluator"),
    judged_result("b", 1, "fine", 0.8),
    judged_result("b", 2, "fine too", 0.8),
]


def test_conversations_with_a_minimum_score_are_sft_data() -> None:
    rows = list(sft_rows(RESULTS, min_score=0.8))

    assert [(row["sample_id"], row["epoch"]) for row in rows] == [("a", 2), ("b", 1), ("b", 2)]
    assert rows[0]["messages"] == [
        {"role": "user", "content": "Question a"},
        {"role": "assistant", "content": "good"},
    ]
    assert [row["score"] for row in sft_rows(RESULTS, min_score=0.85, criterion="judge")] == [0.9]
    with pytest.raises(UsageError, match="expected the criterion 'tone'"):
        list(sft_rows(RESULTS, criterion="tone"))


def test_the_best_and_the_worst_epoch_are_a_preference_pair() -> None:
    (row,) = preference_rows(RESULTS)  # both epochs of b score the same

    assert (row["prompt"][0]["content"], row["sample_id"]) == ("Question a", "a")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("good", "bad")
    assert (row["chosen_score"], row["rejected_score"]) == (0.9, 0.1)
    assert list(preference_rows(RESULTS, min_gap=0.9)) == []


def test_tool_calls_have_the_format_of_chat_completions() -> None:
    call = ToolCall("c", "find", {"row": 12})
    messages = (
        ChatMessage("user", "?"),
        ChatMessage("assistant", "", (call,)),
        ChatMessage("tool", "12A", tool_call_id="c"),
    )
    result = EvalResult("x", Score(1.0), trajectory=Trajectory(messages, "12A"))
    (row,) = sft_rows([result])

    assert row["messages"][1]["tool_calls"][0]["function"] == {
        "name": "find",
        "arguments": '{"row":12}',
    }
    assert row["messages"][2]["tool_call_id"] == "c"


def test_a_run_is_exported_for_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store() as store:
        store_report(store, EvalReport(RESULTS))

    command = ["eval", "export", "--format", "sft", "--min-score", "0.85", "-o", "sft.jsonl"]
    assert main(command) == 0
    assert "Wrote 1 row of 5 results to sft.jsonl" in capsys.readouterr().err
    assert json.loads((tmp_path / "sft.jsonl").read_text())["score"] == 0.9
    assert main(["eval", "export", "--format", "preference"]) == 0
    assert json.loads(capsys.readouterr().out)["sample_id"] == "a"
    assert main(["eval", "export", "--format", "csv", "--min-score", "1"]) == 2
