"""Simulations behind the figures of docs/statistics.md: do the statistics keep what they promise?

`python -m bench stats` runs all subjects, `python -m bench stats 200 coverage` one of them with 200
runs for each figure. Every module here with a function `tables(runs)` is a subject.
"""

from __future__ import annotations

import time
from importlib import import_module
from pkgutil import iter_modules

from .tables import FULL, Table

__all__ = ["FULL", "Table", "run"]


def subjects() -> list[str]:
    """Return the names of the subjects."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "tables")


def run(runs: int, *chosen: str) -> int:
    """Print the tables of the chosen subjects, or of all; the number of bars that were missed."""
    if unknown := sorted({*chosen} - {*subjects()}):
        print(f"expected subjects among {', '.join(subjects())}, got {', '.join(unknown)}")
        return 1
    print(f"{runs:,} simulated runs for each figure\n")
    missed = 0
    for name in chosen or subjects():
        start = time.perf_counter()
        for table in import_module(f"{__name__}.{name}").tables(runs):
            wrong = table.missed(runs)
            missed += len(wrong)
            print(*table.lines(), *(f"missed: {figure}" for figure in wrong), "", sep="\n")
        print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
    return missed
