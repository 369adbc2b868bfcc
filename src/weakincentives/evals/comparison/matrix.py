"""Two and more runs side by side, sample by sample: what is fixed, broken, or still fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import UsageError, short_repr
from .outcomes import LEFT_OUT, RunOutcomes
from .run_comparison import RowKey

MatrixKind = Literal["different", "broken", "fixed", "failing", "all"]


@dataclass(frozen=True, slots=True)
class SideVerdict:
    """A sample in one run: how many of its epochs passed. `key` is a row with the usual verdict.

    Errors of evaluators and of infrastructure say nothing about the agent. If it has no other rows,
    `attempts` is 0 and `passed` is None.
    """

    passes: int
    attempts: int
    key: RowKey

    @property
    def passed(self) -> bool | None:
        """Whether at least half of the attempts passed; None if none counts."""
        return 2 * self.passes >= self.attempts if self.attempts else None


@dataclass(frozen=True, slots=True)
class SampleVerdicts:
    """A sample in several runs; None where a run does not have it."""

    sample: str
    sides: tuple[SideVerdict | None, ...]

    @property
    def kinds(self) -> tuple[MatrixKind, ...]:
        """The kinds that it is of, seen from the first run."""
        first, *others = (None if side is None else side.passed for side in self.sides)
        if first is True:
            return ("all", "different", "broken") if False in others else ("all",)
        if first is False and True in others:
            return "all", "different", "fixed"
        if first is False and None not in others:
            return "all", "failing"
        return ("all", "different") if True in others and False in others else ("all",)


def sample_matrix(runs: Sequence[RunOutcomes], kind: MatrixKind = "all") -> list[SampleVerdicts]:
    """Return the samples of the runs with a verdict in each, in the order of the first that has it.

    "broken" passed in the first run and not in another, "fixed" the other way round, "failing"
    passed in none, and "different" has two verdicts.
    """
    return of_kind(list(_rows(runs)), kind)


def of_kind(rows: list[SampleVerdicts], kind: MatrixKind) -> list[SampleVerdicts]:
    """Return the samples of a kind."""
    if kind not in get_args(MatrixKind):
        kinds = ", ".join(get_args(MatrixKind))
        raise UsageError(f"expected a kind of samples ({kinds}), got {short_repr(kind)}")
    return rows if kind == "all" else [row for row in rows if kind in row.kinds]


def count_kinds(rows: Sequence[SampleVerdicts]) -> dict[MatrixKind, int]:
    """Return how many samples of each kind there are."""
    counts = Counter(kind for row in rows for kind in row.kinds)
    return {kind: counts[kind] for kind in get_args(MatrixKind)}


def _rows(runs: Sequence[RunOutcomes]) -> Iterator[SampleVerdicts]:
    sides = [_by_sample(run) for run in runs]
    for sample in dict.fromkeys(sample for side in sides for sample in side):
        yield SampleVerdicts(sample, tuple(_side(side.get(sample)) for side in sides))


def _by_sample(run: RunOutcomes) -> dict[str, list[tuple[bool | None, RowKey]]]:
    """Return the attempts of each sample: whether it passed, or None if it does not count."""
    rows = run.rows
    found: dict[str, list[tuple[bool | None, RowKey]]] = {}
    for at, sample in enumerate(rows.samples):
        left_out = rows.errors[at] and rows.error_source(at) in LEFT_OUT
        passed = None if left_out else rows.passed[at] == 1
        key = rows.experiments[at], sample, rows.epochs[at]
        found.setdefault(sample, []).append((passed, key))
    return found


def _side(attempts: list[tuple[bool | None, RowKey]] | None) -> SideVerdict | None:
    if not attempts:
        return None
    counted = [passed for passed, _ in attempts if passed is not None]
    side = SideVerdict(sum(counted), len(counted), attempts[0][1])
    key = next((key for passed, key in attempts if passed is side.passed), attempts[0][1])
    return SideVerdict(side.passes, side.attempts, key)
