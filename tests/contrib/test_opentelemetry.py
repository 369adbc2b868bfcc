"""Runs as OpenTelemetry traces: the real SDK, OTLP over HTTP, and a receiver that decodes it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.processes import TIMEOUT
from tests.traced import CAPITALS, suite
from weakincentives.adapters import ModelAdapter, ModelSettings, ScriptedAdapter
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.errors import MissingExtraError, UsageError
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match
from weakincentives.prompt import MarkdownSection, PromptTemplate
from weakincentives.runtime import tracing
from weakincentives.secrets import keep_secret
from weakincentives.testing import OtlpReceiver, ReceivedSpan

SPAN_COUNTS = {
    "evaluate_sample": 2,
    "experiment capitals": 1,
    "invoke_agent capital": 2,
    "chat librarian-1": 6,
    "execute_tool look_up": 2,
    "evaluate both": 2,
    "invoke_agent llm_judge": 2,
}
CONTENT = (
    *("France", "Italy", "Paris", "Rome", "capital of", "Answer in words", "The capital of"),
    *("it reads well", "Well written", "Reference answer"),
)
"""Texts of samples, prompts, tools, models and judges in an eval of `traced.py`."""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


class SpanTree:
    """The received spans, by id and by name."""

    def __init__(self, receiver: OtlpReceiver) -> None:
        self.spans = receiver.spans
        self.by_id = {span.span_id: span for span in self.spans}

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def path(self, span: ReceivedSpan) -> str:
        parent = self.by_id.get(span.parent_id)
        return span.name if parent is None else f"{self.path(parent)} > {span.name}"


# ── spans and their structure ───────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_a_sample_is_a_trace_with_a_link_to_its_run(receiver: OtlpReceiver) -> None:
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        report = await suite(max_concurrent=2).run_async()

    tree = SpanTree(receiver)
    assert report.passed == 2
    assert Counter(span.name for span in tree.spans) == SPAN_COUNTS
    (run,), samples = tree.named("experiment capitals"), tree.named("evaluate_sample")
    assert len({span.trace_id for span in (run, *samples)}) == 3
    assert {(span.parent_id, span.links) for span in samples} == {("", (run.span_id,))}
    below = Counter(tree.path(span) for span in tree.spans if span is not run)
    assert below == {
        "evaluate_sample": 2,
        "evaluate_sample > invoke_agent capital": 2,
        "evaluate_sample > invoke_agent capital > chat librarian-1": 4,
        "evaluate_sample > invoke_agent capital > execute_tool look_up": 2,
        "evaluate_sample > evaluate both": 2,
        "evaluate_sample > evaluate both > invoke_agent llm_judge": 2,
        "evaluate_sample > evaluate both > invoke_agent llm_judge > chat librarian-1": 2,
    }
    for span in tree.spans:
        assert span.parent_id == "" or tree.by_id[span.parent_id].trace_id == span.trace_id
        assert span.error is None


def test_a_nested_run_does_not_inherit_the_outer_dataset(receiver: OtlpReceiver) -> None:
    def agent(question: str) -> str:
        EvalSuite(lambda text: text, [Sample("inner", "a", "a")], exact_match).run()
        return question

    outer = Dataset([Sample("outer", "b", "b")], name="outermost")
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        EvalSuite(agent, outer, exact_match).run()

    names = {
        span.attributes["wink.eval.sample_id"]: span.attributes.get("wink.eval.dataset.name")
        for span in SpanTree(receiver).named("evaluate_sample")
    }
    assert names == {"inner": None, "outer": "outermost"}


def test_spans_have_the_attributes_of_the_semantic_conventions(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT, service_name="nightly"):
        suite().run(run_id="mine")

    tree = SpanTree(receiver)
    assert {span.service for span in tree.spans} == {"nightly"}
    run_attributes = {
        "wink.eval.run_id": "mine",
        "wink.eval.experiment": "baseline",
        "wink.eval.dataset.name": "capitals",
        "wink.eval.dataset.digest": CAPITALS.digest,
    }
    (run,) = tree.named("experiment capitals")
    assert run.attributes.items() >= run_attributes.items()
    assert run.attributes.items() >= {"gen_ai.operation.name": "experiment"}.items()
    assert run.attributes["wink.eval.run.passed"] == 2
    sample = next(s for s in tree.spans if s.attributes.get("wink.eval.sample_id") == "fr")
    assert sample.attributes.items() >= {**run_attributes, "wink.eval.epoch": 1}.items()
    assert sample.attributes["wink.eval.passed"] is True
    chat = tree.named("chat librarian-1")[0]
    assert chat.kind == "client"
    assert (
        chat.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "librarian-1",
            "gen_ai.output.type": "text",
        }.items()
    )
    assert chat.attributes["gen_ai.usage.output_tokens"] > 0
    tool = tree.named("execute_tool look_up")[0]
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "call-1",
        "gen_ai.tool.type": "function",
    }
    prompt = tree.named("invoke_agent capital")[0]
    assert prompt.attributes["gen_ai.agent.id"] == "tests/capital"
    assert prompt.attributes["gen_ai.agent.name"] == "capital"


def test_every_score_is_an_event_of_its_sample(receiver: OtlpReceiver) -> None:
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        suite().run(run_id="mine")

    tree = SpanTree(receiver)
    assert {log.event_name for log in receiver.logs} == {"gen_ai.evaluation.result"}
    assert {log.severity for log in receiver.logs} == {"INFO"}
    for log in receiver.logs:
        parent = tree.by_id[log.span_id]
        assert (parent.name, parent.trace_id) == ("evaluate_sample", log.trace_id)
        same = "wink.eval.sample_id"
        assert log.attributes[same] == parent.attributes[same]
    scores = {
        tuple(log.attributes[f"gen_ai.evaluation.{key}"] for key in ("name", *SCORE))
        for log in receiver.logs
    }
    assert scores == {("contains", 1.0, "pass"), ("style", 0.75, "pass")}
    assert len(receiver.logs) == 4


SCORE = ("score.value", "score.label")


def test_errors_have_a_type_but_no_message(receiver: OtlpReceiver) -> None:
    def broken(output: str, expected: str) -> float:
        raise ZeroDivisionError("the words of an evaluator")

    def agent(text: str) -> str:
        if text == "b":
            raise LookupError("the words of an agent")
        return text

    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        samples = [Sample("a", "a"), Sample("b", "b")]
        EvalSuite(agent, samples, broken, config=EvalConfig(1)).run()

    tree = SpanTree(receiver)
    first, second = tree.named("evaluate_sample")
    assert (second.error, second.attributes["error.type"]) == ("", "LookupError")
    assert second.attributes["wink.eval.error_source"] == "agent"
    assert "wink.eval.passed" not in second.attributes
    assert first.attributes["wink.eval.error_source"] == "evaluator"
    (log,) = receiver.logs
    assert log.severity == "WARN"
    assert log.attributes["gen_ai.evaluation.name"] == "broken"
    assert log.attributes["error.type"] == "weakincentives.errors.EvaluatorError"
    assert not any(b"the words" in body for body in receiver.bodies)


def test_a_failed_tool_has_an_error_type(receiver: OtlpReceiver) -> None:
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        dataset = Dataset([Sample("xx", "Atlantis", "?")])
        EvalSuite(suite().prompt, dataset, exact_match, suite().adapter).run()

    (tool,) = SpanTree(receiver).named("execute_tool look_up")[:1]
    assert (tool.error, tool.attributes["error.type"]) == ("", "tool_error")


# ── content and secrets ─────────────────────────────────────────────────────────────────────────


def test_without_content_no_text_leaves_the_process(receiver: OtlpReceiver) -> None:
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        suite().run()

    everything = b"".join(receiver.bodies)
    assert b"librarian-1" in everything
    assert [text for text in CONTENT if text.encode() in everything] == []


def test_with_content_messages_follow_the_semantic_conventions(receiver: OtlpReceiver) -> None:
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT, content=True):
        suite().run()

    tree = SpanTree(receiver)
    second = tree.named("chat librarian-1")[1].attributes
    attributes = {key: json.loads(second[f"gen_ai.{key}"]) for key in CONTENT_ATTRIBUTES}
    assert attributes["system_instructions"][0]["type"] == "text"
    user, assistant, tool_message = attributes["input.messages"]
    assert user["role"] == "user"
    call = {"type": "tool_call", "id": "call-1", "name": "look_up"}
    assert assistant == {
        "role": "assistant",
        "parts": [{**call, "arguments": {"country": "France"}}],
    }
    answer = {"type": "tool_call_response", "id": "call-1", "response": "Paris"}
    assert tool_message == {"role": "tool", "parts": [answer]}
    (output,) = attributes["output.messages"]
    assert output["parts"] == [{"type": "text", "content": "It is Paris."}]
    assert attributes["tool.definitions"][0]["name"] == "look_up"
    tool = tree.named("execute_tool look_up")[0].attributes
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"country": "France"}
    assert tool["gen_ai.tool.call.result"] == "Paris"
    sample = tree.named("evaluate_sample")[0].attributes
    assert (sample["wink.eval.input"], sample["wink.eval.output"]) == ('"France"', '"It is Paris."')
    reasons = {log.attributes.get("gen_ai.evaluation.explanation") for log in receiver.logs}
    assert "it reads well" in reasons


CONTENT_ATTRIBUTES = (
    "system_instructions",
    "input.messages",
    "output.messages",
    "tool.definitions",
)


def test_secrets_are_redacted_even_with_content(receiver: OtlpReceiver) -> None:
    keep_secret("hunter2-for-tracing")

    def agent(text: str) -> str:
        if text == "b":
            raise LookupError("refused: hunter2-for-tracing")
        return "it is hunter2-for-tracing"

    samples = [Sample("hunter2-for-tracing", "a"), Sample("b", "b")]
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT, content=True):
        EvalSuite(agent, samples, exact_match, name="hunter2-for-tracing").run()

    everything = b"".join(receiver.bodies)
    assert b"it is ***" in everything
    assert b"hunter2" not in everything


def test_values_that_cannot_be_encoded_do_not_block_other_spans(receiver: OtlpReceiver) -> None:
    template = PromptTemplate[str](
        ns="t", key="k", sections=[MarkdownSection(title="", template="$text", key="q")]
    )
    ask = ScriptedAdapter[str](lambda request: "\ud800 half a character").ask
    adapter = ModelAdapter[str](ask=ask, model="m", name="n", settings=ModelSettings(seed=2**70))
    samples = [Sample("\udcff", "a"), Sample("b", object())]
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT, content=True):
        EvalSuite(template, samples, exact_match, adapter).run()

    assert Counter(span.name for span in receiver.spans)["evaluate_sample"] == 2
    (chat,) = SpanTree(receiver).named("chat m")
    assert chat.attributes["gen_ai.request.seed"] == str(2**70)
    assert "half a character" in chat.attributes["gen_ai.output.messages"]


# ── providers and endpoints ─────────────────────────────────────────────────────────────────────


def test_given_providers_are_not_shut_down() -> None:
    spans, records = InMemorySpanExporter(), InMemoryLogRecordExporter()
    provider, logs = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    logs.add_log_record_processor(SimpleLogRecordProcessor(records))

    with configure_otel(tracer_provider=provider, logger_provider=logs) as on:
        suite().run()
        assert on.flush(TIMEOUT)
    with provider.get_tracer("mine").start_as_current_span("after"):
        pass

    assert len(spans.get_finished_spans()) == sum(SPAN_COUNTS.values()) + 1
    assert len(records.get_finished_logs()) == 4


def test_without_a_logger_provider_scores_are_events_of_the_span() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    with configure_otel(tracer_provider=provider):
        suite().run()

    samples = [span for span in spans.get_finished_spans() if span.name == "evaluate_sample"]
    names = [event.attributes["gen_ai.evaluation.name"] for event in samples[0].events]
    assert names == ["contains", "style"]


def test_a_run_is_a_child_of_the_current_span() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    with (
        configure_otel(tracer_provider=provider),
        provider.get_tracer("mine").start_as_current_span("release") as release,
    ):
        suite().run()

    (run,) = [s for s in spans.get_finished_spans() if s.name == "experiment capitals"]
    assert run.parent == release.get_span_context()


SCRIPT = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.processes import TIMEOUT
from tests.traced import suite
from weakincentives.contrib.opentelemetry import configure_otel

spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
configure_otel()
suite().run()
print(len(spans.get_finished_spans()))
"""


def test_the_global_provider_of_a_process_is_used(tmp_path: Path) -> None:
    path = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == (f"{sum(SPAN_COUNTS.values())}\n", "")


def test_an_unsampled_trace_sends_no_spans(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-the-environment")
    with configure_otel(timeout=TIMEOUT, content=True):
        report = suite().run()

    assert report.passed == 2
    assert receiver.spans == ()
    assert {log.service for log in receiver.logs} == {"from-the-environment"}


def test_a_second_call_replaces_the_first(receiver: OtlpReceiver) -> None:
    first = configure_otel(endpoint="http://127.0.0.1:9")
    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT) as second:
        suite().run()
        first.shutdown()
        assert tracing.is_tracing()
    second.shutdown()

    assert len(receiver.spans) == sum(SPAN_COUNTS.values())
    assert not tracing.is_tracing()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tracer_provider": 1, "endpoint": "http://127.0.0.1:9"}, "got both"),
        ({"tracer_provider": 1}, "a provider with `get_tracer`, got 1"),
        ({"logger_provider": 1}, "a provider with `get_logger`, got 1"),
        ({"endpoint": "127.0.0.1:4318"}, "in `endpoint`, got '127.0.0.1:4318'"),
        ({"endpoint": 4318}, "in `endpoint`, got 4318"),
        ({"timeout": -1}, "`timeout`"),
        ({"timeout": "soon"}, "`timeout`"),
    ],
)
def test_invalid_options_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        configure_otel(**options)

    assert not tracing.is_tracing()


def test_without_the_packages_the_error_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)

    with pytest.raises(MissingExtraError, match=r"weakincentives-evals\[otel\]"):
        configure_otel(endpoint="http://127.0.0.1:9")


def test_a_burst_of_spans_arrives_completely(receiver: OtlpReceiver) -> None:
    """Send more spans than the queue of the SDK can hold."""
    samples = [Sample(str(number), "a", "a") for number in range(1200)]

    async def agent(text: str) -> str:
        return text

    with configure_otel(endpoint=receiver.url, timeout=TIMEOUT):
        EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=50)).run()

    assert Counter(span.name for span in receiver.spans) == {
        "evaluate_sample": 1200,
        "evaluate exact_match": 1200,
        "experiment": 1,
    }
    assert len(receiver.logs) == 1200


def test_misuse_of_the_receiver_is_an_error() -> None:
    with pytest.raises(UsageError, match="an HTTP status for `status`, got 1"):
        OtlpReceiver(status=1)
    with pytest.raises(UsageError, match="not started yet"):
        _ = OtlpReceiver().url
    with OtlpReceiver() as receiver, pytest.raises(UsageError, match="starts only once"):
        receiver.__enter__()
