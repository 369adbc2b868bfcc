"""Errors in groups: how many of which type, and where in the code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from ...internal.error_details import ErrorDetails, with_type
from ...secrets import shorten
from .result import ErrorSource

MAX_GROUPS = 1_000  # further errors are counted together
_MAX_SAMPLES = 5  # ids in a group
_MAX_CHARS = 500  # per message


class HasError(Protocol):
    """The part of an `EvalResult` that its error is grouped by."""

    @property
    def sample_id(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def error_source(self) -> ErrorSource | None: ...
    @property
    def error_details(self) -> ErrorDetails | None: ...


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Errors of one source, type and place; `str(...)` is one line.

    `message` is that of the first one, `samples` has the ids of the first few. Without a type or a
    place, errors with the same message are a group.
    """

    source: ErrorSource
    type: str
    where: str
    message: str
    count: int
    samples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.count:,} x {self.label}"

    @property
    def label(self) -> str:
        """The type and the place, or the message if they are unknown, after an unusual source."""
        source = "" if self.source == "agent" else f"{self.source}: "
        if not self.where:
            return source + with_type(self.message, ErrorDetails(self.type))
        return f"{source}{ErrorDetails(self.type, self.where)}: {self.message}"


def error_groups(results: Iterable[HasError]) -> tuple[ErrorGroup, ...]:
    """Return errors by source, type and place; most frequent first."""
    groups: dict[tuple[str, ...], ErrorGroup] = {}
    for result in results:
        if result.error is None:
            continue
        key = error_key(result)
        if key not in groups and len(groups) >= MAX_GROUPS:
            key = ("",)
        group = groups.get(key)
        if group is None:
            group = _group(result) if key[0] else _OTHERS
        samples = group.samples
        if len(samples) < _MAX_SAMPLES and result.sample_id not in samples:
            samples = (*samples, result.sample_id)
        groups[key] = replace(group, count=group.count + 1, samples=samples)
    return tuple(sorted(groups.values(), key=lambda group: -group.count))


def error_key(result: HasError) -> tuple[str, ...]:
    """Return what errors of one group have in common."""
    source, details = result.error_source or "agent", result.error_details
    if details is not None and details.where:
        return source, details.type, details.where
    return source, "" if details is None else details.type, "", result.error or ""


def _group(result: HasError) -> ErrorGroup:
    source, details = result.error_source or "agent", result.error_details or ErrorDetails("")
    message = shorten(result.error or "", _MAX_CHARS)
    return ErrorGroup(source, details.type, details.where, message, 0, ())


_OTHERS = ErrorGroup("agent", "", "", "other errors", 0, ())
