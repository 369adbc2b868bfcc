"""Judged results as training data: conversations for SFT, and pairs for preference training.

Rules of this file:
1. A result with an error is never exported: it has no score.
2. A pair is of one sample: both sides answer the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import serde
from ...adapters.wire import wire_call
from ...chat import ChatMessage
from ...errors import UsageError
from ...internal.checks import finite
from ..model.result import EvalResult


def sft_rows(
    results: Iterable[EvalResult[Any]], *, min_score: float = 0.5, criterion: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the conversations with at least this score, as TRL and OpenAI read them.

    Each row has `messages` in the form of Chat Completions, and `sample_id`, `epoch` and `score`.
    With `criterion`, its score decides instead of the whole.
    """
    finite(min_score, "min_score")
    for result in results:
        score = _score(result, criterion)
        if score is not None and score >= min_score:
            yield {
                "messages": list(map(_wire, _messages(result))),
                "sample_id": result.sample_id,
                "epoch": result.epoch,
                "score": score,
            }


def preference_rows(
    results: Iterable[EvalResult[Any]], *, min_gap: float = 0.1, criterion: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield for each sample its best and its worst epoch, if their scores differ enough.

    Each row has `prompt`, `chosen` and `rejected` as messages, with both scores. The prompt is what
    both conversations begin with.
    """
    if finite(min_gap, "min_gap") < 0:
        raise UsageError(f"expected `min_gap` >= 0, got {min_gap}")
    samples: dict[str, list[tuple[float, EvalResult[Any]]]] = {}
    for result in results:
        if (score := _score(result, criterion)) is not None:
            samples.setdefault(result.sample_id, []).append((score, result))
    for sample_id, scored in samples.items():
        best = max(scored, key=lambda pair: (pair[0], -pair[1].epoch))
        worst = min(scored, key=lambda pair: (pair[0], pair[1].epoch))
        if best[0] - worst[0] < max(min_gap, 1e-12):
            continue
        yield {
            **preference_pair(best[1], worst[1]),
            "sample_id": sample_id,
            "chosen_score": best[0],
            "rejected_score": worst[0],
        }


def preference_pair(chosen: EvalResult[Any], rejected: EvalResult[Any]) -> dict[str, Any]:
    """Return two results of one sample as `prompt`, `chosen` and `rejected`, all messages."""
    better, worse = _messages(chosen), _messages(rejected)
    shared = _shared(better, worse)
    return {
        "prompt": list(map(_wire, better[:shared])),
        "chosen": list(map(_wire, better[shared:])),
        "rejected": list(map(_wire, worse[shared:])),
    }


def _score(result: EvalResult[Any], criterion: str) -> float | None:
    if not result.success or result.trajectory is None:
        return None
    if not criterion:
        return result.score.value
    for score in (result.score, *result.score.parts):
        if score.criterion == criterion:
            return score.value
    raise UsageError(
        f"expected the criterion {criterion!r}, got {result.sample_id!r} with "
        + ", ".join(each.criterion for each in result.scores)
    )


def _messages(result: EvalResult[Any]) -> list[ChatMessage]:
    assert result.trajectory is not None
    if messages := result.trajectory.messages:
        return list(messages)
    sample = result.sample
    if sample is None or not isinstance(sample.input, str):
        raise UsageError(
            f"expected messages, or a text as input, of {result.sample_id!r} - return a "
            "`Trajectory` with messages from the agent"
        )
    output = result.output
    text = output if isinstance(output, str) else serde.encode(output).decode()
    return [ChatMessage("user", sample.input), ChatMessage("assistant", text)]


def _shared(a: list[ChatMessage], b: list[ChatMessage]) -> int:
    """Return how many messages both begin with, up to the first reply of the model."""
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other or one.role == "assistant":
            break
        count += 1
    return count


def _wire(message: ChatMessage) -> Mapping[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            wire_call(call, serde.encode(call.arguments).decode()) for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data
