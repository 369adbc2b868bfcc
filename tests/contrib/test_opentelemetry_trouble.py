"""A collector may be away, hang, or refuse: same report, little time lost, told of once."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio
import pytest

from tests.contrib.langsmith_sent import nobody
from tests.processes import PATIENCE, until
from tests.traced import suite
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.evals import EvalConfig, EvalReport, Sample, evaluate, exact_match
from weakincentives.testing import OtlpReceiver

TIMEOUT = 0.5


@contextmanager
def hanging() -> Iterator[str]:
    with OtlpReceiver(hang=True) as receiver:
        yield receiver.url


@contextmanager
def refusing() -> Iterator[str]:
    with OtlpReceiver(status=500) as receiver:
        yield receiver.url


@contextmanager
def busy() -> Iterator[str]:
    with OtlpReceiver(status=503) as receiver:  # which the SDK tries again and again
        yield receiver.url


def outcomes(report: EvalReport[str]) -> list[tuple[str, float, str]]:
    return [(r.sample_id, r.score.value, r.output or "") for r in report.results]


@pytest.mark.parametrize("collector", [nobody, hanging, refusing, busy])
@pytest.mark.anyio
async def test_a_broken_collector_changes_nothing(
    collector: Callable[[], AbstractContextManager[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    untraced = outcomes(await suite().run_async())
    with collector() as endpoint:
        on = configure_otel(endpoint=endpoint, timeout=TIMEOUT)
        start = time.monotonic()
        for _ in range(5):
            assert outcomes(await suite().run_async()) == untraced
        if collector is nobody:  # which its exporter has to find out first
            await anyio.to_thread.run_sync(until, lambda: on._export._spans.logged)
        on.shutdown()

    assert time.monotonic() - start < PATIENCE  # an answer would be waited for ten minutes
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, told
    assert told[0].startswith("not all that is traced arrives, and runs go on: ")
    assert told[0].endswith(f" ({endpoint}/v1/traces)")
    assert collector is not nobody or "it was not: Connection refused (http" in told[0]


def test_a_collector_that_comes_back_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with (
        OtlpReceiver(status=500) as receiver,
        configure_otel(endpoint=receiver.url, timeout=PATIENCE) as on,
    ):
        suite().run()
        assert on.flush()
        receiver.status = 200
        suite().run()

    assert len([span for span in receiver.spans if span.name == "evaluate_sample"]) == 2


@pytest.mark.anyio
async def test_tracing_costs_a_sample_almost_nothing() -> None:
    samples = [Sample(str(number), "a", "a") for number in range(200)]

    async def agent(text: str) -> str:
        await anyio.sleep(0.005)
        return text

    async def milliseconds() -> float:
        """What this thread, which runs the samples, works for each of them."""
        begun = time.thread_time()
        await evaluate(samples, EvalConfig(max_concurrent=10), exact_match, agent=agent)
        return (time.thread_time() - begun) / 200 * 1000

    without = min([await milliseconds() for _ in range(3)])
    with OtlpReceiver() as receiver, configure_otel(endpoint=receiver.url):
        traced = min([await milliseconds() for _ in range(3)])

    figure = f"{without:.3f} ms of work for a sample, traced {traced:.3f} ms"
    sys.stdout.write(f"{figure}\n")
    assert traced - without < 3.0, figure  # ten times what it is
