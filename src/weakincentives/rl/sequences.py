"""Training data: the tokens of trajectories as sequences, with an advantage for each token.

Pure Python; the backend converts it to tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..chat import TokenTrace
from ..errors import UsageError, short_repr
from ..rollouts import Trajectory

Advantage = float | Sequence[float]


@dataclass(slots=True)
class TrainedSequence:
    """Token ids, and the positions, old log-probabilities and advantages of the trained ones."""

    ids: list[int]
    places: list[int] = field(default_factory=list)
    old: list[float] = field(default_factory=list)  # log-probabilities; NaN if unknown
    advantages: list[float] = field(default_factory=list)


def trained_sequences(
    trajectories: Sequence[Trajectory[Any]], advantages: Sequence[Advantage]
) -> list[TrainedSequence]:
    """Return the sequences to train on; turns that continue each other are merged into one."""
    if len(trajectories) != len(advantages):
        raise UsageError(
            f"expected an advantage for each of {len(trajectories)} trajectories, got "
            f"{len(advantages)}"
        )
    found: list[TrainedSequence] = []
    for index, (trajectory, given) in enumerate(zip(trajectories, advantages, strict=True)):
        each = _each(trajectory, given, index)
        if any(each):
            found += _merged(trajectory.tokens, each, index)
    return [sequence for sequence in found if sequence.places]


def _each(trajectory: Trajectory[Any], given: Advantage, index: int) -> list[float]:
    """Return one advantage for each trace."""
    where, count = f"at `advantages[{index}]`", len(trajectory.tokens)
    many = list(given) if isinstance(given, Sequence) else [float(given)] * max(1, count)
    if not all(map(math.isfinite, many)):
        raise UsageError(f"expected finite advantages, got {short_repr(given)} - {where}")
    if any(many) and count == 0:
        raise UsageError(
            f"expected tokens to train on, got none in `trajectories[{index}]` - its endpoint must "
            "return a `ModelReply` with `tokens`, as the backend's own does"
        )
    if isinstance(given, Sequence) and len(many) != count:
        raise UsageError(
            f"expected a number, or {count} of them, one for each of `tokens`, got {len(many)} - "
            f"{where}"
        )
    return many


def _merged(
    traces: Sequence[TokenTrace], advantages: list[float], index: int
) -> list[TrainedSequence]:
    found: list[TrainedSequence] = []
    for number, (trace, advantage) in enumerate(zip(traces, advantages, strict=True)):
        if trace.ids and not trace.prompt_ids:
            raise UsageError(
                "expected the `prompt_ids` that the reply follows, got none - at "
                f"`trajectories[{index}].tokens[{number}]`"
            )
        prompt = list(trace.prompt_ids)
        if not found or prompt[: len(found[-1].ids)] != found[-1].ids:
            found.append(TrainedSequence([]))
        sequence = found[-1]
        sequence.ids = [*prompt, *trace.ids]
        trained = trace.mask or [1] * len(trace.ids)
        old = trace.logprobs or [math.nan] * len(trace.ids)
        for place, (flag, logprob) in enumerate(zip(trained, old, strict=True), len(prompt)):
            if flag:
                sequence.places.append(place)
                sequence.old.append(logprob)
                sequence.advantages.append(advantage)
    return found
