"""The numbers of the page, each with its interval, from the lines of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .._intervals import Interval, mean_interval
from .._rate import pass_rate
from .._visible import as_text
from ._rows import Line

__all__ = ["Group", "criteria", "failures", "mean_of", "percent", "rate_of", "slices"]

_GROUPS = 12  # values of a property, at most, to make slices of
_PROPERTIES = 8  # that are sliced by, at most


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that have something in common."""

    name: str
    lines: Sequence[Line]


def rate_of(lines: Iterable[Line], *, anytime: bool = False) -> Interval:
    """The share that passed of all: an error is not a pass. Epochs of one sample are a cluster."""
    return pass_rate(((line.sample_id, line.passed) for line in lines), anytime=anytime)


def mean_of(values: Sequence[tuple[Line, float]]) -> Interval:
    """The mean of values, each of a row. Epochs of one sample are a cluster."""
    lines = [line for line, _ in values]
    clusters = [line.sample_id for line in lines] if _repeated(lines) else None
    return mean_interval([value for _, value in values], clusters=clusters)


def _repeated(lines: Iterable[Line]) -> bool:
    return any(line.epoch > 1 for line in lines)


def slices(lines: Sequence[Line]) -> Iterator[tuple[str, list[Group]]]:
    """By experiment and by each property with a few values that most rows have."""
    if len({line.experiment for line in lines}) > 1:
        yield "experiment", _groups(lines, [line.experiment for line in lines])
    names = Counter(name for line in lines for name in line.metadata)
    wanted = [name for name, n in names.items() if 2 * n >= len(lines)]
    found = 0
    for name in wanted:
        values = [as_text(line.metadata.get(name, "(none)")) for line in lines]
        if 1 < len(set(values)) <= _GROUPS and len(set(values)) < len(values):
            yield name, _groups(lines, values)
            found += 1
        if found == _PROPERTIES:
            return


def _groups(lines: Sequence[Line], values: Sequence[str]) -> list[Group]:
    found: dict[str, list[Line]] = {}
    for line, value in zip(lines, values, strict=True):
        found.setdefault(value, []).append(line)
    return [Group(name, found[name]) for name in sorted(found)]


def criteria(lines: Sequence[Line]) -> dict[str, tuple[Interval, Interval]]:
    """The pass rate and the mean value of each criterion, over rows without an error."""
    found: dict[str, list[tuple[Line, float, bool]]] = {}
    for line in lines:
        for part in line.parts:
            found.setdefault(part.name, []).append((line, part.value, part.passed))
    told = {}
    for name, parts in found.items():
        rate = pass_rate((line.sample_id, passed) for line, _, passed in parts)
        told[name] = rate, mean_of([(line, value) for line, value, _ in parts])
    return told


def failures(lines: Sequence[Line]) -> list[tuple[str, str, int, int]]:
    """Errors by source and reason: how many, and the place of the first; the most common first."""
    counts = Counter(line.error for line in lines if line.error)
    first = {line.error: at for at, line in reversed(list(enumerate(lines))) if line.error}
    return [(*error, n, first[error]) for error, n in counts.most_common()]


def percent(share: float) -> str:
    """A rate as people say it."""
    return f"{share:.1%}"
