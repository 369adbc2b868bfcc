"""The figures of a run. Whatever shows a finished run asks here; `tally.py` has those before.

Rules of this file:
1. An error is not a pass. It is in no mean of scores.
2. Samples in quarantine are in no figure but usage.
3. What is unknown is in no sum, and how many rows that concerns is a figure too. If nothing is
   known, the sum is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.grouping import ABSENT, group_values
from ..model.selection import selected_rate
from ..stats.basic import known_sum, mean, means_by_name
from ..stats.intervals import Interval
from ..stats.pass_rate import pass_rate, rate_words, too_few
from ..stats.repeats import EpochStats, epoch_stats
from .scope import Scope
from .table import RunTable


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of the agent in milliseconds, errors included."""

    mean: float
    p50: int
    p95: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a run, or of a part of it; `str(...)` is its verdict in one line.

    `total` rows count. `errors` has the number of them with an error by its source, and `criteria`
    the mean value of each criterion. `without_tokens` are the rows whose agent used tokens that are
    not known, `without_cost` those whose agent or judges had a cost that is not known; `tokens` and
    `cost` are those of agent and judges, and None if either is unknown. `quarantined` samples have
    `quarantined_rows`, which do not count.
    """

    total: int
    passed: int
    errors: Mapping[str, int] = field(hash=False)
    rate: Interval
    mean_score: float | None
    criteria: Mapping[str, float] = field(hash=False)
    latency: Latency | None
    agent_tokens: int | None
    judge_tokens: int
    agent_cost: float | None
    judge_cost: float | None
    without_tokens: int
    without_cost: int
    quarantined: int
    quarantined_rows: int
    epochs: EpochStats | None

    def __str__(self) -> str:
        errors = self.error_count
        errors_text = "1 error" if errors == 1 else f"{errors} errors"
        counts = f"{self.passed}/{self.total} passed, {errors_text}"
        if not self.total:
            return f"{counts} (pass rate unknown)"
        return f"{counts} ({self.rate.estimate:.1%}, {rate_words(self.rate)})"

    @property
    def error_count(self) -> int:
        """The number of rows with an error."""
        return sum(self.errors.values())

    @property
    def scored(self) -> int:
        """The number of rows without an error."""
        return self.total - self.error_count

    @property
    def pass_rate_without_errors(self) -> float:
        """The share of rows without an error that passed; 0.0 if there are none."""
        return self.passed / self.scored if self.scored else 0.0

    @property
    def few(self) -> bool:
        """Whether there are too few samples to say much."""
        return too_few(self.rate)

    @property
    def tokens(self) -> int | None:
        """Tokens of agent and judges; None if those of the agent are unknown."""
        return None if self.agent_tokens is None else self.agent_tokens + self.judge_tokens

    @property
    def cost(self) -> float | None:
        """Cost of agent and judges in US dollars; None if either is unknown."""
        if self.agent_cost is None or (self.judge_tokens and self.judge_cost is None):
            return None
        return self.agent_cost + (self.judge_cost or 0.0)


def run_figures(table: RunTable, scope: Scope) -> Figures:
    """Return the figures of a run."""
    counted = scope.counted(table)
    outside = scope.quarantined.intersection(table.samples)
    return _figures(table, scope, counted, range(len(table)), quarantined=len(outside))


def slice_figures(table: RunTable, scope: Scope, key: str) -> dict[str, Figures]:
    """Return the figures of each slice by a key of the metadata, the largest slice first.

    The rows without the key are a slice too, and come last.
    """
    counted, names = scope.counted(table), table.metadata(key)
    groups = group_values(counted, (names[at] for at in counted))
    order = sorted(groups, key=lambda name: (name == ABSENT, -len(groups[name]), name))
    return {name: _figures(table, scope.of_part, groups[name], groups[name]) for name in order}


def experiment_figures(table: RunTable, scope: Scope) -> dict[str, Figures]:
    """Return the figures of each experiment, in the order of their first appearance."""
    counted = scope.counted(table)
    groups = group_values(counted, (table.experiments[at] for at in counted))
    part = scope.of_part
    return {name: _figures(table, part, places, places) for name, places in groups.items()}


def histogram(table: RunTable, scope: Scope, bins: int = 20) -> list[int]:
    """Return how many rows without an error have a value in each part of 0 to 1.

    A value outside of 0 to 1 is in the part next to it.
    """
    counts = [0] * bins
    for at in scope.counted(table):
        if not table.errors[at]:
            counts[int(max(0.0, min(table.values[at] * bins, bins - 1)))] += 1
    return counts


def criterion_rates(table: RunTable, scope: Scope) -> dict[str, Interval]:
    """Return the share of all rows that passed each criterion; an error passes none."""
    clusters = list(scope.clusters(table))
    errors: list[tuple[Hashable, bool]] = []
    attempts: dict[str, list[tuple[Hashable, bool]]] = {}
    for at in scope.counted(table):
        if table.errors[at]:
            errors.append((clusters[at], False))
            continue
        for name, passed in table.verdicts(at).items():
            attempts.setdefault(name, []).append((clusters[at], passed))
    part = scope.of_part
    return {name: _interval([*own, *errors], part) for name, own in attempts.items()}


def _figures(
    table: RunTable,
    scope: Scope,
    places: Sequence[int],
    used: Iterable[int],
    *,
    quarantined: int = 0,
) -> Figures:
    """Return the figures of the rows at these places; the usage is that of the rows `used`."""
    used = list(used)
    scored = [at for at in places if not table.errors[at]]
    sources = Counter(table.error_source(at) or "agent" for at in places if table.errors[at])
    tokens = [n for at in used if (n := table.tokens(at)) is not None]
    costs = [table.cost(at) for at in used]
    judge_costs = [table.judge_cost(at) for at in used]
    judged = [table.judge_tokens[at] for at in used]
    return Figures(
        total=len(places),
        passed=sum(table.passed[at] for at in places),
        errors=dict(sorted(sources.items(), key=lambda item: (-item[1], item[0]))),
        rate=_rate(table, scope, places),
        mean_score=mean([table.values[at] for at in scored]) if scored else None,
        criteria=means_by_name(
            (name, value)
            for name in table.criteria
            for at in scored
            if (value := table.score(name, at)) is not None
        ),
        latency=_latency([ms for at in places if (ms := table.latency_ms(at)) is not None]),
        agent_tokens=sum(tokens) if tokens or not used else None,
        judge_tokens=sum(judged),
        agent_cost=known_sum(costs),
        judge_cost=known_sum(judge_costs),
        without_tokens=len(used) - len(tokens),
        without_cost=sum(
            own is None or (asked > 0 and judges is None)
            for own, asked, judges in zip(costs, judged, judge_costs, strict=True)
        ),
        quarantined=quarantined,
        quarantined_rows=len(used) - len(places),
        epochs=_epochs(table, places),
    )


def _rate(table: RunTable, scope: Scope, places: Sequence[int]) -> Interval:
    clusters = list(scope.clusters(table))
    passed = [table.passed[at] == 1 for at in places]
    if scope.selection is not None:
        keys = ((table.samples[at], clusters[at]) for at in places)
        estimated = selected_rate(
            scope.selection,
            zip(keys, passed, strict=True),
            confidence=scope.confidence,
            cluster_by=scope.cluster_by,
        )
        if estimated is not None:
            return estimated
    return _interval(zip((clusters[at] for at in places), passed, strict=True), scope)


def _interval(attempts: Iterable[tuple[Hashable, bool]], scope: Scope) -> Interval:
    return pass_rate(
        attempts, rule=scope.rule, confidence=scope.confidence, cluster_by=scope.cluster_by
    )


def _latency(latencies: list[int]) -> Latency | None:
    if not latencies:
        return None
    ordered = sorted(latencies)
    p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return Latency(math.fsum(ordered) / len(ordered), p50, p95)


def _epochs(table: RunTable, places: Sequence[int]) -> EpochStats | None:
    """Return pass@k, pass^k and the flaky samples; None without epochs."""
    several = len({table.experiments[at] for at in places}) > 1
    counts: dict[str, tuple[int, int]] = {}
    for at in places:
        name = table.samples[at]
        key = f"{name} ({table.experiments[at]})" if several else name
        passed, attempts = counts.get(key, (0, 0))
        counts[key] = passed + table.passed[at], attempts + 1
    return epoch_stats(counts)
