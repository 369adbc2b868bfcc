"""What may be given as evaluators: functions, the names of built-in ones, lists of both."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ..errors import EvaluatorShapeError
from ..internal.names import did_you_mean
from ._evaluators import all_of
from .evaluators.criteria import Criterion, EvaluatorFunction, criterion

Evaluators = EvaluatorFunction | str | Sequence[EvaluatorFunction | str]
"""An evaluator, the name of a built-in one, or several of both, which must all pass."""

# The evaluators that need no settings, with the modules that offer them.
BUILT_INS = {
    "contains": "_evaluators",
    "environment_score": "evaluators.environments",
    "exact_match": "_evaluators",
    "json_subset": "_evaluators",
    "math_equal": "evaluators.math",
    "one_of": "_evaluators",
}


def as_criterion(evaluators: Evaluators) -> Criterion:
    """Return an evaluator or the name of a built-in one as a criterion; of several, all must pass.

    >>> as_criterion(["contains", lambda context: len(context.output) < 20])
    <criterion all_of>
    """
    if isinstance(evaluators, str):
        return evaluator_named(evaluators)
    if not isinstance(evaluators, Sequence):
        return criterion(evaluators)
    parts = [as_criterion(each) if isinstance(each, str) else each for each in evaluators]
    return criterion(parts[0]) if len(parts) == 1 else all_of(*parts)


def evaluator_named(name: str) -> Criterion:
    """Return a built-in evaluator by its name."""
    if name in BUILT_INS:
        found: Criterion = getattr(import_module(f".{BUILT_INS[name]}", __package__), name)
        return found
    hint = did_you_mean(name, BUILT_INS) or f"known: {', '.join(BUILT_INS)}."
    raise EvaluatorShapeError(
        f"expected the name of a built-in evaluator, got {name!r} - {hint} Any other evaluator is "
        "passed without quotes: brief, or similar(0.8)"
    )
