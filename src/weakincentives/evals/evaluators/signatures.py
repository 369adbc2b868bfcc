"""The four signatures that an evaluator may have, and how to match them.

Rules of this file:
1. A signature is matched by the names and the number of the required parameters. `tolerance=0.1`
   has a default, so it is not a session. A parameter that is annotated as a `Trajectory`, a
   `Sample`, a `SessionView` or an `EvalContext` counts as if it had that name.
2. `(expected, output)` is rejected, because the names are in the wrong positions: it would silently
   score the wrong way round.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import EvaluatorShapeError, short_repr
from ...rollouts import Trajectory
from ...runtime.session import SessionView
from .._types import EvalContext, Sample


class Signature(NamedTuple):
    """A signature that an evaluator may have, and how to call it."""

    text: str
    call: Callable[[Callable[..., Any], EvalContext], Any]
    session_aware: bool = False
    session_needed: bool = False


OUTPUT = Signature(
    "(output, expected)",
    lambda fn, c: fn(c.trajectory.output, c.sample.expected),
)
_SESSION = Signature(
    "(output, expected, session)",
    lambda fn, c: fn(c.trajectory.output, c.sample.expected, c.session),
    session_aware=True,
    session_needed=True,
)
_SESSION_BY_NAME = _SESSION._replace(
    call=lambda fn, c: fn(c.trajectory.output, c.sample.expected, session=c.session)
)
CONTEXT = Signature(
    "(sample, output, *, context)",
    lambda fn, c: fn(c.sample, c.trajectory.output, context=c),
    session_aware=True,
)
_TRAJECTORY = Signature("(trajectory, sample)", lambda fn, c: fn(c.trajectory, c.sample))
_SIGNATURES = (OUTPUT, _SESSION, CONTEXT, _TRAJECTORY)

# Names with a meaning, which a parameter may have only in its own position.
_MEANINGFUL = {"output", "expected", "sample", "trajectory", "session", "context"}
_ROLES: dict[type, str] = {
    Trajectory: "trajectory",
    Sample: "sample",
    SessionView: "session",
    EvalContext: "context",
}


def match_signature(fn: Callable[..., Any]) -> Signature:
    """Return the signature that fits the function's required parameters and their names."""
    if isinstance(fn, type) or not callable(fn):
        hint = " - unpack it: all_of(*evaluators)" if isinstance(fn, (list, tuple)) else ""
        raise EvaluatorShapeError(f"expected a function as evaluator, got {short_repr(fn)}{hint}")
    try:
        parameters = list(_signature(fn).parameters.values())
    except ValueError:
        raise _no_match(fn, "no signature that Python can read") from None
    required = [p for p in parameters if p.default is p.empty and p.kind in _PASSED]
    positional = [_role(p) for p in required if p.kind is not p.KEYWORD_ONLY]
    needed = {*positional, *(p.name for p in required if p.kind is p.KEYWORD_ONLY)}
    named = {p.name for p in parameters if p.kind in _NAMED}

    if "context" in named and ("context" in needed or positional[:1] == ["sample"]):
        names, extra, signature = ("sample", "output"), "context", CONTEXT
    elif "session" in named or len(positional) == 3:
        names, extra, signature = ("output", "expected"), "session", _SESSION
        if "session" in named:
            signature = _SESSION_BY_NAME._replace(session_needed="session" in needed)
    elif positional[:1] == ["trajectory"] or positional[1:2] == ["sample"]:
        names, extra, signature = ("trajectory", "sample"), "", _TRAJECTORY
    else:
        names, extra, signature = ("output", "expected"), "", OUTPUT

    # The third position is for the extra: by its name, or by any if it is not a keyword elsewhere.
    third = positional[2:3] == [extra] or (len(positional) == 3 and extra not in named)
    wanted = [*names, extra] if third else list(names)
    fits = (
        len(positional) == len(wanted)
        and needed - set(positional) <= {extra}
        and all(n == p or n not in _MEANINGFUL for n, p in zip(positional, wanted, strict=True))
    )
    if not fits:
        raise _no_match(fn, f"({', '.join(str(p) for p in parameters)})")
    return signature


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PASSED = (inspect.Parameter.POSITIONAL_ONLY, *_NAMED)


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with its annotations evaluated, if their names can be found."""
    try:
        return inspect.signature(fn, eval_str=True)
    except ValueError:
        raise
    except Exception:  # whatever an annotation raises
        return inspect.signature(fn)


def _role(parameter: inspect.Parameter) -> str:
    """Return the meaningful name of a parameter, its own or by its annotation; else its name."""
    hint = parameter.annotation
    if parameter.name in _MEANINGFUL or hint is parameter.empty:
        return parameter.name
    if isinstance(hint, str):
        name = hint.partition("[")[0].rpartition(".")[2]
        return next((role for cls, role in _ROLES.items() if cls.__name__ == name), parameter.name)
    hint = getattr(hint, "__origin__", hint)
    return _ROLES.get(hint, parameter.name) if isinstance(hint, type) else parameter.name


def _no_match(fn: Callable[..., Any], got: str) -> EvaluatorShapeError:
    name = evaluator_name(fn)
    hint = "give every other parameter a default, or bind it with functools.partial"
    returned = getattr(fn, "__annotations__", {}).get("return")
    if getattr(returned, "__name__", returned) == "Criterion":
        hint = f"it makes evaluators, so call it: {name}(...)"
    return EvaluatorShapeError(
        f"expected an evaluator that takes {', '.join(s.text for s in _SIGNATURES[:-1])} or "
        f"{_SIGNATURES[-1].text}, got `{name}` with {got} - {hint}"
    )


def evaluator_name(fn: Callable[..., Any]) -> str:
    """Return a name for reports: the function's, or its factory's if its own is generic."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    outer = getattr(fn, "__qualname__", "").split(".<locals>.")
    if name in ("evaluate", "evaluator", "inner", "wrapper") and len(outer) > 1:
        name = outer[-2].rpartition(".")[2]
    return "lambda" if name == "<lambda>" else str(name)
