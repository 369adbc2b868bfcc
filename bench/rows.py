"""Benchmark large stored runs: comparison, export and report page, against reading the rows once.

`python -m bench rows`, or `python -m bench rows 1000000`. The floor is a bare loop over the stored
rows, which decodes each of them. A figure is the ratio of CPU times; for a comparison, to reading
both runs. Memory is what a process takes beyond one that only reads, per row.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weakincentives.chat import TokenUsage
from weakincentives.evals import (
    EvalResult,
    RunStore,
    Sample,
    Score,
    Trajectory,
    compare_runs,
    open_store,
)
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.stored_row import StoredRow
from weakincentives.view import write_page

from .engine import highest_memory

__all__ = ["run"]

RUNS = ("first", "second")
BARS = {  # time as a multiple of the floor, and bytes per row
    "compare": (3.0, 600),
    "csv": (3.0, 100),
    "jsonl": (3.0, 100),
    "page": (40.0, 2_000),  # every sample whole, and the search index, which is built here
}


class NullFile(io.RawIOBase):
    """A file that discards what is written."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def write_runs(path: Path, count: int) -> None:
    """Store two runs of the same samples, with different scores, times and costs."""
    with open_store(path) as store:
        for name in RUNS:
            rng = random.Random(name)
            store.begin(RunManifest(run_id=name, created_at=datetime.now(UTC), planned=count))
            for index in range(count):
                store.put(stored_row(name, index, rng))
                if store.behind(2_000):
                    store.flush()
            store.finish(name, "complete")


def stored_row(name: str, index: int, rng: random.Random) -> StoredRow:
    value = round(rng.random(), 4)
    usage = TokenUsage(rng.randrange(50, 400), rng.randrange(10, 100))
    result = EvalResult(
        str(index),
        Score(value, value > 0.4, reason="because it was so", criterion="close"),
        rng.randrange(100, 3_000),
        sample=Sample(str(index), f"What is {index} plus {index}, and why?", str(2 * index)),
        trajectory=Trajectory(output=f"it is {2 * index}", usage=usage, cost=rng.random() / 100),
        metadata={"level": index % 5},
        run_id=name,
    )
    return StoredRow(result=result, position=index, sample_digest=f"{index:016x}")


def read_once(store: RunStore) -> None:
    for _ in store.rows(RUNS[0]):
        pass


WORKLOADS: dict[str, Callable[[RunStore], Any]] = {
    "read": read_once,
    "compare": lambda store: compare_runs(*RUNS, store=store),
    "csv": lambda store: write_export(store, RUNS[0], NullFile(), "csv"),  # type: ignore[arg-type]
    "jsonl": lambda store: write_export(store, RUNS[0], NullFile(), "jsonl"),  # type: ignore[arg-type]
    "page": lambda store: write_page(store, RUNS[0], store.path.with_name("page.html")),
}


def run_workload(path: str, name: str) -> None:
    """Run one workload; print its time relative to reading the rows, and the peak memory in MB."""
    with open_store(path) as store:
        read_once(store)  # puts the file into the system's cache
        start = time.process_time()
        read_once(store)
        read = time.process_time()
        WORKLOADS[name](store)
        took, floor = time.process_time() - read, read - start
    print(took / floor / (2 if name == "compare" else 1), highest_memory())


def measure(path: Path, name: str) -> tuple[float, float]:
    code = "from bench.rows import run_workload; import sys; run_workload(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(path), name]
    ratio, memory = subprocess.check_output(command, text=True).split()
    return float(ratio), float(memory)


def run(count: int, slack: int = 1) -> int:
    """Print the figures; return how many missed their bar. `slack` is a factor on each bar."""
    print(f"Stored runs of {count:,} rows\n")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        write_runs(path, count)
        _, baseline_memory = measure(path, "read")
        for name, (max_ratio, max_bytes) in BARS.items():
            ratio, memory = measure(path, name)
            bytes_per_row = (
                (memory - baseline_memory) * 1e6 / count / (2 if name == "compare" else 1)
            )
            # With few rows, most of the memory is modules that only this workload imports.
            wrong = ratio > max_ratio * slack or (
                count >= 100_000 and bytes_per_row > max_bytes * slack
            )
            missed += wrong
            print(
                f"{name:<20}{ratio:>8.2f} x  at most {max_ratio:g} x"
                f"{bytes_per_row:>10,.0f} bytes per row, at most {max_bytes:,}"
                f"{'  missed' if wrong else ''}"
            )
    print()
    return missed
