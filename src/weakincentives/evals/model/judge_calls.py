"""The prompts and answers of judges: kept with the result, for people who read it."""

from __future__ import annotations

from dataclasses import dataclass

from ...chat import ChatMessage, TokenUsage
from ...internal.wire_names import wire_name
from ...runtime.metering import Meter
from ...secrets import shorten

MAX_CHARS = 20_000  # per message or answer


@wire_name("wink:JudgeCall")
@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One prompt for a judge, as it was sent, and the text of the answer.

    `problem` says why the answer could not be used, in which case the judge was asked again; it is
    empty otherwise. Long texts are cut.
    """

    judge: str
    messages: tuple[ChatMessage, ...]
    answer: str = ""
    problem: str = ""
    model: str | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    latency_ms: float | None = None


def judge_call(
    judge: str,
    messages: tuple[ChatMessage, ...],
    answer: str = "",
    problem: str = "",
    *,
    model: str | None = None,
    usage: TokenUsage | None = None,
    cost: float | None = None,
    latency_ms: float | None = None,
) -> JudgeCall:
    """Return the record of a call, with its long texts cut."""
    cut = tuple(ChatMessage(each.role, shorten(each.content, MAX_CHARS)) for each in messages)
    answer, problem = shorten(answer, MAX_CHARS), shorten(problem, MAX_CHARS)
    return JudgeCall(judge, cut, answer, problem, model, usage, cost, latency_ms)


def judge_calls_of(meter: Meter) -> tuple[JudgeCall, ...]:
    """Return the calls of judges that were recorded while a meter ran."""
    return tuple(record for record in meter.records if isinstance(record, JudgeCall))
