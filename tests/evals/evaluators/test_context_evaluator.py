"""One function of the context is an evaluator at every entry point."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives.errors import EvaluatorShapeError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalLoop,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    any_of,
    collect_results,
    evaluate,
    exact_match,
    negate,
    open_store,
    submit_dataset,
    weighted,
)
from weakincentives.evals.engine import rescore
from weakincentives.runtime import InMemoryMailbox


@dataclass(frozen=True)
class Answer:
    text: str


def agent(question: str) -> Answer:
    return Answer(f"It is {question.split()[-1]}.")


DATASET = Dataset([Sample("fr", "Say Paris", "Paris"), Sample("it", "Say Rome", "Milan")], "cities")


def named(context: EvalContext[str, Answer, str]) -> bool:
    return context.expected in context.output.text and context.output.text != context.input


def passed(report: EvalReport[Any]) -> list[bool]:
    return [result.score.passed for result in report.results]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


class Named:
    def __call__(self, context: EvalContext[str, Answer, str]) -> bool:
        return named(context)


def at_least(words: int, context: EvalContext[str, Answer, str]) -> bool:
    return len(context.output.text.split()) >= words and named(context)


@pytest.mark.parametrize("evaluator", [named, Named(), partial(at_least, 2)])
def test_a_suite_scores_and_a_stored_run_is_scored_again_with_it(
    evaluator: Any, store: RunStore
) -> None:
    suite = EvalSuite(agent, DATASET, evaluator)
    assert passed(suite.run(store=store)) == [True, False]

    run_id = anyio.run(rescore, store, "latest", suite.evaluator)
    assert passed(store.report(run_id)) == [True, False]


def test_evaluate_takes_it() -> None:
    report = anyio.run(lambda: evaluate(DATASET, EvalConfig(), named, agent=agent))

    assert passed(report) == [True, False]


def test_a_built_in_evaluator_can_be_given_by_its_name() -> None:
    def echo(question: str) -> str:
        return question

    samples = [Sample("a", "It is Paris", "Paris")]

    assert passed(EvalSuite(echo, samples, "contains").run(store=None)) == [True]
    assert passed(EvalSuite(echo, samples, ["contains", "exact_match"]).run(store=None)) == [False]
    report = anyio.run(lambda: evaluate(samples, EvalConfig(), "contains", agent=echo))
    assert passed(report) == [True]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("exact_mach", "did you mean exact_match?"),
        ("bleu", "known: contains, environment_score, exact_match"),
        ("similar", "passed without quotes: brief, or similar(0.8)"),
    ],
)
def test_an_unknown_name_is_refused_with_what_to_give(name: str, advice: str) -> None:
    with pytest.raises(EvaluatorShapeError, match=re.escape(advice)):
        EvalSuite(agent, DATASET, name)


def test_an_eval_loop_takes_it() -> None:
    requests, results = InMemoryMailbox[Any, Any]("requests"), InMemoryMailbox[Any, Any]("results")
    submission = submit_dataset(DATASET, requests, reply_to=results)
    EvalLoop(agent, named, requests).run(max_iterations=1)

    assert passed(collect_results(results, submission, timeout_seconds=10)) == [True, False]


@pytest.mark.parametrize(
    "combined", [[named, negate(exact_match)], any_of(named, exact_match), weighted((named, 1))]
)
def test_it_combines_with_others(combined: Any) -> None:
    assert passed(EvalSuite(agent, DATASET, combined).run(store=None)) == [True, False]


@pytest.mark.anyio
async def test_a_misspelt_option_of_evaluate_is_refused_with_the_right_one() -> None:
    with pytest.raises(TypeError, match="argument 'tag' - did you mean tags"):
        await evaluate(DATASET, EvalConfig(), exact_match, agent=agent, tag={})  # type: ignore[call-overload]
