"""Linear trends and change points over several runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from weakincentives.errors import UsageError
from weakincentives.evals.stats import change_point, linear_trend


def simulate_passes(
    rng: np.random.Generator, changes: list[float], samples: int = 100, rate: float = 0.85
) -> list[list[float]]:
    """Return passes by sample and run: samples differ in difficulty, runs change the rate."""
    difficulty = rng.beta(2 * rate, 2 * (1 - rate), samples)
    probabilities = np.clip(difficulty[:, None] + np.array(changes), 0, 1)
    passed = rng.random((samples, len(changes))) < probabilities
    return [[float(value) for value in sample] for sample in passed]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_the_slope_is_the_mean_of_the_slopes_of_samples(rng: np.random.Generator) -> None:
    samples = simulate_passes(rng, [0.0] * 6)
    slopes = [stats.linregress(range(6), sample).slope for sample in samples]

    trend = linear_trend(samples)

    assert trend.slope.estimate == pytest.approx(np.mean(slopes))
    assert trend.p_value == pytest.approx(stats.ttest_1samp(slopes, 0).pvalue)
    assert (trend.runs, trend.slope.n) == (6, 100)


def test_the_total_is_the_change_along_the_line() -> None:
    trend = linear_trend([[0.0, 0.5, 1.0], [0.0, 0.0, 1.0]])

    assert trend.total.estimate == pytest.approx(2 * trend.slope.estimate) == 1.0
    assert trend.total.high - trend.total.low == pytest.approx(
        2 * (trend.slope.high - trend.slope.low)
    )


def test_a_decline_of_a_point_per_run_is_usually_detected(rng: np.random.Generator) -> None:
    declining = [-0.01 * run for run in range(10)]

    p_values = [linear_trend(simulate_passes(rng, declining, 200)).p_value for _ in range(40)]

    assert np.mean(np.array(p_values) < 0.05) > 0.8


def test_a_step_is_located_at_its_run(rng: np.random.Generator) -> None:
    step = change_point(simulate_passes(rng, [0.0] * 6 + [-0.15] * 4, 200))

    assert step.run == 6
    assert step.p_value < 0.001
    assert step.difference.high < 0


def test_equal_runs_rarely_have_a_trend_or_a_step(rng: np.random.Generator) -> None:
    runs = [simulate_passes(rng, [0.0] * 8) for _ in range(60)]

    assert np.mean([linear_trend(samples).p_value < 0.05 for samples in runs]) < 0.11
    assert np.mean([change_point(samples).p_value < 0.05 for samples in runs]) < 0.11


def test_lasting_changes_of_single_samples_are_not_a_step() -> None:
    """Edits of a deterministic agent between runs; each fixes as many samples as it breaks."""
    rng, detected = np.random.default_rng(1), []
    for _ in range(60):
        passed = rng.random(100) < 0.85
        runs = [passed]
        for _ in range(9):
            flipped = rng.random(100) < np.where(runs[-1], 0.025 / 0.85, 0.025 / 0.15)
            runs.append(runs[-1] ^ flipped)
        detected.append(change_point(np.array(runs, dtype=float).T.tolist()).p_value < 0.05)

    assert np.mean(detected) <= 0.1  # a test that treats runs as independent detects 28 %


def test_looking_after_every_run_makes_the_p_value_larger() -> None:
    samples = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]] * 5
    once, repeated = linear_trend(samples), linear_trend(samples, looks=20)

    assert once.p_value < repeated.p_value < 20 * once.p_value
    assert change_point(samples).p_value < change_point(samples, looks=20).p_value


def test_runs_without_any_change_have_neither_trend_nor_step() -> None:
    for samples in ([[1.0] * 3, [0.0] * 3], [[1 / 3] * 7, [0.1] * 7, [0.85] * 7]):
        assert linear_trend(samples).p_value == 1.0
        assert change_point(samples).p_value == 1.0


def test_the_same_runs_give_the_same_p_value(rng: np.random.Generator) -> None:
    samples = simulate_passes(rng, [0.0] * 5)

    assert change_point(samples) == change_point(samples)


def test_changes_of_samples_that_cancel_out_are_not_a_step() -> None:
    up_and_down = [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]] * 6

    assert change_point(up_and_down).p_value == 1.0
    assert linear_trend(up_and_down).p_value == 1.0


@pytest.mark.parametrize("samples", [[], [[1.0]], [[1.0, 0.0], [1.0, 0.0, 1.0]]])
def test_samples_need_a_value_in_every_run(samples: list[list[float]]) -> None:
    with pytest.raises(UsageError, match="a value in each of two runs or more"):
        linear_trend(samples)


def test_at_least_one_look_is_required() -> None:
    with pytest.raises(UsageError, match="at least 1 look"):
        linear_trend([[0.0, 1.0], [1.0, 0.0]], looks=0)


def test_the_interval_excludes_0_only_if_the_p_value_is_significant() -> None:
    samples = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]] * 5
    once, repeated = linear_trend(samples), linear_trend(samples, looks=20)

    assert repeated.slope.low < once.slope.low < once.slope.high < repeated.slope.high
    assert (repeated.p_value < 0.05) == (0 not in repeated.slope)


def test_fewer_than_six_changed_samples_are_never_significant() -> None:
    for changed in range(1, 8):
        samples = [[0.0, 0.0, 1.0, 1.0]] * changed + [[1.0] * 4] * 100
        significant = [test(samples).p_value < 0.05 for test in (linear_trend, change_point)]
        assert significant == [changed >= 6] * 2


def test_a_rise_and_a_fall_have_mirrored_intervals() -> None:
    rising = [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    falling = [[1 - value for value in sample] for sample in rising]

    up, down = linear_trend(rising).slope, linear_trend(falling).slope

    assert (up.low, up.high) == pytest.approx((-down.high, -down.low))


def test_samples_of_one_cluster_are_one_observation(rng: np.random.Generator) -> None:
    samples = simulate_passes(rng, [0.0] * 5, 30)
    repeated, clusters = [*samples, *samples, *samples], [*range(30)] * 3

    once, clustered = linear_trend(samples), linear_trend(repeated, clusters=clusters)

    assert clustered.p_value == pytest.approx(once.p_value)
    assert clustered.slope.clusters == 30
    assert change_point(repeated, clusters=clusters).p_value == change_point(samples).p_value
    assert change_point(repeated).p_value < change_point(samples).p_value
