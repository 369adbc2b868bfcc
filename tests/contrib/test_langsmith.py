"""What of an eval is in LangSmith: experiments, examples, traces, feedback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.contrib.langsmith_sent import sent
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
class Both:
    a: int
    b: int


def add(params: Both) -> int:
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


def adds(asked: ModelRequest) -> Any:
    """Calls the tool, and says what it said; as a judge it is content."""
    said = asked.messages[-1]
    if "criterion" in asked.messages[0].content.lower():
        return '{"reason": "as it should be", "rating": "good"}'
    if said.role == "tool":
        return said.content
    a, b = said.content.split("\n")[-1].split(" + ")
    return ToolCall("call-1", "add", {"a": int(a), "b": int(b)})


def echo(sample: Sample[str, str]) -> str:
    return sample.input


def run(**config: Any) -> Any:
    report = EvalSuite(echo, SUMS, exact_match, config=EvalConfig(**config)).run()
    sent()
    return report


def metadata(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = row["extra"]["metadata"]
    return found


def only(server: LangSmithServer) -> dict[str, Any]:
    [experiment] = server.experiments
    return experiment


def test_a_run_is_an_experiment_that_says_what_it_is(langsmith: Start) -> None:
    server = langsmith()

    report = EvalSuite(echo, SUMS, exact_match).run(tags={"branch": "main"})
    sent()

    experiment = only(server)
    assert experiment["name"] == f"my-evals-sums-{report.run_id}"
    assert server.datasets[experiment["reference_dataset_id"]]["name"] == "sums"
    known = metadata(experiment)
    assert known["run_id"] == report.run_id
    assert (known["dataset_name"], known["dataset_digest"]) == ("sums", SUMS.digest)
    assert (known["agent"], known["evaluators"]) == ("echo", ["exact_match"])
    assert known["tags"] == {"branch": "main"}
    assert known["config"]["epochs"] == 1


def test_a_run_that_is_over_says_what_it_came_to(langsmith: Start) -> None:
    server = langsmith()

    run()

    assert only(server)["end_time"]
    known = metadata(only(server))
    assert (known["done"], known["passed"], known["errors"]) == (2, 0, 0)
    [whole] = [each for each in server.feedback if each.get("run_id") is None]
    assert (whole["key"], whole["score"]) == ("strict_pass_rate", 0.0)
    assert whole["session_id"] == only(server)["id"]


def test_a_sample_is_a_trace_of_prompts_models_and_tools(langsmith: Start) -> None:
    server = langsmith()
    judges = [exact_match, llm_judge("Right")]

    EvalSuite(prompt, SUMS, judges, adapter=ScriptedAdapter(adds)).run()
    sent()

    first, _ = server.traces_of(only(server)["name"])
    assert server.tree_of(first) == [
        "chain a",
        ["chain sum", ["llm scripted"], ["tool add"], ["llm scripted"]],
    ]
    assert (first["inputs"], first["outputs"]["output"]) == ({"input": "2 + 2"}, "4")
    [talk] = server.children_of(first)
    ask, call, _ = server.children_of(talk)
    assert ask["inputs"]["messages"][-1]["content"].endswith("2 + 2")
    [said] = ask["outputs"]["choices"]
    assert said["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":2,"b":2}'
    used = metadata(ask)["usage_metadata"]
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"] > 0
    assert metadata(ask)["ls_model_name"] == "scripted"
    assert (call["inputs"], call["outputs"]) == ({"a": 2, "b": 2}, {"output": "4"})


def test_a_judge_has_a_trace_of_its_own_and_is_named_by_its_feedback(langsmith: Start) -> None:
    server = langsmith()
    judges = [exact_match, llm_judge("Right")]

    EvalSuite(prompt, SUMS, judges, ScriptedAdapter(adds), EvalConfig(1)).run()
    sent()

    first, _ = server.traces_of(only(server)["name"])
    judge, _ = server.traces_of("evaluators")
    assert server.tree_of(judge) == ["chain all_of", ["chain llm_judge", ["llm scripted"]]]
    assert metadata(judge)["evaluated_run_id"] == first["id"]
    right = server.feedback_of(first)["Right"]
    assert (right["score"], right["comment"]) == (0.75, "as it should be")
    source = right["feedback_source"]
    assert (source["type"], source["metadata"]["__run"]["run_id"]) == ("model", judge["id"])
    assert server.feedback_of(first)["latency_s"]["feedback_source"]["type"] == "api"


def test_what_happens_inside_is_inside_in_time(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(prompt, SUMS, exact_match, adapter=ScriptedAdapter(adds)).run()
    sent()

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
    sent()

    [trace] = server.traces_of(only(server)["name"])
    assert trace["outputs"] == {
        "output": "2 + 2",
        "score": 0.25,
        "passed": False,
        "scores": {"brief": 0.25, "words": 3.0},
    }
    said = server.feedback_of(trace)
    assert {key: each["score"] for key, each in said.items() if key != "latency_s"} == {
        "brief": 0.25,
        "words": 3.0,
        "score": 0.25,
        "pass": 0.0,
    }
    assert (said["brief"]["value"], said["pass"]["value"]) == ("long", "fail")
    assert said["score"]["comment"] == "too long"
    assert {each["session_id"] for each in said.values()} == {only(server)["id"]}


def test_an_error_is_an_error_and_never_a_score(langsmith: Start) -> None:
    server = langsmith()

    def fails(sample: Sample[str, str]) -> str:
        raise RuntimeError("the service is away")

    EvalSuite(fails, SUMS, exact_match).run()
    sent()

    for trace in server.traces_of(only(server)["name"]):
        assert trace["error"] == "the service is away"
        assert metadata(trace)["error_source"] == "agent"
        assert set(server.feedback_of(trace)) == {"latency_s"}
    assert metadata(only(server))["errors"] == 2


def test_what_went_wrong_inside_is_where_it_went_wrong(langsmith: Start) -> None:
    server = langsmith()

    def broken(asked: ModelRequest) -> Any:
        if asked.messages[-1].role == "tool":
            raise RuntimeError("the model is away")
        return ToolCall("call-1", "multiply", {})

    EvalSuite(prompt, SUMS[:1], exact_match, adapter=ScriptedAdapter(broken)).run()
    sent()

    [trace] = server.traces_of(only(server)["name"])
    [talk] = server.children_of(trace)
    ask, call, again = server.children_of(talk)
    assert (ask.get("error"), call["name"]) == (None, "multiply")
    assert "there is no tool `multiply`" in call["error"]
    assert all("the model is away" in each["error"] for each in (again, talk, trace))


@pytest.mark.anyio
async def test_a_sample_that_is_cut_off_is_no_result(langsmith: Start, anyio_backend: str) -> None:
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

    [trace] = server.traces_of(only(server)["name"])
    assert metadata(trace)["sample_id"] == "a"
    assert metadata(only(server))["done"] == 1
    assert only(server)["end_time"]


def test_a_judge_that_fails_leaves_the_answer_without_a_score(langsmith: Start) -> None:
    server = langsmith()

    def lost(output: str, expected: str) -> bool:
        raise RuntimeError("no verdict")

    EvalSuite(echo, SUMS[:1], lost).run()
    sent()

    [trace] = server.traces_of(only(server)["name"])
    assert (trace.get("error"), trace["outputs"]) == (None, {"output": "2 + 2"})
    said = server.feedback_of(trace)
    assert set(said) == {"evaluator_error", "latency_s"}
    assert said["evaluator_error"]["score"] is None
    assert said["evaluator_error"]["comment"].endswith("no verdict")


def test_every_epoch_is_a_trace_of_the_same_example(langsmith: Start) -> None:
    server = langsmith()

    run(epochs=3)

    traces = server.traces_of(only(server)["name"])
    assert len(traces) == 6
    assert len({trace["reference_example_id"] for trace in traces}) == len(server.examples) == 2
    assert [metadata(trace)["epoch"] for trace in traces] == [1, 2, 3] * 2


def test_a_second_run_finds_the_examples_of_the_first(langsmith: Start) -> None:
    server = langsmith()
    run()
    first = dict(server.examples)
    configure_wink("my-evals", api_url=server.url)  # and remembers nothing

    run()

    assert server.examples == first
    assert len(server.datasets) == 1
    assert len(server.experiments) == 2
    example = first[server.traces_of(server.experiments[1]["name"])[0]["reference_example_id"]]
    assert (example["inputs"], example["outputs"]) == ({"input": "2 + 2"}, {"expected": "4"})
    assert example["metadata"] == {"kind": "easy", "sample_id": "a"}


def test_a_sample_that_changed_is_another_example(langsmith: Start) -> None:
    server = langsmith()
    run()

    changed = Dataset([Sample("a", "2 + 2", "four"), *SUMS[1:]], name="sums")
    EvalSuite(echo, changed, exact_match).run()
    sent()

    assert len(server.examples) == 3


def test_numbers_that_langsmith_refuses_are_values(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(echo, SUMS[:1], lambda output, expected: -250_000.0).run()
    sent()

    [trace] = server.traces_of(only(server)["name"])
    said = next(each for each in server.feedback_of(trace).values() if each["value"] == -250_000.0)
    assert said["score"] is None


@pytest.mark.anyio
async def test_samples_side_by_side_keep_their_own(langsmith: Start, anyio_backend: str) -> None:
    server = langsmith()
    waiting = 0
    together = anyio.Event()

    async def answer(messages: Any) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 8:
            together.set()
        await together.wait()
        return str(messages[-1].content)

    dataset = Dataset([Sample(str(n), f"{n}", f"{n}") for n in range(8)], name="together")
    config = EvalConfig(endpoint=answer, max_concurrent=8)
    await evaluate(dataset, config, exact_match)
    await anyio.to_thread.run_sync(sent)

    traces = server.traces_of(only(server)["name"])
    assert len(traces) == 8
    for trace in traces:
        [talk] = server.children_of(trace)
        [model] = server.children_of(talk)
        assert model["inputs"]["messages"][-1]["content"] == trace["inputs"]["input"]


def test_what_has_no_json_form_is_shown_as_text(langsmith: Start) -> None:
    server = langsmith()

    EvalSuite(lambda sample: {1: object()}, SUMS[:1], lambda output, expected: True).run()
    sent()

    [trace] = server.traces_of(only(server)["name"])
    assert trace["outputs"]["output"].startswith("{1: <object object at")


def test_what_runs_outside_of_evals_is_in_the_project(langsmith: Start) -> None:
    server = langsmith()

    ScriptedAdapter(adds).evaluate(prompt.bind(input="1 + 2"))
    assert configure_wink(tracing_enabled=False).sent == 0

    [trace] = server.traces_of("my-evals")
    assert trace["name"] == "sum"
    assert server.experiments == []
