"""Pass rates of a judge, corrected with labels of people."""

from __future__ import annotations

import numpy as np
import pytest

from weakincentives.errors import UsageError
from weakincentives.evals.stats import corrected_difference, corrected_rate, ppi_rate
from weakincentives.evals.stats.correction import (
    VerdictLabels,
    corrected_agreement,
    corrected_difference_by,
    corrected_kappa,
    corrected_rate_by,
    labels_by_verdict,
)

Verdicts = dict[int, bool]


def verdicts_for(
    rng: np.random.Generator, truth: np.ndarray, sensitivity: float, specificity: float
) -> Verdicts:
    right = rng.random(len(truth)) < np.where(truth, sensitivity, specificity)
    return {index: bool(value) for index, value in enumerate(np.where(right, truth, ~truth))}


def random_labels(rng: np.random.Generator, truth: np.ndarray, count: int) -> Verdicts:
    return {
        int(index): bool(truth[index]) for index in rng.choice(len(truth), count, replace=False)
    }


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_perfect_judge_is_not_corrected() -> None:
    judged = {index: index < 80 for index in range(100)}

    rate = corrected_rate(judged, {index: index < 80 for index in range(0, 100, 2)})

    assert rate.corrected.estimate == rate.judged.estimate == 0.8
    assert rate.labels == 50


@pytest.mark.parametrize(("sensitivity", "specificity"), [(0.98, 0.95), (0.9, 0.8), (0.95, 0.7)])
@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_the_corrected_rate_covers_the_truth_even_if_the_judge_is_biased(
    rng: np.random.Generator, sensitivity: float, specificity: float, rate: float
) -> None:
    covered, errors = [], []
    for _ in range(250):
        truth = rng.random(500) < rate
        judged = verdicts_for(rng, truth, sensitivity, specificity)
        corrected = corrected_rate(judged, random_labels(rng, truth, 50)).corrected
        covered.append(rate in corrected)
        errors.append(corrected.estimate - rate)

    assert np.mean(covered) > 0.91  # three standard errors of 250 runs below 94 %
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(250)


def test_a_good_judge_makes_the_interval_narrower(rng: np.random.Generator) -> None:
    truth = rng.random(500) < 0.8
    labels = random_labels(rng, truth, 50)
    good = corrected_rate(verdicts_for(rng, truth, 0.98, 0.95), labels).corrected
    useless = corrected_rate(verdicts_for(rng, truth, 0.5, 0.5), labels).corrected

    assert good.high - good.low < 0.75 * (useless.high - useless.low)


def test_verdicts_without_labels_are_named_and_widen_the_interval() -> None:
    rate = corrected_rate(
        {index: index < 90 for index in range(100)}, dict.fromkeys(range(30), True)
    )

    assert rate.unlabelled == ("failed",)
    assert rate.corrected.low < 0.9
    assert rate.corrected.high == 1.0


def test_ppi_and_the_corrected_rate_agree_for_many_labels(rng: np.random.Generator) -> None:
    truth = rng.random(2_000) < 0.7
    judged, labels = verdicts_for(rng, truth, 0.9, 0.8), random_labels(rng, truth, 800)

    ppi, strata = ppi_rate(judged, labels), corrected_rate(judged, labels).corrected

    assert ppi.estimate == pytest.approx(strata.estimate, abs=0.01)
    assert ppi.high - ppi.low == pytest.approx(strata.high - strata.low, rel=0.2)


def test_a_corrected_difference_covers_the_true_change(rng: np.random.Generator) -> None:
    covered = []
    for _ in range(150):
        before = rng.random(400) < 0.7
        after = np.where(rng.random(400) < 0.25, rng.random(400) < 0.9, before)
        sides = [
            (verdicts_for(rng, truth, 0.9, 0.8), random_labels(rng, truth, 60))
            for truth in (before, after)
        ]
        covered.append(0.05 in corrected_difference(sides[0], sides[1]))

    assert np.mean(covered) > 0.9


def test_labels_of_other_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="expected labels of judged samples"):
        corrected_rate({1: True}, {2: True})
    with pytest.raises(UsageError, match="expected judged samples"):
        corrected_rate({}, {2: True})
    with pytest.raises(UsageError, match="at least 2 labels"):
        ppi_rate({1: True}, {1: True})
    with pytest.raises(UsageError, match="samples in common"):
        corrected_difference(({1: True}, {1: True}), ({2: True}, {2: True}))


def test_labels_are_weighted_by_their_probability_to_be_drawn() -> None:
    judged = dict.fromkeys(range(100), True)
    labels = {index: index < 10 for index in range(20)}  # all ten good ones, ten of ninety bad ones
    probabilities = {index: 1.0 if index < 10 else 10 / 90 for index in range(20)}

    plain = corrected_rate(judged, labels).corrected
    weighted = corrected_rate(judged, labels, probabilities=probabilities).corrected

    assert plain.estimate == 0.5
    assert weighted.estimate == pytest.approx(0.1)
    strata = labels_by_verdict(judged, labels, probabilities)
    assert strata[True].count == 20
    # Kish's effective sample size.
    assert strata[True].labels == pytest.approx(100**2 / (10 * 1 + 10 * 81))
    with pytest.raises(UsageError, match="above 0, at most 1, got 2"):
        corrected_rate(judged, labels, probabilities={0: 2.0})


def test_an_error_is_never_a_pass_whatever_the_labels() -> None:
    judged = {index: True if index < 80 else None for index in range(100)}

    rate = corrected_rate(judged, dict.fromkeys(range(40), True))

    assert rate.judged.estimate == rate.corrected.estimate == 0.8
    assert (rate.unlabelled, rate.labels) == ((), 40)


def test_epochs_of_a_sample_are_clustered() -> None:
    judged = {(index, epoch): index < 60 for index in range(100) for epoch in range(5)}
    strata = {True: VerdictLabels(40, 38, 40), False: VerdictLabels(10, 1, 10)}

    independent = corrected_rate_by(judged, strata).corrected
    clustered = corrected_rate_by(judged, strata, cluster=lambda key: key[0]).corrected

    assert independent.estimate == clustered.estimate
    assert clustered.high - clustered.low > 1.1 * (independent.high - independent.low)


def test_the_same_labels_for_both_runs_largely_cancel_out() -> None:
    before, after = ({index: index < n for index in range(200)} for n in (120, 140))
    strata = {True: VerdictLabels(40, 34, 40), False: VerdictLabels(10, 1, 10)}

    separate = corrected_difference_by((before, strata), (after, strata))
    shared = corrected_difference_by((before, strata), (after, strata), same_labels=True)

    assert separate.estimate == shared.estimate == pytest.approx(0.1 * (0.85 - 0.1))
    assert separate.low < 0 < shared.low


def test_a_difference_without_flips_still_has_an_interval() -> None:
    judged = {index: index < 120 for index in range(200)}
    strata = {True: VerdictLabels(40, 34, 40), False: VerdictLabels(10, 1, 10)}

    difference = corrected_difference_by((judged, strata), (judged, strata), same_labels=True)

    assert difference.estimate == 0
    assert difference.low < -0.005
    assert difference.high > 0.005


def test_agreement_and_kappa_are_for_all_verdicts() -> None:
    judged = {index: index < 180 for index in range(200)}
    strata = {True: VerdictLabels(40, 36, 40), False: VerdictLabels(10, 2, 10)}

    agreement, kappa = corrected_agreement(judged, strata), corrected_kappa(judged, strata)

    assert agreement.estimate == pytest.approx(0.9 * 0.9 + 0.1 * 0.8)
    people = 0.9 * 0.9 + 0.1 * 0.2
    chance = 0.9 * people + 0.1 * (1 - people)
    assert kappa.estimate == pytest.approx((agreement.estimate - chance) / (1 - chance))
    assert kappa.low < kappa.estimate < kappa.high
    constant = dict.fromkeys(range(9), True)
    assert corrected_kappa(constant, {True: VerdictLabels(5, 5, 5)}).estimate == 0.0
