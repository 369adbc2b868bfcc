"""Processes of their own, which must not depend on this one, and how a test waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["PATIENCE", "machine_variables", "outputs_by_hash_seed", "plain_environment", "until"]

PATIENCE = 120.0  # seconds that only a process that hangs can need, on however slow a machine
_NAMES = {"CI", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE"}
_FAMILIES = ("WINK_", "GITHUB_", "OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "OTEL_")


def machine_variables() -> list[str]:
    """Variables by which a machine says how to look and whom to ask: CI, colours, keys."""
    return [name for name in os.environ if name in _NAMES or name.startswith(_FAMILIES)]


def plain_environment(**variables: str) -> dict[str, str]:
    """The environment without those variables, and with these."""
    left_out = set(machine_variables())
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **variables}


def until(holds: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def outputs_by_hash_seed(code: str) -> set[str]:
    """What the code prints under three seeds of Python's string hash."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "2")
    }
