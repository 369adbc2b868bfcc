"""What a sample opens to, as texts that the page only has to lay out, packed into small blocks.

Rules of this file:
1. Every text goes through `visible`: what a model or a tool wrote is data, also in a browser.
2. No text and no sample can make the page large: what is too long is cut, and says so.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import SerializationError
from .._report import EvalResult
from .._store import StoredRow
from .._visible import as_text, visible
from .._words import duration, events_of, money, number, readable

__all__ = ["Blocks", "core_of", "encoded", "transcript_of"]

_BLOCK = 96_000  # letters in a block, about: what opening one sample unpacks
_ITEMS = 256  # in a block, at most: a place is a block times this, plus an index
_TRANSCRIPT = 300_000  # letters
_EVENTS, _EVENT = 500, 400  # of a session, and letters of one


class Blocks:
    """Items in compressed blocks of at most `limit` bytes together; the others are left out.

    A block that was not kept is empty.
    `add` says the item's place, and `holds` after `close` whether it was kept. A place of -2 is
    that of an item that was left out; -1 is for those who have none.
    """

    def __init__(self, limit: int) -> None:
        self.blocks: list[bytes] = []
        self.left_out = 0
        self._full = False
        self._room = limit
        self._items: list[str] = []
        self._letters = 0

    def add(self, item: Callable[[], Any]) -> int:
        """The place of the item, as far as one can say now; it is made only if there is room."""
        if self._full:
            self.left_out += 1
            return -2
        line = json.dumps(item(), ensure_ascii=False, separators=(",", ":"))
        if len(line) > _BLOCK:
            self.close()  # if it has no room, no other one is left out with it
        self._items.append(line)
        self._letters += len(line)
        place = len(self.blocks) * _ITEMS + len(self._items) - 1
        if self._letters >= _BLOCK or len(self._items) == _ITEMS:
            self.close()
        return place

    def close(self) -> None:
        """End the block that is begun: it is kept if there is room for it."""
        if not self._items:
            return
        block = encoded("[" + ",".join(self._items) + "]")
        if len(block) > self._room:
            self.left_out += len(self._items)
            self._full = len(self._items) > 1
            block = b""
        self._room -= len(block)
        self.blocks.append(block)
        self._items, self._letters = [], 0

    def holds(self, place: int) -> int:
        """The place, or -2 where it is in a block that was not kept."""
        return place if place < 0 or self.blocks[place // _ITEMS] else -2


def encoded(text: str) -> bytes:
    """Text for a script element: compressed, in letters that mean nothing to HTML."""
    return b64encode(zlib.compress(text.encode(), 6))


# ── a sample ────────────────────────────────────────────────────────────────────────────────────


def core_of(row: StoredRow, longest: int) -> dict[str, Any]:
    """Facts, parts (title, text) and scores (passed, value, name, reason) of a row."""
    result = row.result
    parts: list[tuple[str, Any]] = []
    if result.error is not None:
        parts.append((f"Error ({result.error_source or 'agent'})", result.error))
    if result.sample is not None:
        parts.append(("Input", result.sample.input))
        if result.sample.expected is not None:
            parts.append(("Expected", result.sample.expected))
    if result.trajectory is not None:
        parts.append(("Output", result.output))
    if result.metadata:
        parts.append(("Metadata", result.metadata))
    scores = [
        (int(score.passed), score.value, score.criterion or "score", as_text(score.reason))
        for score in result.scores
    ]
    named = {name for _, _, name, _ in scores}
    scores += [
        (-1, metric.value, metric.name, "")  # only tracked: it has no verdict
        for metric in (result.score.metrics if result.success else ())
        if metric.name not in named
    ]
    return {
        "f": ", ".join(filter(None, _facts(result))),
        "p": [[title, _shortened(readable(value), longest)] for title, value in parts],
        "s": [
            [passed, number(value), visible(name), _shortened(reason, longest)]
            for passed, value, name, reason in scores
        ],
    }


def _facts(result: EvalResult[Any]) -> Iterator[str]:
    yield f"epoch {result.epoch}" if result.epoch > 1 else ""
    yield f"attempt {result.attempt}" if result.attempt > 1 else ""
    yield duration(result.latency_ms / 1000)
    if (trajectory := result.trajectory) is None:
        return
    if (usage := trajectory.usage) is not None:
        told = ((usage.input_tokens, "in"), (usage.output_tokens, "out"))
        sides = ", ".join(f"{n:,} {side}" for n, side in told if n is not None)
        yield f"{usage.total_tokens:,} tokens ({sides or 'nobody counted'})"
    yield money(trajectory.cost) if trajectory.cost is not None else ""
    yield f"stop reason {visible(trajectory.stop_reason)}" if trajectory.stop_reason else ""


def transcript_of(row: StoredRow, longest: int) -> dict[str, Any]:
    """Messages (role, name, text, calls), events (time, kind, text), and how many more."""
    trajectory = row.result.trajectory
    messages: list[list[Any]] = []
    letters = left_out = 0
    for message in trajectory.messages if trajectory else ():
        if letters > _TRANSCRIPT:
            left_out += 1
            continue
        calls = [
            [visible(part) for part in (call.name, call.id)]
            + [_shortened(readable(dict(call.arguments)), longest)]
            for call in message.tool_calls
        ]
        name = " ".join(filter(None, (message.name, message.tool_call_id)))
        text = _shortened(message.content, longest)
        letters += len(text) + sum(len(call[2]) for call in calls)
        messages.append([message.role, visible(name), text, calls])
    events = list(_events(row, bool(messages)))
    left_out += max(0, len(events) - _EVENTS)
    return {"m": messages, "e": events[:_EVENTS], "n": left_out}


def _events(row: StoredRow, said: bool) -> Iterator[list[str]]:
    try:
        for moment, kind, told in () if row.session is None else events_of(row.session, said=said):
            yield [visible(moment), visible(kind), _shortened(told, _EVENT)]
    except SerializationError as error:
        yield ["", "unreadable", visible(str(error))]


# ── values as text ──────────────────────────────────────────────────────────────────────────────


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}…\n[{len(text) - longest:,} more letters are left out here]"
