"""Running totals over the rows of a run: rates, means and slices.

A row adds a few bytes. The ids of samples are kept only if samples are repeated: then the attempts
at one sample are a cluster.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..._types import Score
from ...model.grouping import ABSENT, slice_name
from ...model.result import EvalResult, result_cluster
from ...stats.intervals import Interval, mean_interval
from ...stats.pass_rate import FIXED, RateRule, counted_rate, pass_rate

_MAX_GROUPS = 12  # values of a property, for it to be sliced by
_MAX_SLICED = 8  # properties that are sliced by
_MAX_TRACKED = 64  # properties that are counted
_NOT_SLICED = {"not_stored"}  # a note of the store, not a property of a sample


class Tally:
    """The number of rows and of passes; by sample, if samples are repeated."""

    __slots__ = ("_samples", "_verdicts", "n", "passed")

    def __init__(self, *, repeated: bool) -> None:
        self.n = self.passed = 0
        self._samples: list[Hashable] | None = [] if repeated else None
        self._verdicts = bytearray()

    def add(self, sample_id: Hashable, passed: bool) -> None:
        """Count a row."""
        self.n += 1
        self.passed += passed
        if self._samples is not None:
            self._samples.append(sample_id)
            self._verdicts.append(passed)

    def copy(self) -> Tally:
        """Return a copy of the tally, to be continued separately."""
        other = Tally(repeated=self._samples is not None)
        other.n, other.passed, other._verdicts = self.n, self.passed, self._verdicts[:]
        other._samples = None if self._samples is None else self._samples[:]
        return other

    def rate(self, *, rule: RateRule = FIXED) -> Interval:
        """Return the share that passed, with its interval."""
        if self._samples is None:
            counts = {(1, 1): self.passed, (1, 0): self.n - self.passed}
            return counted_rate(counts, rule=rule)
        attempts = zip(self._samples, map(bool, self._verdicts), strict=True)
        return pass_rate(attempts, rule=rule)


class Scores(Tally):
    """A tally that keeps the values of its rows."""

    __slots__ = ("values",)

    def __init__(self, *, repeated: bool) -> None:
        super().__init__(repeated=repeated)
        self.values = array("d")

    def add_value(self, sample_id: Hashable, passed: bool, value: float) -> None:
        """Count a row and its value."""
        self.add(sample_id, passed)
        self.values.append(value)

    def mean(self) -> Interval:
        """Return the mean of the values, with its interval."""
        samples = self._samples
        repeated = samples is not None and len(set(samples)) < len(samples)
        return mean_interval(self.values, clusters=samples if repeated else None)


class Numbers:
    """Everything that the page says about the run as a whole."""

    def __init__(self, total: int, *, repeated: bool, cluster_by: str | None = None) -> None:
        self._total, self._cluster_by = total, cluster_by
        self._repeated = repeated = repeated or cluster_by is not None
        self._all = Tally(repeated=repeated)
        self.passed, self.failed = Scores(repeated=repeated), Scores(repeated=repeated)
        self.criteria: dict[str, Scores] = defaultdict(partial(Scores, repeated=repeated))
        self._experiments = self._tallies()
        self._properties: dict[str, dict[str, Tally]] = {}
        self._excluded: set[str] = set(_NOT_SLICED)

    def _tallies(self) -> dict[str, Tally]:
        return defaultdict(partial(Tally, repeated=self._repeated))

    def add(self, result: EvalResult[Any], parts: Sequence[Score]) -> None:
        """Count a result; `parts` are its `scores`."""
        sample_id, passed = result_cluster(result, self._cluster_by), result.passed
        if result.error is None:
            scores = self.passed if passed else self.failed
            scores.add_value(sample_id, passed, result.score.value)
            for score in parts:
                name = score.criterion or "score"
                self.criteria[name].add_value(sample_id, score.passed, score.value)
        self._experiments[result.experiment_name].add(sample_id, passed)
        if result.metadata or self._properties:
            self._add_properties(result.metadata, sample_id, passed)
        self._all.add(sample_id, passed)

    def _add_properties(
        self, metadata: Mapping[str, Any], sample_id: Hashable, passed: bool
    ) -> None:
        for name in metadata.keys() - self._properties.keys() - self._excluded:
            can_be_common = 2 * self._all.n <= self._total  # in at least half of the rows
            if can_be_common and len(self._properties) < _MAX_TRACKED:
                self._properties[name] = self._tallies()
                if self._all.n:
                    self._properties[name][ABSENT] = self._all.copy()
        dropped = []
        for name, groups in self._properties.items():
            value = metadata.get(name)
            known = isinstance(value, (str, bool, int))
            tally = groups[slice_name(metadata, name) if known else ABSENT]
            tally.add(sample_id, passed)
            too_rare = not known and 2 * tally.n > self._total
            if too_rare or len(groups) > _MAX_GROUPS:
                dropped.append(name)
        for name in dropped:
            del self._properties[name]
            self._excluded.add(name)

    def score(self) -> Interval:
        """Return the mean value of rows without an error."""
        both = Scores(repeated=self._repeated)
        for scores in (self.passed, self.failed):
            both.values.extend(scores.values)
            if both._samples is not None:
                both._samples.extend(scores._samples or ())
        return both.mean()

    @property
    def several_experiments(self) -> bool:
        """Whether the rows are of more than one experiment."""
        return len(self._experiments) > 1

    def slices(self) -> Iterator[tuple[str, dict[str, Tally]]]:
        """Yield the experiments, if there are several, and each property with a few values."""
        if self.several_experiments:
            yield "experiment", dict(sorted(self._experiments.items()))
        sliced = 0
        for name, groups in self._properties.items():
            if 1 < len(groups) < self._all.n and sliced < _MAX_SLICED:
                yield name, dict(sorted(groups.items()))
                sliced += 1
