"""Compare two runs: is the second one better, by how much, and how certain is that?

Rules of this file:
1. An error of the agent is not a pass, and has no score. Errors of evaluators and infrastructure
   say nothing about the agent: rows with such an error in either run are left out, and counted
   separately.
2. Samples of both runs are compared in pairs; epochs of one sample are a cluster. With a
   `cluster_by`, so are all samples with the same value in their metadata.
3. The metric decides, by its own p-value. The other numbers are secondary: their p-values are
   adjusted together, such that they add few false alarms to those of the metric. The p-values of
   slices, and of several runs, are adjusted together as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from ...errors import UsageError
from ..model.grouping import ABSENT, group_values
from ..model.versions import changed_parts
from ..runs.report import EvalReport
from ..runs.table import RunTable
from ..stats.differences import Difference, unpaired_difference
from ..stats.multiplicity import holm
from ..store.run_store import RunStore
from .comparability import differing_judges, without_quarantined
from .corrected import corrected_change
from .measures import Flips, Matched, Number, Pairs, Places, Sides, first_of, flips_of, measured
from .outcomes import (
    LEFT_OUT,
    RunOutcomes,
    incomparable,
    other_datasets,
    outcomes_of,
    sample_clusters,
)
from .run_comparison import Flip, Measure, Pairing, RowKey, RunComparison, SliceComparison


def compare_runs(
    before: EvalReport[Any] | RunOutcomes | str,
    after: EvalReport[Any] | RunOutcomes | str,
    *,
    metric: str = "passed",
    by: str | None = None,
    cluster_by: str | None = None,
    confidence: float = 0.95,
    store: RunStore | None = None,
    force: bool = False,
) -> RunComparison:
    """Compare two reports, or two runs of a store by their ids.

    `metric` decides the verdict, `by` is a key of the metadata to slice by. `cluster_by` is one
    whose value related samples share, such as the document that they ask about; by default, it is
    that of the runs. Samples that are in quarantine in one of the runs are left out of both. Runs
    with different evaluators, or with samples of different content, are refused without `force`.

    >>> from weakincentives.evals import EvalResult, Score
    >>> def report(passing):
    ...     return EvalReport([EvalResult(str(n), Score(float(n < passing))) for n in range(40)])
    >>> print(compare_runs(report(20), report(30)))
    B is better: +25.0 points, 95% interval 14.0 to 40.2, n = 40 (mid-p McNemar p < 0.001)
    """
    if not 0 < confidence < 1:
        raise UsageError(f"expected a `confidence` between 0 and 1, got {confidence}")
    runs = (outcomes_of(run, store, by, cluster_by, confidence) for run in (before, after))
    a, b = without_quarantined(*runs)
    problems = _check_comparable(a, b, by, force)
    cluster_by = cluster_by or b.cluster_by or a.cluster_by
    matched = _match_rows(a, b, cluster_by)
    measures = _measures(a, b, matched, metric, confidence)
    flips, both, neither = _flips(matched.pairing, matched.pairs, a.rows, b.rows)
    left_out = _left_out(a, b, matched.every_pair, matched.pairs)
    compared = RunComparison(
        before=a,
        after=b,
        metric=metric,
        pairing=matched.pairing,
        measures=measures,
        both=both,
        neither=neither,
        flips=tuple(flips),
        slices=() if by is None else tuple(_slices(matched, a.rows, b.rows, by, confidence)),
        by=by,
        cluster_by=cluster_by,
        left_out=left_out,
        warnings=(
            *problems,
            *filter(None, [left_out]),
            *_warnings(a, b, matched.pairing, matched.every_pair),
            *_harder_samples(a, b, matched.every_pair),
        ),
        corrected=corrected_change(a.judged, b.judged, confidence),
    )
    return _adjusted([compared])[0]


def compare_several(
    first: EvalReport[Any] | RunOutcomes | str,
    others: Sequence[EvalReport[Any] | RunOutcomes | str],
    *,
    metric: str = "passed",
    by: str | None = None,
    cluster_by: str | None = None,
    confidence: float = 0.95,
    store: RunStore | None = None,
    force: bool = False,
) -> tuple[RunComparison, ...]:
    """Compare each of the others with the first; p-values are adjusted together.

    The keyword arguments are those of `compare_runs`.
    """
    a = outcomes_of(first, store, by, cluster_by, confidence)
    compare = partial(
        compare_runs,
        a,
        metric=metric,
        by=by,
        cluster_by=cluster_by,
        confidence=confidence,
        store=store,
        force=force,
    )
    compared = [
        replace(compare(other), label=_letter(index)) for index, other in enumerate(others, 1)
    ]
    return _adjusted(compared)


def flips_between(before: RunOutcomes, after: RunOutcomes) -> Flips:
    """Return how much the passes of two runs differ, from which the power of a plan follows."""
    pairing, pairs = _paired(before, after)
    pairs = _without_left_out(pairs, before.rows, after.rows)
    number = _passed(before.rows, after.rows)
    if pairing != "none" and (flips := flips_of(pairs, number, before.rows.samples)):
        return flips
    names = f"{before.name} and {after.name}"
    raise UsageError(f"expected runs with samples in common, of which some differ: {names}")


def _check_comparable(
    before: RunOutcomes, after: RunOutcomes, by: str | None, force: bool
) -> list[str]:
    """Return how the runs differ in what was measured; raise if they cannot be compared."""
    for run in (before, after):
        if not run.rows:
            raise UsageError(f"expected runs with results, got none in {run.name}")
    if by is not None and all(value == ABSENT for value in after.rows.metadata(by)):
        raise UsageError(f"expected {by!r} in the metadata of samples, found it in none")
    problems = incomparable(before, after)
    if problems and not force:
        raise UsageError(
            f"expected runs that were measured the same way: {'; '.join(problems)} - "
            "`force` (--force) compares them anyway"
        )
    return problems


def _match_rows(before: RunOutcomes, after: RunOutcomes, cluster_by: str | None) -> Matched:
    """Return the rows that are compared; raise if there are none."""
    pairing, every_pair = _paired(before, after)
    pairs = _without_left_out(every_pair, before.rows, after.rows)
    sides: Sides = [], []
    if pairing == "none":
        if cluster_by is not None:
            raise UsageError(f"expected runs with samples in common to cluster by {cluster_by!r}")
        sides = _comparable_samples(before), _comparable_samples(after)
    if not pairs[0] and not all(sides):
        why = _left_out(before, after, every_pair)
        raise UsageError(f"expected results to compare, got none: {why}")
    clusters = before.rows.samples
    if cluster_by is not None:
        names = sample_clusters(cluster_by, after, before)
        clusters = [names.get(sample, "") for sample in clusters]
    return Matched(pairing, every_pair, pairs, _row_pairs(pairs), sides, clusters)


def _measures(
    before: RunOutcomes, after: RunOutcomes, matched: Matched, metric: str, confidence: float
) -> dict[str, Measure]:
    """Return the difference of each number that both runs have, by name."""
    comparable = (
        measured(name, number, matched, confidence)
        for name, number in _numbers(before.rows, after.rows, metric).items()
    )
    measures = {measure.name: measure for measure in comparable if measure is not None}
    if metric not in measures:
        raise UsageError(f"expected one of {', '.join(measures)} as metric, got {metric!r}")
    if (found := _sequential(before, after)) is not None:
        at_the_end = measures["passed"].difference
        for name, measure in measures.items():
            if measure.difference == at_the_end:  # a score of 0 or 1 is the same test
                measures[name] = replace(measure, difference=found, detectable=None)
    return measures


def _sequential(before: RunOutcomes, after: RunOutcomes) -> Difference | None:
    """Return the result of the sequential test, if the second run was compared with the first one
    while it ran.

    A test of its rows now, as if their number had been fixed, would be wrong too often.
    """
    decision = after.decision
    if decision is None or decision.against not in (before.run_id, before.name):
        return None
    return decision.difference


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"run {index + 1}"


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────


def _by_sample(run: RunOutcomes) -> dict[str, tuple[int, ...]]:
    return group_values(range(len(run.rows)), run.rows.samples)


def _paired(before: RunOutcomes, after: RunOutcomes) -> tuple[Pairing, Pairs]:
    """Pair rows by sample and epoch; by sample alone if the runs have different epochs."""
    if before.epochs != after.epochs:
        return _matched("sample", _by_sample(before), _by_sample(after))
    several = len(set(before.rows.experiments)) > 1
    epochs = len({*before.rows.epochs, *after.rows.epochs}) > 1
    keys, others = (_keys(run.rows, several, epochs) for run in (before, after))
    if keys == others and len(set(keys)) == len(keys) > 0:
        return "epoch", (range(len(keys)), range(len(keys)))  # the same rows in the same order
    a, b = ({key: at for at, key in enumerate(side)} for side in (keys, others))
    return _matched("epoch", a, b)


def _matched(
    pairing: Pairing, a: Mapping[Any, Places], b: Mapping[Any, Places]
) -> tuple[Pairing, Pairs]:
    shared = [key for key in a if key in b]
    pairs = [a[key] for key in shared], [b[key] for key in shared]
    return pairing if shared else "none", pairs


def _keys(rows: RunTable, several: bool, epochs: bool) -> Sequence[Hashable]:
    if several:
        return list(zip(rows.experiments, rows.samples, rows.epochs, strict=True))
    return list(zip(rows.samples, rows.epochs, strict=True)) if epochs else rows.samples


def _without_left_out(pairs: Pairs, before: RunTable, after: RunTable) -> Pairs:
    """Return the pairs without rows whose error says nothing about the agent."""
    if not any(before.errors) and not any(after.errors):
        return pairs
    kept = [
        (a, b)
        for a, b in zip(
            (_kept(places, before) for places in pairs[0]),
            (_kept(places, after) for places in pairs[1]),
            strict=True,
        )
        if a is not None and b is not None
    ]
    return [a for a, _ in kept], [b for _, b in kept]


def _kept(places: Places, rows: RunTable) -> Places | None:
    if isinstance(places, int):
        return None if rows.error_source(places) in LEFT_OUT else places
    return tuple(at for at in places if rows.error_source(at) not in LEFT_OUT) or None


def _comparable_samples(run: RunOutcomes) -> list[tuple[int, ...]]:
    kept = (_kept(places, run.rows) for places in _by_sample(run).values())
    return [places for places in kept if isinstance(places, tuple)]


def _row_pairs(pairs: Pairs) -> Pairs:
    """Return pairs of samples as pairs of rows: each epoch of one run with each of the other.

    So runs with different numbers of epochs are compared by the same test as runs with the same.
    """
    if not pairs[0] or isinstance(pairs[0][0], int):
        return pairs
    rows = [
        pair
        for a, b in zip(*pairs, strict=True)
        if not isinstance(a, int) and not isinstance(b, int)
        for pair in product(a, b)
    ]
    return [a for a, _ in rows], [b for _, b in rows]


def _passed(before: RunTable, after: RunTable) -> Number:
    return (lambda at: float(before.passed[at])), (lambda at: float(after.passed[at]))


def _numbers(before: RunTable, after: RunTable, metric: str) -> dict[str, Number]:
    """Return the numbers that can be compared, by name.

    The only criterion of a run is its score, and has a separate line only if it is the metric.
    """
    known = set(after.criteria)
    criteria = [name for name in before.criteria if name in known]
    whole: dict[str, Number] = {
        "passed": _passed(before, after),
        "score": (
            _scored(before, before.values.__getitem__),
            _scored(after, after.values.__getitem__),
        ),
    }
    usage: dict[str, Number] = {
        "latency_ms": (before.latency_ms, after.latency_ms),
        "tokens": (before.tokens, after.tokens),
        "cost": (before.cost, after.cost),
    }
    if len(criteria) > 1 or metric in criteria:
        for name in criteria:
            label = f"criterion {name}" if name in whole | usage else name
            a, b = (_scored(rows, partial(rows.score, name)) for rows in (before, after))
            whole[label] = a, b
    return whole | usage


def _scored(rows: RunTable, number: Callable[[int], float | None]) -> Callable[[int], float | None]:
    """Return the number of a row, which is None for an error."""
    return lambda at: None if rows.errors[at] else number(at)


# ── flips and slices ──────────────────────────────────────────────────────────────────────────────


def _flips(
    pairing: Pairing, pairs: Pairs, before: RunTable, after: RunTable
) -> tuple[list[Flip], int, int]:
    """Return the flips, how many passed in both runs, and how many in neither.

    Of a sample with several epochs, most decide. Half of them decide nothing, so that is no flip:
    if it counted as failed, a flaky sample that did not change would be broken more often than
    fixed.
    """
    flips, same = [], {True: 0, False: 0}
    for a, b in zip(*pairs, strict=True):
        old, now = _mostly(before.passed, a), _mostly(after.passed, b)
        if old is None or now is None or old is now:
            same[bool(old or now)] += 1
        else:
            at = first_of(a)
            epoch = before.epochs[at] if pairing == "epoch" else None
            error = _any(before.errors, a) if now else _any(after.errors, b)
            keys = _key(before, a, old), _key(after, b, now)
            flips.append(Flip(before.samples[at], epoch, now, error, *keys))
    return flips, same[True], same[False]


def _key(rows: RunTable, places: Places, passed: bool) -> RowKey:
    """Return the key of the first row that has this verdict."""
    every = (places,) if isinstance(places, int) else places
    at = next((at for at in every if (rows.passed[at] == 1) is passed), every[0])
    return rows.experiments[at], rows.samples[at], rows.epochs[at]


def _mostly(column: bytearray, places: Places) -> bool | None:
    """Return the verdict of most of the places; None if there are as many of both."""
    if isinstance(places, int):
        return column[places] == 1
    twice = sum(column[at] for at in places) * 2
    return None if twice == len(places) else twice > len(places)


def _any(column: bytearray, places: Places) -> bool:
    return any(column[at] for at in ((places,) if isinstance(places, int) else places))


def _slices(
    matched: Matched, before: RunTable, after: RunTable, by: str, confidence: float
) -> Iterator[SliceComparison]:
    """Yield the pass rate of each slice, as the second run has them, the largest first."""
    values = before.metadata(by), after.metadata(by)
    names = [values[1][first_of(b)] for b in matched.rows[1]]
    paired = [group_values(places, names) for places in matched.rows]
    alone = [
        group_values(side, (slices[places[0]] for places in side))
        for slices, side in zip(values, matched.sides, strict=True)
    ]
    groups = paired if matched.pairing != "none" else alone
    slices = []
    for name in groups[1]:
        rows = paired[0].get(name, ()), paired[1].get(name, ())
        sides = alone[0].get(name, ()), alone[1].get(name, ())
        part = replace(matched, rows=rows, sides=sides)
        measure = measured("passed", _passed(before, after), part, confidence)
        if measure is not None and name in groups[0]:
            slices.append(
                SliceComparison(value=name, n=measure.difference.delta.n, measure=measure)
            )
    yield from sorted(slices, key=lambda part: (-part.n, part.value))


OTHER_NUMBERS_SHARE = 0.2
"""The false alarms that all other numbers may add together, as a share of those of the metric.

So of 100 comparisons of equal runs, about 5 claim a difference in any number, and not 5 in the
metric and as many again in the others (`python -m bench stats comparison`).
"""


def adjust_secondary(p_values: Sequence[float], metric_differs: Sequence[bool]) -> list[float]:
    """Adjust the p-values of secondary numbers, by whether the metric differs.

    If it does, a false alarm has happened already, if it is one, so they may have as many.
    """
    return [
        p if differs else min(1.0, p / OTHER_NUMBERS_SHARE)
        for p, differs in zip(holm(p_values), metric_differs, strict=True)
    ]


def _adjusted(comparisons: Sequence[RunComparison]) -> tuple[RunComparison, ...]:
    """Adjust the p-values that are read together.

    The metric of the only comparison keeps its own; those of several are adjusted after Holm. The
    other numbers of all comparisons are adjusted together, and slices among themselves.
    """
    several = len(comparisons) > 1
    metrics = holm([_p(each.measure) for each in comparisons])
    decided = [
        _with_metric_adjusted(each, p if several else None)
        for each, p in zip(comparisons, metrics, strict=True)
    ]
    secondary = [(each, name) for each in decided for name in _others(each)]
    p_values = [_p(each.measures[name]) for each, name in secondary]
    others = iter(
        adjust_secondary(p_values, [each.measure.outcome != "none" for each, _ in secondary])
    )
    found = []
    for each in decided:
        measures = {
            name: replace(each.measures[name], adjusted=next(others)) for name in _others(each)
        }
        slices = holm([_p(part.measure) for part in each.slices])
        parts = (
            replace(part, measure=replace(part.measure, adjusted=p))
            for part, p in zip(each.slices, slices, strict=True)
        )
        found.append(replace(each, measures=each.measures | measures, slices=tuple(parts)))
    return tuple(found)


def _with_metric_adjusted(compared: RunComparison, p: float | None) -> RunComparison:
    """Return a comparison whose metric, and what is the same test, has this adjusted p-value."""
    others = _others(compared)
    same = {
        name: replace(measure, adjusted=p)
        for name, measure in compared.measures.items()
        if name not in others
    }
    return replace(compared, measures=compared.measures | same)


def _others(compared: RunComparison) -> list[str]:
    """Return the secondary numbers. One that differs in the same way as the metric is the same
    test: a score of 0 or 1, mostly.
    """
    metric = compared.measure.difference
    return [name for name, each in compared.measures.items() if each.difference != metric]


def _p(measure: Measure) -> float:
    p = measure.difference.p_value
    return 1.0 if p is None else p


# ── warnings ────────────────────────────────────────────────────────────────────────────────────


def _warnings(
    before: RunOutcomes, after: RunOutcomes, pairing: Pairing, pairs: Pairs
) -> Iterator[str]:
    if before.name == after.name:
        yield "both are the same run"
    if count := len({*before.quarantined, *after.quarantined}):
        yield f"{count:,} quarantined {'sample is' if count == 1 else 'samples are'} left out"
    yield from differing_judges(before, after)
    changed = changed_parts(before.agent_parts, after.agent_parts)
    if changed and (before.agent, before.model) == (after.agent, after.model):
        yield f"the agent changed: {changed}"
    for run in (before, after):
        if run.unfinished:
            yield f"{run.name} is not complete: {run.unfinished}"
        if run.mixed:
            yield f"{run.name} {run.mixed}"
        if run is after and (found := _sequential(before, after)) is not None:
            yield (
                "change, interval and p of passed are those of the sequential test when "
                f"{run.name} ran (n = {found.delta.n:,})"
            )
        elif run.anytime:
            yield f"{run.name} has a rule to stop early, which the test does not account for"
    if pairs[0] and other_datasets(before, after):
        yield "datasets differ: only their common samples are compared"
    if pairing == "none":
        yield "unpaired: the runs share no sample, so the comparison is less precise"
        return
    if pairing == "sample":
        yield f"epochs differ ({before.epochs} and {after.epochs}): samples are compared by means"
    for run, side in ((before, 0), (after, 1)):
        left = len(run.rows) - sum(1 if isinstance(p, int) else len(p) for p in pairs[side])
        if left:
            rows = "row" if left == 1 else "rows"
            yield f"{left:,} {rows} of {run.name} are left out: the other run lacks them"
    failed = [run.errors - run.left_out.total() for run in (before, after)]
    if any(failed):
        yield (
            f"errors of the agent count as not passed: {failed[0]:,} in {before.name}, "
            f"{failed[1]:,} in {after.name}"
        )


def _left_out(before: RunOutcomes, after: RunOutcomes, every: Pairs, kept: Pairs = ((), ())) -> str:
    """Return how much is compared and what is left out because of errors; empty if nothing is."""
    errors = [
        f"{count:,} {source} error{'' if count == 1 else 's'} in {run.name}"
        for run in (before, after)
        for source, count in sorted(run.left_out.items())
    ]
    if not errors:
        return ""
    counts = f"{len(kept[0]):,} of {len(every[0]):,} compared; " if every[0] else ""
    return f"{counts}{len(every[0]) - len(kept[0]):,} left out: {', '.join(errors)}"


def _harder_samples(before: RunOutcomes, after: RunOutcomes, every: Pairs) -> Iterator[str]:
    """Yield a warning if the samples that errors leave out are not like the others."""
    sides = (before, every[0]), (after, every[1])
    for (run, own), (other, others) in (sides, sides[::-1]):
        if not run.left_out:
            continue
        lost: list[float] = []
        rest: list[float] = []
        for mine, its in zip(own, others, strict=True):
            if (places := _kept(its, other.rows)) is not None:
                hit = _kept(mine, run.rows) != mine
                passed = other.rows.passed
                each = (places,) if isinstance(places, int) else places
                (lost if hit else rest).append(sum(passed[at] for at in each) / len(each))
        if len(lost) < 2 or len(rest) < 2:
            continue
        found = unpaired_difference(rest, lost)
        if found.p_value is not None and found.p_value < 0.05:
            harder = "harder" if found.delta.estimate < 0 else "easier"
            yield (
                f"caution: the samples with errors in {run.name} are {harder} than the others "
                f"({sum(lost) / len(lost):.1%} and {sum(rest) / len(rest):.1%} passed in "
                f"{other.name}): what is compared is not like the whole dataset"
            )
