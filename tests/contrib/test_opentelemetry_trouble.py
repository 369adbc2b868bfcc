"""A collector that is unreachable, hangs or refuses: same report, little delay, one warning."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio
import pytest

from tests.contrib.langsmith_fixtures import closed_port
from tests.processes import TIMEOUT, until
from tests.traced import suite
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.evals import EvalConfig, EvalReport, Sample, evaluate, exact_match
from weakincentives.testing import OtlpReceiver

EXPORT_TIMEOUT = 0.5


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
    with OtlpReceiver(status=503) as receiver:  # the SDK retries on this status
        yield receiver.url


def outcomes(report: EvalReport[str]) -> list[tuple[str, float, str]]:
    return [(r.sample_id, r.score.value, r.output or "") for r in report.results]


@pytest.mark.parametrize("collector", [closed_port, hanging, refusing, busy])
@pytest.mark.anyio
async def test_a_broken_collector_changes_no_result(
    collector: Callable[[], AbstractContextManager[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    untraced = outcomes(await suite().run_async())
    with collector() as endpoint:
        otel = configure_otel(endpoint=endpoint, timeout=EXPORT_TIMEOUT)
        start = time.monotonic()
        for _ in range(5):
            assert outcomes(await suite().run_async()) == untraced
        if collector is closed_port:  # wait until the exporter has noticed
            await anyio.to_thread.run_sync(until, lambda: otel._export._spans.logged)
        otel.shutdown()

    assert time.monotonic() - start < TIMEOUT  # waiting for a response would take ten minutes
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1, warnings
    assert warnings[0].startswith("some traces are lost, runs are not affected: ")
    assert warnings[0].endswith(f" ({endpoint}/v1/traces)")
    assert collector is not closed_port or " s: Connection refused (http" in warnings[0]


def test_a_collector_that_recovers_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    with (
        OtlpReceiver(status=500) as receiver,
        configure_otel(endpoint=receiver.url, timeout=TIMEOUT) as otel,
    ):
        suite().run()
        assert otel.flush()
        receiver.status = 200
        suite().run()

    assert len([span for span in receiver.spans if span.name == "evaluate_sample"]) == 2


@pytest.mark.anyio
async def test_tracing_adds_little_time_to_a_sample() -> None:
    samples = [Sample(str(number), "a", "a") for number in range(200)]

    async def agent(text: str) -> str:
        await anyio.sleep(0.005)
        return text

    async def milliseconds_per_sample() -> float:
        """Return the CPU time of this thread, which runs the samples, per sample."""
        start = time.thread_time()
        await evaluate(samples, EvalConfig(max_concurrent=10), exact_match, agent=agent)
        return (time.thread_time() - start) / 200 * 1000

    untraced = min([await milliseconds_per_sample() for _ in range(3)])
    with OtlpReceiver() as receiver, configure_otel(endpoint=receiver.url):
        traced = min([await milliseconds_per_sample() for _ in range(3)])

    figure = f"{untraced:.3f} ms of work for a sample, traced {traced:.3f} ms"
    sys.stdout.write(f"{figure}\n")
    assert traced - untraced < 3.0, figure  # ten times the usual difference
