"""Types that a checker must infer for `EvalSuite` and `evaluate`."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, assert_type

from weakincentives import MainLoop, PromptTemplate, Session
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    SessionView,
    Trajectory,
    contains,
    evaluate,
    exact_match,
    stream,
)
from weakincentives.evals.comparison import compare_several
from weakincentives.evals.engine import PrepareMessages, function_agent
from weakincentives.rollouts import Environment

texts = Dataset([Sample("1", "question", "answer")])
numbers = Dataset([Sample("1", 7, "answer")])


def length(text: str) -> int:
    return len(text)


async def length_async(text: str) -> int:
    return len(text)


def trajectory(text: str) -> Trajectory[int]:
    return Trajectory(output=len(text))


async def trajectory_async(text: str) -> Trajectory[int]:
    return Trajectory(output=len(text))


def with_session(text: str) -> tuple[Trajectory[int], Session]:
    return Trajectory(output=len(text)), Session()


def of_sample(sample: Sample[str, str]) -> int:
    return len(sample.expected)


async def of_sample_async(sample: Sample[str, str]) -> int:
    return len(sample.expected)


def maybe(text: str) -> str | None:
    return text or None


class Loop(MainLoop[str, int]): ...


def outputs_are_typed(loop: Loop, prompt: PromptTemplate[int], anything: Any) -> None:
    assert_type(EvalSuite(length, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(length_async, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(trajectory, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(trajectory_async, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(with_session, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(of_sample, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(of_sample_async, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(maybe, texts, contains).run(), EvalReport[str | None])
    assert_type(EvalSuite(str.upper, list(texts), [contains]).run(), EvalReport[str])
    assert_type(EvalSuite(loop, texts, contains).run(), EvalReport[int])
    assert_type(EvalSuite(prompt, texts, contains, anything).run(), EvalReport[int])
    assert_type(
        EvalSuite(prompt=prompt, dataset=texts, evaluator=contains, adapter=anything).run(),
        EvalReport[int],
    )
    assert_type(EvalSuite(agent=length, dataset=texts, evaluator=contains).run(), EvalReport[int])
    assert_type(
        EvalSuite(agent=length_async, dataset=texts, evaluator=contains).run(), EvalReport[int]
    )
    assert_type(EvalSuite(agent=loop, dataset=texts, evaluator=contains).run(), EvalReport[int])
    assert_type(EvalSuite(function_agent(length), texts, contains).run(), EvalReport[Any])
    report = EvalSuite(length, texts, contains).run()
    assert_type(report.results[0].output, int | None)
    quick = EvalSuite(lambda text: "Paris", texts, [contains, exact_match])
    assert_type(quick.run().pass_rate, float)


async def options_are_known(suite: EvalSuite[str, int, str], store: RunStore) -> None:
    suite.run(store=None, progress=False, run_id="r", tags={"team": "a"})
    suite.run(store="runs.db", resume="latest", retry_errors=True)
    assert_type(await suite.run_async(store=store), EvalReport[int])
    assert_type(replace(suite, name="other"), EvalSuite[str, int, str])
    await evaluate(texts, EvalConfig(), contains, agent=length, store=store)
    async for result in stream(texts, EvalConfig(), contains, agent=length_async):
        assert_type(result.passed, bool)


def wrong_agents(loop: Loop) -> None:
    EvalSuite(length, numbers, contains)  # error
    EvalSuite(length_async, numbers, contains)  # error
    EvalSuite(trajectory, numbers, contains)  # error
    EvalSuite(of_sample, numbers, contains)  # error
    EvalSuite(loop, numbers, contains)  # error
    EvalSuite(agent=length, dataset=numbers, evaluator=contains)  # error
    EvalSuite(3, texts, contains)  # error


async def misspelt_options(suite: EvalSuite[str, int, str]) -> None:
    EvalSuite(length, texts, contains, confg=EvalConfig())  # error
    suite.run(stroe=None)  # error
    await suite.run_async(progres=False)  # error
    suite.build_run(sample=texts)  # error
    await evaluate(texts, EvalConfig(), contains, agentt=length)  # error
    await evaluate(numbers, EvalConfig(), contains, agent=length)  # error
    stream(texts, EvalConfig(), contains, agentt=length)  # error
    compare_several("a", ["b"], metrik="passed")  # error
    EvalConfig(max_concurent=3)  # error


def a_view(session: Session) -> SessionView:
    return session


async def environments(
    prepare: PrepareMessages, environment: Environment, later: Awaitable[int]
) -> None:
    await evaluate(texts, EvalConfig(endpoint="m"), contains, prepare, lambda sample: environment)
