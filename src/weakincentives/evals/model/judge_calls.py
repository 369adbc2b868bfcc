"""The prompts and answers of judges: kept with the result, for people who read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

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


def with_short_texts(call: JudgeCall) -> JudgeCall:
    """Return a call with its long texts cut."""
    return replace(
        call,
        messages=tuple(
            ChatMessage(each.role, shorten(each.content, MAX_CHARS)) for each in call.messages
        ),
        answer=shorten(call.answer, MAX_CHARS),
        problem=shorten(call.problem, MAX_CHARS),
    )


def judge_calls_of(meter: Meter) -> tuple[JudgeCall, ...]:
    """Return the calls of judges that were recorded while a meter ran."""
    return tuple(record for record in meter.records if isinstance(record, JudgeCall))


def judge_labels(calls: Iterable[JudgeCall]) -> dict[str, str]:
    """Return the label that was picked for each criterion.

    A name for which two judges picked different labels has none.
    """
    labels: dict[str, set[str]] = {}
    for call in calls:
        if not call.problem:
            for name, label in _picked(call):
                labels.setdefault(name, set()).add(label)
    return {name: min(picked) for name, picked in labels.items() if len(picked) == 1}


def _picked(call: JudgeCall) -> Iterator[tuple[str, str]]:
    """Yield criteria with their labels: that of the judge, or those of a rubric."""
    from ...errors import OutputParseError
    from ...prompt.output import parse_output  # here, since most runs have no judge

    try:
        answer = parse_output(call.answer, dict)
    except OutputParseError:
        return
    for name, verdict in ((call.judge, answer), *answer.items()):
        if isinstance(verdict, dict) and isinstance(label := verdict.get("rating"), str):
            yield name, label
