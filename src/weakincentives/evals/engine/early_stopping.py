"""Stop a run as soon as its pass rate, or how it compares with another run, is known well enough.

Rules of this file:
1. Samples count in the order in which they were started, not in which they finish: those that
   finish first are the fast ones, which may be the easy ones. So a sample waits for those before
   it.
2. A sample counts once, by the mean of its epochs, when all of them are there: epochs of one sample
   are not independent. An error is not a pass.
3. The first samples must be representative of the rest. So a dataset is run in random order.
4. A stored verdict that is about to be rescored does not count, and neither does its sample.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from .._types import Dataset, EvalConfig
from ..model.decision import Decision, rate_kind
from ..stats.group_sequential import look_sizes, sequential_difference
from ..stats.intervals import Counts
from ..stats.pass_rate import RateKind, RateRule, counted_rate, population_ends
from ..stats.sequential import DatasetBets, betting_excludes, dataset_ends

_CHECK_EVERY = 100  # after n samples, the rule is checked every n / 100 samples
_MIN_SAMPLES = 20  # before the width of an interval means anything


class Stopping:
    """Counts samples by the rules above, and stops a run when `rule` says so.

    >>> stopping = Stopping(RateStoppingRule(EvalConfig(stop_against=0.5)), epochs=1)
    >>> for position in range(20):
    ...     stopping.begin(position)
    ...     if reason := stopping.add(position, True):
    ...         print(position + 1, reason)
    ...         break
    7 stopped early: the pass rate is shown to be above 50.0%
    """

    def __init__(self, rule: RateStoppingRule | PairedRule, *, epochs: int) -> None:
        self._rule, self._epochs = rule, epochs
        self._pending: OrderedDict[int, list[bool]] = OrderedDict()  # by position, as started
        self._left_out: set[int] = set()

    @property
    def decision(self) -> Decision | None:
        """What the rule has found; None if it has not decided anything."""
        return self._rule.decision

    @property
    def leaves_out_errors(self) -> bool:
        """Whether a sample does not count if infrastructure or an evaluator failed."""
        return isinstance(self._rule, PairedRule)

    def begin(self, position: int) -> None:
        """Note that a sample, or another epoch of it, is started."""
        if position not in self._left_out:
            self._pending.setdefault(position, [])

    def leave_out(self, position: int) -> str:
        """Do not count this sample, in any epoch; return why to stop, or ""."""
        if position in self._left_out:
            return ""
        self._left_out.add(position)
        self._pending.pop(position, None)
        return self._rule.leave_out() or self._count()

    def add(self, position: int, passed: bool) -> str:
        """Count an attempt at a sample that was begun; return why to stop, or ""."""
        if position not in self._left_out:
            self._pending[position].append(passed)
        return self._count()

    def _count(self) -> str:
        while self._pending and len(next(iter(self._pending.values()))) == self._epochs:
            position, attempts = self._pending.popitem(last=False)
            if reason := self._rule.add(position, sum(attempts)):
                return reason
        return ""


class RateStoppingRule:
    """Stop once the interval of the pass rate is narrow, or excludes another rate.

    `size` is the number of samples of the dataset, if they are run in random order.
    """

    def __init__(self, config: EvalConfig, size: int | None = None) -> None:
        self._width, self._against = config.stop_at_width, config.stop_against
        self._epochs, self._size = config.epochs, size or 0
        self._kind: RateKind = rate_kind(config)
        if self._kind == "dataset" and not size:
            self._kind = "population"
        self._samples = self._next_check = 0
        self._counts: Counter[tuple[int, int]] = Counter()
        self._bets: DatasetBets | None = None
        if self._kind == "dataset" and self._epochs > 1 and self._against is not None:
            self._bets = DatasetBets(self._size, self._against)
        self.decision: Decision | None = None

    def leave_out(self) -> str:
        """Count for all samples like these from now on: what is left is not the dataset."""
        if self._kind == "dataset":
            self._kind, self._bets = "population", None
        return ""

    def add(self, position: int, passed: int) -> str:
        """Count a sample by its passes; return why to stop, or ""."""
        self._counts[self._epochs, passed] += 1
        self._samples += 1
        if self._bets is not None:
            self._bets.add(passed / self._epochs)
        if self._samples < self._next_check:
            return ""
        self._next_check = self._samples + max(1, self._samples // _CHECK_EVERY)
        if not self._may_have_decided():
            return ""
        low, high = self._ends()
        if reason := self._reason(low, high):
            self.decision = Decision(
                rule="width" if self._kind == "fixed" else self._kind,
                low=low,
                high=high,
                samples=self._samples,
                size=self._size,
            )
        return reason

    def _may_have_decided(self) -> bool:
        """Return False if a quick check shows that the rule is not met."""
        if self._kind == "width":
            return self._samples >= _MIN_SAMPLES
        if self._width is not None or self._epochs == 1 or self._against is None:
            return True
        if self._bets is not None:
            return self._bets.excludes
        return betting_excludes(self._means(), self._against)

    def _means(self) -> Mapping[float, int]:
        return {passed / self._epochs: n for (_, passed), n in self._counts.items()}

    def _ends(self) -> tuple[float, float]:
        counts: Counts = self._counts
        if self._kind == "width":
            rate = counted_rate(counts, rule=RateRule(kind="width"))
            return rate.low, rate.high
        if self._bets is not None:
            return self._bets.ends()
        if self._kind == "dataset":
            return dataset_ends(counts.get((1, 1), 0), self._samples, self._size)
        return population_ends(counts)

    def _reason(self, low: float, high: float) -> str:
        width, against = self._width, self._against
        if width is not None and high - low <= width:
            points = f"{width * 100:g} points"
            return f"stopped early: the interval of the pass rate is at most {points} wide"
        if against is None:
            return ""
        if self._kind == "dataset":
            whole = f"the pass rate of all {self._size:,} samples is shown to be"
            if low >= against:  # --fail-under requires just that
                return f"stopped early: {whole} at least {against:.1%}"
            return f"stopped early: {whole} below {against:.1%}" if high < against else ""
        if low <= against <= high:
            return ""
        side = "above" if low > against else "below"
        return f"stopped early: the pass rate is shown to be {side} {against:.1%}"


class PairedRule:
    """Stop once the run is shown to be better or worse than another one, at one of ten looks.

    `before` has, by position, how many attempts of the other run passed, and of how many.
    """

    def __init__(
        self, against: str, before: Mapping[int, tuple[int, int]], *, epochs: int = 1
    ) -> None:
        self._against, self._before, self._epochs = against, before, epochs
        self._by_attempt = all(attempts == epochs for _, attempts in before.values())
        self._size = len(before)
        self._looks = look_sizes(self._size)
        self._seen = self._left_out = 0
        self._counts: Counter[tuple[int, int]] = Counter()
        self._old: list[float] = []
        self._new: list[float] = []
        self._clusters: list[int] = []
        self.decision: Decision | None = None

    def leave_out(self) -> str:
        """Count a sample as seen, without an outcome."""
        self._left_out += 1
        return self._look()

    def add(self, position: int, passed: int) -> str:
        """Count a sample by its passes; return why to stop, or ""."""
        old_passed, attempts = self._before[position]
        self._seen += 1
        self._counts[self._epochs, passed] += 1
        if self._by_attempt:  # in pairs of attempts, of which a sample is a cluster
            self._old += [1.0] * old_passed + [0.0] * (attempts - old_passed)
            self._new += [1.0] * passed + [0.0] * (attempts - passed)
            self._clusters += [position] * attempts
        else:
            self._old.append(old_passed / attempts)
            self._new.append(passed / self._epochs)
            self._clusters.append(position)
        return self._look()

    def _look(self) -> str:
        done = self._seen + self._left_out
        if done not in self._looks or not self._seen:
            return ""
        look = self._looks.index(done) + 1
        found = sequential_difference(
            self._old,
            self._new,
            done / self._size,
            clusters=self._clusters if len(self._old) > self._seen else None,
        )
        if found is None:
            return ""
        low, high = population_ends(self._counts)
        self.decision = Decision(
            rule="paired",
            low=low,
            high=high,
            samples=done,
            size=self._size,
            against=self._against,
            look=look,
            looks=len(self._looks),
            difference=found,
        )
        if self.decision.outcome == "none":
            return ""
        return f"stopped early: it is shown to be {self.decision.outcome} than {self._against}"


def size_of(samples: Any, config: EvalConfig) -> int | None:
    """Return how many samples there are, if they can be run in random order; else None."""
    if not isinstance(samples, (Dataset, Sequence)):
        return None
    return len(range(len(samples))[: config.max_samples])


def shuffled(samples: Any, config: EvalConfig) -> Iterator[tuple[int, Any]]:
    """Yield the samples with their positions, in random order if they are all in memory."""
    if not isinstance(samples, (Dataset, Sequence)):
        yield from enumerate(samples)
        return
    positions = list(range(len(samples)))[: config.max_samples]
    Random(config.seed).shuffle(positions)
    yield from ((position, samples[position]) for position in positions)
