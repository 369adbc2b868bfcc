"""EvalSuite: a prompt or an agent, a dataset and evaluators, run from any script."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.engine import PATIENCE
from tests.seeds.loops import QALoop
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    RunStore,
    Sample,
    contains,
    exact_match,
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


def test_a_prompt_is_answered_by_the_adapter_in_a_session_for_each_sample() -> None:
    bus, executed = InProcessDispatcher(), []
    bus.subscribe(PromptExecuted, executed.append)

    report = EvalSuite(QA, CAPITALS, exact_match, parisian()).run(bus=bus, tags={"team": "a"})

    assert [result.passed for result in report.results] == [True, False]
    assert (report.dataset_name, report.total_tokens > 0) == ("capitals", True)
    assert len({event.session_id for event in executed}) == 2


@pytest.mark.parametrize(
    ("given", "output"),
    [(Question("x"), "x"), ({"question": "x"}, "x"), ("x", "x")],
    ids=["dataclass", "mapping", "the one parameter"],
)
def test_an_input_fills_the_parameters_of_the_prompt(given: Any, output: str) -> None:
    adapter = ScriptedAdapter(lambda request: request.messages[-1].content.split()[-1])

    report = EvalSuite(QA, [Sample("1", given, output)], exact_match, adapter).run()

    assert report.pass_rate == 1.0


def test_an_input_that_does_not_fit_the_prompt_is_the_samples_error() -> None:
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
    one = EvalSuite(lambda question: "Paris", samples, [contains]).run()
    assert one.scores_by_criterion == {"contains": 1.0}


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
def test_what_is_wrong_is_said_when_the_suite_is_made(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        EvalSuite(**arguments)


def suite(config: EvalConfig | None = None) -> EvalSuite[Any, Any, Any]:
    return EvalSuite(QA, CAPITALS, contains, parisian(), config)


def test_it_runs_where_an_event_loop_is_running_as_in_a_notebook() -> None:
    async def cell() -> float:
        return suite().run().pass_rate

    assert (asyncio.run(cell()), trio.run(cell), suite().run().pass_rate) == (0.5, 0.5, 0.5)


def test_async_code_need_not_block() -> None:
    async def main() -> float:
        return (await suite().run_async()).pass_rate

    assert (asyncio.run(main()), trio.run(main)) == (0.5, 0.5)


def test_an_error_in_there_is_the_same_as_elsewhere() -> None:
    async def cell() -> None:
        suite().run(resume="latest")

    for attempt in (lambda: asyncio.run(cell()), lambda: trio.run(cell)):
        with pytest.raises(UsageError, match="expected `store` to resume"):
            attempt()


def test_samples_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=PATIENCE)

    def agent(question: Question) -> str:
        meeting.wait()
        return "Paris"

    report = EvalSuite(agent, CAPITALS, contains, config=EvalConfig(max_concurrent=2)).run()

    assert report.errors == 0


def test_what_a_run_is_stands_in_the_store_before_its_first_sample(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        seen: list[Any] = []

        def agent(question: Question) -> str:
            seen.append(store.run("latest"))
            return "Paris"

        config = EvalConfig(epochs=3, max_samples=1, seed=5)
        report = EvalSuite(agent, CAPITALS, [exact_match, contains], config=config).run(
            store=store, tags={"team": "a"}, run_id="one"
        )
        record = store.run("one")

    assert report.run_id == "one"
    assert (seen[0].status, record.status, record.total) == ("running", "complete", 3)
    manifest = seen[0].manifest
    assert (manifest.dataset_name, manifest.dataset_digest) == ("capitals", CAPITALS.digest)
    assert (manifest.planned, manifest.config["seed"], manifest.tags) == (3, 5, {"team": "a"})
    assert manifest.agent.endswith(".agent")
    assert [info.name for info in manifest.criteria] == ["exact_match", "contains"]
    assert "python" in manifest.packages


def test_a_stored_run_is_the_report(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        report = suite(EvalConfig(max_concurrent=2, epochs=2)).run(store=store)
        stored = store.report(report.run_id, input_type=Question)

    assert stored == report
