"""The signatures that an evaluator may have, and how to match them.

Rules of this file:
1. A signature is matched by the names and the number of the required parameters. `tolerance=0.1`
   has a default, so it is not a session. A parameter that is annotated as an `EvalContext`, a
   `Trajectory`, a `Sample` or a `SessionView` counts as if it had that name. So does a parameter
   alone, without an annotation: it is the context, unless its name says something else.
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
    names: tuple[str, ...]  # in their positions
    call: Callable[[Callable[..., Any], EvalContext], Any]
    by_name: str = ""  # and what is passed by name
    session_aware: bool = False
    session_needed: bool = False


CONTEXT = Signature("(context)", ("context",), lambda fn, c: fn(c), session_aware=True)
OUTPUT = Signature(
    "(output, expected)",
    ("output", "expected"),
    lambda fn, c: fn(c.trajectory.output, c.sample.expected),
)
_SESSION = Signature(
    "(output, expected, session)",
    ("output", "expected", "session"),
    lambda fn, c: fn(c.trajectory.output, c.sample.expected, c.session),
    session_aware=True,
    session_needed=True,
)
_SESSION_BY_NAME = _SESSION._replace(
    names=OUTPUT.names,
    call=lambda fn, c: fn(c.trajectory.output, c.sample.expected, session=c.session),
    by_name="session",
)
SAMPLE_AND_CONTEXT = Signature(
    "(sample, output, *, context)",
    ("sample", "output"),
    lambda fn, c: fn(c.sample, c.trajectory.output, context=c),
    by_name="context",
    session_aware=True,
)
_TRAJECTORY = Signature(
    "(trajectory, sample)",
    ("trajectory", "sample"),
    lambda fn, c: fn(c.trajectory, c.sample),
)
_SIGNATURES = (CONTEXT, OUTPUT, _SESSION, SAMPLE_AND_CONTEXT, _TRAJECTORY)

# Names with a meaning, which a parameter may have only in its own position.
_MEANINGFUL = {name for each in _SIGNATURES for name in each.names}
_ROLES: dict[type, str] = {
    Trajectory: "trajectory",
    Sample: "sample",
    SessionView: "session",
    EvalContext: "context",
}


class _Parameters(NamedTuple):
    """The parameters of a function: what must be passed, and what can be passed by name."""

    positional: tuple[str, ...]
    keyword_only: frozenset[str]
    optional: frozenset[str]
    named: frozenset[str]


def match_signature(fn: Callable[..., Any]) -> Signature:
    """Return the signature that fits the function's required parameters and their names."""
    if isinstance(fn, type) or not callable(fn):
        hint = " - unpack it: all_of(*evaluators)" if isinstance(fn, (list, tuple)) else ""
        hint = " - pass the function itself, without quotes" if isinstance(fn, str) else hint
        raise EvaluatorShapeError(f"expected a function as evaluator, got {short_repr(fn)}{hint}")
    try:
        signature = _signature(fn)
    except ValueError:
        raise _no_match(fn, (), "no signature that Python can read") from None
    given = _parameters(signature)
    # The first that fits is meant: `(a, b, session=None)` takes the session.
    for known in (_SESSION_BY_NAME, *_SIGNATURES):
        if _fits(known, given):
            if known.session_needed and known.by_name in given.optional:
                return known._replace(session_needed=False)
            return known
    text = f"({', '.join(map(str, signature.parameters.values()))})"
    raise _no_match(fn, given.positional, text)


def _fits(known: Signature, given: _Parameters) -> bool:
    """Return whether a function with these parameters can be called by this signature."""
    names, positional = known.names, given.positional
    if known.by_name:
        if known.by_name not in given.named:
            return False
        if positional[-1:] == (known.by_name,):  # by name or by position, as the function likes
            positional = positional[:-1]
    return (
        len(positional) == len(names)
        and given.keyword_only <= {known.by_name}
        and all(map(_may_be, positional, names))
    )


def _may_be(role: str, name: str) -> bool:
    """Return whether a parameter of this role may have the position of that name."""
    return role == name or (role not in _MEANINGFUL and name != "context")


def _parameters(signature: inspect.Signature) -> _Parameters:
    parameters = signature.parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind in _PASSED]
    positional = [p for p in required if p.kind is not p.KEYWORD_ONLY]
    roles = tuple(map(_role, positional))
    if len(positional) == 1 and roles[0] not in _MEANINGFUL and _says_nothing(positional[0]):
        roles = ("context",)
    return _Parameters(
        roles,
        frozenset(p.name for p in required if p.kind is p.KEYWORD_ONLY),
        frozenset(p.name for p in parameters if p.default is not p.empty),
        frozenset(p.name for p in parameters if p.kind in _NAMED),
    )


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PASSED = (inspect.Parameter.POSITIONAL_ONLY, *_NAMED)


def _says_nothing(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter has no annotation, and is not that of a built-in like `len`."""
    is_bare = parameter.annotation in (parameter.empty, Any, "Any")
    return is_bare and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


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


def _no_match(fn: Callable[..., Any], roles: tuple[str, ...], got: str) -> EvaluatorShapeError:
    name = evaluator_name(fn)
    hint = "give every other parameter a default, or bind it with functools.partial"
    returned = getattr(fn, "__annotations__", {}).get("return")
    if getattr(returned, "__name__", returned) == "Criterion":
        hint = f"it makes evaluators, so call it: {name}(...)"
    for known in _SIGNATURES:
        if roles != known.names and sorted(roles) == sorted(known.names):
            hint = f"swap its parameters: {known.text}"
    if len(roles) == 1 and roles[0] in _MEANINGFUL:
        hint = f"take the context, and use `context.{roles[0]}`"
    texts = [each.text for each in _SIGNATURES]
    return EvaluatorShapeError(
        f"expected an evaluator that takes {', '.join(texts[:-1])} or {texts[-1]}, "
        f"got `{name}` with {got} - {hint}"
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
