"""When a run may stop: as soon as its pass rate is known well enough.

Rules of this file:
1. Samples count in the order in which they began, and not in that in which they end: those that
   end first are the quick ones, and quick ones may be easy ones. So a sample waits for those
   before it.
2. A sample counts once, by the mean of its epochs, when all of them are there: epochs of one sample
   depend on each other. An error is not a pass.
3. What began first must say something about the rest. So a dataset is begun in an order by chance.
4. A verdict of an earlier run that is about to be scored anew is none: its sample does not count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from ._config import EvalConfig
from ._intervals import Interval
from ._sequential import ConfidenceSequence
from ._types import Dataset

__all__ = ["EARLY", "Stopping", "by_chance", "why_enough"]

EARLY = "stopped early: "  # how the note of a run begins that its rule has stopped
_EVERY = 100  # samples; after so many, the rule is looked at after each hundredth more


class Stopping:
    """Whether to go on, from what came of samples so far; only for a `config` with a rule.

    >>> rule = Stopping(EvalConfig(stop_against=0.5))
    >>> for place in range(20):
    ...     rule.expect(place)
    ...     if why := rule.add(place, True):
    ...         print(place + 1, why)
    ...         break
    7 stopped early: the pass rate is shown to be above 50.0%
    """

    def __init__(self, config: EvalConfig) -> None:
        self._config = config
        self._seen = ConfidenceSequence()
        self._samples = self._next_look = 0
        self._coming: OrderedDict[int, list[bool]] = OrderedDict()  # by place, as they began
        self._left_out: set[int] = set()

    def expect(self, place: int) -> None:
        """This sample begins; a second time is another epoch of it."""
        if place not in self._left_out:
            self._coming.setdefault(place, [])

    def leave_out(self, place: int) -> None:
        """Count nothing of this sample, in no epoch."""
        self._left_out.add(place)
        self._coming.pop(place, None)

    def add(self, place: int, passed: bool) -> str:
        """Count an attempt at a sample that was expected; why to stop, if that is so."""
        if place not in self._left_out:
            self._coming[place].append(passed)
        epochs = self._config.epochs
        while self._coming and len(next(iter(self._coming.values()))) == epochs:
            _, attempts = self._coming.popitem(last=False)
            self._seen.add(sum(attempts) / epochs)
            self._samples += 1
            if self._samples >= self._next_look:
                self._next_look = self._samples + max(1, self._samples // _EVERY)
                if why := why_enough(self._seen.interval, self._config):
                    return why
        return ""


def why_enough(rate: Interval, config: EvalConfig) -> str:
    """Why it is enough to know the rate so well; empty where it is not."""
    width, against = config.stop_at_width, config.stop_against
    if width is not None and rate.high - rate.low <= width:
        return f"{EARLY}the interval of the pass rate is at most {width * 100:g} points wide"
    if against is not None and against not in rate:
        side = "above" if rate.low > against else "below"
        return f"{EARLY}the pass rate is shown to be {side} {against:.1%}"
    return ""


def by_chance(samples: Any, config: EvalConfig) -> Iterator[tuple[int, Any]]:
    """The samples with their places, in an order by chance where they are all there."""
    if not isinstance(samples, (Dataset, Sequence)):
        yield from enumerate(samples)
        return
    places = list(range(len(samples)))[: config.max_samples]
    Random(config.seed).shuffle(places)
    yield from ((place, samples[place]) for place in places)
