"""What a row is found by: its texts, and facts such as "tool:search"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...internal.escaping import as_text
from ...secrets import shorten
from ..model.error_groups import error_key
from ..model.explain import why_failed
from ..model.grouping import slice_name
from ..model.result import EvalResult
from .stored_row import StoredRow

_SNIPPET_CHARS = 200
_MAX_TEXT_CHARS = 1_000_000  # per row
_MAX_FACTS = 100  # metadata of one row
_MAX_FACT_CHARS = 200


def snippets(result: EvalResult[Any]) -> Iterator[str]:
    """Yield the first characters of the input, of the output, and of why it failed."""
    sample = result.sample
    values = ("" if sample is None else sample.input, result.output, why_failed(result))
    for value in values:
        yield shorten(" ".join(shorten(as_text(value), 4 * _SNIPPET_CHARS).split()), _SNIPPET_CHARS)


def texts(row: StoredRow) -> Iterator[str]:
    """Yield everything that can be searched for, up to a limit."""
    left = _MAX_TEXT_CHARS
    for text in _all_texts(row.result):
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _all_texts(result: EvalResult[Any]) -> Iterator[str]:
    yield result.sample_id
    if result.sample is not None:
        yield as_text(result.sample.input)
        yield as_text(result.sample.expected)
    yield as_text(result.output)
    if result.error is not None:
        yield result.error_message or ""
    for score in result.scores:
        yield as_text(score.reason)
    trajectory = result.trajectory
    for message in trajectory.messages if trajectory else ():
        yield message.content
        for call in message.tool_calls:
            yield f"{call.name} {as_text(dict(call.arguments))}"


def facts(result: EvalResult[Any], failed: list[str]) -> Iterator[str]:
    """Yield what a row can be filtered by; `failed` are the names of the criteria that failed.

    "failed:NAME", "error:KEY", "worker:NAME", "tool:NAME", "metadata:KEY=VALUE".
    """
    for name in failed:
        yield f"failed:{name}"
    if result.error is not None:
        yield f"error:{shorten(' | '.join(error_key(result)), _MAX_FACT_CHARS)}"
    if result.worker:
        yield f"worker:{result.worker}"
    trajectory = result.trajectory
    names = {c.name for m in (trajectory.messages if trajectory else ()) for c in m.tool_calls}
    for name in sorted(names)[:_MAX_FACTS]:
        yield f"tool:{name}"
    for key in list(result.metadata)[:_MAX_FACTS]:
        fact = f"metadata:{key}={slice_name(result.metadata, key)}"
        if len(fact) <= _MAX_FACT_CHARS:
            yield fact
