"""EvalSuite: a prompt or an agent, a dataset and evaluators, run from any script."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.engine import TIMEOUT
from tests.seeds.loops import QALoop
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    Sample,
    contains,
    evaluate,
    exact_match,
    open_store,
    stream,
    tool_not_called,
)
from weakincentives.runtime import InProcessDispatcher, PromptExecuted


@dataclass(frozen=True, slots=True)
class Question:
    question: str


QA = PromptTemplate[str](
    ns="tests",
    key="qa",
    sections=[MarkdownSection[Question](title="Q", template="Answer: $question", key="q")],
)
CAPITALS = Dataset(
    [Sample("fr", Question("France?"), "Paris"), Sample("it", Question("Italy?"), "Rome")],
    name="capitals",
)


def parisian() -> ScriptedAdapter[str]:
    return ScriptedAdapter(lambda request: "Paris")


def test_each_sample_has_a_session_of_the_prompt_and_adapter() -> None:
    bus, executed = InProcessDispatcher(), []
    bus.subscribe(PromptExecuted, executed.append)

    report = EvalSuite(QA, CAPITALS, exact_match, parisian()).run(bus=bus, tags={"team": "a"})

    assert [result.passed for result in report.results] == [True, False]
    assert (report.dataset_name, report.total_tokens > 0) == ("capitals", True)
    assert len({event.session_id for event in executed}) == 2


@pytest.mark.parametrize(
    ("sample_input", "output"),
    [(Question("x"), "x"), ({"question": "x"}, "x"), ("x", "x")],
    ids=["dataclass", "mapping", "the one parameter"],
)
def test_an_input_fills_the_parameters_of_the_prompt(sample_input: Any, output: str) -> None:
    adapter = ScriptedAdapter(lambda request: request.messages[-1].content.split()[-1])

    report = EvalSuite(QA, [Sample("1", sample_input, output)], exact_match, adapter).run()

    assert report.pass_rate == 1.0


def test_an_input_that_does_not_fit_the_prompt_is_an_error_of_the_sample() -> None:
    two = PromptTemplate[str](
        ns="t", key="two", sections=[MarkdownSection(title="T", template="$a $b", key="k")]
    )

    report = EvalSuite(two, [Sample("1", "only one")], exact_match, parisian()).run()

    assert "expected an input with the parameters of `t/two` (a, b)" in str(report.results[0].error)


def test_a_main_loop_is_an_agent() -> None:
    loop = QALoop(adapter=parisian(), bus=InProcessDispatcher())
    samples = [Sample("1", "Capital of France?", "Paris")]

    report = EvalSuite(loop, samples, [exact_match, tool_not_called("search")]).run()

    assert report.pass_rate == 1.0
    assert report.scores_by_criterion == {"exact_match": 1.0, "tool_not_called(search)": 1.0}


def test_several_evaluators_must_all_pass() -> None:
    samples = [Sample("1", "x", "Par"), Sample("2", "x", "Paris")]

    report = EvalSuite(lambda question: "Paris", samples, [contains, exact_match], name="n").run()

    assert [result.passed for result in report.results] == [False, True]
    assert report.scores_by_criterion == {"contains": 1.0, "exact_match": 0.5}
    assert report.dataset_name == "n"
    single = EvalSuite(lambda question: "Paris", samples, [contains]).run()
    assert single.scores_by_criterion == {"contains": 1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected one of `prompt` and `agent`, got both or neither"),
        ({"prompt": str, "agent": str}, "got both or neither"),
        ({"agent": str.upper}, "expected an `evaluator`, got none"),
        ({"agent": str.upper, "evaluator": exact_match, "config": {}}, "expected an `EvalConfig`"),
        ({"agent": 3, "evaluator": exact_match}, "expected a function, a MainLoop or a prompt"),
        ({"agent": str, "evaluator": exact_match}, "expected a function, a MainLoop or a prompt"),
        ({"prompt": QA, "evaluator": exact_match}, "expected an adapter with `evaluate`"),
        ({"agent": lambda: 1, "evaluator": exact_match}, "expected an agent that takes the input"),
    ],
)
def test_mistakes_are_refused_when_the_suite_is_constructed(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        EvalSuite(**arguments)


def suite(config: EvalConfig | None = None) -> EvalSuite[Any, Any, Any]:
    return EvalSuite(QA, CAPITALS, contains, parisian(), config)


def test_it_runs_inside_a_running_event_loop_as_in_a_notebook() -> None:
    async def cell() -> float:
        return suite().run().pass_rate

    assert (asyncio.run(cell()), trio.run(cell), suite().run().pass_rate) == (0.5, 0.5, 0.5)


def test_a_suite_can_run_asynchronously() -> None:
    async def main() -> float:
        return (await suite().run_async()).pass_rate

    assert (asyncio.run(main()), trio.run(main)) == (0.5, 0.5)


def test_errors_inside_a_running_event_loop_are_the_same() -> None:
    async def cell() -> None:
        suite().run(store=None, resume="latest")

    for attempt in (lambda: asyncio.run(cell()), lambda: trio.run(cell)):
        with pytest.raises(UsageError, match="expected `store` to resume"):
            attempt()


def test_a_task_that_an_agent_left_behind_does_not_affect_the_next_run() -> None:
    tasks: list[asyncio.Task[None]] = []
    second_run = asyncio.Event()

    async def background_task() -> None:
        await second_run.wait()
        raise ValueError("of the first run")

    async def starts_background_task(question: Question) -> str:
        tasks.append(asyncio.create_task(background_task()))
        return "Paris"

    async def waits_for_background_tasks(question: Question) -> str:
        second_run.set()
        await asyncio.wait(tasks)
        return "Paris"

    first = EvalSuite(starts_background_task, CAPITALS, contains).run()
    second = EvalSuite(waits_for_background_tasks, CAPITALS, contains).run()

    assert [str(task.exception()) for task in tasks] == ["of the first run"] * first.total
    assert (second.total, second.errors, second.passed) == (first.total, 0, first.passed)


def test_samples_run_concurrently() -> None:
    barrier = threading.Barrier(2, timeout=TIMEOUT)

    def agent(question: Question) -> str:
        barrier.wait()
        return "Paris"

    report = EvalSuite(agent, CAPITALS, contains, config=EvalConfig(max_concurrent=2)).run()

    assert report.errors == 0


def test_eight_samples_run_concurrently_by_default() -> None:
    barrier = threading.Barrier(8, timeout=TIMEOUT)

    def agent(number: int) -> str:
        barrier.wait()
        return "ok"

    samples = [Sample(str(number), number, "ok") for number in range(16)]

    assert EvalSuite(agent, samples, contains).run().passed == 16


# ── where runs are stored ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, without `$WINK_STORE`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINK_STORE", raising=False)
    return tmp_path


def totals_in(path: Path) -> list[int]:
    """Return the number of results of each run."""
    with open_store(path) as store:
        return [record.total for record in store.runs()]


def test_a_run_is_stored_in_the_folder_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite().run(store=None)
    assert [*folder.iterdir()] == []

    report = suite().run()
    assert suite().run(resume="latest").run_id == report.run_id
    asyncio.run(suite().run_async())
    assert totals_in(folder / ".wink" / "runs.db") == [2, 2]

    suite().run(store=folder / "path.db")
    suite().run(store="text.db")
    with open_store("own.db") as store:
        suite().run(store=store)
        assert store.run("latest").total == 2  # the caller's store stays open
    monkeypatch.setenv("WINK_STORE", "variable.db")
    suite().run()
    for name in ("path.db", "text.db", "own.db", "variable.db"):
        assert totals_in(folder / name) == [2]


def test_evaluate_and_stream_store_nothing_unless_asked(folder: Path) -> None:
    async def main() -> int:
        await evaluate(CAPITALS, EvalConfig(), contains, agent=lambda question: "Paris")
        results = stream(CAPITALS, EvalConfig(), contains, agent=lambda question: "Paris")
        return len([result async for result in results])

    assert asyncio.run(main()) == 2
    assert [*folder.iterdir()] == []


def test_a_run_continues_if_the_default_store_cannot_be_opened(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / ".wink").write_text("a file where the folder should be")

    assert suite().run().total == 2
    (record,) = caplog.records
    assert "the run is not stored" in record.getMessage()
    assert "pass `store=PATH`, or `store=None`" in record.getMessage()
    with pytest.raises((StoreError, OSError)):
        suite().run(store=".wink/runs.db")


def test_samples_without_a_json_form_run_and_are_stored_without_content(folder: Path) -> None:
    samples = [Sample("1", object(), "ok"), Sample("2", object(), "no")]

    report = EvalSuite(lambda value: "ok", samples, exact_match).run()

    assert [result.passed for result in report.results] == [True, False]
    with open_store() as store:
        (first, _) = store.rows("latest")
        assert store.run("latest").manifest.dataset_digest is None
    assert "sample" in first.result.metadata["not_stored"]


# ── values and options ──────────────────────────────────────────────────────────────────────────


def test_a_suite_can_be_copied_with_changes() -> None:
    romans = replace(suite(), adapter=ScriptedAdapter(lambda request: "Rome"), name="romans")

    assert [result.passed for result in romans.run().results] == [False, True]
    assert (romans.name, romans.dataset, romans.config) == ("romans", CAPITALS, EvalConfig())
    by_name = EvalSuite(agent=lambda question: "Rome", dataset=CAPITALS, evaluator=contains)
    assert replace(by_name, config=EvalConfig(epochs=2)).run().total == 4


def test_tags_that_are_not_text_are_refused_before_the_first_sample() -> None:
    with pytest.raises(UsageError, match="expected `tags` from `str` to `str`, got "):
        suite().run(tags={"n": 1})  # type: ignore[dict-item]


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(TypeError, match="stroe"):
        suite().run(stroe=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="agentt"):
        stream(CAPITALS, EvalConfig(), contains, agentt=str)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="sample"):
        suite().build_run(sample=CAPITALS)  # type: ignore[call-arg]


def test_the_manifest_is_stored_before_the_first_sample(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        records: list[Any] = []

        def agent(question: Question) -> str:
            records.append(store.run("latest"))
            return "Paris"

        config = EvalConfig(epochs=3, max_samples=1, seed=5)
        report = EvalSuite(agent, CAPITALS, [exact_match, contains], config=config).run(
            store=store, tags={"team": "a"}, run_id="one"
        )
        record = store.run("one")

    assert report.run_id == "one"
    assert (records[0].status, record.status, record.total) == ("running", "complete", 3)
    manifest = records[0].manifest
    assert (manifest.dataset_name, record.manifest.dataset_digest) == ("capitals", CAPITALS.digest)
    assert (manifest.planned, manifest.config["seed"], manifest.tags) == (3, 5, {"team": "a"})
    assert manifest.agent.endswith(".agent")
    assert [info.name for info in manifest.criteria] == ["exact_match", "contains"]
    assert "python" in manifest.packages


def test_a_stored_run_equals_its_report(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        report = suite(EvalConfig(max_concurrent=2, epochs=2)).run(store=store)
        stored = store.report(report.run_id, input_type=Question)

    assert stored == report


def test_an_agent_is_passed_by_name_or_as_the_first_argument() -> None:
    def agent(question: str) -> str:
        return question

    samples = [Sample("1", "a", "a")]
    by_name = EvalSuite(agent=agent, dataset=samples, evaluator=exact_match)
    first = EvalSuite(agent, samples, exact_match)

    assert (by_name.run().passed, first.run().passed) == (1, 1)
    for prompt, named in ((agent, agent), (None, None)):
        with pytest.raises(UsageError, match="expected one of `prompt` and `agent`"):
            EvalSuite(prompt, samples, exact_match, agent=named)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (
            lambda: EvalSuite(str.upper, [Sample("1", "a")], exact_match, nmae="x"),
            "EvalSuite.*name",
        ),
        (lambda: EvalSuite(str.upper, [Sample("1", "a")], evaluators=[exact_match]), "evaluator"),
        (
            lambda: EvalSuite(str.upper, [Sample("1", "a")], exact_match).run(stroe=None),
            "run.*store",
        ),
        (lambda: EvalConfig(max_concurrency=2), "EvalConfig.*max_concurrent"),
    ],
)
def test_a_misspelt_argument_is_refused_with_the_one_that_was_meant(call: Any, meant: str) -> None:
    function, _, name = meant.rpartition(".*")
    with pytest.raises(TypeError, match=rf"{function}.*unexpected.* - did you mean {name}\b"):
        call()


def test_a_field_of_the_configuration_is_sent_there() -> None:
    suite = EvalSuite(str.upper, [Sample("a", "b", "b")], "exact_match")

    for call in (partial(EvalSuite, str.upper, [], "exact_match"), suite.run):
        with pytest.raises(TypeError, match=r"'epochs' - pass config=EvalConfig\(epochs=...\)"):
            call(epochs=2)
