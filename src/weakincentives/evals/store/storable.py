"""The part of a result that JSON can represent, for the run store and for mailboxes.

The verdict on a sample is kept whatever the agent returned. A part of a result that has no JSON
form is left out, and `metadata["not_stored"]` says which and why. Only if the verdict itself is
invalid, because the checks of its constructor were bypassed, does the result become an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ... import serde
from ...errors import SerializationError, UsageError, short_repr
from ...rollouts import Trajectory
from ...secrets import logger_for
from .._types import Metric, Sample, Score
from ..model.result import EvalResult

NOT_STORED = "not_stored"  # the key of the note in a result's metadata
_NOTE_CHARS = 1_000

logger = logger_for(__name__)


def encoded(result: EvalResult[Any]) -> bytes:
    """Return the result as JSON, without the parts that JSON cannot represent."""
    try:
        return serde.encode(result)
    except Exception:  # user-defined types may raise anything
        return serde.encode(storable(result))


def storable(result: EvalResult[Any]) -> EvalResult[Any]:
    """Return the result without the parts that JSON cannot represent, and a note that names them.

    Every value is built again, which validates its fields; if one is refused, or still cannot be
    encoded, the result is an error that says so.
    """
    parts = _Parts()
    sample = result.sample if parts.can_encode("sample", result.sample) else None
    latency_ms = result.latency_ms
    if not parts.can_encode("latency_ms", latency_ms):
        latency_ms = 0
    try:
        kept = replace(
            result,
            score=_score(result.score, parts),
            latency_ms=latency_ms,
            sample=sample,
            trajectory=_trajectory(result.trajectory, parts),
            metadata=parts.of_mapping("metadata", result.metadata),
        )
        serde.encode(kept)
    except (UsageError, SerializationError) as error:
        return _error_instead(result, sample, error)
    if not parts.left_out:
        return kept
    note = "; ".join(parts.left_out)[:_NOTE_CHARS]
    logger.warning("left out what JSON cannot represent of sample %r: %s", result.sample_id, note)
    return replace(kept, metadata={**kept.metadata, NOT_STORED: note})


def _score(score: Score, parts: _Parts) -> Score:
    metrics = [
        Metric(
            metric.name,
            metric.value,
            metric.weight,
            parts.of_mapping(f"score.metrics[{index}].metadata", metric.metadata),
        )
        for index, metric in enumerate(score.metrics)
    ]
    return Score(score.value, score.passed, score.reason, tuple(metrics), score.criterion)


def _trajectory(trajectory: Trajectory[Any] | None, parts: _Parts) -> Trajectory[Any] | None:
    if trajectory is None:
        return None
    kept = {
        name: getattr(trajectory, name)
        for name in Trajectory.__dataclass_fields__
        if name != "metadata" and parts.can_encode(name, getattr(trajectory, name))
    }
    metadata = parts.of_mapping("trajectory.metadata", trajectory.metadata)
    return Trajectory(**kept, metadata=metadata)


class _Parts:
    """Tries to encode parts of a result, and collects those that fail, with the reason."""

    def __init__(self) -> None:
        self.left_out: list[str] = []

    def can_encode(self, where: str, value: Any) -> bool:
        """Return whether JSON can represent the value."""
        try:
            serde.encode(value)
        except Exception as error:  # user-defined types may raise anything
            self.left_out.append(f"{where}: {error or type(error).__name__}")
            return False
        return True

    def of_mapping(self, where: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the mapping without the entries that cannot be encoded."""
        return {
            key: value
            for key, value in mapping.items()
            if self.can_encode(f"{where}[{short_repr(key)}]", value)
        }


def _error_instead(
    result: EvalResult[Any], sample: Sample[Any, Any] | None, error: Exception
) -> EvalResult[Any]:
    message = f"this result could not be stored: {error}"
    logger.warning("sample %r: %s", result.sample_id, message)
    return EvalResult(
        result.sample_id,
        Score(0.0, False, message),
        error=message,
        sample=sample,
        experiment_name=result.experiment_name,
        epoch=result.epoch,
        run_id=result.run_id,
        attempt=result.attempt,
        error_source="infrastructure",
        judge_usage=result.judge_usage,
        judge_cost=result.judge_cost,
    )
