"""The types that users see are the types that we mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def mypy(cache: Path, *files: Path) -> list[str]:
    """What it says, with a cache that no other process writes to."""
    options = ["--strict", "--no-error-summary", f"--cache-dir={cache}"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    return (done.stdout + done.stderr).splitlines()


def test_generics_mean_what_they_say_and_a_wrong_use_is_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from weakincentives.evals import Dataset, Sample\n"
        "dataset: Dataset[int, str] = Dataset([Sample('1', 'text', 'x')])\n"
        "Sample(1, 2)\n"
    )

    seen = mypy(tmp_path / "cache", TESTS / "typing" / "generics.py", wrong)

    errors = [line for line in seen if ": note: " not in line]
    assert {line.split(": ")[0] for line in errors} == {f"{wrong}:2", f"{wrong}:3"}
