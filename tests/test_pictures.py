"""The pictures of the docs are small and load nothing, and their eval still says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.picture_suite import v4, v5
from weakincentives.evals.comparison import compare_runs

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"


def test_every_screen_has_a_light_and_a_dark_picture_and_all_are_small() -> None:
    wanted = {
        f"{n}-{s}.png" for n in ("runs", "run", "sample", "compare") for s in ("light", "dark")
    }
    assert {file.name for file in FOLDER.iterdir()} == {*wanted, "terminal.svg"}
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_500_000


def test_the_terminal_asks_for_no_font_and_no_other_address() -> None:
    drawing = (FOLDER / "terminal.svg").read_text("utf-8")
    assert set(re.findall(r"https?://[^\"\s]+", drawing)) == {"http://www.w3.org/2000/svg"}
    assert "@font-face" not in drawing
    assert "B is worse: -14.6 points" in drawing.replace("&#160;", " ")


@pytest.mark.slow
def test_the_eval_in_the_pictures_has_the_same_verdicts_each_time() -> None:
    before, after = (suite.run(store=None, progress=False) for suite in (v4, v5))
    assert (before.passed, after.passed) == (44, 37)
    assert str(compare_runs(before, after)).startswith("B is worse: -14.6 points")
