"""Run the PyTorch example of the page about training, and the demo."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weakincentives.evals import EvalReport

pytest.importorskip("torch", reason="needs PyTorch - run: make rl-test")

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "rl.md").read_text("utf-8")


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )


def test_the_policy_of_the_page_learns(tmp_path: Path) -> None:
    (code,) = (
        each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "torch" in each
    )

    done = run(tmp_path, "-c", code)

    first, last = map(float, done.stdout.split(" -> "))
    assert first < 0.4, done.stderr
    assert last > 0.9


def test_a_demo_with_too_few_steps_fails_and_saves_its_reports(tmp_path: Path) -> None:
    demo = ROOT / "examples" / "rl_calculator.py"
    done = run(tmp_path, demo, "--seeds", 5, "--steps", 2, "--output", "here/curve.svg")

    assert done.stdout.splitlines()[-1] == "FAILED: at most 95% correct with seed 5", done.stderr
    assert done.returncode == 1
    assert ElementTree.parse(tmp_path / "here" / "curve.svg").getroot().tag.endswith("svg")
    after = EvalReport.load(tmp_path / "here" / "seed-5-after")
    assert (after.total, after.errors) == (240, 0)
