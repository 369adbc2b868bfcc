"""An evaluator, once recognised: a name, and one way to ask it.

Rules of this file:
1. A function is recognised once, here, from the names and the number of the parameters that it
   requires. `tolerance=0.1` has a default, so it is not a session.
2. Names that contradict their place are refused: `(expected, output)` would score the wrong way
   round without a sound.
3. An evaluator that raises, or returns something that is no verdict, ends in an `EvaluatorError`
   that names it. It is never a score of 0.0.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import anyio

from .._typevars import ExpectedT, OutputT
from ..errors import EvaluatorError, EvaluatorShapeError, UsageError, shown
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._fold import fold
from ._score import Score
from ._threads import in_thread
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


@dataclass(frozen=True, eq=False)
class Criterion:
    """An evaluator once recognised; `await criterion.ask(context)` gives its score.

    By hand it can be called as the evaluators are written, and then answers at once:

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
    quick: bool = False  # it may run on the event loop; what else is synchronous gets a thread
    parts: tuple[Criterion, ...] = ()
    combine: Callable[[Sequence[Score]], Score] | None = None

    async def ask(self, context: EvalContext) -> Score:
        """The score for one attempt."""
        here = self.quick or self.is_async
        verdict = self.judge(context) if here else await in_thread(self.judge, context)
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


class Shape(NamedTuple):
    """One way in which people write an evaluator, and how to call it so."""

    text: str
    call: Callable[[Callable[..., Any], EvalContext], Any]
    session_aware: bool = False
    session_needed: bool = False


_OUTPUT = Shape(
    "(output, expected)",
    lambda fn, c: fn(c.trajectory.output, c.sample.expected),
)
_SESSION = Shape(
    "(output, expected, session)",
    lambda fn, c: fn(c.trajectory.output, c.sample.expected, c.session),
    session_aware=True,
    session_needed=True,
)
_SESSION_BY_NAME = _SESSION._replace(
    call=lambda fn, c: fn(c.trajectory.output, c.sample.expected, session=c.session)
)
_CONTEXT = Shape(
    "(sample, output, *, context)",
    lambda fn, c: fn(c.sample, c.trajectory.output, context=c),
    session_aware=True,
)
_TRAJECTORY = Shape("(trajectory, sample)", lambda fn, c: fn(c.trajectory, c.sample))
_SHAPES = (_OUTPUT, _SESSION, _CONTEXT, _TRAJECTORY)

# Names that mean something, and so may stand only where that thing is passed.
_MEANINGFUL = {"output", "expected", "sample", "trajectory", "session", "context"}


def _recognise(fn: Callable[..., Any]) -> Shape:
    """The shape that fits the function's required parameters and their names."""
    if isinstance(fn, type) or not callable(fn):
        hint = " - unpack it: all_of(*evaluators)" if isinstance(fn, (list, tuple)) else ""
        raise EvaluatorShapeError(f"expected a function as evaluator, got {shown(fn)}{hint}")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        raise _no_shape(fn, "no signature that Python can read") from None
    required = [p for p in parameters if p.default is p.empty and p.kind in _PASSED]
    by_place = [p.name for p in required if p.kind is not p.KEYWORD_ONLY]
    needed = {p.name for p in required}
    named = {p.name for p in parameters if p.kind in _NAMED}

    if "context" in named and ("context" in needed or by_place[:1] == ["sample"]):
        places, extra, shape = ("sample", "output"), "context", _CONTEXT
    elif "session" in named or len(by_place) == 3:
        places, extra, shape = ("output", "expected"), "session", _SESSION
        if "session" in named:
            shape = _SESSION_BY_NAME._replace(session_needed="session" in needed)
    elif by_place[:1] == ["trajectory"] or by_place[1:2] == ["sample"]:
        places, extra, shape = ("trajectory", "sample"), "", _TRAJECTORY
    else:
        places, extra, shape = ("output", "expected"), "", _OUTPUT

    # The third place is the extra's own: under its name, or under any if it stands nowhere else.
    third = by_place[2:3] == [extra] or (len(by_place) == 3 and extra not in named)
    wanted = [*places, extra] if third else list(places)
    fits = (
        len(by_place) == len(wanted)
        and needed - set(by_place) <= {extra}
        and all(n == p or n not in _MEANINGFUL for n, p in zip(by_place, wanted, strict=True))
    )
    if not fits:
        raise _no_shape(fn, f"({', '.join(str(p) for p in parameters)})")
    return shape


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PASSED = (inspect.Parameter.POSITIONAL_ONLY, *_NAMED)


def _no_shape(fn: Callable[..., Any], took: str) -> EvaluatorShapeError:
    name = _name_of(fn)
    hint = "give every other parameter a default, or bind it with functools.partial"
    if getattr(fn, "__annotations__", {}).get("return") in ("Criterion", Criterion):
        hint = f"it makes evaluators, so call it: {name}(...)"
    return EvaluatorShapeError(
        f"expected an evaluator that takes {', '.join(s.text for s in _SHAPES[:-1])} or "
        f"{_SHAPES[-1].text}, got `{name}` with {took} - {hint}"
    )


def _name_of(fn: Callable[..., Any]) -> str:
    """A name for reports: the function's own, or its factory's where its own says nothing."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    outer = getattr(fn, "__qualname__", "").split(".<locals>.")
    if name in ("evaluate", "evaluator", "inner", "wrapper") and len(outer) > 1:
        name = outer[-2].rpartition(".")[2]
    return "lambda" if name == "<lambda>" else str(name)


_QUICK = {f"{__package__}.{module}" for module in ("_evaluators", "_session_evaluators")}


def criterion(fn: Callable[..., Any], *, name: str = "") -> Criterion:
    """Recognise an evaluator: a function of one of the four shapes, sync or async.

    >>> brief = criterion(lambda output, expected: len(output) < 20, name="brief")
    >>> brief("short", None).passed
    True
    """
    if isinstance(fn, Criterion):
        return _renamed(fn, name) if name and name != fn.name else fn
    shape = _recognise(fn)
    name = name or _name_of(fn)
    call = shape.call

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
        if isinstance(verdict, Score) or not inspect.isawaitable(verdict):
            return _as_score(verdict, name)
        return _later(verdict, name)

    recognised = Criterion(
        name,
        judge,
        session_aware=shape.session_aware,
        is_async=inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__),
        in_parts=shape is _CONTEXT,
        quick=getattr(fn, "__module__", None) in _QUICK,
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
        return verdict if verdict.criterion else replace(verdict, criterion=name)
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
    into_one: Callable[[Sequence[Score]], Score],
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

    def judge_now(context: EvalContext) -> Score | Awaitable[Score]:
        scores: list[Score] = []
        for index, part in enumerate(parts, start=1):
            verdict = part.judge(context)
            if not isinstance(verdict, Score):
                return finish(context, scores, verdict, parts[index:])
            scores.append(verdict)
        return combine(scores)

    async def finish(
        context: EvalContext,
        scores: list[Score],
        pending: Awaitable[Score],
        rest: Sequence[Criterion],
    ) -> Score:
        # A plain function, a lambda say, that turned out to return something to wait for.
        scores.append(await pending)
        scores += [await part.ask(context) for part in rest]
        return combine(scores)

    async def judge_later(context: EvalContext) -> Score:
        scores: list[Any] = [None] * len(parts)

        async def ask(index: int) -> None:
            scores[index] = await parts[index].ask(context)

        try:
            async with anyio.create_task_group() as group:
                for index in range(len(parts)):
                    group.start_soon(ask, index)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return combine(scores)

    return Criterion(
        name,
        judge_later if is_async else judge_now,
        session_aware=any(part.session_aware for part in parts),
        is_async=is_async,
        in_parts=in_parts,
        quick=all(part.quick for part in parts),
        parts=parts,
        combine=combine,
    )
