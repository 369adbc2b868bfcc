"""The types that users see are the types that we mean: mypy and pyright check `tests/types/`.

A line there that ends in `# error` is wrong on purpose; every other line must be right.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weakincentives.evals import Evaluator

TYPES = Path(__file__).parent / "types"
ROOT = TYPES.parent.parent


def expected() -> set[str]:
    return {
        f"{file.name}:{number}"
        for file in TYPES.glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if line.endswith("# error")
    }


def mypy(folder: Path) -> set[str]:
    """Run mypy with a cache that no other process writes to: a copy of that of `make types`."""
    cache = folder / "cache"
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    options = ["--strict", "--no-error-summary", f"--cache-dir={cache}"]
    command = [sys.executable, "-m", "mypy", *options, str(TYPES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return set(re.findall(r"(\w+\.py:\d+): error", done.stdout + done.stderr))


def pyright(folder: Path) -> set[str]:
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"include": [str(TYPES)], "typeCheckingMode": "standard"}))
    command = [Path(sys.executable).with_name("basedpyright"), "--project", config, "--outputjson"]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)
    found: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    return {
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}"
        for each in found
        if each["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_type_checker_accepts_what_is_right_and_sees_what_is_wrong(
    check: Any, tmp_path: Path
) -> None:
    assert check(tmp_path) == expected()


def test_an_evaluator_has_two_or_three_type_arguments_at_run_time() -> None:
    def two() -> Evaluator[str, str]: ...
    def three() -> Evaluator[Any, str, str | None]: ...

    assert "Evaluator" in repr(Evaluator[Any, str, str | None])
