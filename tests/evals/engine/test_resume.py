"""A run goes on where it ended: nothing is done twice, and what changed is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
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
from weakincentives.runtime import ToolInvoked
from weakincentives.testing import session_with

pytestmark = pytest.mark.anyio

SAMPLES = [Sample(str(number), number, "ok") for number in range(6)]
asked: list[int] = []


def agent(number: int) -> str:
    asked.append(number)
    if number == 4 and asked.count(4) == 1:
        raise ConnectionError("lost")
    return "ok" if number < 3 else "no"


@pytest.fixture(autouse=True)
def _nobody_was_asked() -> None:
    asked.clear()


class Counted:
    """An evaluator that counts how often it is asked; another `version` is other code."""

    def __init__(self, name: str, passes: Callable[[str, str], bool], version: str = "1") -> None:
        def evaluator(output: str, expected: str, version: str = version) -> bool:
            self.times += 1
            return passes(output, expected)

        self.times = 0
        self.criterion = criterion(evaluator, name=name)


async def run(
    store: RunStore, evaluator: Any = exact_match, samples: Any = SAMPLES, **more: Any
) -> EvalReport[Any]:
    options = {key: more.pop(key) for key in ("resume", "retry_errors", "agent") if key in more}
    options.setdefault("agent", agent)
    return await evaluate(
        samples, EvalConfig(**{"max_concurrent": 1, **more}), evaluator, store=store, **options
    )


async def again(store: RunStore, *evaluator: Any, **more: Any) -> EvalReport[Any]:
    asked.clear()
    report = await run(store, *evaluator, resume="latest", **more)
    assert store.report("latest") == report
    return report


# ── nothing is done twice ───────────────────────────────────────────────────────────────────────


async def test_a_complete_run_is_only_read(store: RunStore) -> None:
    first = await run(store)
    created = store.run("latest").manifest.created_at

    assert await again(store) == first
    assert asked == []
    record = store.run("latest")
    assert (record.status, record.manifest.created_at) == ("complete", created)
    assert len(store.runs()) == 1


async def test_what_is_missing_is_run(store: RunStore) -> None:
    async with stream(
        SAMPLES, EvalConfig(1), exact_match, agent=agent, store=store, run_id="r"
    ) as results:
        async for result in results:
            if result.sample_id == "2":
                break
    done = {row.result.sample_id for row in store.rows("r")}

    report = await again(store, max_concurrent=3)

    assert report.run_id == "r"
    assert [result.sample_id for result in report.results] == list("012345")
    assert {str(number) for number in asked} == set("012345") - done
    assert store.run("r").status == "complete"


async def test_a_source_without_end_is_resumed_as_well(store: RunStore) -> None:
    await run(store, samples=iter(SAMPLES), max_samples=2)

    report = await again(store, samples=iter(SAMPLES), max_samples=5)

    assert (asked, report.total) == ([2, 3, 4], 5)


async def test_further_epochs_run_only_the_difference(store: RunStore) -> None:
    await run(store, samples=SAMPLES[:3])

    report = await again(store, samples=SAMPLES[:3], epochs=3)

    assert sorted(asked) == [0, 0, 1, 1, 2, 2]
    assert [(r.sample_id, r.epoch) for r in report.results] == [
        (sample_id, epoch) for sample_id in "012" for epoch in (1, 2, 3)
    ]


async def test_an_error_stands_until_it_is_asked_for_again(store: RunStore) -> None:
    assert (await run(store)).errors == 1

    assert (await again(store)).errors == 1
    assert asked == []
    asked.append(4)  # for the agent, which fails at the first time
    report = await evaluate(
        SAMPLES,
        EvalConfig(1),
        exact_match,
        agent=agent,
        store=store,
        resume="latest",
        retry_errors=True,
    )
    assert asked == [4, 4]
    assert (report.errors, report.results[4].attempt) == (0, 2)
    assert store.report("latest") == report


# ── what changed is done again ──────────────────────────────────────────────────────────────────


async def test_a_sample_that_changed_and_one_that_is_new_are_run(store: RunStore) -> None:
    await run(store, samples=Dataset(SAMPLES[:4], "d"))
    notes: list[str] = []
    changed = [*SAMPLES[:2], Sample("2", 2, "no"), SAMPLES[3], SAMPLES[5]]

    asked.clear()
    report = await evaluate(
        Dataset(changed, "d"),
        EvalConfig(1),
        exact_match,
        agent=agent,
        store=store,
        resume="latest",
        on_note=notes.append,
    )

    assert asked == [2, 5]
    assert [result.passed for result in report.results] == [True, True, False, False, False]
    assert notes[0].startswith("reuses 3 results of run ")
    assert notes[1:] == [
        "the dataset changed: samples that are new or differ run again",
        "1 sample changed since: run again",
    ]
    assert store.report("latest") == report
    assert (await again(store, samples=Dataset(changed, "d"))) == report
    assert asked == []


async def test_an_added_evaluator_is_the_only_one_that_is_asked(store: RunStore) -> None:
    old = Counted("old", lambda output, expected: output == expected)
    new = Counted("new", lambda output, expected: True)
    await run(store, old.criterion)
    assert (old.times, new.times) == (5, 0)

    report = await again(store, all_of(old.criterion, new.criterion))

    assert (asked, old.times, new.times) == ([], 5, 5)
    assert report.scores_by_criterion == {"old": 0.6, "new": 1.0}
    await again(store, all_of(old.criterion, new.criterion))
    assert (asked, old.times, new.times) == ([], 5, 5)


async def test_an_evaluator_that_changed_is_the_only_one_that_is_asked(store: RunStore) -> None:
    same = Counted("same", lambda output, expected: True)
    first = Counted("judge", lambda output, expected: True, version="1")
    second = Counted("judge", lambda output, expected: output == expected, version="2")
    await run(store, all_of(same.criterion, first.criterion))

    report = await again(store, all_of(same.criterion, second.criterion))

    assert (asked, same.times, second.times) == ([], 5, 5)
    assert report.scores_by_criterion == {"same": 1.0, "judge": 0.6}


async def test_another_way_to_combine_them_asks_nobody_and_counts(store: RunStore) -> None:
    never = Counted("never", lambda output, expected: False)
    always = Counted("always", lambda output, expected: True)
    parts = never.criterion, always.criterion
    assert (await run(store, all_of(*parts))).passed == 0

    assert (await again(store, any_of(*parts))).passed == 5
    assert (never.times, always.times) == (5, 5)
    assert (await again(store, negate(always.criterion))).passed == 0


async def test_evaluators_of_one_name_are_not_mistaken_for_each_other(store: RunStore) -> None:
    yes = Counted("judge", lambda output, expected: True, version="yes")
    no = Counted("judge", lambda output, expected: False, version="no")
    await run(store, all_of(yes.criterion, no.criterion))

    report = await again(store, all_of(no.criterion, contains))
    assert report.results[0].scores[0].value == 0.0
    report = await again(store, any_of(yes.criterion, no.criterion))
    assert [score.value for score in report.results[0].scores] == [1.0, 0.0]


async def test_scoring_anew_that_was_interrupted_goes_on_with_what_is_left(
    store: RunStore,
) -> None:
    old = Counted("judge", lambda output, expected: True, version="1")
    await run(store, all_of(old.criterion, exact_match), samples=SAMPLES[:3])
    calls = iter(range(10))

    async def judge(output: str, expected: str) -> bool:
        if next(calls) == 1:
            scope.cancel()
            await anyio.sleep_forever()
        return False

    evaluators = all_of(criterion(judge, name="judge"), exact_match)
    with anyio.CancelScope() as scope:
        await run(store, evaluators, samples=SAMPLES[:3], resume="latest")
    assert scope.cancelled_caught
    assert store.run("latest").status == "interrupted"

    report = await again(store, evaluators, samples=SAMPLES[:3])
    assert [result.scores[0].value for result in report.results] == [0.0, 0.0, 0.0]
    assert next(calls) == 4  # one, one that was cut off, and the two that were left


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_scoring_anew_that_lost_a_task_is_not_complete(store: RunStore) -> None:
    await run(store, criterion(lambda output, expected: True, name="old"))
    ours = asyncio.current_task()

    async def judge(output: str, expected: str) -> bool:
        for task in asyncio.all_tasks() - {ours, asyncio.current_task()}:
            if "rescore_rows" in repr(task):
                task.cancel()
        return False

    with pytest.raises(RunIncompleteError):
        await again(store, criterion(judge, name="new"))
    assert store.run("latest").status == "interrupted"


@in_jumping_time
async def test_scoring_anew_is_done_at_once_and_in_time(store: RunStore) -> None:
    async def waits_for_no_thread(number: int) -> str:  # while one works, this time jumps
        return agent(number)

    await run(store, agent=waits_for_no_thread)
    inside, most = 0, 0

    async def slow(output: str, expected: str) -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.sleep(0.01 if output == "ok" else 60)
        inside -= 1
        return True

    limits = {"max_concurrent": 2, "timeout_per_sample_ms": 100}
    report = await again(store, slow, agent=waits_for_no_thread, **limits)

    assert most == 2
    late = [result for result in report.results if result.error_source == "evaluator"]
    assert all((result.error or "").startswith("timed out after 0.1 s") for result in late)
    assert [result.output for result in late] == ["no", "no"]


async def test_an_evaluator_that_was_mended_scores_what_it_failed_on(store: RunStore) -> None:
    def judge(output: str, expected: str) -> bool:
        raise KeyError

    assert (await run(store, judge)).errors == 6

    report = await again(store, exact_match)
    assert asked == []
    assert [result.error_source for result in report.results] == [None] * 4 + ["agent", None]
    assert report.passed == 3


async def test_an_evaluators_error_is_tried_again_without_the_agent(store: RunStore) -> None:
    moods = iter([ConnectionError("judge away"), *[None] * 20])

    def judge(output: str, expected: str) -> bool:
        if (mood := next(moods)) is not None:
            raise mood
        return output == expected

    assert (await run(store, judge, SAMPLES[:3])).errors == 1

    report = await again(store, judge, SAMPLES[:3], retry_errors=True)
    assert asked == []
    assert (report.passed, report.errors) == (3, 0)
    assert sorted(result.attempt for result in report.results) == [1, 1, 2]


# ── what evaluators see of a stored attempt ─────────────────────────────────────────────────────


async def test_a_session_is_looked_at_again_by_another_evaluator(store: RunStore) -> None:
    def searches(sample: Sample[int, str]) -> Any:
        asked.append(sample.input)
        events = [ToolInvoked(name="search")] if sample.input % 2 else []
        return Trajectory(output="ok"), session_with(*events)

    await run(store, agent=searches)

    report = await again(store, tool_called("search"), agent=searches)

    assert asked == []
    assert [result.passed for result in report.results] == [False, True] * 3


@dataclass(frozen=True, slots=True)
class City:
    name: str


def test_outputs_and_samples_have_their_types_again(store: RunStore) -> None:
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


def test_an_attempt_that_failed_has_no_output_whatever_its_type(store: RunStore) -> None:
    def breaks(question: str) -> City:
        current().messages.append(ChatMessage("user", question))
        raise ConnectionError("lost")

    breaks.output_type = City  # type: ignore[attr-defined]
    suite = EvalSuite(breaks, [Sample("1", "?")], exact_match)
    first = suite.run(store=store)

    assert suite.run(store=store, resume="latest") == first
    assert first.results[0].trajectory is not None


# ── another agent ───────────────────────────────────────────────────────────────────────────────


async def test_another_agent_is_refused_and_said_which(store: RunStore) -> None:
    await run(store)

    def other(number: int) -> str:
        return "other"

    with pytest.raises(UsageError, match=r"its agent was 'agent' and is '.*other'"):
        await run(store, agent=other, resume="latest")
    other.__qualname__ = "agent"
    with pytest.raises(UsageError, match=r"its agent version was '.*' and is '.*' - start a new"):
        await run(store, agent=other, resume="latest")
    assert store.run("latest").status == "complete"


def test_another_model_is_refused(store: RunStore) -> None:
    prompt = PromptTemplate[str](
        ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
    )
    samples = [Sample("1", "x", "ok")]
    EvalSuite(prompt, samples, contains, ScriptedAdapter(["ok"], model="small")).run(store=store)

    bigger = EvalSuite(prompt, samples, contains, ScriptedAdapter(["ok"], model="large"))
    with pytest.raises(UsageError, match="its model was 'scripted/small' and is 'scripted/large'"):
        bigger.run(store=store, resume="latest")


async def test_a_run_that_is_not_there_cannot_go_on(store: RunStore) -> None:
    with pytest.raises(UsageError, match="got 'latest' - there are no runs"):
        await run(store, resume="latest")


# ── scoring again ───────────────────────────────────────────────────────────────────────────────


@in_jumping_time
async def test_an_evaluator_that_hangs_does_not_hang_scoring_again(store: RunStore) -> None:
    async def waits_for_no_thread(number: int) -> str:
        return agent(number)

    async def hangs(output: str, expected: str) -> bool:
        if output == "no":
            await anyio.sleep(3600)
        return True

    before = await run(store, agent=waits_for_no_thread, timeout=2.0)
    changes: list[tuple[bool, str | None]] = []

    def see(was: EvalResult[Any], now: EvalResult[Any]) -> None:
        changes.append((was.passed, now.error_source))

    new = await rescore(store, before.run_id, criterion(hangs), on_result=see)

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


async def test_a_run_of_an_earlier_release_is_resumed_by_the_version_of_then(
    store: RunStore,
) -> None:
    then = agent_of(agent)
    vars(then)["agent_version"] = fingerprint_by_text(agent)
    await run(store, agent=then)
    assert store.run("latest").manifest.agent_version != fingerprint(agent)

    await again(store)
    then_again = agent_of(agent)

    assert asked == []
    assert store.run("latest").manifest.agent_version == identity_of(then_again).version
