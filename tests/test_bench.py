"""The benchmark in small: its bars hold on every run, not only when somebody looks.

Its figures are times: `make test` runs this file alone, after the others.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: here, coverage would be measured along."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        timeout=900,
    )


def missed(said: str) -> set[str]:
    """The figures that are marked so, without their numbers."""
    lines = [line for line in said.splitlines() if "missed" in line]
    return {line.removeprefix("missed: ").split("  ")[0] for line in lines}


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        (("core", "5000"), 6),
        (("http", "1000"), 12),
        (("mailbox", "1000", "2"), 2),
        (("loop", "1000", "2"), 1),
        (("resampling", "2000", "2"), 3),
        (("rows", "3000", "2"), 4),
        (("view", "500", "20"), 3),  # its bars are for a machine of one's own
        (("engine", "500", "3"), 5),  # its bars are for many samples and a machine of one's own
    ],
)
def test_every_figure_is_under_its_bar(part: tuple[str, ...], figures: int) -> None:
    always = None
    for _ in range(5):  # while something else has the machine, a figure in µs means nothing
        done = bench(*part)
        said = done.stdout + done.stderr
        wrong = missed(done.stdout)
        assert done.returncode == bool(wrong), said
        always = wrong if always is None else always & wrong
        if not always:
            break

    assert not always, said
    assert done.stdout.count(" x") + done.stdout.count(" µs") >= figures


def test_a_missed_bar_is_seen() -> None:
    said = "load / bare      0.1s  9.00 x  3.0 x  missed\nfine     1.00 x\nmissed: a: under 4 x\n"

    assert missed(said) == {"load / bare", "a: under 4 x"}
