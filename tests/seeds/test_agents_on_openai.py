"""The agents of the specifications in async code, with a script and with OpenAI's SDK.

`EvalLoop` takes samples from mailboxes; here each sample is one `attempt`, as in `EvalLoop`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.seeds.loops import MathLoop, PlanStep, QALoop, agent_of
from weakincentives import MainLoop, ToolCall
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.evals import (
    Dataset,
    EvalContext,
    EvalReport,
    Sample,
    all_of,
    all_tools_succeeded,
    contains,
    exact_match,
    llm_judge,
    slice_contains,
    token_usage_under,
    tool_called,
    tool_not_called,
)
from weakincentives.evals.engine import attempt
from weakincentives.evals.judges import RATING_VALUES, JudgeOutput
from weakincentives.runtime import ControlDispatcher
from weakincentives.testing import Fault, ModelServer, Reply

pytestmark = pytest.mark.anyio

MakeAdapter = Callable[..., Any]

MATH = all_of(
    exact_match,  # Correct answer
    tool_called("calculator"),  # Must use calculator
    tool_not_called("web_search"),  # No external lookups for math
    all_tools_succeeded(),  # No tool errors
    token_usage_under(2000),  # Efficient execution
)
SUM = ToolCall("call_1", "calculator", {"left": 2, "right": 3})


async def evaluate_with_loop(
    loop: MainLoop[Any, Any], dataset: Dataset[Any, Any], evaluator: Any
) -> EvalReport[Any]:
    agent = agent_of(loop)
    return EvalReport(tuple([await attempt(agent, sample, evaluator) for sample in dataset]))


async def test_basic_evaluation(adapter_replying: MakeAdapter, tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text(
        '{"id": "1", "input": "What is 2+2?", "expected": "4"}\n'
        '{"id": "2", "input": "Capital of France?", "expected": "Paris"}\n'
    )
    dataset = Dataset.load(path, str, str)
    main_loop = QALoop(adapter=adapter_replying("4", "Lyon"), bus=ControlDispatcher())

    report = await evaluate_with_loop(main_loop, dataset, exact_match)

    assert f"Pass rate: {report.pass_rate:.1%}" == "Pass rate: 50.0%"
    assert f"Mean score: {report.mean_score:.2f}" == "Mean score: 0.50"
    assert report.mean_latency_ms >= 0
    assert [result.sample_id for result in report.failed_samples()] == ["2"]
    assert report.results[0].tokens_used > 0


async def test_a_programmatic_dataset(adapter_replying: MakeAdapter) -> None:
    samples = tuple(
        Sample(
            id=str(i),
            input=f"What is {a} + {b}?",
            expected=str(a + b),
        )
        for i, (a, b) in enumerate([(1, 1), (2, 3), (10, 20)])
    )
    main_loop = QALoop(adapter=adapter_replying("2", "5", "30"), bus=ControlDispatcher())

    report = await evaluate_with_loop(main_loop, Dataset(samples=samples), exact_match)

    assert (report.total, report.pass_rate) == (3, 1.0)
    assert "What is 10 + 20?" in report.results[2].trajectory.messages[0].content


async def test_multi_criteria_evaluation(adapter_replying: MakeAdapter) -> None:
    def judge(question: str) -> dict[str, str]:
        if "Factually accurate" in question:
            return {"reason": "it is", "rating": "excellent"}
        return {"reason": "a mess", "rating": "poor"}

    judge_adapter = adapter_replying(judge)
    evaluator = all_of(
        contains,  # Must contain expected substring
        llm_judge(judge_adapter, "Factually accurate"),
        llm_judge(judge_adapter, "Well-structured response"),
    )
    main_loop = QALoop(adapter=adapter_replying("It is Paris."), bus=ControlDispatcher())
    dataset = Dataset(samples=(Sample("1", "Capital of France?", "Paris"),))

    report = await evaluate_with_loop(main_loop, dataset, evaluator)

    (result,) = report.failed_samples()
    assert (result.score.value, result.score.reason) == (
        0.75,
        "Well-structured response: a mess",
    )
    assert report.scores_by_criterion == {
        "contains": 1.0,
        "Factually accurate": 1.0,
        "Well-structured response": 0.25,
    }


async def test_session_aware_evaluation(adapter_replying: MakeAdapter) -> None:
    math_dataset = Dataset(
        samples=tuple(Sample(id, "What is 2 + 3?", "5") for id in ("good", "lazy", "clumsy"))
    )
    failing_call = ToolCall("call_2", "calculator", {"left": "two", "right": 3})
    lazy = ToolCall("call_3", "web_search", {"query": "2 + 3"})
    math_loop = MathLoop(
        adapter=adapter_replying(SUM, "5", lazy, "5", failing_call, "5"), bus=ControlDispatcher()
    )

    report = await evaluate_with_loop(math_loop, math_dataset, MATH)

    assert report.pass_rate == pytest.approx(1 / 3)
    lazy_result, clumsy_result = report.failed_samples()
    assert "tool 'calculator' called 0 time(s)" in lazy_result.score.reason
    assert "tool 'web_search' called 1 time(s)" in lazy_result.score.reason
    assert "failed tools: ['calculator']" in clumsy_result.score.reason


async def test_custom_slice_assertions(adapter_replying: MakeAdapter) -> None:
    evaluator = all_of(
        exact_match,
        slice_contains(
            PlanStep,
            lambda step: step.status == "completed",
            min_count=1,  # At least one step completed
        ),
    )
    dataset = Dataset(samples=(Sample("1", "What is 2 + 3?", "5"), Sample("2", "And now?", "5")))
    math_loop = MathLoop(adapter=adapter_replying(SUM, "5", "5"), bus=ControlDispatcher())

    report = await evaluate_with_loop(math_loop, dataset, evaluator)

    assert [result.score.passed for result in report.results] == [True, False]
    assert "found 0 matching items" in report.results[1].score.reason


@pytest.mark.parametrize(
    "reply",
    ["Rather good.", {"rating": "good"}, '{"reason": "r", "rating": "wrong", "rating": "good"}'],
)
async def test_a_judge_without_a_verdict_is_an_error_of_the_evaluator(
    adapter_replying: MakeAdapter, reply: Any
) -> None:
    judge = llm_judge(adapter_replying(reply, reply), "Factually accurate")
    main_loop = QALoop(adapter=adapter_replying("Paris"), bus=ControlDispatcher())

    result = await attempt(agent_of(main_loop), Sample("1", "Capital?", "Paris"), judge)

    assert (result.error_source, result.output) == ("evaluator", "Paris")
    assert "expected one of excellent, good, fair, poor, wrong" in str(result.error)


# ── requests to the provider ────────────────────────────────────────────────────────────────────


async def test_openai_receives_the_tools_and_their_results() -> None:
    with ModelServer([Reply(tool_calls=(SUM,)), "5"]) as server:
        adapter: OpenAIAdapter[str] = OpenAIAdapter("gpt-4o", base_url=server.openai_base_url)
        math_loop = MathLoop(adapter=adapter, bus=ControlDispatcher())
        result = await attempt(agent_of(math_loop), Sample("1", "What is 2 + 3?", "5"), MATH)

    assert result.score.passed
    first, second = (request.body for request in server.requests)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["calculator", "web_search"]
    user, assistant, tool_result = second["messages"]
    assert "Solve: What is 2 + 3?" in user["content"]
    assert assistant["tool_calls"][0]["function"]["name"] == "calculator"
    assert (tool_result["role"], tool_result["tool_call_id"], tool_result["content"]) == (
        "tool",
        "call_1",
        "5",
    )


async def test_openai_is_restricted_to_the_ratings() -> None:
    with ModelServer(['{"reason": "r", "rating": "good"}']) as server:
        adapter: OpenAIAdapter[JudgeOutput] = OpenAIAdapter("m", base_url=server.openai_base_url)
        score = await llm_judge(adapter, "Accurate").ask(EvalContext(sample=Sample("1", "?", "e")))

    assert score.value == 0.75
    (request,) = server.requests
    schema = request.body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert sorted(schema["schema"]["properties"]["rating"]["enum"]) == sorted(RATING_VALUES)


async def test_a_provider_that_is_down_is_an_infrastructure_error() -> None:
    with ModelServer([Fault("status", 503, message="overloaded")]) as server:
        url = server.openai_base_url
        adapter: OpenAIAdapter[str] = OpenAIAdapter("gpt-4o", base_url=url, retries=0)
        loop = QALoop(adapter=adapter, bus=ControlDispatcher())
        result = await attempt(agent_of(loop), Sample("1", "Capital?", "Paris"), exact_match)

    assert (result.error_source, result.score.passed) == ("infrastructure", False)
    assert "overloaded" in str(result.error)
