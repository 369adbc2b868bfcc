"""Agents and evaluators may change their copy of a sample: others never see the changes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalLoop,
    EvalReport,
    EvalSuite,
    Sample,
    collect_results,
    evaluate,
    exact_match,
    open_store,
    submit_dataset,
)
from weakincentives.runtime.mailbox import InMemoryMailbox

MESSAGES = [{"role": "user", "content": "2 + 2?"}]


def appending_agent(messages: list[Any]) -> int:
    """Append to the input, as many agents do; return how many messages there were before."""
    before = len(messages)
    messages.append({"role": "assistant", "content": "4"})
    return before


def sorting_evaluator(output: int, expected: list[int]) -> bool:
    expected.sort()
    expected.append(0)
    return output == 1 and expected == [1, 2, 3, 0]


def dataset() -> Dataset[list[Any], list[int]]:
    samples = [Sample(str(n), [*MESSAGES], [3, 1, 2], {"tags": ["a"]}) for n in range(3)]
    return Dataset(samples, name="chats")


def suite(agent: Any = appending_agent) -> EvalSuite[Any, Any, Any]:
    return EvalSuite(
        agent, dataset(), sorting_evaluator, config=EvalConfig(epochs=3, max_concurrent=2)
    )


def check(report: EvalReport[Any]) -> None:
    assert [result.output for result in report.results] == [1] * 9
    assert all(result.passed for result in report.results)
    for result in report.results:
        assert result.sample is not None
        assert result.sample.input == MESSAGES
        assert result.sample.expected == [3, 1, 2]


def test_epochs_are_independent_and_the_store_has_the_original_sample(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        check(suite().run(store=store))
        check(store.report("latest"))


def test_a_complete_run_is_resumed_without_a_call(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        suite().run(store=store)
        attempts = [row.result.attempt for row in store.rows("latest")]
        check(suite().run(store=store, resume="latest"))

        assert [row.result.attempt for row in store.rows("latest")] == attempts


def test_an_object_that_an_agent_adds_to_its_input_does_not_end_the_run(tmp_path: Path) -> None:
    def keeps_a_client(sample_input: dict[str, Any]) -> str:
        sample_input["client"] = threading.Lock()
        return "ok"

    samples = [Sample(str(n), {"question": n}, "ok") for n in range(5)]
    with open_store(tmp_path / "runs.db") as store:
        report = EvalSuite(keeps_a_client, samples, lambda output, expected: True).run(store=store)

    assert [result.passed for result in report.results] == [True] * 5


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_evaluator_does_not_see_what_another_one_changed(asynchronous: bool) -> None:
    def appends(output: int, expected: list[int]) -> bool:
        expected.append(output)
        return True

    async def appends_async(output: int, expected: list[int]) -> bool:
        return appends(output, expected)

    def is_unchanged(output: int, expected: list[int]) -> bool:
        return expected == [3, 1, 2]

    first = appends_async if asynchronous else appends
    report = EvalSuite(appending_agent, dataset(), [first, is_unchanged]).run()

    assert [result.passed for result in report.results] == [True] * 3


def test_samples_are_private_on_a_queue_too() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    submission = submit_dataset(dataset(), requests, epochs=3)
    EvalLoop(appending_agent, sorting_evaluator, requests, results).run(
        max_iterations=9, wait_time_seconds=0
    )

    check(collect_results(results, submission))


@dataclass(frozen=True)
class Question:
    text: str
    hints: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "sample_input", ["text", 3, ("a", 1), Question("why?", ("because",)), None]
)
def test_immutable_inputs_are_not_copied(sample_input: object) -> None:
    received: list[object] = []

    def agent(value: object) -> str:
        received.append(value)
        return "ok"

    EvalSuite(agent, [Sample("1", sample_input, "ok")], lambda output, expected: True).run()

    assert received[0] is sample_input


def test_inputs_that_cannot_be_copied_are_passed_unchanged() -> None:
    sample_input = {"lock": threading.Lock()}
    received: list[object] = []

    def agent(value: object) -> str:
        received.append(value)
        return "ok"

    EvalSuite(agent, [Sample("1", sample_input, "ok")], lambda output, expected: True).run()

    assert received[0] is sample_input


def test_a_sample_that_cannot_be_stored_loses_only_its_own_content(tmp_path: Path) -> None:
    samples = [Sample(str(n), threading.Lock() if n == 1 else n, "ok") for n in range(3)]
    with open_store(tmp_path / "runs.db") as store:
        report = anyio.run(  # an iterator: a `Dataset` would be refused before the first sample
            lambda: evaluate(
                iter(samples), EvalConfig(), exact_match, agent=lambda value: "ok", store=store
            )
        )
        stored = [row.result for row in store.rows("latest")]

    assert [result.passed for result in report.results] == [True] * 3
    assert [result.passed for result in stored] == [True] * 3
    assert [result.sample is None for result in stored] == [False, True, False]
