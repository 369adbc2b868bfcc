"""The rewards that an environment of verifiers gave, kept with the trajectory as JSON.

Rules of this file:
1. It needs no package, so a stored trajectory can be scored again anywhere.
2. A reward counts only if the rollout is `ok`. A reward function that raised is an error, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import serde
from ...chat import TokenTrace
from ...errors import EvaluatorError, ProviderError, WinkError
from ...evals import Sample, Score, Trajectory
from ...evals.evaluators.environments import ENVIRONMENT_SCORE, ENVIRONMENT_SCORE_ERROR
from ..importers.imported_values import finite_or_none
from ..importers.verifiers import (
    problem_of_rollout,
    score_of_trace,
    trajectory_of_rollout,
    trajectory_of_trace,
)

REWARDS = "verifiers"  # in the metadata of a trajectory
TOKENS = "wink_tokens"  # in the `info` of a trace: those of each reply, as the server sent them


class VerifiersError(WinkError):
    """A rollout of verifiers failed before it could be scored."""


def verifiers_score(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Return the score that an environment of verifiers gave to the agent of `verifiers_agent`.

    The value is the weighted sum of its rewards, as in verifiers; each reward is a metric with its
    weight in the metadata.
    """
    kept = trajectory.metadata.get(REWARDS)
    if not isinstance(kept, Mapping):
        raise EvaluatorError(
            "expected a trajectory of `verifiers_agent`, got one without its rewards - use another "
            "evaluator"
        )
    score, (problem, _) = score_of_trace(kept, kept.get("errors") or [])
    if score is None:
        raise EvaluatorError(problem)
    return score


def trace_with_rewards(
    trace: Mapping[str, Any], errors: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
) -> Trajectory[str]:
    """Return the trajectory of a rollout, with its rewards; raise if it failed before scoring."""
    score, (problem, source) = score_of_trace(trace, errors)
    if score is None:
        _raise_unless_scoring(problem, source)
    rewards = {
        name: reward and {**reward, "score": finite_or_none(reward["score"])}
        for name, reward in (trace.get("rewards") or {}).items()
    }
    kept = {
        "ok": bool(trace.get("ok")),
        "rewards": rewards,
        "metrics": {
            name: finite_or_none(value) for name, value in (trace.get("metrics") or {}).items()
        },
        "errors": [{"type": each["type"], "message": each["message"]} for each in errors],
        **facts,
    }
    left = _with_rewards(trajectory_of_trace(trace), kept, score, problem)
    tokens = (trace.get("info") or {}).get(TOKENS)
    if not tokens:
        return left
    return replace(left, tokens=tuple(serde.convert(each, TokenTrace) for each in tokens))


def rollout_with_rewards(
    row: Mapping[str, Any],
    weights: Mapping[str, float],
    raised: Mapping[str, str],
    facts: Mapping[str, Any],
) -> Trajectory[str]:
    """Return the trajectory of a rollout of the older stack, with its rewards; or raise.

    `raised` has what reward functions raised, by name: that stack itself turns it into 0.
    """
    if (problem := problem_of_rollout(row)) is not None and problem[1] != "evaluator":
        _raise_unless_scoring(*problem)
    rewards = {
        name: None
        if name in raised
        else {"score": finite_or_none(value), "weight": weights.get(name, 0.0)}
        for name, value in (row.get("metrics") or {}).items()
    }
    errors = [{"type": "TaskError", "message": f"{name}: {text}"} for name, text in raised.items()]
    if problem is not None:
        errors.append({"type": "TaskError", "message": problem[0]})
    counted = {name: each for name, each in rewards.items() if weights.get(name, 0.0)}
    kept = {
        "ok": not errors,
        "rewards": counted or rewards,
        "metrics": {
            name: each["score"] for name, each in rewards.items() if each and name not in counted
        },
        "errors": errors,
        **facts,
    }
    score, (text, _) = score_of_trace(kept, errors)
    return _with_rewards(trajectory_of_rollout(row), kept, score, text)


def _raise_unless_scoring(problem: str, source: str | None) -> None:
    if source == "infrastructure":
        raise ProviderError(problem, retryable=True)
    if source == "agent":
        raise VerifiersError(problem)


def _with_rewards(
    left: Trajectory[str], kept: Mapping[str, Any], score: Score | None, problem: str
) -> Trajectory[str]:
    own = {ENVIRONMENT_SCORE_ERROR: problem} if score is None else {ENVIRONMENT_SCORE: score.value}
    return replace(left, metadata={**left.metadata, REWARDS: dict(kept), **own})
