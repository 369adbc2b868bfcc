"""A resumed run continues where it ended: nothing runs twice, and what changed runs again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest

from tests.engine import in_jumping_time
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import RunIncompleteError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    Trajectory,
    all_of,
    any_of,
    contains,
    criterion,
    evaluate,
    exact_match,
    negate,
    stream,
    tool_called,
)
from weakincentives.evals.engine import agent_of, rescore
from weakincentives.evals.engine.agents import current, identity_of
from weakincentives.evals.engine.fingerprint import fingerprint, fingerprint_by_text
from weakincentives.internal.names import display_name
from weakincentives.runtime import ToolInvoked
from weakincentives.testing import session_with

pytestmark = pytest.mark.anyio

SAMPLES = [Sample(str(number), number, "ok") for number in range(6)]
calls: list[int] = []


def agent(number: int) -> str:
    calls.append(number)
    if number == 4 and calls.count(4) == 1:
        raise ConnectionError("lost")
    return "ok" if number < 3 else "no"


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()


class CountingEvaluator:
    """An evaluator that counts its calls; a different `version` stands for different code."""

    def __init__(self, name: str, passes: Callable[[str, str], bool], version: str = "1") -> None:
        def evaluator(output: str, expected: str, version: str = version) -> bool:
            self.calls += 1
            return passes(output, expected)

        self.calls = 0
        self.criterion = criterion(evaluator, name=name)


async def run(
    store: RunStore, evaluator: Any = exact_match, samples: Any = SAMPLES, **config: Any
) -> EvalReport[Any]:
    options = {key: config.pop(key) for key in ("resume", "retry_errors", "agent") if key in config}
    options.setdefault("agent", agent)
    return await evaluate(
        samples, EvalConfig(**{"max_concurrent": 1, **config}), evaluator, store=store, **options
    )


async def resume(store: RunStore, *evaluator: Any, **options: Any) -> EvalReport[Any]:
    calls.clear()
    report = await run(store, *evaluator, resume="latest", **options)
    assert store.report("latest") == report
    return report


# ── nothing runs twice ──────────────────────────────────────────────────────────────────────────


async def test_resuming_a_complete_run_only_reads_it(store: RunStore) -> None:
    first = await run(store)
    created = store.run("latest").manifest.created_at

    assert await resume(store) == first
    assert calls == []
    record = store.run("latest")
    assert (record.status, record.manifest.created_at) == ("complete", created)
    assert len(store.runs()) == 1


async def test_a_busy_disk_never_holds_up_the_event_loop(store: RunStore) -> None:
    """A resumed run, whose rows are scored again, uses the store in other threads only."""
    first = await run(store, exact_match)
    users: list[int] = []
    trace = store._database._connection.set_trace_callback
    trace(lambda statement: users.append(threading.get_ident()))

    await evaluate(SAMPLES, EvalConfig(), contains, store=store, agent=agent, resume=first.run_id)

    assert users
    assert threading.get_ident() not in users


async def test_missing_samples_are_run(store: RunStore) -> None:
    async with stream(
        SAMPLES, EvalConfig(1), exact_match, agent=agent, store=store, run_id="r"
    ) as results:
        async for result in results:
            if result.sample_id == "2":
                break
    done = {row.result.sample_id for row in store.rows("r")}

    report = await resume(store, max_concurrent=3)

    assert report.run_id == "r"
    assert [result.sample_id for result in report.results] == list("012345")
    assert {str(number) for number in calls} == set("012345") - done
    assert store.run("r").status == "complete"


async def test_a_run_from_an_iterator_can_be_resumed(store: RunStore) -> None:
    await run(store, samples=iter(SAMPLES), max_samples=2)

    report = await resume(store, samples=iter(SAMPLES), max_samples=5)

    assert (calls, report.total) == ([2, 3, 4], 5)


async def test_only_additional_epochs_are_run(store: RunStore) -> None:
    await run(store, samples=SAMPLES[:3])

    report = await resume(store, samples=SAMPLES[:3], epochs=3)

    assert sorted(calls) == [0, 0, 1, 1, 2, 2]
    assert [(r.sample_id, r.epoch) for r in report.results] == [
        (sample_id, epoch) for sample_id in "012" for epoch in (1, 2, 3)
    ]


async def test_errors_are_retried_only_on_request(store: RunStore) -> None:
    assert (await run(store)).errors == 1

    assert (await resume(store)).errors == 1
    assert calls == []
    calls.append(4)  # the agent fails only at the first call
    report = await evaluate(
        SAMPLES,
        EvalConfig(1),
        exact_match,
        agent=agent,
        store=store,
        resume="latest",
        retry_errors=True,
    )
    assert calls == [4, 4]
    assert (report.errors, report.results[4].attempt) == (0, 2)
    assert store.report("latest") == report


# ── what changed runs again ─────────────────────────────────────────────────────────────────────


async def test_changed_and_new_samples_are_run(store: RunStore) -> None:
    await run(store, samples=Dataset(SAMPLES[:4], "d"))
    notes: list[str] = []
    changed = [*SAMPLES[:2], Sample("2", 2, "no"), SAMPLES[3], SAMPLES[5]]

    calls.clear()
    report = await evaluate(
        Dataset(changed, "d"),
        EvalConfig(1),
        exact_match,
        agent=agent,
        store=store,
        resume="latest",
        on_note=notes.append,
    )

    assert calls == [2, 5]
    assert [result.passed for result in report.results] == [True, True, False, False, False]
    assert notes[0].startswith("reuses 3 results of run ")
    assert notes[1:] == [
        "the dataset changed: samples that are new or differ run again",
        "1 sample changed since: run again",
    ]
    assert store.report("latest") == report
    assert (await resume(store, samples=Dataset(changed, "d"))) == report
    assert calls == []


async def test_only_an_added_evaluator_is_called(store: RunStore) -> None:
    old = CountingEvaluator("old", lambda output, expected: output == expected)
    new = CountingEvaluator("new", lambda output, expected: True)
    await run(store, old.criterion)
    assert (old.calls, new.calls) == (5, 0)

    report = await resume(store, all_of(old.criterion, new.criterion))

    assert (calls, old.calls, new.calls) == ([], 5, 5)
    assert report.scores_by_criterion == {"old": 0.6, "new": 1.0}
    await resume(store, all_of(old.criterion, new.criterion))
    assert (calls, old.calls, new.calls) == ([], 5, 5)


async def test_only_a_changed_evaluator_is_called(store: RunStore) -> None:
    same = CountingEvaluator("same", lambda output, expected: True)
    first = CountingEvaluator("judge", lambda output, expected: True, version="1")
    second = CountingEvaluator("judge", lambda output, expected: output == expected, version="2")
    await run(store, all_of(same.criterion, first.criterion))

    report = await resume(store, all_of(same.criterion, second.criterion))

    assert (calls, same.calls, second.calls) == ([], 5, 5)
    assert report.scores_by_criterion == {"same": 1.0, "judge": 0.6}


async def test_another_combination_is_applied_without_calling_evaluators(store: RunStore) -> None:
    never = CountingEvaluator("never", lambda output, expected: False)
    always = CountingEvaluator("always", lambda output, expected: True)
    parts = never.criterion, always.criterion
    assert (await run(store, all_of(*parts))).passed == 0

    assert (await resume(store, any_of(*parts))).passed == 5
    assert (never.calls, always.calls) == (5, 5)
    assert (await resume(store, negate(always.criterion))).passed == 0


async def test_evaluators_with_the_same_name_are_not_confused(store: RunStore) -> None:
    yes = CountingEvaluator("judge", lambda output, expected: True, version="yes")
    no = CountingEvaluator("judge", lambda output, expected: False, version="no")
    await run(store, all_of(yes.criterion, no.criterion))

    report = await resume(store, all_of(no.criterion, contains))
    assert report.results[0].scores[0].value == 0.0
    report = await resume(store, any_of(yes.criterion, no.criterion))
    assert [score.value for score in report.results[0].scores] == [1.0, 0.0]


@pytest.mark.slow
async def test_an_interrupted_rescoring_continues_with_the_remaining_rows(
    store: RunStore,
) -> None:
    old = CountingEvaluator("judge", lambda output, expected: True, version="1")
    await run(store, all_of(old.criterion, exact_match), samples=SAMPLES[:3])
    outcomes = iter(range(10))

    async def judge(output: str, expected: str) -> bool:
        if next(outcomes) == 1:
            scope.cancel()
            await anyio.sleep_forever()
        return False

    evaluators = all_of(criterion(judge, name="judge"), exact_match)
    with anyio.CancelScope() as scope:
        await run(store, evaluators, samples=SAMPLES[:3], resume="latest")
    assert scope.cancelled_caught
    assert store.run("latest").status == "interrupted"

    report = await resume(store, evaluators, samples=SAMPLES[:3])
    assert [result.scores[0].value for result in report.results] == [0.0, 0.0, 0.0]
    assert next(outcomes) == 4  # one, one that was cancelled, and the two that remained


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_rescoring_that_lost_a_task_is_not_complete(store: RunStore) -> None:
    await run(store, criterion(lambda output, expected: True, name="old"))
    this_task = asyncio.current_task()

    async def judge(output: str, expected: str) -> bool:
        for task in asyncio.all_tasks() - {this_task, asyncio.current_task()}:
            if "rescore_rows" in repr(task):
                task.cancel()
        return False

    with pytest.raises(RunIncompleteError):
        await resume(store, criterion(judge, name="new"))
    assert store.run("latest").status == "interrupted"


@in_jumping_time
async def test_rescoring_is_concurrent_and_has_a_timeout(store: RunStore) -> None:
    async def async_agent(
        number: int,
    ) -> str:  # without a thread: the mock clock would jump meanwhile
        return agent(number)

    await run(store, agent=async_agent)
    running, max_running = 0, 0

    async def slow(output: str, expected: str) -> bool:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await anyio.sleep(0.01 if output == "ok" else 60)
        running -= 1
        return True

    limits = {"max_concurrent": 2, "timeout_per_sample_ms": 100}
    report = await resume(store, slow, agent=async_agent, **limits)

    assert max_running == 2
    timed_out = [result for result in report.results if result.error_source == "evaluator"]
    assert all((result.error or "").startswith("timed out after 0.1 s") for result in timed_out)
    assert [result.output for result in timed_out] == ["no", "no"]


async def test_a_repaired_evaluator_scores_the_rows_on_which_it_failed(store: RunStore) -> None:
    def judge(output: str, expected: str) -> bool:
        raise KeyError

    assert (await run(store, judge)).errors == 6

    report = await resume(store, exact_match)
    assert calls == []
    assert [result.error_source for result in report.results] == [None] * 4 + ["agent", None]
    assert report.passed == 3


async def test_errors_of_evaluators_are_retried_without_the_agent(store: RunStore) -> None:
    failures = iter([ConnectionError("judge unavailable"), *[None] * 20])

    def judge(output: str, expected: str) -> bool:
        if (failure := next(failures)) is not None:
            raise failure
        return output == expected

    assert (await run(store, judge, SAMPLES[:3])).errors == 1

    report = await resume(store, judge, SAMPLES[:3], retry_errors=True)
    assert calls == []
    assert (report.passed, report.errors) == (3, 0)
    assert sorted(result.attempt for result in report.results) == [1, 1, 2]


# ── rescoring stored attempts ───────────────────────────────────────────────────────────────────


async def test_a_stored_session_is_read_by_a_new_evaluator(store: RunStore) -> None:
    def searching_agent(sample: Sample[int, str]) -> Any:
        calls.append(sample.input)
        events = [ToolInvoked(name="search")] if sample.input % 2 else []
        return Trajectory(output="ok"), session_with(*events)

    await run(store, agent=searching_agent)

    report = await resume(store, tool_called("search"), agent=searching_agent)

    assert calls == []
    assert [result.passed for result in report.results] == [False, True] * 3


@dataclass(frozen=True, slots=True)
class City:
    name: str


def test_outputs_and_samples_are_loaded_with_their_types(store: RunStore) -> None:
    prompt = PromptTemplate[City](
        ns="t", key="city", sections=[MarkdownSection(title="Q", template="$country?", key="q")]
    )
    dataset = Dataset([Sample("1", {"country": "France"}, City("Paris"))], "d")
    adapter = ScriptedAdapter([{"name": "Paris"}])
    EvalSuite(prompt, dataset, lambda output, expected: True, adapter).run(store=store)

    report = EvalSuite(prompt, dataset, exact_match, adapter).run(store=store, resume="latest")

    assert report.pass_rate == 1.0
    assert report.results[0].output == City("Paris")
    assert report.results[0].sample == dataset[0]


def test_a_failed_attempt_with_an_output_type_has_no_output(store: RunStore) -> None:
    def failing_agent(question: str) -> City:
        current().messages.append(ChatMessage("user", question))
        raise ConnectionError("lost")

    failing_agent.output_type = City  # type: ignore[attr-defined]
    suite = EvalSuite(failing_agent, [Sample("1", "?")], exact_match)
    first = suite.run(store=store)

    assert suite.run(store=store, resume="latest") == first
    assert first.results[0].trajectory is not None


# ── changed agents ──────────────────────────────────────────────────────────────────────────────


async def test_resume_refuses_a_changed_agent_and_names_it(store: RunStore) -> None:
    await run(store)

    def other(number: int) -> str:
        return "other"

    with pytest.raises(UsageError, match=r"its agent was 'agent' and is '.*other'"):
        await run(store, agent=other, resume="latest")
    other.__name__ = other.__qualname__ = "agent"
    with pytest.raises(UsageError, match=r"its agent version was '.*' and is '.*' - start a new"):
        await run(store, agent=other, resume="latest")
    assert store.run("latest").status == "complete"


async def test_an_agent_that_an_earlier_release_named_otherwise_is_the_same(
    store: RunStore,
) -> None:
    def answer_in(number: int, language: str) -> str:
        return language

    in_french = partial(answer_in, language="fr")
    earlier = agent_of(in_french)
    vars(earlier)["agent_name"] = display_name(answer_in)
    await run(store, agent=earlier)

    await run(store, agent=in_french, resume="latest")


def test_resume_refuses_a_changed_model(store: RunStore) -> None:
    prompt = PromptTemplate[str](
        ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
    )
    samples = [Sample("1", "x", "ok")]
    EvalSuite(prompt, samples, contains, ScriptedAdapter(["ok"], model="small")).run(store=store)

    changed = EvalSuite(prompt, samples, contains, ScriptedAdapter(["ok"], model="large"))
    with pytest.raises(UsageError, match="its model was 'scripted/small' and is 'scripted/large'"):
        changed.run(store=store, resume="latest")


async def test_resume_refuses_an_unknown_run(store: RunStore) -> None:
    with pytest.raises(UsageError, match="got 'latest' - there are no runs"):
        await run(store, resume="latest")


# ── rescoring ───────────────────────────────────────────────────────────────────────────────────


@in_jumping_time
async def test_rescoring_has_a_timeout_for_evaluators_that_hang(store: RunStore) -> None:
    async def async_agent(number: int) -> str:
        return agent(number)

    async def hangs(output: str, expected: str) -> bool:
        if output == "no":
            await anyio.sleep(3600)
        return True

    before = await run(store, agent=async_agent, timeout=2.0)
    changes: list[tuple[bool, str | None]] = []

    def record_change(old: EvalResult[Any], new: EvalResult[Any]) -> None:
        changes.append((old.passed, new.error_source))

    new = await rescore(store, before.run_id, criterion(hangs), on_result=record_change)

    errors = [result for result in store.report(new).results if result.error_source == "evaluator"]
    assert [(result.error or "").partition(" -")[0] for result in errors] == [
        "timed out after 2 s"
    ] * 2
    assert (
        sorted(changes, key=str)
        == [(False, "agent")] + [(False, "evaluator")] * 2 + [(True, None)] * 3
    )
    assert store.run(new).manifest.parent == before.run_id
    assert store.report(before.run_id) == before


async def test_a_run_of_an_earlier_release_is_resumed_by_its_old_fingerprint(
    store: RunStore,
) -> None:
    old_agent = agent_of(agent)
    vars(old_agent)["agent_version"] = fingerprint_by_text(agent)
    await run(store, agent=old_agent)
    assert store.run("latest").manifest.agent_version != fingerprint(agent)

    await resume(store)
    new_agent = agent_of(agent)

    assert calls == []
    assert store.run("latest").manifest.agent_version == identity_of(new_agent).version


async def test_a_rescored_run_is_as_complete_as_the_run_that_it_scores(store: RunStore) -> None:
    before = await run(store, stop_on_error=True)
    new = store.run(await rescore(store, before.run_id, criterion(contains)))

    assert (new.total, new.manifest.planned) == (5, 6)
    assert (new.status, new.stop_reason) == ("stopped", "error")


async def test_a_rescored_run_of_a_stream_that_broke_is_not_complete(store: RunStore) -> None:
    def samples() -> Iterator[Sample[int, str]]:
        yield from SAMPLES[:3]
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        await evaluate(samples(), EvalConfig(), exact_match, agent=agent, store=store)
    new = store.run(await rescore(store, "latest", criterion(contains)))

    assert (new.total, new.manifest.planned, new.status) == (3, None, "interrupted")
    assert new.note.endswith("is not complete")
