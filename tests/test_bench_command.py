"""`python -m bench`: its parts, and the figures that other load on the machine hardly affects."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from tests.test_bench import assert_under_bars, bench

pytestmark = pytest.mark.slow  # it starts processes


def test_the_simulations_of_the_statistics_run() -> None:
    done = bench("stats", "10")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("(bar: ") >= 10


@pytest.mark.parametrize(
    ("part", "figures"), [(("resampling", "2000", "2"), 3), (("rows", "3000", "2"), 4)]
)
def test_every_figure_of_cpu_time_is_under_its_bar(part: tuple[str, ...], figures: int) -> None:
    assert_under_bars(part, figures)


@pytest.mark.parametrize("arguments", [["nope"], ["core", "nope"], ["stats", "10", "nope"]])
def test_an_unknown_part_is_refused_with_the_known_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1

    printed = "".join(capsys.readouterr())
    assert "expected" in printed
    assert "coverage" in printed


def test_help_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    assert "parts: core, engine, http" in capsys.readouterr().out
