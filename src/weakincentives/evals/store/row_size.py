"""Estimate the size of a row before it is encoded, for back-pressure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ...chat import ChatMessage
from ...secrets import logger_for
from .stored_row import StoredRow

logger = logger_for(__name__)

_BASE_BYTES = 400  # a row without texts
_NUMBER_BYTES = 8  # a number and its separator
_MAY_BE_EMPTY = frozenset((dict, list, tuple, type(None)))
_MAX_NODES = 500  # values to visit before extrapolating


def approximate_size(row: StoredRow) -> int:
    """Return about how many bytes the row takes as JSON.

    This runs for every row, so it is cheap: a few microseconds, however large the row is.
    """
    result, size = row.result, _BASE_BYTES
    texts: list[Any] = [result.metadata, result.score.reason, result.score.metrics, result.error]
    if (details := result.error_details) is not None:
        size += len(details.traceback)
    for call in result.judge_calls:
        texts += call.messages, call.answer
    if (sample := result.sample) is not None:
        texts += sample.input, sample.expected, sample.metadata
    if (trajectory := result.trajectory) is not None:
        texts += trajectory.output, trajectory.messages, trajectory.metadata, trajectory.tokens
        if trajectory.snapshots:
            texts += [dict(snapshot.state) for snapshot in trajectory.snapshots]
    for value in texts:
        kind = value.__class__
        if kind is str:
            size += len(value)
        elif kind not in _MAY_BE_EMPTY or value:  # the truth value of other types may raise
            size += _size_of(value)
    if row.session is not None:
        size += len(row.session)
    # An unsaved session holds at least the conversation. Its events are not visited.
    return size if row.unsaved_session is None else 2 * size


def _size_of(value: Any) -> int:
    """Add up the sizes of the texts in nested data; extrapolate from a part of long data."""
    size, seen, skipped, left = 0, 0, 0, [value]
    try:
        while left and seen < _MAX_NODES:
            item = left.pop()
            kind = item.__class__
            seen += 1
            if kind is str or kind is bytes:
                size += len(item)
            elif kind is ChatMessage:
                size += len(item.content)
                left += item.tool_calls
            elif kind is dict or kind is list or kind is tuple:
                left += islice(item.values() if kind is dict else item, _MAX_NODES)
                skipped += max(0, len(item) - _MAX_NODES)
            elif kind is int or kind is float or kind is bool or item is None:
                size += _NUMBER_BYTES
            else:
                inner = _inside(item)
                if isinstance(inner, int):
                    size += inner
                else:
                    left += inner
    except Exception:  # user-defined types may raise anything; encoding reports it
        logger.debug("cannot estimate the size of a value of type %s", type(value).__qualname__)
    return size * (seen + skipped + len(left)) // seen


def _inside(item: Any) -> list[Any] | int:
    """Return the values inside an object of another type, or its size if it has none."""
    if isinstance(item, (str, bytearray)):
        return len(item)
    if isinstance(item, Mapping):
        return list(islice(item.values(), _MAX_NODES))
    if isinstance(item, (list, tuple, set, frozenset)):
        return list(islice(item, _MAX_NODES))
    if (fields := getattr(item, "__dataclass_fields__", None)) is not None:
        return [getattr(item, name, None) for name in fields]
    if isinstance(attributes := getattr(item, "__dict__", None), dict):
        return [*attributes.values()]
    return int(getattr(item, "nbytes", _NUMBER_BYTES))  # NumPy arrays and others have it
