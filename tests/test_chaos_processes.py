"""Small runs of `python -m chaos processes` and `pressure`, with real processes that die."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos._plan import Plan
from chaos.pressure import PARTS
from chaos.processes import compare, run_once

pytestmark = pytest.mark.no_cover  # the workers are other processes

FEW = {"many messages": (20_000,)}


@pytest.mark.parametrize("form", ["own", "mailbox"])
def test_a_report_is_the_same_with_and_without_faults(form: str) -> None:
    """Compare a run with failing workers, server and network with one healthy worker."""
    plan = Plan(300, form, raises=2, slow=2)
    one = ["own"] if form == "own" else ["eval", "main"]
    many = one * (3 if form == "own" else 2)
    with ThreadPoolExecutor() as pool:
        in_peace = pool.submit(run_once, plan, one, lease=1.0)
        hurt = run_once(plan, many, seed=3, harm=5.0, lease=1.0, gap=0.25)
        quiet = in_peace.result()
    compare(hurt, quiet)

    assert quiet.verdict.good, quiet.verdict
    assert hurt.verdict.good, hurt.verdict
    assert len(hurt.faults) > 5


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_pressure_test_passes(name: str) -> None:
    part: Callable[..., str] = PARTS[name]
    assert part(*FEW.get(name, ()))
