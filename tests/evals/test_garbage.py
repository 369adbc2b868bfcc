"""The garbage collector while runs are under way: calmer, and as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from weakincentives.evals import EvalConfig, Sample, evaluate, exact_match
from weakincentives.evals._garbage import OBJECTS, calm_collector


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield before
    gc.set_threshold(*before)


@pytest.mark.anyio
async def test_a_run_is_calmer_than_what_is_around_it() -> None:
    async def agent(question: str) -> str:
        return str(gc.get_threshold())

    samples = [Sample("1", "?", str((OBJECTS, 10, 10)))]
    report = await evaluate(samples, EvalConfig(), exact_match, agent=agent)
    assert report.results[0].passed
    assert gc.get_threshold() == (700, 10, 10)


def test_runs_that_overlap_share_it() -> None:
    first, second = calm_collector(), calm_collector()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (OBJECTS, 10, 10)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("wished", [(0, 10, 10), (50_000, 20, 100)])
def test_what_the_user_set_stands(wished: tuple[int, int, int]) -> None:
    gc.set_threshold(*wished)
    with calm_collector():
        assert gc.get_threshold() == wished
    assert gc.get_threshold() == wished


def test_what_the_user_sets_meanwhile_stands() -> None:
    with calm_collector():
        gc.set_threshold(9_000, 5, 5)
    assert gc.get_threshold() == (9_000, 5, 5)


def test_it_is_restored_after_an_error() -> None:
    with pytest.raises(KeyError), calm_collector():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)
