"""EvalLoop with a main loop in the same process, as in the usage examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.seeds.loops import MathLoop, QALoop
from weakincentives import ToolCall
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalRequest,
    EvalResult,
    Sample,
    all_of,
    all_tools_succeeded,
    collect_results,
    contains,
    exact_match,
    llm_judge,
    submit_dataset,
    token_usage_under,
    tool_called,
    tool_not_called,
)
from weakincentives.runtime import ControlDispatcher, InMemoryMailbox, Mailbox


def answers(question: str) -> str:
    return "Paris" if "France" in question else "4"


def test_basic_evaluation(adapter_replying: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text(
        '{"id": "1", "input": "What is 2+2?", "expected": "4"}\n'
        '{"id": "2", "input": "Capital of France?", "expected": "Paris"}\n'
        '{"id": "3", "input": "Capital of Italy?", "expected": "Rome"}\n'
    )
    dataset = Dataset.load(path, str, str)
    requests: Mailbox[EvalRequest[str, str]] = InMemoryMailbox(name="eval-requests")
    results: Mailbox[EvalResult] = InMemoryMailbox(name="eval-results")
    bus = ControlDispatcher()
    main_loop = QALoop(adapter=adapter_replying(answers), bus=bus)
    eval_loop = EvalLoop(
        loop=main_loop,
        evaluator=exact_match,
        requests=requests,
        results=results,
    )

    submit_dataset(dataset, requests)
    eval_loop.run(max_iterations=1)
    report = collect_results(results, expected_count=len(dataset))

    assert f"Pass rate: {report.pass_rate:.1%}" == "Pass rate: 66.7%"
    assert f"Mean score: {report.mean_score:.2f}" == "Mean score: 0.67"
    assert f"Mean latency: {report.mean_latency_ms:.0f}ms".endswith("ms")
    failures = [f"{result.sample_id} - {result.score.reason}" for result in report.failed_samples()]
    assert [failure.partition(" ")[0] for failure in failures] == ["3"]


def test_multi_criteria_evaluation(adapter_replying: Callable[..., Any]) -> None:
    def judges(question: str) -> Any:
        structured = "Well-structured response" in question
        return {"reason": "so", "rating": "fair" if structured else "excellent"}

    judge_adapter = adapter_replying(judges)
    evaluator = all_of(
        contains,
        llm_judge(judge_adapter, "Factually accurate"),
        llm_judge(judge_adapter, "Well-structured response"),
    )
    requests: InMemoryMailbox[Any] = InMemoryMailbox(name="eval-requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox(name="eval-results")
    dataset = Dataset(samples=(Sample(id="1", input="Capital of France?", expected="Paris"),))
    eval_loop = EvalLoop(
        loop=QALoop(adapter=adapter_replying(answers), bus=ControlDispatcher()),
        evaluator=evaluator,
        requests=requests,
        results=results,
    )

    submit_dataset(dataset, requests)
    eval_loop.run(max_iterations=1)
    (result,) = collect_results(results, expected_count=len(dataset)).results

    assert result.error is None
    assert [score.value for score in result.scores] == [1.0, 1.0, 0.5]
    assert not result.passed


def test_session_aware_evaluation(adapter_replying: Callable[..., Any]) -> None:
    evaluator = all_of(
        exact_match,
        tool_called("calculator"),
        tool_not_called("web_search"),
        all_tools_succeeded(),
        token_usage_under(2000),
    )
    math_dataset = Dataset(
        samples=tuple(
            Sample(id=str(i), input=f"What is {a} + {b}?", expected=str(a + b))
            for i, (a, b) in enumerate([(1, 1)])
        )
    )
    call = ToolCall("call_1", "calculator", {"left": 1, "right": 1})
    requests: InMemoryMailbox[Any] = InMemoryMailbox(name="eval-requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox(name="eval-results")
    eval_loop = EvalLoop(
        loop=MathLoop(adapter=adapter_replying(call, "2"), bus=ControlDispatcher()),
        evaluator=evaluator,
        requests=requests,
        results=results,
    )

    submit_dataset(math_dataset, requests)
    eval_loop.run(max_iterations=1)
    report = collect_results(results, expected_count=len(math_dataset))

    assert report.passed == 1
