"""Rank contenders by comparisons of two at a time: the model of Bradley and Terry.

Rules of this file:
1. Each contender has a strength. The chance that one beats another depends on the difference of
   their strengths; a tie is half a win for each. (R. A. Bradley and M. E. Terry, Biometrika 39,
   1952.)
2. A sample is one observation of each pair, however often the pair was compared on it; and the
   pairs of one sample are not independent. So intervals come from weighting whole samples at random
   (the Bayesian bootstrap: D. B. Rubin, Annals of Statistics 9, 1981).
3. Each pair that was compared also gets half a win and half a defeat that were not observed, with
   random weights too. So 20 wins of 20 have a finite strength and an honest interval.
4. Ranks are read together, so they hold together: a contender is only ranked above another if the
   interval of its chance to win, widened for all pairs, is above one half.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from ...errors import UsageError, short_repr
from .basic import mean, std
from .distributions import t_quantile
from .intervals import Interval, drawn_interval, nearest_rank, two_sided

_UNSEEN_WINS = 0.5  # for each side of a pair; with one pair this is Jeffreys' interval
_MAX_STEPS = 100
_RESAMPLES = 1_000
_METHOD = "Bayesian bootstrap"

Match = tuple[Hashable, str, str, float]
"""A sample, two contenders, and the result for the first: 1 won, 0 lost, 0.5 tied."""
_Wins = dict[tuple[int, int], list[float]]
"""Wins of either side, by pair of contenders."""
_Samples = Counter[tuple[tuple[tuple[int, int], float], ...]]
"""How many samples have these results: pairs, and the share of wins of the first of each."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender's strength, in log odds around a mean of 0, and the ranks that it may have.

    `win_rate` is the chance to beat another contender that is picked at random.
    """

    name: str
    strength: Interval
    win_rate: Interval
    ranks: tuple[int, int]

    @property
    def rank(self) -> str:
        """The possible ranks: `1`, or `1-2`."""
        low, high = self.ranks
        return f"{low}" if low == high else f"{low}-{high}"


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """The contenders, the strongest first, with the chance of each to beat each other."""

    contenders: tuple[Contender, ...]
    win_probabilities: Mapping[tuple[str, str], Interval] = field(repr=False, hash=False)
    samples: int
    matches: int

    def win_probability(self, first: str, second: str) -> Interval:
        """Return the chance that the first beats the second."""
        try:
            return self.win_probabilities[first, second]
        except KeyError:
            names = ", ".join(each.name for each in self.contenders)
            raise UsageError(f"expected two of {names}, got {first!r} and {second!r}") from None


def bradley_terry(
    matches: Iterable[Match],
    *,
    confidence: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> BradleyTerry:
    """Return strengths, ranks and chances to win, with intervals, from matches of two.

    >>> won = [(n, "b", "a", float(n < 30)) for n in range(40)]
    >>> [(each.name, each.rank) for each in bradley_terry(won).contenders]
    [('b', '1'), ('a', '2')]
    """
    two_sided(confidence)
    matches = list(matches)
    names, samples = _by_sample(matches)
    strengths = _fit(_total(samples), len(names))
    random = Random(seed)
    drawn = [_fit(_total(samples, random), len(names), strengths) for _ in range(resamples)]
    size = samples.total()

    def interval(estimate: float, values: Iterable[float]) -> Interval:
        return drawn_interval(estimate, values, size, confidence, _METHOD)

    chances = {
        (names[a], names[b]): interval(
            _chance(strengths[a] - strengths[b]), (_chance(each[a] - each[b]) for each in drawn)
        )
        for a in range(len(names))
        for b in range(len(names))
        if a != b
    }
    better = _better(strengths, drawn, size, confidence)
    contenders = [
        Contender(
            name,
            interval(strengths[at], (each[at] for each in drawn)),
            interval(_win_rate(strengths, at), (_win_rate(each, at) for each in drawn)),
            (
                1 + sum((other, at) in better for other in range(len(names))),
                len(names) - sum((at, other) in better for other in range(len(names))),
            ),
        )
        for at, name in enumerate(names)
    ]
    contenders.sort(key=lambda each: -each.strength.estimate)
    return BradleyTerry(tuple(contenders), chances, size, len(matches))


def length_bias(
    matches: Iterable[tuple[Hashable, str, str, float, int]],
    *,
    confidence: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the chance that the longer of two equally good outputs wins; 0.5 is no bias.

    The last item of a match is 1 if the output of the first contender is the longer one, -1 if it
    is the shorter one. Each pair of contenders is compared with itself, by the odds ratio of
    N. Mantel and W. Haenszel (Journal of the National Cancer Institute 22, 1959), since a contender
    can be longer and better. If one of a pair is always longer, the pair says nothing about it.
    """
    two_sided(confidence)
    samples: dict[Hashable, dict[tuple[tuple[str, str], int], list[float]]] = {}
    for sample, first, second, result, longer in matches:
        if first > second:
            first, second, result, longer = second, first, 1 - result, -longer
        if longer:
            key = (first, second), (1 if longer > 0 else -1)
            samples.setdefault(sample, {}).setdefault(key, []).append(result)
    lengths = {key for cells in samples.values() for key in cells}
    # Sorted, so that they get the same random numbers in every process.
    pairs = sorted(pair for pair, longer in lengths if longer > 0 and (pair, -1) in lengths)
    if not pairs:
        return Interval(0.5, 0.0, 1.0, len(samples), None, confidence, "unknown")

    def chance(random: Random | None) -> float:
        # Wins and defeats of the first contender, when it is longer and when it is shorter.
        wins = {pair: [_unseen(random) for _ in range(4)] for pair in pairs}
        for cells in samples.values():
            weight = random.expovariate(1.0) if random else 1.0
            for (pair, longer), results in cells.items():
                if pair in wins:
                    won, at = mean(results), 0 if longer > 0 else 2
                    wins[pair][at] += weight * won
                    wins[pair][at + 1] += weight * (1 - won)
        longer_won = math.fsum(w[0] * w[3] / math.fsum(w) for w in wins.values())
        shorter_won = math.fsum(w[1] * w[2] / math.fsum(w) for w in wins.values())
        # The ratio has the advantage of being longer twice: once for either contender.
        return _chance((math.log(longer_won) - math.log(shorter_won)) / 2)

    random = Random(seed)
    drawn = [chance(random) for _ in range(resamples)]
    return drawn_interval(chance(None), drawn, len(samples), confidence, _METHOD)


def _by_sample(matches: Iterable[Match]) -> tuple[list[str], _Samples]:
    """Return the names of the contenders, and the results of the samples: one for each pair."""
    places: dict[str, int] = {}
    samples: dict[Hashable, dict[tuple[int, int], list[float]]] = {}
    for sample, first, second, result in matches:
        if first == second or not 0 <= result <= 1:
            raise UsageError(
                "expected two contenders and a result from 0 to 1, got "
                f"{short_repr((first, second, result))} - sample {short_repr(sample)}"
            )
        a, b = (places.setdefault(name, len(places)) for name in (first, second))
        a, b, result = (a, b, result) if a < b else (b, a, 1 - result)
        samples.setdefault(sample, {}).setdefault((a, b), []).append(result)
    _check_connected({pair for results in samples.values() for pair in results}, [*places])
    counts = Counter(
        tuple(sorted((pair, mean(each)) for pair, each in results.items()))
        for results in samples.values()
    )
    return [*places], counts


def _check_connected(pairs: Iterable[tuple[int, int]], names: Sequence[str]) -> None:
    """Raise if some contenders were never compared with others, not even through a third."""
    group = list(range(len(names)))
    for a, b in pairs:
        group = [group[a] if each == group[b] else each for each in group]
    if len(set(group)) != 1:
        apart = [name for name, each in zip(names, group, strict=True) if each != group[0]]
        raise UsageError(
            "expected matches between all contenders, directly or through others, got "
            + (f"none of {names[0]} with {', '.join(apart)}" if names else "none")
        )


def _unseen(random: Random | None) -> float:
    return random.gammavariate(_UNSEEN_WINS, 1.0) if random else _UNSEEN_WINS


def _total(samples: _Samples, random: Random | None = None) -> _Wins:
    """Return the wins of each pair, and those not observed; all with random weights, if any."""
    total: _Wins = {}
    for results, count in samples.items():
        # Samples with the same results together: a sum of exponential weights is a gamma weight.
        weight = random.gammavariate(count, 1.0) if random else count
        for pair, won in results:
            sums = total.get(pair)
            if sums is None:
                sums = total[pair] = [_unseen(random), _unseen(random)]
            sums[0] += weight * won
            sums[1] += weight * (1 - won)
    return total


def _fit(wins: _Wins, count: int, start: Sequence[float] | None = None) -> list[float]:
    """Return the strengths of the greatest likelihood, with a mean of 0, by Newton's method."""
    strengths = list(start) if start else [0.0] * count
    for _ in range(_MAX_STEPS):
        gradient = [0.0] * count
        # Strengths are only defined up to a constant; the ones pin their mean to 0.
        curvature = [[1.0] * count for _ in range(count)]
        for (a, b), (first, second) in wins.items():
            chance = _chance(strengths[a] - strengths[b])
            surprise = first - (first + second) * chance
            weight = (first + second) * chance * (1 - chance)
            gradient[a] += surprise
            gradient[b] -= surprise
            curvature[a][a] += weight
            curvature[b][b] += weight
            curvature[a][b] -= weight
            curvature[b][a] -= weight
        step = _solve(curvature, gradient)
        largest = max(map(abs, step))
        shorten = min(1.0, 2.0 / largest) if largest else 1.0  # far steps can overshoot
        strengths = [old + shorten * new for old, new in zip(strengths, step, strict=True)]
        if largest < 1e-8:
            break
    return strengths


def _solve(matrix: list[list[float]], values: Sequence[float]) -> list[float]:
    """Solve a symmetric positive definite system, which is changed, by Gaussian elimination."""
    n, right = len(values), list(values)
    for at in range(n):
        for row in range(at + 1, n):
            factor = matrix[row][at] / matrix[at][at]
            if factor:
                for column in range(at, n):
                    matrix[row][column] -= factor * matrix[at][column]
                right[row] -= factor * right[at]
    for at in reversed(range(n)):
        known = math.fsum(matrix[at][column] * right[column] for column in range(at + 1, n))
        right[at] = (right[at] - known) / matrix[at][at]
    return right


def _better(
    strengths: Sequence[float], drawn: Sequence[Sequence[float]], samples: int, confidence: float
) -> set[tuple[int, int]]:
    """Return the pairs of which the first is better, all of them at once with this confidence."""
    # By chances to win: near 0 and 1, differences of strengths have no upper bound.
    differences = {
        (a, b): [_chance(each[a] - each[b]) for each in drawn]
        for a, b in combinations(range(len(strengths)), 2)
    }
    errors = {pair: std(values) for pair, values in differences.items()}
    centres = {pair: mean(values) for pair, values in differences.items()}
    largest = sorted(
        max(abs(differences[pair][at] - centres[pair]) / errors[pair] for pair in differences)
        for at in range(len(drawn))
    )
    limit = nearest_rank(largest, confidence) * _small_sample_factor(samples, confidence)
    better = set()
    for a, b in differences:
        difference = _chance(strengths[a] - strengths[b]) - 0.5
        if abs(difference) > limit * errors[a, b]:
            better.add((a, b) if difference > 0 else (b, a))
    return better


def _small_sample_factor(samples: int, confidence: float) -> float:
    """Return the factor by which the bootstrap underestimates the error of a mean of few samples.

    As for any mean, use Student's t instead of the normal distribution, and n - 1 instead of the
    n + 1 that random weights imply.
    """
    if samples < 2:
        return math.inf
    t = t_quantile((1 + confidence) / 2, samples - 1) / two_sided(confidence)
    return t * math.sqrt((samples + 1) / (samples - 1))


def _chance(difference: float) -> float:
    """Return the chance to win of the one that is stronger by this difference."""
    return 0.5 * (1 + math.tanh(difference / 2))


def _win_rate(strengths: Sequence[float], at: int) -> float:
    others = (_chance(strengths[at] - each) for each in strengths)
    return (math.fsum(others) - 0.5) / (len(strengths) - 1)
