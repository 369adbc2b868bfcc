"""The score of an environment that owns its scoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import EvaluatorError, UnsuitableAgentError, UsageError, short_repr
from ...rollouts import Trajectory
from .._types import Metric, Sample, Score
from .criteria import built_in

ENVIRONMENT_SCORE = "environment_score"  # in the metadata of a trajectory
ENVIRONMENT_SCORE_ERROR = "environment_score_error"


@built_in("environment_score", 1)
def environment_score(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Return the score that the environment gave: its `score()` when the agent was done.

    A number or a bool is the value; a mapping of names to numbers is one metric each, which count
    equally. A `score()` that raised is an error of this evaluator.
    """
    metadata = trajectory.metadata
    if ENVIRONMENT_SCORE_ERROR in metadata:
        raise EvaluatorError(
            f"the environment's `score()` raised {metadata[ENVIRONMENT_SCORE_ERROR]}"
        )
    if ENVIRONMENT_SCORE not in metadata:
        raise UnsuitableAgentError(
            "expected an environment with `score()`, found none - add the method, or use another "
            "evaluator"
        )
    given = metadata[ENVIRONMENT_SCORE]
    try:
        if isinstance(given, Mapping):
            return Score(metrics=[Metric(name, value, weight=1) for name, value in given.items()])
        score = Score(given)
        return score if score.passed else replace(score, reason=f"`score()` returned {given}")
    except UsageError as error:
        raise EvaluatorError(
            f"expected a number or numbers by name from `score()`, got {short_repr(given)}: {error}"
        ) from None
