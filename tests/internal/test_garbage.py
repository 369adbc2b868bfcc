"""Settings of the garbage collector during a run, and memory of errors."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from tests.forked_wink import run_wink
from weakincentives.evals import EvalConfig, Sample, evaluate, exact_match
from weakincentives.internal.garbage import THRESHOLD


def test_a_run_does_not_change_the_users_collector_settings() -> None:
    async def agent(question: str) -> str:
        return str((gc.isenabled(), *gc.get_threshold()))

    samples = [Sample("1", "?", str((gc.isenabled(), *gc.get_threshold())))]
    report = asyncio.run(evaluate(samples, EvalConfig(), exact_match, agent=agent))

    assert report.results[0].passed


def test_the_command_collects_less_often(tmp_path: Path) -> None:
    (tmp_path / "own_eval.py").write_text(
        "import gc\n"
        "from weakincentives.evals import EvalSuite, Sample, exact_match\n"
        "async def agent(question): return str(gc.get_threshold()[0])\n"
        f"samples = [Sample('1', '?', '{THRESHOLD}')]\n"
        "suite = EvalSuite(dataset=samples, evaluator=exact_match, agent=agent)\n"
    )
    args = ("eval", "run", "own_eval.py", "--fail-under", "1")
    done = run_wink(*args, cwd=tmp_path, env={**os.environ})

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_errors_are_freed_without_the_collector(kind: str) -> None:
    class LargeError(Exception):
        pass

    def agent(question: str) -> str:
        raise LargeError("?" * 1_000)

    async def async_agent(question: str) -> str:
        return agent(question)

    samples = [Sample(str(n), "?", "") for n in range(20)]
    config = EvalConfig(max_concurrent=2)
    gc.collect()
    gc.disable()
    try:
        chosen = async_agent if kind == "async" else agent
        report = asyncio.run(evaluate(samples, config, exact_match, agent=chosen))
        alive = sum(type(each) is LargeError for each in gc.get_objects())
    finally:
        gc.enable()

    assert all(result.error for result in report.results)
    assert alive <= 2  # each thread may still hold its last one
