"""Tracers get every span with the right parent, and never affect results."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.traced import CAPITALS, ReaderLoop, Recorder, librarian, recording, suite
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import ProviderError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalLoop,
    EvalLoopConfig,
    EvalRequest,
    Sample,
    collect_results_async,
    evaluate,
    exact_match,
    stream,
    submit_dataset,
)
from weakincentives.prompt import Prompt
from weakincentives.runtime import tracing
from weakincentives.runtime.agent.main_loop import MainLoopConfig
from weakincentives.runtime.mailbox import InMemoryMailbox, SqliteMailbox
from weakincentives.runtime.worker.dead_letters import Backoff, DLQPolicy
from weakincentives.testing import CollectingMailbox

pytestmark = pytest.mark.anyio

AT_ONCE = Backoff(base=0.0, max_delay=0.0)
MANY = Dataset([Sample(str(number), str(number), str(number)) for number in range(12)], name="many")


@pytest.fixture
def recorder(caplog: pytest.LogCaptureFixture) -> Iterator[Recorder]:
    """Yield a recorder, and check that every span is closed in the context it was opened in."""
    with recording() as recorder:
        yield recorder
    assert "tracing by" not in caplog.text
    assert recorder.open == 0


def parents_of_samples(recorder: Recorder) -> set[tuple[str, ...]]:
    """Return the parents of the samples."""
    return {each.path[:-1] for each in recorder.of("sample")}


# ── what is heard, and where ────────────────────────────────────────────────────────────────────


async def test_spans_are_nested_as_the_work_is(recorder: Recorder) -> None:
    report = await suite(max_concurrent=2).run_async()

    assert report.passed == 2
    assert recorder.paths == sorted(
        f"sample {id}{rest}"
        for id in ("fr", "it")
        for rest in (
            "",
            " > prompt capital",
            " > prompt capital > model librarian-1",
            " > prompt capital > model librarian-1",
            " > prompt capital > tool look_up",
            " > evaluator both",
            " > evaluator both > prompt llm_judge",
            " > evaluator both > prompt llm_judge > model librarian-1",
        )
    )


async def test_spans_have_the_original_objects(recorder: Recorder) -> None:
    report = await suite().run_async(run_id="mine")

    (run,) = recorder.of("run")
    assert run.path == ("run mine",)
    assert run.facts["manifest"].dataset_digest == CAPITALS.digest
    assert (run.facts["tally"].passed, run.facts["stopped"]) == (2, "")
    first = recorder.of("sample")[0]
    assert first.facts["result"] is report.results[0]
    assert first.facts["sample"] is CAPITALS[0]
    assert {each.facts["adapter"] for each in recorder.of("prompt")} == {"scripted"}
    model_facts = recorder.of("model")[0].facts
    assert model_facts["reply"].message.tool_calls == (recorder.of("tool")[0].facts["call"],)
    assert recorder.of("tool")[0].facts["result"].value == "Paris"
    assert [part.criterion for part in recorder.of("evaluator")[0].facts["score"].parts] == [
        "contains",
        "style",
    ]


async def test_tracers_are_flushed_after_a_run(recorder: Recorder) -> None:
    await suite().run_async()

    assert recorder.flushed == 1


async def test_a_synchronous_agent_is_traced_in_its_thread(recorder: Recorder) -> None:
    adapter = ScriptedAdapter[str](librarian)

    def agent(country: str) -> str:
        prompt: Prompt[str] = ReaderLoop(adapter=adapter).initialize(country)[0]
        return adapter.evaluate(prompt).output

    await evaluate(CAPITALS, EvalConfig(), lambda output, expected: True, agent=agent)

    assert {each.path[1] for each in recorder.of("tool")} == {"sample fr", "sample it"}


async def test_a_run_that_blocks_an_event_loop_belongs_to_its_caller(recorder: Recorder) -> None:
    with tracing.span("tool", "outer", call=None):
        suite().run()

    assert {each.path[0] for each in recorder.spans} == {"tool outer"}


async def test_the_spans_of_concurrent_samples_do_not_mix(recorder: Recorder) -> None:
    async def agent(text: str) -> str:
        with tracing.span("tool", text, call=None):
            await anyio.sleep(0.001 * (int(text) % 3))
        return text

    config = EvalConfig(max_concurrent=5)
    await evaluate(MANY, config, exact_match, agent=agent)

    tools = {each.path[-2:] for each in recorder.of("tool")}
    assert tools == {(f"sample {n}", f"tool {n}") for n in range(12)}


async def test_a_sample_that_uses_a_lent_slot_is_not_a_child_of_the_lender(
    recorder: Recorder,
) -> None:
    tried: set[str] = set()

    async def agent(text: str) -> str:
        if text not in tried:
            tried.add(text)
            raise ProviderError("busy", retryable=True, retry_after=0.02)
        return text

    config = EvalConfig(max_concurrent=2, max_retries=1)
    report = await evaluate(MANY, config, exact_match, agent=agent)

    assert report.passed == 12
    (run,) = recorder.of("run")
    assert parents_of_samples(recorder) == {run.path}


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────


async def test_a_failing_agent_is_traced(recorder: Recorder) -> None:
    async def agent(text: str) -> str:
        raise LookupError("no idea")

    await evaluate([Sample("a", "a")], EvalConfig(), exact_match, agent=agent)

    (sample,) = recorder.of("sample")
    assert isinstance(sample.error, LookupError)
    assert sample.facts["result"].error_source == "agent"
    assert recorder.of("evaluator") == []


async def test_a_failing_evaluator_is_traced(recorder: Recorder) -> None:
    def broken(output: str, expected: str) -> float:
        raise ZeroDivisionError

    await evaluate([Sample("a", "a")], EvalConfig(), broken, agent=lambda text: text)

    (evaluator,), (sample,) = recorder.of("evaluator"), recorder.of("sample")
    assert evaluator.error is sample.error is not None
    assert "score" not in evaluator.facts


async def test_a_timeout_ends_all_spans_of_the_sample(recorder: Recorder) -> None:
    async def agent(text: str) -> str:
        with tracing.span("tool", "slow", call=None):
            await anyio.sleep_forever()
        return text

    config = EvalConfig(timeout_per_sample_ms=300)  # long enough to start, even on a busy machine
    await evaluate([Sample("a", "a")], config, exact_match, agent=agent)

    (tool,), (sample,) = recorder.of("tool"), recorder.of("sample")
    assert isinstance(tool.error, anyio.get_cancelled_exc_class())
    assert isinstance(sample.error, TimeoutError)


async def test_a_run_that_is_cancelled_ends_every_span(recorder: Recorder) -> None:
    async def agent(text: str) -> str:
        if text == "2":
            group.cancel_scope.cancel()
        await anyio.sleep_forever()
        return text

    async def run() -> None:
        await evaluate(MANY, EvalConfig(max_concurrent=3), exact_match, agent=agent)

    async with anyio.create_task_group() as group:
        group.start_soon(run)

    assert len(recorder.of("sample")) == 3
    (run_span,) = recorder.of("run")
    assert isinstance(run_span.error, anyio.get_cancelled_exc_class())
    assert run_span.facts["tally"].done == 0


async def test_an_abandoned_stream_ends_every_span(recorder: Recorder) -> None:
    config = EvalConfig(max_concurrent=2)
    async with stream(MANY, config, exact_match, agent=lambda text: text) as results:
        async for _ in results:
            break

    assert len(recorder.of("run")) == 1


class Broken:
    """A tracer that fails in one place or another."""

    def __init__(self, *where: str) -> None:
        self.where = where

    def _at(self, place: str) -> None:
        if place in self.where:
            raise RuntimeError(f"no {place} today")

    def begin(self, kind: str, name: str, facts: Any) -> str:
        self._at("begin")
        return name

    def end(self, begun: str, facts: Any, error: BaseException | None) -> None:
        self._at("end")

    def inject(self) -> dict[str, str]:
        self._at("carried")
        return {"mine": "here"}

    def attach(self, headers: Any) -> AbstractContextManager[object]:
        self._at("continued")
        return _FailingContext(self)

    def flush(self) -> None:
        self._at("flush")


class _FailingContext:
    def __init__(self, tracer: Broken) -> None:
        self.tracer = tracer

    def __enter__(self) -> None:
        self.tracer._at("enter")

    def __exit__(self, *error: object) -> bool:
        self.tracer._at("leave")
        return True  # this would suppress an exception in the block


PLACES = ("begin", "end", "carried", "continued", "flush", "enter", "leave")


@pytest.mark.parametrize("where", [*((place,) for place in PLACES), PLACES], ids="-".join)
async def test_a_failing_tracer_changes_nothing_and_is_logged_once(
    where: tuple[str, ...], recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    tracing.add_tracer(broken := Broken(*where))
    try:
        report = await suite().run_async()
        headers = tracing.inject()
        for _ in range(2):
            with pytest.raises(LookupError), tracing.attach({**headers, "path": "x"}):
                raise LookupError
    finally:
        tracing.remove_tracer(broken)

    assert (report.passed, report.errors) == (2, 0)
    assert len(recorder.spans) == 17
    assert [record.args[0] for record in caplog.records if "tracing by" in record.message] == [
        "Broken"
    ]
    caplog.clear()


async def test_samples_that_cannot_be_serialized_can_be_traced(recorder: Recorder) -> None:
    dataset = Dataset([Sample("a", object())], name="odd")

    report = await evaluate(
        dataset, EvalConfig(), lambda output, expected: True, agent=lambda sample_input: "done"
    )

    assert report.passed == 1
    manifest = recorder.of("run")[0].facts["manifest"]
    assert (manifest.dataset_name, manifest.planned, manifest.dataset_digest) == ("odd", 1, None)


# ── across mailboxes ────────────────────────────────────────────────────────────────────────────

Make = Callable[[str], Any]


@pytest.fixture(params=["memory", "sqlite"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        return InMemoryMailbox
    return lambda name: SqliteMailbox(name, tmp_path / "mail.db")


async def test_a_sample_is_followed_through_two_mailboxes(box: Make, recorder: Recorder) -> None:
    requests, results, main = box("requests"), box("results"), box("main")
    adapter = ScriptedAdapter[str](librarian)
    config = EvalLoopConfig(max_concurrent=8)
    loop = EvalLoop(
        evaluator=lambda output, expected: True,
        requests=requests,
        results=results,
        mainloop_requests=main,
        config=config,
    )
    reader = ReaderLoop(adapter=adapter, requests=main, config=MainLoopConfig(max_concurrent=8))
    with tracing.span("run", "outer"):
        submission = submit_dataset(CAPITALS, requests)
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run_async)
        group.start_soon(reader.run_async)
        report = await collect_results_async(results, submission, timeout_seconds=120)
        await anyio.to_thread.run_sync(loop.shutdown)
        await anyio.to_thread.run_sync(reader.shutdown)

    assert report.passed == 2
    assert {each.path for each in recorder.of("tool")} == {
        ("run outer", f"request {id}", f"sample {id}", "prompt capital", "tool look_up")
        for id in ("fr", "it")
    }


async def test_each_of_many_sent_together_keeps_its_own_trace(recorder: Recorder) -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    main: InMemoryMailbox[Any] = InMemoryMailbox("main")
    config = EvalLoopConfig(max_concurrent=12)
    agree = {"evaluator": lambda output, expected: True, "config": config}
    loop = EvalLoop(requests=requests, results=results, mainloop_requests=main, **agree)
    adapter = ScriptedAdapter[str](lambda request: request.messages[-1].content.split()[-1])
    reader = ReaderLoop(adapter=adapter, requests=main, config=MainLoopConfig(max_concurrent=12))
    submission = submit_dataset(MANY, requests)
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run_async)
        group.start_soon(reader.run_async)
        await collect_results_async(results, submission, timeout_seconds=120)
        await anyio.to_thread.run_sync(loop.shutdown)
        await anyio.to_thread.run_sync(reader.shutdown)

    questions = {
        (each.path[1], each.facts["response"].text)  # the model says which question it was
        for each in recorder.of("prompt")
    }
    assert questions == {(f"sample {n}", str(n)) for n in range(12)}


async def test_a_redelivered_sample_continues_its_trace(recorder: Recorder) -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    dead: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    policy = DLQPolicy(dead, 3, backoff=AT_ONCE)
    tried: list[str] = []

    async def agent(text: str) -> str:
        tried.append(text)
        if len(tried) < 2:
            raise LookupError("not yet")
        return text

    submit_dataset(Dataset([Sample("a", "a", "a")]), requests)
    loop = EvalLoop(agent, exact_match, requests, results, dlq=policy)
    await loop.run_async(max_iterations=1, wait_time_seconds=0)

    first, second = recorder.of("sample")
    assert first.path == second.path == ("request a", "sample a")
    assert isinstance(first.error, LookupError)
    assert second.facts["result"].attempt == 2


@pytest.mark.slow
@pytest.mark.no_cover
async def test_requests_are_created_lazily(recorder: Recorder) -> None:
    """Check that few of 3,000 requests are in memory at a time, traced or not."""

    def live() -> int:
        return sum(type(each) is EvalRequest for each in gc.get_objects())

    gc.collect()
    before, max_live = live(), 0  # objects of other tests are not counted

    class Counting(CollectingMailbox[Any]):
        def send_all(self, bodies: Any, *, headers: Any = None, ids: Any = (), **_: Any) -> int:
            nonlocal max_live
            heads = headers or iter(dict, None)
            for number, _ in enumerate(zip(bodies, ids, heads, strict=False)):
                if number % 1000 == 999:
                    max_live = max(max_live, live() - before)
            return 0

    dataset = Dataset([Sample(str(number), "a") for number in range(3000)])
    submit_dataset(dataset, Counting())
    assert len(recorder.of("request")) == 3000
    tracing.remove_tracer(recorder)
    submit_dataset(dataset, Counting())

    assert 0 < max_live < 200


# ── without a tracer ────────────────────────────────────────────────────────────────────────────


def test_without_a_tracer_no_span_is_created() -> None:
    assert not tracing.is_tracing()
    assert tracing.span("tool", "a") is tracing.span("run", "b", manifest=1)
    assert tracing.inject() == {}
    with tracing.span("tool", "a") as span, tracing.attach({"traceparent": "x"}):
        span.add(result=1)
        span.error = LookupError()
    tracing.flush()


def test_a_failure_of_a_tracer_is_logged_once_however_often_it_was_added(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with recording() as recorder:
        tracing.add_tracer(recorder)
        with tracing.span("tool", "a"):
            pass

    assert len(recorder.spans) == 1
    assert not tracing.is_tracing()
