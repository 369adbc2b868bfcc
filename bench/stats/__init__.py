"""Simulations behind the figures of docs/statistics.md: do the statistics keep what they promise?

`python -m bench stats` runs all subjects, `python -m bench stats 200 coverage` one of them with 200
runs for each figure. Every module here with `PARTS` is a subject: functions that take the number of
runs and return tables. Parts have seeds of their own, so they run side by side, one a core, and
the figures do not depend on which part ends first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pkgutil import iter_modules

from .tables import FULL, Table

__all__ = ["FULL", "Table", "run"]

Part = Callable[[int], "Table | Iterable[Table]"]


def subjects() -> list[str]:
    """Return the names of the subjects."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "tables")


def run(runs: int, *chosen: str) -> int:
    """Print the tables of the chosen subjects, or of all; the number of bars that were missed."""
    if unknown := sorted({*chosen} - {*subjects()}):
        print(f"expected subjects among {', '.join(subjects())}, got {', '.join(unknown)}")
        return 1
    print(f"{runs:,} simulated runs for each figure\n")
    start = time.perf_counter()
    # A fresh process for each core: NumPy's threads do not survive a fork.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        parts = {
            name: [
                pool.submit(_simulate, name, at, runs)
                for at in range(len(import_module(f"{__name__}.{name}").PARTS))
            ]
            for name in chosen or subjects()
        }
        counts = {name: _print_subject(name, parts[name], runs) for name in parts}
    _print_summary(counts, time.perf_counter() - start)
    return sum(missed for _, missed in counts.values())


def _simulate(subject: str, at: int, runs: int) -> tuple[list[Table], float]:
    """Return the tables of a part, and how many seconds of CPU time it took."""
    start = time.process_time()
    part: Part = import_module(f"{__name__}.{subject}").PARTS[at]
    result = part(runs)
    tables = [result] if isinstance(result, Table) else list(result)
    return tables, time.process_time() - start


def _print_subject(
    name: str, parts: Sequence[Future[tuple[list[Table], float]]], runs: int
) -> tuple[int, int]:
    """Print the tables; return how many figures have a bar, and how many miss it."""
    figures, missed, seconds = 0, 0, 0.0
    for part in parts:
        tables, took = part.result()
        seconds += took
        for table in tables:
            wrong = table.missed(runs)
            figures, missed = figures + table.barred(), missed + len(wrong)
            print(*table.lines(), *(f"missed: {figure}" for figure in wrong), "", sep="\n")
    print(f"{name}: {seconds:.0f} s of CPU time\n", flush=True)
    return figures, missed


def _print_summary(counts: dict[str, tuple[int, int]], seconds: float) -> None:
    for name, (figures, missed) in counts.items():
        print(f"{name:12} {figures:4} figures with a bar, {missed or 'none'} missed")
    total, missed = (sum(column) for column in zip(*counts.values(), strict=True))
    print(
        f"{'together':12} {total:4} figures with a bar, {missed or 'none'} missed; {seconds:.0f} s"
    )
