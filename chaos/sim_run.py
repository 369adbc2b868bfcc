"""`python -m chaos sim [seeds] [--first N] [--seed N]`: run many simulations, print two tables.

A seed has two: a distributed run over queues, and a local run with its store.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from itertools import repeat
from multiprocessing import get_context

from .sim_check import Verdict, check
from .sim_local import LocalOutcome, simulate_local
from .sim_system import Outcome, simulate

__all__ = ["Totals", "run", "run_local_seeds", "run_seeds"]

QUEUE, LOCAL = "queue", "local"


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

    def add(self, seed: int, outcome: Outcome | LocalOutcome, verdict: Verdict) -> None:
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


def run_local_seeds(first: int, many: int) -> Totals:
    """Simulate the local runs of `many` seeds."""
    totals = Totals()
    for seed in range(first, first + many):
        outcome = simulate_local(seed)
        totals.add(seed, outcome, outcome.audit.verdict)
    return totals


SYSTEMS = {QUEUE: run_seeds, LOCAL: run_local_seeds}


def run_in_processes(system: str, first: int, many: int, processes: int) -> Totals:
    """Simulate `many` seeds of a system in several processes."""
    if processes == 1:
        return SYSTEMS[system](first, many)
    part = max(1, min(100, many // processes))
    starts = range(first, first + many, part)
    totals = Totals()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        sizes = [min(part, first + many - start) for start in starts]
        for each in pool.map(_quiet_seeds, repeat(system), starts, sizes):
            totals += each
    return totals


def _quiet_seeds(system: str, first: int, many: int) -> Totals:
    logging.disable(logging.ERROR)
    return SYSTEMS[system](first, many)


def replay(system: str, seed: int) -> int:
    """Simulate one seed and print its trace; return 1 if it fails."""
    outcome: Outcome | LocalOutcome
    if system == QUEUE:
        outcome = simulate(seed, trace=True)
        verdict = check(outcome)
    else:
        outcome = simulate_local(seed, trace=True)
        verdict = outcome.audit.verdict
    print(outcome.plan)
    print("\n".join(outcome.trace))
    print(verdict.lost, verdict.twice, verdict.wrong, verdict.changed)
    print("\n".join(verdict.notes[:20]))
    return 0 if verdict.good else 1


def run(argv: list[str]) -> int:
    """Simulate, print the tables and, for every seed that failed, how to replay it."""
    parser = argparse.ArgumentParser(prog="python -m chaos sim", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--system", choices=[*SYSTEMS, "both"], default="both")
    parser.add_argument("-j", "--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    logging.disable(logging.ERROR)
    systems = [*SYSTEMS] if options.system == "both" else [options.system]
    if options.seed is not None:
        return max(replay(system, options.seed) for system in systems)
    failed = [_run(system, options) for system in systems]
    return int(any(failed))


def _run(system: str, options: argparse.Namespace) -> bool:
    """Simulate one system and print its table; return whether a seed failed."""
    begin = time.perf_counter()
    totals = run_in_processes(system, options.first, options.seeds, options.processes)
    seconds = time.perf_counter() - begin
    print(f"{system}\n{totals}")
    print(f"{totals.seeds / seconds:.0f} seeds/s in {options.processes} processes", flush=True)
    for seed, verdict in totals.bad.items():
        print(f"seed={seed}: {'; '.join(verdict.notes[:5]) or verdict}")
        print(f"  python -m chaos sim --system {system} --seed {seed}")
    return bool(totals.bad)
