"""What may be an evaluator, for a type checker, and the type of the report that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_type

from weakincentives.evals import (
    Criterion,
    Dataset,
    EvalConfig,
    EvalContext,
    EvalReport,
    EvalSuite,
    Evaluator,
    Sample,
    Score,
    SessionView,
    Trajectory,
    all_of,
    any_of,
    contains,
    criterion,
    evaluate,
    exact_match,
    llm_judge,
    matches,
    negate,
    tool_called,
    weighted,
)


@dataclass(frozen=True)
class Answer:
    text: str


def agent(question: str) -> Answer:
    return Answer(question)


async def async_agent(question: str) -> Trajectory[Answer]:
    return Trajectory(output=Answer(question))


dataset = Dataset([Sample("1", "?", 42)])

# ── right ───────────────────────────────────────────────────────────────────────────────────────


def of_bare_context(context: EvalContext) -> Score:
    assert_type(context.output, Any)
    return Score(1.0)


def of_context(context: EvalContext[str, Answer, int]) -> bool:
    assert_type(context.input, str)
    assert_type(context.output, Answer)
    assert_type(context.expected, int)
    return len(context.output.text) == context.expected


async def of_context_async(context: EvalContext, limit: float = 0.1) -> float:
    return limit


def of_output(output: Answer, expected: int, *, tolerance: float = 0.1) -> Sequence[Score]:
    return [Score(1.0)]


async def of_session(output: Answer, expected: int, session: SessionView) -> Score:
    return Score(len(session[str].all()))


def of_named_session(output: Answer, expected: int, *, session: SessionView) -> Score:
    return Score(1.0)


def of_sample(
    sample: Sample[str, int], output: Answer, *, context: EvalContext
) -> tuple[Score, ...]:
    return (Score(1.0),)


def of_trajectory(trajectory: Trajectory[Answer], sample: Sample[str, int]) -> int:
    return 1


class Near:
    def __call__(self, context: EvalContext) -> bool:
        return True


def limited(limit: int, context: EvalContext) -> bool:
    return True


def made() -> Evaluator[Answer, int]:
    return of_output


everything = all_of(
    *(of_bare_context, of_context, of_context_async, of_output),
    *(of_session, of_named_session, of_sample, of_trajectory),
    *(Near(), Near().__call__, partial(limited, 20), made()),
    *(exact_match, matches("a"), tool_called("x"), llm_judge("kind"), any_of(contains, of_context)),
    lambda context: len(context.output) < 20,
    lambda output, expected: output == expected,
    lambda output, expected, session: True,
)
assert_type(everything, Criterion)
assert_type(negate(of_context), Criterion)
assert_type(weighted((of_context, 1), (exact_match, 2)), Criterion)
assert_type(criterion(of_session, name="x"), Criterion)

suite = EvalSuite(agent, dataset, of_bare_context)
assert_type(suite.run(), EvalReport[Answer])
assert_type(EvalSuite(agent, dataset, "exact_match").run(), EvalReport[Answer])
assert_type(EvalSuite(async_agent, dataset, ["contains", of_context]).run(), EvalReport[Answer])
EvalSuite(agent, dataset, lambda context: context.output.text)


async def reports(config: EvalConfig) -> None:
    assert_type(await evaluate(dataset, config, of_context, agent=agent), EvalReport[Answer])
    assert_type(await evaluate(dataset, config, "contains", agent=async_agent), EvalReport[Answer])
    assert_type(await evaluate(dataset, config, [of_output], agent=agent), EvalReport[Answer])
    assert_type(await evaluate(dataset, config, of_trajectory), EvalReport[Any])


# ── wrong ───────────────────────────────────────────────────────────────────────────────────────


def of_text(answer: str) -> bool:
    return True


def of_four(output: Answer, expected: int, third: int, fourth: int) -> bool:
    return True


def without_verdict(context: EvalContext) -> None: ...


def of_words(context: EvalContext) -> str:
    return "good"


def swapped(sample: Sample[str, int], trajectory: Trajectory[Answer]) -> bool:
    return True


async def wrong(config: EvalConfig) -> None:
    EvalSuite(agent, dataset, of_text)  # error
    EvalSuite(agent, dataset, of_four)  # error
    EvalSuite(agent, dataset, [exact_match, without_verdict])  # error
    EvalSuite(agent, dataset, of_words)  # error
    EvalSuite(agent, dataset, matches)  # error
    EvalSuite(agent, dataset, Answer("x"))  # error
    all_of(exact_match, of_text)  # error
    criterion(of_words)  # error
    await evaluate(dataset, config, of_words, agent=agent)  # error
    await evaluate(dataset, config, exact_match, agent=agent, stor=None)  # error
