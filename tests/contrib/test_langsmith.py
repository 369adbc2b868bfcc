"""What LangSmith receives of an eval: experiments, examples, traces, feedback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.contrib.langsmith_fixtures import flush_langsmith
from weakincentives import MarkdownSection, PromptTemplate, ToolCall
from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    Metric,
    Sample,
    Score,
    evaluate,
    exact_match,
    llm_judge,
)
from weakincentives.prompt import Tool
from weakincentives.testing import LangSmithServer

Start = Callable[..., LangSmithServer]

SUMS = Dataset(
    [Sample("a", "2 + 2", "4", {"kind": "easy"}), Sample("b", "3 + 3", "5")], name="sums"
)


@dataclass(frozen=True)
class AddParams:
    a: int
    b: int


def add(params: AddParams) -> int:
    return params.a + params.b


prompt = PromptTemplate[str](
    ns="sums",
    key="sum",
    name="sum",
    sections=[
        MarkdownSection(
            title="Sum",
            template="$input",
            key="sum",
            tools=[Tool(name="add", description="Adds", handler=add)],
        )
    ],
)


def adds(request: ModelRequest) -> Any:
    """Call the tool and return its result; as a judge, return a good rating."""
    last = request.messages[-1]
    if "criterion" in request.messages[0].content.lower():
        return '{"reason": "as it should be", "rating": "good"}'
    if last.role == "tool":
        return last.content
    a, b = last.content.split("\n")[-1].split(" + ")
    return ToolCall("call-1", "add", {"a": int(a), "b": int(b)})


def echo(sample: Sample[str, str]) -> str:
    return sample.input


def run(**config: Any) -> Any:
    report = EvalSuite(echo, SUMS, exact_match, config=EvalConfig(**config)).run()
    flush_langsmith()
    return report


def metadata(row: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = row["extra"]["metadata"]
    return value


def only_experiment(server: LangSmithServer) -> dict[str, Any]:
    [experiment] = server.experiments
    return experiment


def test_a_run_is_an_experiment_with_its_metadata(langsmith: Start) -> None:
    server = langsmith()

    report = EvalSuite(echo, SUMS, exact_match).run(tags={"branch": "main"})
    flush_langsmith()

    experiment = only_experiment(server)
    assert experiment["name"] == f"my-evals-sums-{report.run_id}"
    assert server.datasets[experiment["reference_dataset_id"]]["name"] == "sums"
    details = metadata(experiment)
    assert details["run_id"] == report.run_id
    assert (details["dataset_name"], details["dataset_digest"]) == ("sums", SUMS.digest)
    assert (details["agent"], details["evaluators"]) == ("echo", ["exact_match"])
    assert details["tags"] == {"branch": "main"}
    assert details["config"]["epochs"] == 1


def test_a_finished_run_has_its_totals(langsmith: Start) -> None:
    server = langsmith()

    run()

    assert only_experiment(server)["end_time"]
    details = metadata(only_experiment(server))
    assert (details["done"], details["passed"], details["errors"]) == (2, 0, 0)
    assert not {"tokens", "cost"} & details.keys()  # unknown, which is not 0
    [pass_rate] = [each for each in server.feedback if each.get("run_id") is None]
    assert (pass_rate["key"], pass_rate["score"]) == ("strict_pass_rate", 0.0)
    assert pass_rate["session_id"] == only_experiment(server)["id"]


def test_a_sample_is_a_trace_of_prompts_models_and_tools(langsmith: Start) -> None:
    server = langsmith()
    judges = [exact_match, llm_judge("Right")]

    EvalSuite(prompt, SUMS, judges, adapter=ScriptedAdapter(adds)).run()
    flush_langsmith()

    first, _ = server.traces_of(only_experiment(server)["name"])
    assert server.tree_of(first) == [
        "chain a",
        ["chain sum", ["llm scripted"], ["tool add"], ["llm scripted"]],
    ]
    assert (first["inputs"], first["outputs"]["output"]) == ({"input": "2 + 2"}, "4")
    [conversation] = server.children_of(first)
    model_call, tool_call, _ = server.children_of(conversation)
    assert model_call["inputs"]["messages"][-1]["content"].endswith("2 + 2")
    [choice] = model_call["outputs"]["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":2,"b":2}'
    usage = metadata(model_call)["usage_metadata"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    assert metadata(model_call)["ls_model_name"] == "scripted"
    assert (tool_call["inputs"], tool_call["outputs"]) == ({"a": 2, "b": 2}, {"output": "4"})


def test_a_judge_has_its_own_trace_and_its_feedback_links_to_it(langsmith: Start) -> None:
    server = langsmith()
    judges = [exact_match, llm_judge("Right")]

    EvalSuite(prompt, SUMS, judges, ScriptedAdapter(adds), EvalConfig(1)).run()
    flush_langsmith()

    first, _ = server.traces_of(only_experiment(server)["name"])
    judge, _ = server.traces_of("evaluators")
    assert server.tree_of(judge) == ["chain all_of", ["chain llm_judge", ["llm scripted"]]]
    assert metadata(judge)["evaluated_run_id"] == first["id"]
    right = server.feedback_of(first)["Right"]
    assert (right["score"], right["comment"]) == (0.75, "as it should be")
    source = right["feedback_source"]
    assert (source["type"], source["metadata"]["__run"]["run_id"]) == ("model", judge["id"])
    assert server.feedback_of(first)["latency_s"]["feedback_source"]["type"] == "api"


def test_child_runs_start_and_end_within_their_parent(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(prompt, SUMS, exact_match, adapter=ScriptedAdapter(adds)).run()
    flush_langsmith()

    for each in server.runs:
        assert each["start_time"] <= each["end_time"]
        assert each["dotted_order"].endswith(each["id"])
        for child in server.children_of(each):
            assert each["start_time"] <= child["start_time"] <= child["end_time"]
            assert child["end_time"] <= each["end_time"]
            assert child["trace_id"] == each["trace_id"]
            assert child["dotted_order"].startswith(f"{each['dotted_order']}.")


def test_scores_are_outputs_and_feedback(langsmith: Start) -> None:
    server = langsmith()

    def graded(output: str, expected: str) -> Score:
        parts = [Metric("brief", 0.25, 1, {"label": "long"}), Metric("words", 3)]
        return Score(metrics=parts, reason="too long")

    EvalSuite(echo, SUMS[:1], graded).run()
    flush_langsmith()

    [trace] = server.traces_of(only_experiment(server)["name"])
    assert trace["outputs"] == {
        "output": "2 + 2",
        "score": 0.25,
        "passed": False,
        "scores": {"brief": 0.25, "words": 3.0},
    }
    feedback = server.feedback_of(trace)
    assert {key: each["score"] for key, each in feedback.items() if key != "latency_s"} == {
        "brief": 0.25,
        "words": 3.0,
        "score": 0.25,
        "pass": 0.0,
    }
    assert (feedback["brief"]["value"], feedback["pass"]["value"]) == ("long", "fail")
    assert feedback["score"]["comment"] == "too long"
    assert {each["session_id"] for each in feedback.values()} == {only_experiment(server)["id"]}


def test_an_error_is_an_error_and_never_a_score(langsmith: Start) -> None:
    server = langsmith()

    def fails(sample: Sample[str, str]) -> str:
        raise RuntimeError("the service is unavailable")

    EvalSuite(fails, SUMS, exact_match).run()
    flush_langsmith()

    for trace in server.traces_of(only_experiment(server)["name"]):
        assert trace["error"] == "the service is unavailable"
        assert metadata(trace)["error_source"] == "agent"
        assert set(server.feedback_of(trace)) == {"latency_s"}
    assert metadata(only_experiment(server))["errors"] == 2


def test_an_error_is_recorded_on_the_run_that_failed_and_its_parents(langsmith: Start) -> None:
    server = langsmith()

    def broken(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            raise RuntimeError("the model is unavailable")
        return ToolCall("call-1", "multiply", {})

    EvalSuite(prompt, SUMS[:1], exact_match, adapter=ScriptedAdapter(broken)).run()
    flush_langsmith()

    [trace] = server.traces_of(only_experiment(server)["name"])
    [conversation] = server.children_of(trace)
    first_call, tool_call, second_call = server.children_of(conversation)
    assert (first_call.get("error"), tool_call["name"]) == (None, "multiply")
    assert "there is no tool `multiply`" in tool_call["error"]
    assert all(
        "the model is unavailable" in each["error"] for each in (second_call, conversation, trace)
    )


@pytest.mark.anyio
async def test_a_cancelled_sample_is_not_a_result(langsmith: Start, anyio_backend: str) -> None:
    server = langsmith()

    async def slow(sample: Sample[str, str]) -> str:
        if sample.id == "b":
            scope.cancel()
            await anyio.sleep_forever()
        return sample.input

    suite = EvalSuite(slow, SUMS, exact_match, config=EvalConfig(1))
    with anyio.CancelScope() as scope:
        await suite.run_async()
    await anyio.to_thread.run_sync(configure_wink, "off", False)

    [trace] = server.traces_of(only_experiment(server)["name"])
    assert metadata(trace)["sample_id"] == "a"
    assert metadata(only_experiment(server))["done"] == 1
    assert only_experiment(server)["end_time"]


def test_if_the_judge_fails_the_answer_has_no_score(langsmith: Start) -> None:
    server = langsmith()

    def broken_judge(output: str, expected: str) -> bool:
        raise RuntimeError("no verdict")

    EvalSuite(echo, SUMS[:1], broken_judge).run()
    flush_langsmith()

    [trace] = server.traces_of(only_experiment(server)["name"])
    assert (trace.get("error"), trace["outputs"]) == (None, {"output": "2 + 2"})
    feedback = server.feedback_of(trace)
    assert set(feedback) == {"evaluator_error", "latency_s"}
    assert feedback["evaluator_error"]["score"] is None
    assert feedback["evaluator_error"]["comment"].endswith("no verdict")


def test_every_epoch_is_a_trace_of_the_same_example(langsmith: Start) -> None:
    server = langsmith()

    run(epochs=3)

    traces = server.traces_of(only_experiment(server)["name"])
    assert len(traces) == 6
    assert len({trace["reference_example_id"] for trace in traces}) == len(server.examples) == 2
    assert [metadata(trace)["epoch"] for trace in traces] == [1, 2, 3] * 2


def test_a_second_run_reuses_the_examples_of_the_first(langsmith: Start) -> None:
    server = langsmith()
    run()
    first = dict(server.examples)
    configure_wink("my-evals", api_url=server.url)  # a new client without a cache

    run()

    assert server.examples == first
    assert len(server.datasets) == 1
    assert len(server.experiments) == 2
    example = first[server.traces_of(server.experiments[1]["name"])[0]["reference_example_id"]]
    assert (example["inputs"], example["outputs"]) == ({"input": "2 + 2"}, {"expected": "4"})
    assert example["metadata"] == {"kind": "easy", "sample_id": "a"}


def test_a_changed_sample_is_a_new_example(langsmith: Start) -> None:
    server = langsmith()
    run()

    changed = Dataset([Sample("a", "2 + 2", "four"), *SUMS[1:]], name="sums")
    EvalSuite(echo, changed, exact_match).run()
    flush_langsmith()

    assert len(server.examples) == 3


def test_numbers_that_langsmith_refuses_are_sent_as_values(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(echo, SUMS[:1], lambda output, expected: -250_000.0).run()
    flush_langsmith()

    [trace] = server.traces_of(only_experiment(server)["name"])
    feedback = next(
        each for each in server.feedback_of(trace).values() if each["value"] == -250_000.0
    )
    assert feedback["score"] is None


@pytest.mark.anyio
async def test_concurrent_samples_have_separate_traces(
    langsmith: Start, anyio_backend: str
) -> None:
    server = langsmith()
    waiting = 0
    all_started = anyio.Event()

    async def answer(messages: Any) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 8:
            all_started.set()
        await all_started.wait()
        return str(messages[-1].content)

    dataset = Dataset([Sample(str(n), f"{n}", f"{n}") for n in range(8)], name="together")
    config = EvalConfig(endpoint=answer, max_concurrent=8)
    await evaluate(dataset, config, exact_match)
    await anyio.to_thread.run_sync(flush_langsmith)

    traces = server.traces_of(only_experiment(server)["name"])
    assert len(traces) == 8
    for trace in traces:
        [conversation] = server.children_of(trace)
        [model] = server.children_of(conversation)
        assert model["inputs"]["messages"][-1]["content"] == trace["inputs"]["input"]


def test_values_that_cannot_be_json_are_sent_as_text(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(lambda sample: {1: object()}, SUMS[:1], lambda output, expected: True).run()
    flush_langsmith()

    [trace] = server.traces_of(only_experiment(server)["name"])
    assert trace["outputs"]["output"].startswith("{1: <object object at")


def test_model_calls_outside_of_evals_are_traced_to_the_project(langsmith: Start) -> None:
    server = langsmith()

    ScriptedAdapter(adds).evaluate(prompt.bind(input="1 + 2"))
    assert configure_wink(tracing_enabled=False).sent == 0

    [trace] = server.traces_of("my-evals")
    assert trace["name"] == "sum"
    assert server.experiments == []
