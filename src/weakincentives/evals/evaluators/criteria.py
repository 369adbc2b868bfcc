"""A criterion: an evaluator with a name and one way to call it.

Rules of this file:
1. The signature of a function is matched once, when its criterion is made (`signatures.py`).
2. An evaluator that raises, or returns something that is not a verdict, ends in an
   `EvaluatorError` that names it. It is never a score of 0.0.
3. Our own evaluators have an explicit version, which is part of their fingerprint. It is increased
   when a verdict can change, and only then.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from traceback import walk_tb
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, SupportsFloat, overload

from ...errors import EvaluatorError, UnsuitableAgentError, UsageError, short_repr
from ...internal.typevars import ExpectedT, OutputT
from ...rollouts import Trajectory
from ...runtime.session import SessionView
from .._samples import private_copy
from .._types import EvalContext, Sample, Score
from .combine import combine_scores
from .signatures import OUTPUT, SAMPLE_AND_CONTEXT, Signature, evaluator_name, match_signature

Verdict = Score | bool | float | SupportsFloat | Sequence[Score]
"""What an evaluator may return: a score, a bool, a number, or several scores."""

_Returned = Verdict | Awaitable[Verdict]


# Each shape has a name, which is what a type checker says of a function that has none of them. To
# it, a trajectory and a sample are any two arguments, as output and expected output are.
class OfContext(Protocol):
    def __call__(self, context: EvalContext, /) -> _Returned: ...


class OfOutput(Protocol):
    def __call__(self, output: Any, expected: Any, /) -> _Returned: ...


class OfSession(Protocol):
    def __call__(self, output: Any, expected: Any, session: SessionView, /) -> _Returned: ...


class OfSessionByName(Protocol):
    def __call__(self, output: Any, expected: Any, /, *, session: SessionView) -> _Returned: ...


class OfSampleAndContext(Protocol):
    def __call__(self, sample: Any, output: Any, /, *, context: EvalContext) -> _Returned: ...


EvaluatorFunction = OfContext | OfOutput | OfSession | OfSessionByName | OfSampleAndContext
"""What users write as evaluators; `signatures.py` says which it is."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # `Any`, since `Evaluator[Output, Expected]` and `Evaluator[Input, Output, Expected]` are both
    # in use, for functions with different parameters.
    _A = TypeVar("_A", covariant=True, default=Any)
    _B = TypeVar("_B", covariant=True, default=Any)
    _C = TypeVar("_C", covariant=True, default=Any)

    class Evaluator(Protocol[_A, _B, _C]):
        """A function with one of the signatures that evaluators may have."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:

    class Evaluator(Protocol):
        """A function with one of the signatures that evaluators may have.

        `Evaluator[Output, Expected]` or `Evaluator[Input, Output, Expected]`.
        """

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

        def __class_getitem__(cls, types: Any) -> GenericAlias:
            return GenericAlias(cls, types)


SessionEvaluator = Callable[[OutputT, ExpectedT, SessionView], Verdict | Awaitable[Verdict]]
ScoreFn = Callable[[Trajectory[Any], Sample[Any, Any]], Verdict | Awaitable[Verdict]]

Evaluate = Callable[[EvalContext], Score | Awaitable[Score]]
Combine = Callable[[Sequence[Score]], Score]


class Requirement(NamedTuple):
    """A requirement of an evaluator: an adapter for judges, or the agent's own session."""

    need: Literal["adapter", "session"]
    evaluator: str


@dataclass(frozen=True, eq=False)
class Criterion:
    """An evaluator with a name; `await criterion.score(context)` returns its score.

    It can also be called directly, with the arguments that evaluators take:

    >>> from weakincentives.evals import contains
    >>> contains("The answer is 42.", "42").passed
    True
    """

    name: str
    evaluate: Evaluate
    session_aware: bool = False
    is_async: bool = False
    # Several scores in one, as `composite` and functions of a context return them: a call with
    # `context=` returns each of them, and so does a `composite` that contains this one.
    multi_score: bool = False
    non_blocking: bool = False  # it runs in the event loop
    parts: tuple[Criterion, ...] = ()
    combine: Combine | None = None
    # For the fingerprint, in place of the code: name, version, parameters.
    identity: tuple[Any, ...] = ()
    requires: tuple[Requirement, ...] = ()  # requirements on the agent or the run
    # The models that its judges ask; None is the adapter of the run.
    adapters: tuple[Any, ...] = ()

    async def score(self, context: EvalContext) -> Score:
        """Return the score for one attempt."""
        verdict = self.evaluate(context)
        return verdict if isinstance(verdict, Score) else await verdict

    async def score_in_thread(self, context: EvalContext) -> Score:
        """Return the score for one attempt; an evaluator that may block runs in a thread."""
        if self.non_blocking or self.is_async:
            verdict = self.evaluate(context)
        else:
            from ...internal.threads import in_thread  # here, as below: anyio is slow to import

            verdict = await in_thread(self.evaluate, context)
        return verdict if isinstance(verdict, Score) else await verdict

    ask = score  # its earlier name

    @overload
    def __call__(self, context: EvalContext) -> Score: ...
    @overload
    def __call__(self, output: Any, expected: Any, session: SessionView | None = None) -> Score: ...
    @overload
    def __call__(
        self, sample: Sample[Any, Any], output: Any, *, context: EvalContext
    ) -> tuple[Score, ...]: ...
    @overload
    def __call__(self, trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score: ...
    def __call__(
        self, *args: Any, context: EvalContext | None = None, **kwargs: Any
    ) -> Score | tuple[Score, ...]:
        if len(args) == 1 and isinstance(args[0], EvalContext):
            context, args = args[0], ()
        if context is not None and not args and not kwargs:
            return self._score_sync(context)
        if context is not None:
            sample, output = _arguments(("sample", "output"), args, kwargs)
            trajectory = replace(context.trajectory, output=output)
            return self.split(
                self._score_sync(replace(context, sample=sample, trajectory=trajectory))
            )
        if "trajectory" in kwargs or isinstance((*args, None)[0], Trajectory):
            trajectory, sample = _arguments(("trajectory", "sample"), args, kwargs)
            return self._score_sync(EvalContext(sample=sample, trajectory=trajectory))
        output, expected, session = _arguments(
            ("output", "expected", "session"), args, {"session": None, **kwargs}
        )
        sample, trajectory = Sample("", None, expected), Trajectory(output=output)
        return self._score_sync(EvalContext(sample=sample, trajectory=trajectory, session=session))

    def __repr__(self) -> str:
        return f"<criterion {self.name}>"

    def split(self, score: Score) -> tuple[Score, ...]:
        """Return the scores that a score is made of, if this criterion returns several."""
        return (score.parts if self.multi_score else ()) or (score,)

    def _score_sync(self, context: EvalContext) -> Score:
        verdict = self.score(context) if self.is_async else self.evaluate(context)
        if isinstance(verdict, Score):
            return verdict
        from ...internal.event_loop import run_sync

        return run_sync(lambda: verdict)


def _arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments of a direct call, in the order of their names."""
    values = {**kwargs, **dict(zip(names, args, strict=False))}
    if len(args) > len(names) or set(values) != set(names):
        raise TypeError(
            f"expected a call as ({', '.join(names)}), got {len(args)} positional arguments"
            + (f" and {', '.join(kwargs)} by name" if kwargs else "")
        )
    return [values[name] for name in names]


def criterion(fn: EvaluatorFunction, *, name: str = "", blocking: bool = True) -> Criterion:
    """Return an evaluator, a function of the context or of one of the other shapes, as one.

    A synchronous evaluator runs in a thread, so that one that blocks does not delay other samples.
    With `blocking=False` it runs in the event loop, which is faster: for pure computations.

    >>> brief = criterion(lambda context: len(context.output) < 20, name="brief")
    >>> brief("short", None).passed
    True
    """
    if isinstance(fn, Criterion):
        return _renamed(fn, name) if name and name != fn.name else fn
    signature = match_signature(fn)
    name = name or evaluator_name(fn)
    call = signature.call

    def evaluate(context: EvalContext) -> Score | Awaitable[Score]:
        if signature.session_aware and context.session is None:
            context = _with_derived_session(context)
        if signature.session_needed and context.session is None:
            raise _needs_session(name)
        try:
            verdict = call(fn, context)
        except EvaluatorError:
            raise
        except Exception as error:
            raise _raised(name, error, signature, context) from error
        if isinstance(verdict, Score) or not inspect.isawaitable(verdict):
            return _as_score(verdict, name)
        return _awaited(verdict, name, signature, context)

    result = Criterion(
        name,
        evaluate,
        session_aware=signature.session_aware,
        is_async=inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__),
        multi_score=signature is SAMPLE_AND_CONTEXT,
        non_blocking=not blocking,
    )
    result.__dict__.update(__doc__=fn.__doc__, __name__=name, __wrapped__=fn)
    return result


def _with_derived_session(context: EvalContext) -> EvalContext:
    """Return the context with a session derived from its trajectory, unless that says nothing."""
    left = context.trajectory
    if not left.messages and left.usage is None and left.cost is None:
        return context
    from ...rollouts import TrajectorySession

    return replace(context, session=TrajectorySession(left))


def built_in(
    name: str,
    version: int,
    *parameters: Any,
    label: str = "",
    blocking: bool = False,
    adapters: tuple[Any, ...] = (),
    requires: Literal["session"] | None = None,
) -> Callable[[Callable[..., Any]], Criterion]:
    """Return a decorator for an evaluator of our own.

    Its fingerprint is name, version and parameters, whatever its code. Increase the version when a
    verdict can change. `label` is the name of the criterion, if it differs. `adapters` are the
    models that it asks: None, which is the adapter of the run, is then required. `requires` is what
    else it needs.
    """

    def decorate(fn: Callable[..., Any]) -> Criterion:
        result = criterion(fn, name=label or name, blocking=blocking)
        needs = [Requirement("adapter", result.name)] if None in adapters else []
        if requires is not None:
            needs.append(Requirement(requires, result.name))
        result.__dict__.update(
            identity=(name, version, *parameters), adapters=adapters, requires=tuple(needs)
        )
        return result

    return decorate


def is_session_aware(fn: EvaluatorFunction) -> bool:
    """Return whether an evaluator can look at the session."""
    return criterion(fn).session_aware


def _needs_session(name: str) -> UnsuitableAgentError:
    return UnsuitableAgentError(
        f"evaluator `{name}` needs a session, and there is none - run an agent that leaves one "
        "(MainLoop, a prompt with an adapter), or a `Trajectory` with messages or usage; "
        "instrument it, or call `record` (docs/agents.md); or pass `session`"
    )


def _read_no_session(error: Exception, context: EvalContext) -> bool:
    """Return whether an evaluator used `context.session` as if there were one."""
    return (
        context.session is None
        and isinstance(error, (AttributeError, TypeError))
        and "'NoneType'" in str(error)
        and any(
            "session" in frame.f_code.co_names and frame.f_code.co_filename != __file__
            for frame, _ in walk_tb(error.__traceback__)
        )
    )


def _raised(
    name: str, error: Exception, signature: Signature, context: EvalContext
) -> EvaluatorError:
    if _read_no_session(error, context):
        return _needs_session(name)
    hint = ""
    if (
        signature is OUTPUT
        and isinstance(error, AttributeError)
        and any(hasattr(each, error.name or "") for each in (Trajectory, Sample))
    ):
        hint = (
            f" - it was called as {signature.text}; for a trajectory and a sample, name its "
            "parameters `trajectory` and `sample`, or annotate them"
        )
    return EvaluatorError(f"evaluator `{name}` raised {type(error).__name__}: {error}{hint}")


async def _awaited(
    verdict: Awaitable[Any], name: str, signature: Signature, context: EvalContext
) -> Score:
    try:
        value = await verdict
    except EvaluatorError:
        raise
    except Exception as error:
        raise _raised(name, error, signature, context) from error
    return _as_score(value, name)


def _renamed(inner: Criterion, name: str) -> Criterion:
    """Return the same criterion, whose scores carry another name."""

    def evaluate(context: EvalContext) -> Score | Awaitable[Score]:
        verdict = inner.evaluate(context)
        if isinstance(verdict, Score):
            return replace(verdict, criterion=name)
        return awaited(verdict)

    async def awaited(verdict: Awaitable[Score]) -> Score:
        return replace(await verdict, criterion=name)

    renamed = replace(inner, name=name, evaluate=evaluate)
    renamed.__dict__.update(__doc__=inner.__doc__, __name__=name)
    return renamed


def _as_score(verdict: Any, name: str) -> Score:
    """Return a verdict as a score that carries the criterion's name."""
    if isinstance(verdict, Score):
        if verdict.criterion:
            return verdict
        return Score(verdict.value, verdict.passed, verdict.reason, verdict.metrics, name)
    try:
        if isinstance(verdict, (bool, int, float)) or hasattr(verdict, "__float__"):
            score = Score(verdict, criterion=name)
            if score.passed:
                return score
            # NumPy has a bool of its own.
            returned = "False" if str(verdict) == "False" else f"{score.value:g}"
            return replace(score, reason=f"returned {returned}")
        if isinstance(verdict, (tuple, list)) and verdict:
            scores = [_as_score(score, name) for score in verdict if isinstance(score, Score)]
            if len(scores) == len(verdict):
                return combine_scores(verdict, name) if len(verdict) > 1 else scores[0]
    except UsageError as error:
        raise EvaluatorError(f"evaluator `{name}` returned no verdict: {error}") from None
    hint = f" - if it makes evaluators, call it: {name}(...)" if callable(verdict) else ""
    raise EvaluatorError(
        f"expected a Score, a bool, a number or a tuple of scores from evaluator `{name}`, "
        f"got {short_repr(verdict)}{hint}"
    )


def combined(
    evaluators: Sequence[EvaluatorFunction],
    name: str,
    into_one: Combine,
    *,
    version: int,
    parameters: tuple[Any, ...] = (),
    multi_score: bool = False,
) -> Criterion:
    """Return several evaluators as one criterion; async ones run concurrently."""
    if not evaluators:
        raise UsageError(f"expected at least one evaluator for `{name}`, got none")
    parts = tuple(criterion(evaluator) for evaluator in evaluators)
    is_async = any(part.is_async for part in parts)

    def combine(scores: Sequence[Score]) -> Score:
        if multi_score:
            pairs = zip(parts, scores, strict=True)
            scores = [single for part, score in pairs for single in part.split(score)]
        return into_one(scores)

    return Criterion(
        name,
        partial(_concurrently if is_async else _in_turn, parts, combine),
        session_aware=any(part.session_aware for part in parts),
        is_async=is_async,
        multi_score=multi_score,
        non_blocking=all(part.non_blocking for part in parts),
        parts=parts,
        combine=combine,
        identity=(name, version, *parameters, parts),
        requires=tuple(need for part in parts for need in part.requires),
        adapters=tuple(adapter for part in parts for adapter in part.adapters),
    )


async def _concurrently(
    parts: Sequence[Criterion], combine: Combine, context: EvalContext
) -> Score:
    from ...internal.concurrency import gather

    return combine(
        await gather(
            partial(part.score_in_thread, _with_private_sample(part, context)) for part in parts
        )
    )


def _in_turn(
    parts: Sequence[Criterion], combine: Combine, context: EvalContext
) -> Score | Awaitable[Score]:
    scores: list[Score] = []
    remaining = iter(parts)

    async def finish(pending: Awaitable[Score]) -> Score:
        scores.append(await pending)
        scores.extend([await part.score(_with_private_sample(part, context)) for part in remaining])
        return combine(scores)

    for part in remaining:
        verdict = part.evaluate(_with_private_sample(part, context))
        if not isinstance(verdict, Score):  # such as of a lambda that returns a coroutine
            return finish(verdict)
        scores.append(verdict)
    return combine(scores)


def _with_private_sample(part: Criterion, context: EvalContext) -> EvalContext:
    """Return the context with a copy of the sample, which this evaluator may change."""
    # Ours change nothing; a combination copies for each of its parts.
    if part.non_blocking or part.parts:
        return context
    sample = private_copy(context.sample)
    return context if sample is context.sample else replace(context, sample=sample)
