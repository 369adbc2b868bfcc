"""Small benchmarks: their bars are checked on every run of the tests.

The figures are of elapsed time: `make test` runs this file after the others, one benchmark a core.
Figures of CPU time only are in `tests/test_bench_command.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in a separate process, in which coverage is not measured."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        timeout=900,
    )


def missed(output: str) -> set[str]:
    """Return the figures that are marked as missed, without their numbers."""
    lines = [line for line in output.splitlines() if "missed" in line]
    return {line.removeprefix("missed: ").split("  ")[0] for line in lines}


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        # Both halves take equally long: each of two workers gets one.
        (("http", "500"), 12),
        (("engine", "500", "3"), 5),  # its bars are for many samples and an idle machine
        (("mailbox", "1000", "2"), 2),
        (("view", "500", "20"), 3),  # its bars are for an idle machine
        (("core", "5000"), 6),
        (("loop", "1000", "2"), 1),
    ],
)
def test_every_figure_is_under_its_bar(part: tuple[str, ...], figures: int) -> None:
    assert_under_bars(part, figures)


def assert_under_bars(part: tuple[str, ...], figures: int) -> None:
    """Run a benchmark until each figure was under its bar once; at least so many are printed."""
    missed_every_time = None
    for _ in range(5):  # on a busy machine, a figure in µs means nothing
        done = bench(*part)
        output = done.stdout + done.stderr
        missed_now = missed(done.stdout)
        assert done.returncode == bool(missed_now), output
        missed_every_time = (
            missed_now if missed_every_time is None else missed_every_time & missed_now
        )
        if not missed_every_time:
            break

    assert not missed_every_time, output
    assert done.stdout.count(" x") + done.stdout.count(" µs") >= figures


def test_a_missed_bar_is_found() -> None:
    output = "load / bare      0.1s  9.00 x  3.0 x  missed\nfine     1.00 x\nmissed: a: under 4 x\n"

    assert missed(output) == {"load / bare", "a: under 4 x"}
