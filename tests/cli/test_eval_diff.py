"""`wink eval diff`, and `wink eval compare --samples`: trajectories of two runs, aligned."""

from __future__ import annotations

import json

import pytest

from tests.cli.stored_runs import Run, answer, broken, folder, stored, wink
from tests.view.runs import attempt

__all__ = ["folder", "wink"]  # fixtures


@pytest.fixture(autouse=True)
def two_runs() -> None:
    """Store two runs; in the second, four samples skip a step and fail."""
    stored("old", *(attempt(n, True) for n in range(6)), minutes=5)
    stored("new", *(attempt(n, n > 3, skips=n <= 3) for n in range(6)))


def test_the_steps_are_aligned_and_the_first_divergence_is_marked(wink: Run) -> None:
    code, text, _ = wink("diff", "old", "new", "q001")

    assert code == 0
    assert text.splitlines() == [
        "q001",
        "A  pass   run old",
        "B  fail  exact: not it  run new",
        "",
        "They diverge at step 2: `open` not called",
        "- only in A, + only in B, ~ different",
        "",
        "  system  Be brief.",
        "  user    What is the capital of country 1?",
        '  search  {"query":"What is the capital of country 1?"}',
        "          -> result 0 of 1",
        '- open    {"page":1}',
        "          -> result 1 of 1",
        "          ^ first divergence",
        "~ answer  [-City 1-]{+Nowhere+}",
    ]


def test_the_same_trajectory_does_not_diverge(wink: Run) -> None:
    _, text, _ = wink("diff", "old", "new", "q005")

    assert "They do not diverge" in text
    assert "first divergence" not in text


def test_the_steps_are_also_json(wink: Run) -> None:
    _, text, _ = wink("diff", "old", "new", "q001", "--format", "json")

    data = json.loads(text)
    relations = [step["relation"] for step in data["steps"]]
    assert relations == ["same", "same", "same", "before", "changed"]
    assert data["divergence"] == {"index": 3, "step": 2, "what": "`open` not called"}
    assert (data["before"]["verdict"], data["after"]["verdict"]) == ("pass", "fail")


def test_a_missing_sample_or_epoch_is_named_in_the_error(wink: Run) -> None:
    code, _, err = wink("diff", "old", "new", "q009")
    assert code == 2
    assert "q009" in err

    code, _, err = wink("diff", "old", "new", "q001", "--epoch", "7")
    assert code == 2
    assert "expected an epoch of sample 'q001' in run old, got 7 - there are 1" in err


def test_an_error_has_no_trajectory_but_is_printed(wink: Run) -> None:
    stored("dead", broken("q001", "refused \x1b[2J"))

    code, text, _ = wink("diff", "old", "dead", "q001")

    assert code == 0
    assert "B  error refused" in text
    assert "\x1b" not in text


def test_compare_prints_where_each_flip_and_most_flips_diverge(wink: Run) -> None:
    code, text, _ = wink("compare", "old", "new", "--samples", "--flips", "2")

    assert code == 0
    assert text.count("      diverge at  step 2: `open` not called") == 2
    assert text.endswith("\nTrajectories: most diverge at step 2: `open` not called (4 of 4)\n")


def test_compare_counts_divergences_as_json(wink: Run) -> None:
    _, text, _ = wink("compare", "old", "new", "--samples", "--format", "json")

    (compared,) = json.loads(text)["comparisons"]
    (counted,) = compared["divergences"]
    assert (counted["count"], counted["samples"]) == (4, ["q000", "q001", "q002", "q003"])
    assert compared["divergence_summary"].startswith("most diverge at step 2")


def test_runs_without_trajectories_have_no_summary(wink: Run) -> None:
    stored("a", answer("s", "Paris"))
    stored("b", broken("s"))

    code, text, _ = wink("compare", "a", "b", "--samples")

    assert code == 0
    assert "Trajectories" not in text
