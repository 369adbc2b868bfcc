"""The garbage collector and a run: neither waits for the other."""

from __future__ import annotations

import asyncio
import gc

import pytest

from weakincentives.evals import EvalConfig, Sample, evaluate, exact_match


def test_a_run_leaves_the_collector_as_the_user_has_set_it() -> None:
    async def agent(question: str) -> str:
        return str((gc.isenabled(), *gc.get_threshold()))

    samples = [Sample("1", "?", str((gc.isenabled(), *gc.get_threshold())))]
    report = asyncio.run(evaluate(samples, EvalConfig(), exact_match, agent=agent))

    assert report.results[0].passed


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_errors_do_not_wait_for_the_collector(kind: str) -> None:
    class LargeError(Exception):
        pass

    def agent(question: str) -> str:
        raise LargeError("?" * 1_000)

    async def async_agent(question: str) -> str:
        return agent(question)

    samples = [Sample(str(n), "?", "") for n in range(20)]
    gc.collect()
    gc.disable()
    try:
        chosen = async_agent if kind == "async" else agent
        report = asyncio.run(evaluate(samples, EvalConfig(), exact_match, agent=chosen))
        left = sum(type(each) is LargeError for each in gc.get_objects())
    finally:
        gc.enable()

    assert all(result.error for result in report.results)
    assert left <= 1  # the last may still be in a thread
