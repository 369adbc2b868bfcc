"""An evaluator, once recognised: a name, and one way to ask it.

Rules of this file:
1. A function is recognised once, when its criterion is made (`_evaluator_shapes.py`).
2. An evaluator that raises, or returns something that is no verdict, ends in an `EvaluatorError`
   that names it. It is never a score of 0.0.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import anyio

from .._typevars import ExpectedT, OutputT
from ..errors import EvaluatorError, UsageError, shown
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._evaluator_shapes import CONTEXT, evaluator_name, recognise
from ._fold import fold
from ._score import Score
from ._types import EvalContext, Sample

__all__ = [
    "Criterion",
    "Evaluator",
    "ScoreFn",
    "SessionEvaluator",
    "Verdict",
    "combined",
    "criterion",
    "is_session_aware",
]

Verdict = Score | bool | float | Sequence[Score]
"""What an evaluator may return: a score, a yes or no, a number, or several scores."""

Evaluator = Callable[[OutputT, ExpectedT], Verdict | Awaitable[Verdict]]
SessionEvaluator = Callable[[OutputT, ExpectedT, SessionView], Verdict | Awaitable[Verdict]]
ScoreFn = Callable[[Trajectory[Any], Sample[Any, Any]], Verdict | Awaitable[Verdict]]

Judge = Callable[[EvalContext], Score | Awaitable[Score]]
Combine = Callable[[Sequence[Score]], Score]


@dataclass(frozen=True, eq=False)
class Criterion:
    """An evaluator once recognised; `await criterion.ask(context)` gives its score.

    By hand it is called as evaluators are written, and answers at once:

    >>> from weakincentives.evals import contains
    >>> contains("The answer is 42.", "42").passed
    True
    """

    name: str
    judge: Judge
    session_aware: bool = False
    is_async: bool = False
    # Several scores in one, as `composite` and functions of a context give them: a call with
    # `context=` answers with each on its own, and so does a `composite` that holds this one.
    in_parts: bool = False
    quick: bool = False  # it never waits for anything
    parts: tuple[Criterion, ...] = ()
    combine: Combine | None = None

    async def ask(self, context: EvalContext) -> Score:
        """The score for one attempt."""
        verdict = self.judge(context)
        return verdict if isinstance(verdict, Score) else await verdict

    async def ask_aside(self, context: EvalContext) -> Score:
        """The same, and other tasks go on meanwhile: what may block gets a thread."""
        if self.quick or self.is_async:
            return await self.ask(context)
        from ._threads import in_thread  # here, since not every eval needs one

        verdict = await in_thread(self.judge, context)
        return verdict if isinstance(verdict, Score) else await verdict

    @overload
    def __call__(self, output: Any, expected: Any, session: SessionView | None = None) -> Score: ...
    @overload
    def __call__(
        self, sample: Sample[Any, Any], output: Any, *, context: EvalContext
    ) -> tuple[Score, ...]: ...
    @overload
    def __call__(self, trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score: ...
    def __call__(
        self, *given: Any, context: EvalContext | None = None, **named: Any
    ) -> Score | tuple[Score, ...]:
        if context is not None:
            sample, output = _bound(("sample", "output"), given, named)
            trajectory = replace(context.trajectory, output=output)
            return self.apart(self._answer(replace(context, sample=sample, trajectory=trajectory)))
        if "trajectory" in named or isinstance((*given, None)[0], Trajectory):
            trajectory, sample = _bound(("trajectory", "sample"), given, named)
            return self._answer(EvalContext(sample=sample, trajectory=trajectory))
        output, expected, session = _bound(
            ("output", "expected", "session"), given, {"session": None, **named}
        )
        sample, trajectory = Sample("", None, expected), Trajectory(output=output)
        return self._answer(EvalContext(sample=sample, trajectory=trajectory, session=session))

    def __repr__(self) -> str:
        return f"<criterion {self.name}>"

    def apart(self, score: Score) -> tuple[Score, ...]:
        """The score as the several that it is made of, where this criterion gives several."""
        return (score.parts if self.in_parts else ()) or (score,)

    def _answer(self, context: EvalContext) -> Score:
        """Ask from synchronous code."""
        verdict = self.ask(context) if self.is_async else self.judge(context)
        if isinstance(verdict, Score):
            return verdict
        try:
            return anyio.run(_wait, verdict)
        except RuntimeError as error:
            if "Already running" not in str(error):
                raise
            getattr(verdict, "close", bool)()  # a coroutine never started would warn
            raise UsageError(
                f"`{self.name}` waits for something, and an event loop is running here - "
                "write `await criterion(evaluator).ask(context)`"
            ) from None


def _bound(names: tuple[str, ...], given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """The arguments of a call by hand, in the order of their names."""
    values = {**named, **dict(zip(names, given, strict=False))}
    if len(given) > len(names) or set(values) != set(names):
        raise TypeError(
            f"expected a call as ({', '.join(names)}), got {len(given)} arguments by place"
            + (f" and {', '.join(named)} by name" if named else "")
        )
    return [values[name] for name in names]


async def _wait(verdict: Awaitable[Score]) -> Score:
    return await verdict


_QUICK = {f"{__package__}.{module}" for module in ("_evaluators", "_session_evaluators")}


def criterion(fn: Callable[..., Any], *, name: str = "") -> Criterion:
    """Recognise an evaluator: a function of one of the four shapes, sync or async.

    >>> brief = criterion(lambda output, expected: len(output) < 20, name="brief")
    >>> brief("short", None).passed
    True
    """
    if isinstance(fn, Criterion):
        return _renamed(fn, name) if name and name != fn.name else fn
    shape = recognise(fn)
    name = name or evaluator_name(fn)
    call, quick = shape.call, getattr(fn, "__module__", None) in _QUICK

    def judge(context: EvalContext) -> Score | Awaitable[Score]:
        if shape.session_needed and context.session is None:
            raise EvaluatorError(
                f"evaluator `{name}` looks at the session, and there is none - run an agent that "
                "leaves one (MainLoop, a prompt with an adapter), or pass `session`"
            )
        try:
            verdict = call(fn, context)
        except Exception as error:
            raise _raised(name, error) from error
        if quick and verdict.__class__ is Score:  # it is new, and nobody else's
            if not verdict.criterion:
                object.__setattr__(verdict, "criterion", name)
            return verdict
        if isinstance(verdict, Score) or not inspect.isawaitable(verdict):
            return _as_score(verdict, name)
        return _later(verdict, name)

    recognised = Criterion(
        name,
        judge,
        session_aware=shape.session_aware,
        is_async=inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__),
        in_parts=shape is CONTEXT,
        quick=quick,
    )
    recognised.__dict__.update(__doc__=fn.__doc__, __name__=name, __wrapped__=fn)
    return recognised


def is_session_aware(fn: Callable[..., Any]) -> bool:
    """True for an evaluator that can look at the session."""
    return criterion(fn).session_aware


def _raised(name: str, error: Exception) -> EvaluatorError:
    text = f"evaluator `{name}` raised {type(error).__name__}: {error}"
    return error if isinstance(error, EvaluatorError) else EvaluatorError(text)


async def _later(verdict: Awaitable[Any], name: str) -> Score:
    try:
        settled = await verdict
    except Exception as error:
        raise _raised(name, error) from error
    return _as_score(settled, name)


def _renamed(inner: Criterion, name: str) -> Criterion:
    """The same criterion, whose scores carry another name."""

    def judge(context: EvalContext) -> Score | Awaitable[Score]:
        verdict = inner.judge(context)
        if isinstance(verdict, Score):
            return replace(verdict, criterion=name)
        return later(verdict)

    async def later(verdict: Awaitable[Score]) -> Score:
        return replace(await verdict, criterion=name)

    renamed = replace(inner, name=name, judge=judge)
    renamed.__dict__.update(__doc__=inner.__doc__, __name__=name)
    return renamed


def _as_score(verdict: Any, name: str) -> Score:
    """A verdict as a score that carries the criterion's name."""
    if isinstance(verdict, Score):
        if verdict.criterion:
            return verdict
        return Score(verdict.value, verdict.passed, verdict.reason, verdict.metrics, name)
    try:
        if isinstance(verdict, (bool, int, float)) or hasattr(verdict, "__float__"):
            return Score(verdict, criterion=name)
        if isinstance(verdict, (tuple, list)) and verdict:
            scores = [_as_score(score, name) for score in verdict if isinstance(score, Score)]
            if len(scores) == len(verdict):
                return fold(verdict, name) if len(verdict) > 1 else scores[0]
    except UsageError as error:
        raise EvaluatorError(f"evaluator `{name}` returned no verdict: {error}") from None
    raise EvaluatorError(
        f"expected a Score, a bool, a number or a tuple of scores from evaluator `{name}`, "
        f"got {shown(verdict)}"
    )


def combined(
    evaluators: Sequence[Callable[..., Any]],
    name: str,
    into_one: Combine,
    *,
    in_parts: bool = False,
) -> Criterion:
    """Several evaluators as one criterion; those that wait, wait together."""
    if not evaluators:
        raise UsageError(f"expected at least one evaluator for `{name}`, got none")
    parts = tuple(criterion(evaluator) for evaluator in evaluators)
    is_async = any(part.is_async for part in parts)

    def combine(scores: Sequence[Score]) -> Score:
        if in_parts:
            pairs = zip(parts, scores, strict=True)
            scores = [each for part, score in pairs for each in part.apart(score)]
        return into_one(scores)

    return Criterion(
        name,
        partial(_together if is_async else _in_turn, parts, combine),
        session_aware=any(part.session_aware for part in parts),
        is_async=is_async,
        in_parts=in_parts,
        quick=all(part.quick for part in parts),
        parts=parts,
        combine=combine,
    )


async def _together(parts: Sequence[Criterion], combine: Combine, context: EvalContext) -> Score:
    scores: list[Any] = [None] * len(parts)

    async def ask(index: int) -> None:
        scores[index] = await parts[index].ask_aside(context)

    try:
        async with anyio.create_task_group() as group:
            for index in range(len(parts)):
                group.start_soon(ask, index)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return combine(scores)


def _in_turn(
    parts: Sequence[Criterion], combine: Combine, context: EvalContext
) -> Score | Awaitable[Score]:
    scores: list[Score] = []
    rest = iter(parts)

    async def go_on(pending: Awaitable[Score]) -> Score:
        scores.append(await pending)
        scores.extend([await part.ask(context) for part in rest])
        return combine(scores)

    for part in rest:
        verdict = part.judge(context)
        if not isinstance(verdict, Score):  # a lambda, say, that gives something to wait for
            return go_on(verdict)
        scores.append(verdict)
    return combine(scores)
