"""Two runs beside each other: is the second one better, by how much, and how sure is that?

Rules of this file:
1. An error is not a pass. It has no score, and is counted apart.
2. What was asked in both runs is compared in pairs; epochs of one sample are a cluster.
3. What is looked at together is adjusted together: criteria and slices, or several runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ._comparison import Flip, Measure, Pairing, RunComparison, Slice
from ._measuring import Number, Pair, Sides, measured, spread_of_pairs
from ._outcomes import (
    ABSENT,
    Counted,
    RunOutcomes,
    incomparable,
    other_datasets,
    report_outcomes,
    stored_outcomes,
)
from ._report import EvalReport
from ._store import RunStore
from .statistics import holm

__all__ = [
    "Flip",
    "Measure",
    "RunComparison",
    "Slice",
    "compare_runs",
    "compare_several",
    "spread_of_changes",
]


def compare_runs(
    before: EvalReport[Any] | RunOutcomes | str,
    after: EvalReport[Any] | RunOutcomes | str,
    *,
    metric: str = "passed",
    by: str | None = None,
    confidence: float = 0.95,
    store: RunStore | None = None,
    force: bool = False,
) -> RunComparison:
    """Compare two reports, or two runs of a store by their ids.

    `metric` is what the verdict is about, `by` a key of the metadata to slice by. Runs that were
    not measured alike (other contents of a sample, other evaluators) are refused without `force`.

    >>> from weakincentives.evals import EvalResult, Score
    >>> def report(passing):
    ...     return EvalReport([EvalResult(str(n), Score(float(n < passing))) for n in range(40)])
    >>> print(compare_runs(report(20), report(30)))
    B is better: +25.0 points, 95 % interval 14.0 to 40.2, n = 40 (exact McNemar p = 0.002)
    """
    if not 0 < confidence < 1:
        raise UsageError(f"expected a `confidence` between 0 and 1, got {confidence}")
    a, b = (_outcomes(run, store, by) for run in (before, after))
    for run in (a, b):
        if not run.rows:
            raise UsageError(f"expected runs with results, got none in {run.name}")
    if by is not None and not any(row.slice not in (None, ABSENT) for row in b.rows):
        raise UsageError(f"expected {by!r} in the metadata of samples, found it in none")
    problems = incomparable(a, b)
    if problems and not force:
        raise UsageError(
            f"expected runs that were measured alike: {'; '.join(problems)} - "
            "`force` (--force) compares them anyway"
        )
    pairing, pairs = _paired(a, b)
    sides: Sides = [], []
    if pairing == "none":
        sides = [*_by_sample(a.rows).values()], [*_by_sample(b.rows).values()]
    found = (measured(*each, pairing, pairs, sides, confidence) for each in _numbers(a, b).items())
    measures = {each.name: each for each in found if each is not None}
    if metric not in measures:
        raise UsageError(f"expected one of {', '.join(measures)} as metric, got {metric!r}")
    flips, both, neither = _flips(pairing, pairs)
    compared = RunComparison(
        before=a,
        after=b,
        metric=metric,
        pairing=pairing,
        measures=measures,
        both=both,
        neither=neither,
        flips=tuple(flips),
        slices=() if by is None else tuple(_slices(pairing, pairs, sides, confidence)),
        by=by,
        warnings=(*problems, *_warnings(a, b, pairing, pairs)),
    )
    return _adjusted(compared)


def compare_several(
    first: EvalReport[Any] | RunOutcomes | str,
    others: Sequence[EvalReport[Any] | RunOutcomes | str],
    **how: Any,
) -> tuple[RunComparison, ...]:
    """Each of the others with the first; their p-values are adjusted together, after Holm.

    `how` is what `compare_runs` takes.
    """
    a = _outcomes(first, how.get("store"), how.get("by"))
    found = [compare_runs(a, other, **how) for other in others]
    told = [replace(each, label=_letter(index + 1)) for index, each in enumerate(found)]
    if len(told) < 2:
        return tuple(told)
    adjusted = holm([_p(each.measure) for each in told])
    return tuple(
        replace(each, measures=each.measures | {each.metric: replace(each.measure, adjusted=p)})
        for each, p in zip(told, adjusted, strict=True)
    )


def spread_of_changes(before: RunOutcomes, after: RunOutcomes) -> float:
    """The standard deviation of what changed in the pass rate of a sample, for power."""
    pairing, pairs = _paired(before, after)
    if pairing != "none" and (spread := spread_of_pairs(pairs, _passed)):
        return spread
    names = f"{before.name} and {after.name}"
    raise UsageError(f"expected runs with samples in common, of which some differ: {names}")


def _outcomes(run: Any, store: RunStore | None, by: str | None) -> RunOutcomes:
    if isinstance(run, RunOutcomes):
        return run
    if isinstance(run, EvalReport):
        return report_outcomes(run, by)
    if store is None:
        raise UsageError(f"expected reports, or a `store` for the ids of runs, got {run!r}")
    return stored_outcomes(store, run, by)


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"run {index + 1}"


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────


def _by_sample(rows: Iterable[Counted]) -> dict[Hashable, tuple[Counted, ...]]:
    found: dict[Hashable, list[Counted]] = {}
    for row in rows:
        found.setdefault(row.sample, []).append(row)
    return {key: tuple(members) for key, members in found.items()}


def _paired(before: RunOutcomes, after: RunOutcomes) -> tuple[Pairing, list[Pair]]:
    """By sample and epoch; by sample alone where the runs have other epochs."""
    several = len({row.experiment for row in before.rows}) > 1

    def key(row: Counted) -> Hashable:
        return (row.experiment if several else "", row.sample, row.epoch)

    a: dict[Hashable, tuple[Counted, ...]] = {key(row): (row,) for row in before.rows}
    b: dict[Hashable, tuple[Counted, ...]] = {key(row): (row,) for row in after.rows}
    pairing: Pairing = "epoch"
    if before.epochs != after.epochs:
        pairing, a, b = "sample", _by_sample(before.rows), _by_sample(after.rows)
    pairs = [(rows, b[each]) for each, rows in a.items() if each in b]
    return (pairing, pairs) if pairs else ("none", [])


def _passed(row: Counted) -> float:
    return float(row.passed)


def _numbers(before: RunOutcomes, after: RunOutcomes) -> dict[str, Number]:
    """What can be compared, by name."""

    def of(name: str) -> Number:
        return lambda row: None if row.error else row.scores.get(name)

    seen = [dict.fromkeys(n for row in run.rows for n in row.scores) for run in (before, after)]
    criteria = [name for name in seen[0] if name in seen[1]]
    whole: dict[str, Number] = {
        "passed": _passed,
        "score": lambda row: None if row.error else row.value,
    }
    took: dict[str, Number] = {
        "latency_ms": lambda row: row.latency_ms,
        "tokens": lambda row: row.tokens or None,  # 0 is what nobody counted
        "cost": lambda row: row.cost,
    }
    if len(criteria) > 1:
        for name in criteria:
            whole[f"criterion {name}" if name in whole | took else name] = of(name)
    return whole | took


# ── flips and slices ──────────────────────────────────────────────────────────────────────────────


def _flips(pairing: Pairing, pairs: Iterable[Pair]) -> tuple[list[Flip], int, int]:
    """The flips, how many passed in both, and how many in neither."""
    flips, same = [], {True: 0, False: 0}
    for a, b in pairs:
        was, now = (sum(row.passed for row in rows) * 2 > len(rows) for rows in (a, b))
        if was == now:
            same[now] += 1
        else:
            epoch = a[0].epoch if pairing == "epoch" else None
            error = any(row.error for row in (a if now else b))
            flips.append(Flip(a[0].sample, epoch, now, error))
    return flips, same[True], same[False]


def _slices(
    pairing: Pairing, pairs: Sequence[Pair], sides: Sides, confidence: float
) -> Iterator[Slice]:
    """The pass rate of each slice, as the second run has them, the largest first."""
    paired: dict[str, list[Pair]] = {}
    for a, b in pairs:
        paired.setdefault(b[0].slice or "", []).append((a, b))
    alone: list[dict[str, list[tuple[Counted, ...]]]] = [{}, {}]
    for side, found in zip(sides, alone, strict=True):
        for rows in side:
            found.setdefault(rows[0].slice or "", []).append(rows)
    names = paired if pairing != "none" else [name for name in alone[1] if name in alone[0]]
    slices = []
    for name in names:
        of = alone[0].get(name, []), alone[1].get(name, [])
        members = paired.get(name, [])
        found_of = measured("passed", _passed, pairing, members, of, confidence)
        if found_of is not None:
            slices.append(Slice(value=name, n=found_of.difference.delta.n, measure=found_of))
    yield from sorted(slices, key=lambda each: (-each.n, each.value))


def _adjusted(compared: RunComparison) -> RunComparison:
    """Criteria and slices are looked at together, so their p-values are adjusted together."""
    aside = {"passed", "score", "latency_ms", "tokens", "cost", compared.metric}
    criteria = [each for name, each in compared.measures.items() if name not in aside]
    together = [*criteria, *(each.measure for each in compared.slices)]
    if len(together) < 2:
        return compared
    adjusted = holm([_p(each) for each in together])
    told = [replace(each, adjusted=p) for each, p in zip(together, adjusted, strict=True)]
    measures = {**compared.measures, **{each.name: each for each in told[: len(criteria)]}}
    slices = (
        replace(each, measure=measure)
        for each, measure in zip(compared.slices, told[len(criteria) :], strict=True)
    )
    return replace(compared, measures=measures, slices=tuple(slices))


def _p(measure: Measure) -> float:
    p = measure.difference.p_value
    return 1.0 if p is None else p


# ── warnings ────────────────────────────────────────────────────────────────────────────────────


def _warnings(
    before: RunOutcomes, after: RunOutcomes, pairing: Pairing, pairs: Sequence[Pair]
) -> Iterator[str]:
    if before.name == after.name:
        yield "both are the same run"
    for run in (before, after):
        if run.unfinished:
            yield f"{run.name} is not complete: {run.unfinished}"
        if run.anytime:
            yield f"{run.name} has a rule to stop early, of which the test takes no account"
    if pairs and other_datasets(before, after):
        yield "datasets differ: what both have is compared"
    if pairing == "none":
        yield "unpaired: the runs share no sample, so more of the difference is chance"
        return
    if pairing == "sample":
        yield f"epochs differ ({before.epochs} and {after.epochs}): samples are compared by means"
    for run, side in ((before, 0), (after, 1)):
        left = len(run.rows) - sum(len(pair[side]) for pair in pairs)
        if left:
            rows = "row" if left == 1 else "rows"
            yield f"{left:,} {rows} of {run.name} are left out: the other run has none like them"
    if before.errors or after.errors:
        yield (
            f"errors count as not passed: {before.errors:,} in {before.name}, "
            f"{after.errors:,} in {after.name}"
        )
