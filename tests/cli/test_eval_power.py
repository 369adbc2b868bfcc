"""`wink eval power`: the differences that a comparison could detect."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink

__all__ = ["folder", "wink"]  # fixtures


def guesses(text: str) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(text)["guesses"]
    return parsed


def store_noisy_run(name: str, n: int = 100, epochs: int = 1, seed: int = 0) -> None:
    """Store a run in which even samples fail and odd ones pass, except for 10% noise."""
    rng = random.Random(seed)
    stored(
        name,
        *(
            answer(f"s{k}", "Paris" if k % 2 ^ (rng.random() < 0.1) else "", epoch=epoch)
            for k in range(n)
            for epoch in range(1, epochs + 1)
        ),
    )


def test_it_prints_what_is_detectable_and_the_samples_needed(wink: Run) -> None:
    stored("run", *(answer(f"s{k}", "Paris" if k < 50 else "") for k in range(100)))

    code, text, err = wink("power", "run", "--effect", "10")

    assert code == 0
    assert "for  a comparison of two runs of 100 samples" in text
    assert "It detects 19.4 points with 80% power" in text
    assert "To detect 10 points takes 389 samples" in text
    assert "wink eval power RUN_A RUN_B" in err


def test_more_samples_detect_smaller_differences(wink: Run) -> None:
    store_noisy_run("run")
    few, many = (
        guesses(wink("power", "run", "--samples", n, "--format", "json")[1])[0]["detectable"]
        for n in ("100", "10000")
    )

    assert few > 9 * many > 0


def test_epochs_separate_noise_from_hard_samples(wink: Run) -> None:
    store_noisy_run("run", epochs=4)

    cautious, hopeful = guesses(wink("power", "run", "--format", "json")[1])

    # Samples pass 9 or 1 times of 10: a variance of 0.16 between them, and of 0.09 within.
    assert cautious["sd"] == pytest.approx(math.sqrt(2 * (0.16 + 0.09 / 4)), rel=0.1)
    assert hopeful["sd"] == pytest.approx(math.sqrt(2 * 0.09 / 4), rel=0.1)
    more = guesses(wink("power", "run", "--epochs", "16", "--format", "json")[1])
    assert more[1]["sd"] == pytest.approx(hopeful["sd"] / 2)


def test_two_runs_give_the_measured_variance(wink: Run) -> None:
    store_noisy_run("a")
    store_noisy_run("b", seed=1)

    (measured,) = guesses(wink("power", "a", "b", "--format", "json")[1])

    assert measured["sd"] < guesses(wink("power", "a", "--format", "json")[1])[0]["sd"]
    assert wink("power", "a", "b", "--epochs", "2")[0] == 2


def test_a_run_in_which_all_passed_still_has_uncertainty(wink: Run) -> None:
    stored("run", *(answer(f"s{k}") for k in range(20)))

    (guess,) = guesses(wink("power", "run", "--format", "json")[1])

    assert guess["detectable"] > 10


@pytest.mark.parametrize("effect", ["0", "101"])
def test_an_impossible_effect_is_refused(wink: Run, effect: str) -> None:
    store_noisy_run("run")

    code, _, err = wink("power", "run", "--effect", effect)

    assert code == 2
    assert f"expected --effect above 0, up to 100 points, got {effect}" in err


def test_runs_that_do_not_differ_do_not_imply_a_variance_of_zero(wink: Run) -> None:
    for name in ("one", "two"):
        stored(name, *(answer(f"s{k}", epoch=epoch) for k in range(20) for epoch in (1, 2)))
    mixed = [answer("s", "Paris" if epoch % 2 else "", epoch=epoch) for epoch in range(1, 5)]
    stored("two of four", *mixed)
    stored("one of two", *mixed[:2])

    (guess,) = guesses(wink("power", "one", "two", "--format", "json")[1])
    assert guess["detectable"] > 10  # assumes that one more sample could differ
    for other in ("one", "one of two"):
        code, _, err = wink("power", "two of four", other)
        assert code == 2
        assert f"samples in common, of which some differ: two of four and {other}" in err
    assert "expected two different runs, got one twice" in wink("power", "one", "one")[2]


def test_with_one_epoch_the_effect_of_more_epochs_is_a_range(wink: Run) -> None:
    """One epoch does not tell whether the epochs of a sample agree."""
    store_noisy_run("run")

    (once,) = guesses(wink("power", "run", "--format", "json")[1])
    agreeing, differing = guesses(wink("power", "run", "--epochs", "5", "--format", "json")[1])

    assert agreeing["detectable"] == once["detectable"]
    assert differing["detectable"] < once["detectable"] / 2
    _, text, err = wink("power", "run", "--epochs", "5")
    assert "all epochs of a sample have the same outcome" in text.replace("\n", " ")
    assert "A run with one epoch does not show how much the epochs of a sample differ" in err


def test_a_budget_is_spent_on_samples_first(wink: Run) -> None:
    store_noisy_run("run", epochs=2)

    _, text, _ = wink("power", "run", "--budget", "600")
    assert "two runs of 100 samples x 6 epochs, 600 of 600 attempts" in text
    few = json.loads(wink("power", "run", "--budget", "60", "--format", "json")[1])
    assert (few["samples"], few["epochs"]) == (60, 1)
    more = json.loads(
        wink("power", "run", "--budget", "600", "--samples", "600", "--format", "json")[1]
    )
    assert (more["samples"], more["epochs"]) == (600, 1)
    for options in (["run", "--epochs", "2"], ["run", "other"]):
        store_noisy_run("other", epochs=2)
        assert wink("power", *options, "--budget", "60")[0] == 2
