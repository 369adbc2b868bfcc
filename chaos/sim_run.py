"""`python -m chaos sim [seeds] [--first N] [--seed N]`: run many simulations, print one table."""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from multiprocessing import get_context

from .sim_check import Verdict, check
from .sim_system import Outcome, simulate

__all__ = ["Totals", "run", "run_seeds"]


@dataclass
class Totals:
    """The totals of many simulations."""

    seeds: int = 0
    samples: int = 0
    executions: int = 0
    extra: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    changed: int = 0
    bad: dict[int, Verdict] = field(default_factory=dict)

    def add(self, seed: int, outcome: Outcome, verdict: Verdict) -> None:
        """Count one simulation."""
        self.seeds += 1
        self.samples += outcome.plan.samples * outcome.plan.epochs
        done = sum(outcome.executions.values())
        self.executions += done
        self.extra += max(0, done - len(outcome.executions) * outcome.plan.epochs)
        self.seconds += outcome.seconds
        self.faults += outcome.faults
        self.lost += verdict.lost
        self.twice += verdict.twice
        self.wrong += verdict.wrong
        self.changed += verdict.changed
        if not verdict.good:
            self.bad[seed] = verdict

    def __iadd__(self, other: Totals) -> Totals:
        self.bad |= other.bad
        for each in fields(Totals):
            if each.name != "bad":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def __str__(self) -> str:
        rows: list[tuple[str, object]] = [
            ("seeds", self.seeds),
            ("samples", self.samples),
            ("simulated hours", f"{self.seconds / 3600:,.1f}"),
            ("faults", sum(self.faults.values())),
            *((f"  {name}", count) for name, count in sorted(self.faults.items())),
            ("executions", f"{self.executions:,} ({self.extra:,} extra)"),
            ("lost", self.lost),
            ("counted twice", self.twice),
            ("wrong", self.wrong),
            ("changed", self.changed),
        ]
        return "\n".join(
            f"{name:22}{value:>14,}" if isinstance(value, int) else f"{name:22}{value:>14}"
            for name, value in rows
        )


def run_seeds(first: int, many: int) -> Totals:
    """Simulate `many` seeds."""
    totals = Totals()
    for seed in range(first, first + many):
        outcome = simulate(seed)
        totals.add(seed, outcome, check(outcome))
    return totals


def run_in_processes(first: int, many: int, processes: int) -> Totals:
    """Simulate `many` seeds in several processes."""
    if processes == 1:
        return run_seeds(first, many)
    part = max(1, min(100, many // processes))
    starts = range(first, first + many, part)
    totals = Totals()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        sizes = [min(part, first + many - start) for start in starts]
        for each in pool.map(_quiet_seeds, starts, sizes):
            totals += each
    return totals


def _quiet_seeds(first: int, many: int) -> Totals:
    logging.disable(logging.ERROR)
    return run_seeds(first, many)


def replay(seed: int) -> int:
    """Simulate one seed and print its trace; return 1 if it fails."""
    outcome = simulate(seed, trace=True)
    verdict = check(outcome)
    print(outcome.plan)
    print("\n".join(outcome.trace))
    print(verdict.lost, verdict.twice, verdict.wrong, verdict.changed)
    print("\n".join(verdict.notes[:20]))
    return 0 if verdict.good else 1


def run(argv: list[str]) -> int:
    """Simulate, print the table and, for every seed that failed, how to replay it."""
    parser = argparse.ArgumentParser(prog="python -m chaos sim", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("-j", "--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    logging.disable(logging.ERROR)
    if options.seed is not None:
        return replay(options.seed)
    begin = time.perf_counter()
    totals = run_in_processes(options.first, options.seeds, options.processes)
    seconds = time.perf_counter() - begin
    print(totals)
    print(f"{totals.seeds / seconds:.0f} seeds/s in {options.processes} processes")
    for seed, verdict in totals.bad.items():
        print(f"seed={seed}: {'; '.join(verdict.notes[:5]) or verdict}")
        print(f"  python -m chaos sim --seed {seed}")
    return 1 if totals.bad else 0
