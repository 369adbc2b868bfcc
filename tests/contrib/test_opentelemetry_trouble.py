"""A collector may be away, hang, or refuse: same report, little time lost, told of once."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio
import pytest

from tests.traced import suite
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.evals import EvalConfig, EvalReport, Sample, evaluate, exact_match
from weakincentives.testing import OtlpReceiver

TIMEOUT = 0.5
BOUND = 4.0  # seconds for what takes a fraction of one: the machine may be busy


@contextmanager
def away() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"


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


@pytest.mark.parametrize("collector", [away, hanging, refusing, busy])
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
        ran = time.monotonic() - start
        on.shutdown()
        took = time.monotonic() - start

    assert ran < BOUND  # no run waited for it
    assert took < 2 * TIMEOUT + BOUND
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, told
    assert told[0].startswith("not all that is traced arrives, and runs go on: ")
    assert told[0].endswith(f" ({endpoint}/v1/traces)")
    assert collector is not away or "it was not: Connection refused (http" in told[0]


def test_a_collector_that_comes_back_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver(status=500) as receiver, configure_otel(endpoint=receiver.url) as on:
        suite().run()
        on.flush()
        receiver.status = 200
        suite().run()

    assert len([span for span in receiver.spans if span.name == "evaluate_sample"]) == 2


@pytest.mark.anyio
async def test_tracing_costs_a_sample_almost_nothing() -> None:
    samples = [Sample(str(number), "a", "a") for number in range(200)]

    async def agent(text: str) -> str:
        await anyio.sleep(0.02)
        return text

    async def seconds() -> float:
        start = time.monotonic()
        await evaluate(samples, EvalConfig(max_concurrent=10), exact_match, agent=agent)
        return time.monotonic() - start

    without = min([await seconds() for _ in range(2)])
    with OtlpReceiver() as receiver, configure_otel(endpoint=receiver.url):
        traced = min([await seconds() for _ in range(2)])

    figure = f"200 samples of 20 ms, 10 at once: {without:.3f} s, traced {traced:.3f} s"
    sys.stdout.write(f"{figure}\n")
    assert traced < without * 1.25 + 0.2, figure
