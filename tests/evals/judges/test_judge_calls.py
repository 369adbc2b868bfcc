"""Prompts and replies of judges are stored with the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import (
    Dataset,
    EvalResult,
    EvalSuite,
    Sample,
    exact_match,
    llm_judge,
    open_store,
)
from weakincentives.evals.judges import llm_rubric
from weakincentives.evals.model.judge_calls import MAX_CHARS

GOOD = {"reason": "It is right.", "rating": "good"}


def stored_result(*evaluators: Any, path: Path, output: str = "Paris") -> EvalResult[Any]:
    dataset = Dataset([Sample("1", "Capital of France?", "Paris")])
    suite = EvalSuite(lambda question: output, dataset, [*evaluators])
    with open_store(path) as store:
        run_id = suite.run(store=store, progress=False).run_id
        return store.report(run_id).results[0]


def test_prompt_and_answer_are_stored_with_tokens(tmp_path: Path) -> None:
    judge = llm_judge(ScriptedAdapter([GOOD], model="m"), "It is right.", name="right")
    (call,) = stored_result(exact_match, judge, path=tmp_path / "runs.db").judge_calls
    assert (call.judge, call.model, call.problem) == ("right", "m", "")
    assert [message.role for message in call.messages] == ["system", "user"]
    assert "It is right." in call.messages[0].content
    assert '"Paris"' in call.messages[1].content
    assert '"rating":"good"' in call.answer.replace(" ", "")
    assert call.usage is not None


def test_a_repeated_request_has_the_problem_of_the_first_reply(tmp_path: Path) -> None:
    judge = llm_judge(ScriptedAdapter(["no idea", GOOD]), "It is right.", name="right")
    first, second = stored_result(judge, path=tmp_path / "runs.db").judge_calls
    assert "expected" in first.problem
    assert (first.answer, second.problem) == ("", "")


def test_all_judge_calls_of_a_result_are_stored_and_long_texts_truncated(tmp_path: Path) -> None:
    rubric = llm_rubric(ScriptedAdapter([{"a": GOOD, "b": GOOD}]), {"a": "One", "b": "Two"})
    judge = llm_judge(ScriptedAdapter([GOOD]), "It is right.", name="right")
    result = stored_result(rubric, judge, path=tmp_path / "runs.db", output="x" * 3 * MAX_CHARS)
    assert {call.judge for call in result.judge_calls} == {"rubric", "right"}
    assert all(len(m.content) <= MAX_CHARS for c in result.judge_calls for m in c.messages)
