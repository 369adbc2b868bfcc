"""`python -m bench`: its parts, and the simulations, whose figures depend on no time."""

from __future__ import annotations

import pytest

from tests.test_bench import bench


def test_the_simulations_of_the_statistics_run() -> None:
    done = bench("stats", "10")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("(bar: ") >= 10


@pytest.mark.parametrize("arguments", [["nope"], ["core", "nope"], ["stats", "10", "nope"]])
def test_an_unknown_part_is_refused_with_the_known_ones(arguments: list[str]) -> None:
    done = bench(*arguments)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "expected" in done.stdout + done.stderr
    assert "coverage" in done.stdout + done.stderr


def test_help_names_the_parts() -> None:
    done = bench("--help")

    assert done.returncode == 0
    assert "parts: core, engine, http" in done.stdout
