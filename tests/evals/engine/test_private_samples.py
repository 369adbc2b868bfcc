"""Agents and evaluators that change their sample: nobody else sees it, now or on resume."""

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
    RunStore,
    Sample,
    collect_results,
    evaluate,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import InMemoryMailbox

ASKED = [{"role": "user", "content": "2 + 2?"}]


def chatty(messages: list[Any]) -> int:
    """Append to its input, as many agents do; the output is how much there was."""
    before = len(messages)
    messages.append({"role": "assistant", "content": "4"})
    return before


def sorts(output: int, expected: list[int]) -> bool:
    expected.sort()
    expected.append(0)
    return output == 1 and expected == [1, 2, 3, 0]


def dataset() -> Dataset[list[Any], list[int]]:
    samples = [Sample(str(n), [*ASKED], [3, 1, 2], {"tags": ["a"]}) for n in range(3)]
    return Dataset(samples, name="chats")


def suite(agent: Any = chatty) -> EvalSuite[Any, Any, Any]:
    return EvalSuite(agent, dataset(), sorts, config=EvalConfig(epochs=3, max_concurrent=2))


def check(report: EvalReport[Any]) -> None:
    assert [result.output for result in report.results] == [1] * 9
    assert all(result.passed for result in report.results)
    for result in report.results:
        assert result.sample is not None
        assert result.sample.input == ASKED
        assert result.sample.expected == [3, 1, 2]


def test_epochs_are_independent_and_the_store_has_the_sample_as_it_was(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        check(suite().run(store=store))
        check(store.report("latest"))


def test_a_complete_run_is_resumed_without_a_call(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        suite().run(store=store)
        attempts = [row.result.attempt for row in store.rows("latest")]
        check(suite().run(store=store, resume="latest"))

        assert [row.result.attempt for row in store.rows("latest")] == attempts


def test_an_object_in_the_input_does_not_end_the_run(tmp_path: Path) -> None:
    def keeps_a_client(given: dict[str, Any]) -> str:
        given["client"] = threading.Lock()
        return "ok"

    samples = [Sample(str(n), {"question": n}, "ok") for n in range(5)]
    with RunStore(tmp_path / "runs.db") as store:
        report = EvalSuite(keeps_a_client, samples, lambda output, expected: True).run(store=store)

    assert [result.passed for result in report.results] == [True] * 5


@pytest.mark.parametrize("waits", [False, True])
def test_an_evaluator_does_not_see_what_another_one_changed(waits: bool) -> None:
    def appends(output: int, expected: list[int]) -> bool:
        expected.append(output)
        return True

    async def appends_later(output: int, expected: list[int]) -> bool:
        return appends(output, expected)

    def looks(output: int, expected: list[int]) -> bool:
        return expected == [3, 1, 2]

    first = appends_later if waits else appends
    report = EvalSuite(chatty, dataset(), [first, looks]).run()

    assert [result.passed for result in report.results] == [True] * 3


def test_it_is_the_same_on_a_queue() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    sent = submit_dataset(dataset(), requests, epochs=3)
    EvalLoop(chatty, sorts, requests, results).run(max_iterations=9, wait_time_seconds=0)

    check(collect_results(results, sent))


@dataclass(frozen=True)
class Question:
    text: str
    hints: tuple[str, ...] = ()


@pytest.mark.parametrize("given", ["text", 3, ("a", 1), Question("why?", ("because",)), None])
def test_what_nobody_can_change_is_not_copied(given: object) -> None:
    seen: list[object] = []

    def agent(value: object) -> str:
        seen.append(value)
        return "ok"

    EvalSuite(agent, [Sample("1", given, "ok")], lambda output, expected: True).run()

    assert seen[0] is given


def test_what_python_cannot_copy_is_passed_as_it_is() -> None:
    given = {"lock": threading.Lock()}
    seen: list[object] = []

    def agent(value: object) -> str:
        seen.append(value)
        return "ok"

    EvalSuite(agent, [Sample("1", given, "ok")], lambda output, expected: True).run()

    assert seen[0] is given


def test_a_sample_that_cannot_be_stored_costs_its_own_text_alone(tmp_path: Path) -> None:
    samples = [Sample(str(n), threading.Lock() if n == 1 else n, "ok") for n in range(3)]
    with RunStore(tmp_path / "runs.db") as store:
        report = anyio.run(  # of a dataset, it would be refused before the first sample
            lambda: evaluate(
                iter(samples), EvalConfig(), exact_match, agent=lambda given: "ok", store=store
            )
        )
        stored = [row.result for row in store.rows("latest")]

    assert [result.passed for result in report.results] == [True] * 3
    assert [result.passed for result in stored] == [True] * 3
    assert [result.sample is None for result in stored] == [False, True, False]
