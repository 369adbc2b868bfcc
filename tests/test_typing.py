"""The types that users see are the types that we mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def mypy(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    return done.stdout + done.stderr


def test_generics_mean_what_they_say() -> None:
    assert mypy(TESTS / "typing" / "generics.py") == ""


def test_a_wrong_use_is_seen(tmp_path: Path) -> None:
    """Otherwise the silence above would mean nothing."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from weakincentives.evals import Dataset, Sample\n"
        "dataset: Dataset[int, str] = Dataset([Sample('1', 'text', 'x')])\n"
        "Sample(1, 2)\n"
    )

    seen = mypy(wrong)

    assert "wrong.py:2: error" in seen
    assert "wrong.py:3: error" in seen
