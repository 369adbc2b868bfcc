"""Our overhead, as ratios to a bare loop in the same run. `python -m bench [samples]`."""

from __future__ import annotations

import sys

from .core import run

if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
