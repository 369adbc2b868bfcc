"""The four ways in which people write an evaluator, and how to tell them apart.

Rules of this file:
1. A function is recognised from the names and the number of the parameters that it requires.
   `tolerance=0.1` has a default, so it is not a session.
2. Names that contradict their place are refused: `(expected, output)` would score the wrong way
   round without a sound.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import EvaluatorShapeError, shown
from ._types import EvalContext

__all__ = ["CONTEXT", "Shape", "evaluator_name", "recognise"]


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
CONTEXT = Shape(
    "(sample, output, *, context)",
    lambda fn, c: fn(c.sample, c.trajectory.output, context=c),
    session_aware=True,
)
_TRAJECTORY = Shape("(trajectory, sample)", lambda fn, c: fn(c.trajectory, c.sample))
_SHAPES = (_OUTPUT, _SESSION, CONTEXT, _TRAJECTORY)

# Names that mean something, and so may stand only where that thing is passed.
_MEANINGFUL = {"output", "expected", "sample", "trajectory", "session", "context"}


def recognise(fn: Callable[..., Any]) -> Shape:
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
        places, extra, shape = ("sample", "output"), "context", CONTEXT
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
    name = evaluator_name(fn)
    hint = "give every other parameter a default, or bind it with functools.partial"
    returned = getattr(fn, "__annotations__", {}).get("return")
    if getattr(returned, "__name__", returned) == "Criterion":
        hint = f"it makes evaluators, so call it: {name}(...)"
    return EvaluatorShapeError(
        f"expected an evaluator that takes {', '.join(s.text for s in _SHAPES[:-1])} or "
        f"{_SHAPES[-1].text}, got `{name}` with {took} - {hint}"
    )


def evaluator_name(fn: Callable[..., Any]) -> str:
    """A name for reports: the function's own, or its factory's where its own says nothing."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    outer = getattr(fn, "__qualname__", "").split(".<locals>.")
    if name in ("evaluate", "evaluator", "inner", "wrapper") and len(outer) > 1:
        name = outer[-2].rpartition(".")[2]
    return "lambda" if name == "<lambda>" else str(name)
