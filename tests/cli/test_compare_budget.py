"""`wink eval compare --models ... --budget`: the best of several models by successive halving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cli.stored_runs import Run, folder, wink
from tests.sums_eval import QA
from weakincentives.evals import open_store
from weakincentives.evals.comparison.halving import halve, round_sizes
from weakincentives.testing import ModelServer

__all__ = ["folder", "wink"]  # fixtures

DATASET = "".join(
    json.dumps(
        {"id": f"s{n}", "input": {"question": f"What is {n} + {n}?"}, "expected": str(2 * n)}
    )
    + "\n"
    for n in range(60)
)


def test_each_round_costs_the_same_and_the_last_one_twice() -> None:
    assert round_sizes(8, 1600, 1, 10_000) == [25, 53, 86, 126, 176, 242, 442]
    assert round_sizes(8, 1600, 1, 300) == [25, 53, 86, 126, 176, 242, 300]
    assert round_sizes(5, 300, 2, 100) == [6, 13, 23, 53]
    assert round_sizes(2, 100, 1, 100) == [50]
    assert len(round_sizes(32, 10_000, 1, 10_000)) == 20


def test_the_worst_is_dropped_in_each_round() -> None:
    rates = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.8, "e": 0.2}
    result = halve([*rates], [10, 20, 30, 40], lambda model, n: round(rates[model] * n))

    assert [each.dropped for each in result.rounds] == [("a",), ("e",), ("c",), ()]
    assert result.finalists == ("b", "d")


def test_it_finds_the_best_more_often_than_equal_shares_do() -> None:
    rng = np.random.default_rng(1)
    rates, halving_wins, equal_wins = [0.85, 0.81, 0.8, 0.78, 0.76, 0.74, 0.72, 0.7], 0, 0
    models, sizes = [*"abcdefgh"], round_sizes(8, 1600, 1, 10_000)
    for _ in range(400):
        pass_probability = rng.beta(2 * 0.8, 2 * 0.2, 442)[:, None] ** (np.log(rates) / np.log(0.8))
        passes = dict(zip(models, (rng.random((442, 8)) < pass_probability).T, strict=True))
        result = halve(models, sizes, lambda m, n, p=passes: int(p[m][:n].sum()))
        halving_wins += result.finalists[0] == "a"
        equal_wins += max(models, key=lambda m, p=passes: p[m][:200].sum()) == "a"

    assert halving_wins > equal_wins + 20


@pytest.fixture
def bad_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve a model that answers every question wrongly."""
    with ModelServer([json.dumps({"answer": "nothing"})], repeat=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        yield "openai/m"


def test_the_command_prints_the_best_model_and_the_dropped_ones(wink: Run, bad_model: str) -> None:
    Path("prompts.py").write_text(QA)
    Path("qa.jsonl").write_text(DATASET)
    args = ("compare", "--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--evaluator",
             "contains", "--models", bad_model, "demo/small", "demo/large")  # fmt: skip
    code, text, err = wink(*args, "--budget", "60")
    assert code == 0, err
    assert "round 1: openai/m 0/6, demo/small " in text
    assert "dropped: openai/m" in text
    assert "best: demo/large" in text
    assert "which did not select the two:" in " ".join(text.split())
    with open_store() as store:
        assert sorted(record.total for record in store.runs()) == [6, 26, 26]

    code, text, _ = wink(*args, "--budget", "60", "--format", "json")
    again = json.loads(text)
    assert [each["samples"] for each in again["rounds"]] == [6, 26]
    with open_store() as store:
        assert len(store.runs()) == 3  # nothing was run again

    code, _, err = wink(*args, "--budget", "3")
    assert code == 2
    assert "expected a --budget of 9 or more for 3 models" in err


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--budget", "10"), "expected two models or more"),
        (("--models", "a/b", "c/d", "--budget", "10", "--max-samples", "3"), "got both"),
    ],
)
def test_invalid_options_are_refused(wink: Run, args: tuple[str, ...], problem: str) -> None:
    code, _, err = wink("compare", *args)
    assert code == 2
    assert problem in err
