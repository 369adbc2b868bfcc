"""Comparing two providers of a model: metrics, golden cases and published rows of K2VV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sums_eval import latest
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.cli import main
from weakincentives.contrib.importers import (
    load_k2_requests,
    read_k2_results,
    store_report,
    write_k2_results,
)
from weakincentives.errors import EvaluatorError, ReportError, UsageError
from weakincentives.evals import EvalReport, EvalResult, Sample, Score, Trajectory, open_store
from weakincentives.evals.comparison.vendors import (
    FinishCounts,
    compare_vendors,
    similarity,
)
from weakincentives.evals.engine.request_agent import request_agent
from weakincentives.evals.evaluators.tool_calls import (
    finish_reason_agreement,
    malformed_call_rate,
    tool_call_f1,
    tool_schema_accuracy,
)
from weakincentives.testing import ModelServer, Reply

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
REQUEST = {"messages": [{"role": "user", "content": "Rain?"}], "tools": [WEATHER]}


def result_line(index: int, finish_reason: str | None, *calls: tuple[str, str]) -> dict[str, Any]:
    """Return a result line; without a finish reason, the request failed."""
    if finish_reason is None:
        failed = {"error": "HTTP 400"}
        return {
            "data_index": index,
            "request": REQUEST,
            "response": failed,
            "status": "failed",
            "finish_reason": None,
        }
    tool_calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": "", "tool_calls": tool_calls}
    response = {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": {}}
    return {
        "data_index": index,
        "request": REQUEST,
        "response": response,
        "status": "success",
        "finish_reason": finish_reason,
        "duration_ms": 12,
    }


GOLDEN = [
    result_line(1, "tool_calls", ("get_weather", '{"city": "Oslo"}')),
    result_line(2, "tool_calls", ("get_weather", '{"city": 5}')),
    result_line(3, "tool_calls", ("get_weather", '{"city": "Os')),
    result_line(4, "tool_calls", ("get_wether", '{"city": "Oslo"}')),
    result_line(
        5, "tool_calls", ("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"days": 2}')
    ),
    result_line(6, "tool_calls"),
    result_line(7, "tool_calls", ("get_weather", '{"city": "Oslo", "mood": "good"}')),
    result_line(8, "stop"),
    result_line(9, "length"),
    result_line(10, None),
]


def write_lines(file: Path, lines: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return file


@pytest.fixture
def golden(tmp_path: Path) -> EvalReport[str]:
    return read_k2_results(write_lines(tmp_path / "golden.jsonl", GOLDEN))


def test_ten_golden_cases_have_the_totals_of_the_original_script(golden: EvalReport[str]) -> None:
    compared = compare_vendors(golden.results, golden.results)
    assert compared.counts == FinishCounts(
        finish_stop=1,
        finish_tool_calls=7,
        finish_others=1,
        schema_validation_error_count=5,
        successful_tool_call_count=2,
        success_count=9,
        failure_count=1,
    )
    assert [result.passed for result in golden.results[:7]] == [True, *[False] * 5, True]
    assert compared.schema_accuracy is not None
    assert compared.schema_accuracy.estimate == pytest.approx(2 / 7)


@pytest.mark.parametrize("function", [{"parameters": {}}, {"parameters": None}, {}])
def test_a_call_of_a_tool_without_a_schema_is_invalid_as_in_the_original(
    function: dict[str, Any], tmp_path: Path
) -> None:
    tool = {"type": "function", "function": {"name": "now", **function}}
    line = result_line(1, "tool_calls", ("now", "{}")) | {"request": {**REQUEST, "tools": [tool]}}
    (result,) = read_k2_results(write_lines(tmp_path / "now.jsonl", [line])).results

    compared = compare_vendors([result], [result])

    assert compared.counts.schema_validation_error_count == 1
    assert result.score.reason == 'now: the tool has no schema - give it {"type": "object"}'


def test_formats_are_not_checked_and_a_wrong_schema_fits_no_call_as_in_the_original() -> None:
    draft = "http://json-schema.org/draft-07/schema#"
    day: dict[str, Any] = {"type": "string", "format": "date"}
    right = {"$schema": draft, "type": "object", "properties": {"day": day}}
    for parameters, passed in ((right, True), ({**right, "type": "objekt"}, False)):
        call = ToolCall("1", "plan", {"day": "Monday"})
        sample = Sample("1", {"tools": [{"name": "plan", "parameters": parameters}]})
        trajectory = Trajectory((ChatMessage("assistant", tool_calls=(call,)),))

        assert tool_schema_accuracy()(trajectory, sample).passed is passed


def test_the_reason_says_what_is_wrong_with_a_tool_call(golden: EvalReport[str]) -> None:
    reasons = [result.score.reason for result in golden.results]

    assert "5 is not of type" in reasons[1]
    assert reasons[2] == "get_weather: the arguments are not a JSON object"
    assert "there is no such tool; known: get_weather" in reasons[3]
    assert '"city" is a required property' in reasons[4]
    assert "there are none" in reasons[5]


def test_result_lines_are_equal_after_a_round_trip(golden: EvalReport[str], tmp_path: Path) -> None:
    assert write_k2_results(golden.results, tmp_path / "out.jsonl", model="kimi") == 10

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["tool_calls_valid"] for line in lines] == [
        *(True, False, False, False, False, None, True),
        *(None, None, None),
    ]
    assert [line["status"] for line in lines] == ["success"] * 9 + ["failed"]
    assert lines[2]["response"]["choices"][0]["message"]["tool_calls"][0]["function"] == {
        "name": "get_weather",
        "arguments": '{"city": "Os',
    }
    assert len({line["hash"] for line in lines}) == 1  # it is the same request and model
    loaded = read_k2_results(tmp_path / "out.jsonl")
    compared = compare_vendors(loaded.results, golden.results)
    assert compared.counts == compared.reference_counts


# Published test of 2025-09-22: stop, tool calls, others, schema errors, successful calls, and the
# similarity to the first row.
PUBLISHED = {
    "MoonshotAI": ((1437, 522, 41, 0, 522), 100.0),
    "Moonshot AI Turbo": ((1441, 513, 46, 0, 513), 99.29),
    "NovitaAI": ((1483, 514, 3, 10, 504), 96.82),
    "SiliconFlow": ((1408, 553, 39, 46, 507), 96.78),
    "Volc": ((1423, 516, 61, 40, 476), 96.70),
    "DeepInfra": ((1455, 545, 0, 42, 503), 96.59),
    "Fireworks": ((1483, 511, 6, 39, 472), 95.68),
    "Infinigence": ((1484, 467, 49, 0, 467), 95.44),
    "Baseten": ((1777, 217, 6, 9, 208), 72.23),
    "Together": ((1866, 134, 0, 8, 126), 64.89),
    "AtlasCloud": ((1906, 94, 0, 4, 90), 61.55),
}


@pytest.mark.parametrize("vendor", PUBLISHED)
def test_published_similarities_follow_from_the_counts(vendor: str) -> None:
    official = FinishCounts(*PUBLISHED["MoonshotAI"][0])
    counts, published = PUBLISHED[vendor]

    assert 100 * similarity(FinishCounts(*counts), official) == pytest.approx(published, abs=0.011)


# ── comparison ──────────────────────────────────────────────────────────────────────────────────


def reply_result(index: int, calls: bool, *, epoch: int = 1, error: str = "") -> EvalResult[Any]:
    call = (ToolCall("c", "get_weather", {"city": "Oslo"}),) if calls else ()
    messages = (ChatMessage("user", "Rain?"), ChatMessage("assistant", "", call))
    trajectory = Trajectory(messages, "", stop_reason="tool_calls" if calls else "stop")
    return EvalResult(
        str(index),
        Score(0.0 if error else 1.0),
        error=error or None,
        error_source="infrastructure" if error else None,
        sample=Sample(str(index), REQUEST),
        trajectory=None if error else trajectory,
        epoch=epoch,
    )


def test_f1_compares_when_tools_are_called() -> None:
    reference = [reply_result(n, n < 10) for n in range(20)]
    run = [reply_result(n, n < 8 or n == 15, error="lost" if n == 19 else "") for n in range(20)]
    compared = compare_vendors(run, reference)

    assert (compared.compared, compared.left_out) == (19, 1)
    assert compared.precision is not None
    assert compared.recall is not None
    assert compared.tool_call_f1 is not None
    assert compared.precision.estimate == pytest.approx(8 / 9)
    assert compared.recall.estimate == pytest.approx(8 / 10)
    assert compared.tool_call_f1.estimate == pytest.approx(2 * 8 / (2 * 8 + 1 + 2))
    assert compared.tool_call_f1.low < compared.tool_call_f1.estimate < compared.tool_call_f1.high
    assert compared.disagreements == ("8", "9", "15")
    assert compared.finish_agreement.estimate == pytest.approx(16 / 19)
    assert compared.similarity.low < compared.similarity.estimate <= compared.similarity.high
    assert compared.malformed_call_rate is not None
    assert compared.malformed_call_rate.estimate == 0.0


def test_epochs_of_a_request_are_one_cluster() -> None:
    reference = [reply_result(n, n < 5, epoch=epoch) for n in range(10) for epoch in (1, 2, 3)]
    compared = compare_vendors(reference, reference)

    assert compared.tool_call_f1 is not None
    assert (compared.tool_call_f1.estimate, compared.tool_call_f1.clusters) == (1.0, 5)


def test_runs_that_call_no_tools_have_no_f1() -> None:
    without_calls = [reply_result(n, False) for n in range(4)]
    compared = compare_vendors(without_calls, without_calls)

    assert (compared.tool_call_f1, compared.schema_accuracy) == (None, None)
    assert compared.finish_agreement.estimate == 1.0


def test_runs_without_a_common_sample_are_refused() -> None:
    with pytest.raises(UsageError, match="runs of the same requests"):
        compare_vendors([reply_result(1, True)], [reply_result(2, True)])


# ── evaluators ──────────────────────────────────────────────────────────────────────────────────

CALLED, STOPPED = reply_result(1, True), reply_result(2, False)


def test_evaluators_compare_with_the_reference_of_a_sample() -> None:
    sample = Sample("1", REQUEST, {"finish_reason": "tool_calls"})
    metrics = {
        metric.name: metric.value for metric in tool_call_f1(STOPPED.trajectory, sample).metrics
    }

    assert tool_call_f1(CALLED.trajectory, sample).passed
    assert metrics == {"tp": 0, "fp": 0, "fn": 1, "tn": 0}
    assert finish_reason_agreement(CALLED.trajectory, sample).passed
    assert finish_reason_agreement(STOPPED.trajectory, sample).reason == "got stop, not tool_calls"
    with pytest.raises(EvaluatorError, match="a finish reason as `expected`"):
        tool_call_f1(CALLED.trajectory, Sample("1", REQUEST))


def test_malformed_calls_are_counted_apart_from_failed_tools(golden: EvalReport[str]) -> None:
    broken = golden.results[2]
    score = malformed_call_rate()(broken.trajectory, broken.sample)

    assert (score.value, score.passed) == (0.0, False)
    assert malformed_call_rate()(CALLED.trajectory, CALLED.sample).passed
    assert malformed_call_rate(1.0)(broken.trajectory, broken.sample).passed


def test_tools_can_be_passed_and_are_validated_at_once() -> None:
    sample = Sample("1", "Rain?")

    assert tool_schema_accuracy([WEATHER])(CALLED.trajectory, sample).passed
    with pytest.raises(EvaluatorError, match="found none - pass them"):
        tool_schema_accuracy()(CALLED.trajectory, sample)
    with pytest.raises(EvaluatorError, match="tools as in Chat Completions"):
        tool_schema_accuracy([{"nam": "x"}])


# ── requests from files, and the command ────────────────────────────────────────────────────────


def test_requests_are_sent_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = [
        {"role": "_input", "content": "Be brief."},
        {"role": "user", "content": "Rain?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "get_weather", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "No.", "tool_call_id": "a"},
    ]
    file = tmp_path / "requests.jsonl"
    body = {"messages": history, "tools": [WEATHER], "temperature": 0.6, "min_p": 0.1}
    file.write_text(json.dumps(body) + "\n")
    reply = Reply(tool_calls=(ToolCall("b", "get_weather", {"city": "Oslo"}),))
    with ModelServer([reply]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.chdir(tmp_path)
        options = ["--benchmark", "k2", "--data", str(file), "--model", "openai/kimi"]
        assert main(["eval", "run", *options]) == 0
        (sent,) = [request.body for request in server.requests]

    assert [message["role"] for message in sent["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert (sent["model"], sent["temperature"], sent["min_p"]) == ("kimi", 0.6, 0.1)
    assert sent["tools"][0]["function"]["name"] == "get_weather"
    (result,) = latest().results
    assert (result.passed, result.trajectory.stop_reason) == (True, "tool_calls")


def test_a_request_agent_needs_an_adapter_for_requests() -> None:
    class PromptAdapter:
        """An adapter that takes prompts only."""

        def evaluate(self, prompt: Any, **options: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(UsageError, match="that can be asked directly"):
        request_agent(PromptAdapter())


def test_the_vendors_command_compares_a_run_with_result_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "golden.jsonl", GOLDEN)
    run = [reply_result(n, n < 8) for n in range(1, 11)]
    with open_store() as store:
        store_report(store, EvalReport(run, dataset_name="k2"))

    assert main(["eval", "vendors", "latest", "golden.jsonl", "-o", "mine.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "compared              9 replies, 1 left out" in text
    assert "tool-call F1          100.0%" in text
    assert "7 called tools (2 valid), 1 stopped, 1 others, 1 failed" in text
    assert len((tmp_path / "mine.jsonl").read_text().splitlines()) == 10

    assert main(["eval", "vendors", "mine.jsonl", "golden.jsonl", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["tool_call_f1"]["estimate"] == 1.0
    assert main(["eval", "vendors", "mine.jsonl", "mine.jsonl", "--fail-under", "0.8"]) == 0


def test_an_invalid_result_line_is_refused(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "x.jsonl", [{"data_index": 1, "request": {}, "status": "success"}]
    )

    with pytest.raises(ReportError, match="a result line of K2 Vendor Verifier"):
        read_k2_results(file)
    assert load_k2_requests(write_lines(tmp_path / "r.jsonl", [REQUEST]))[0].id == "1"
