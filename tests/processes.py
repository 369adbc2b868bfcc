"""Python in processes of their own, for what must not depend on this one."""

from __future__ import annotations

import subprocess
import sys


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
