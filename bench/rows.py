"""Large stored runs: comparing, exporting and the page, beside reading the rows once.

`python -m bench rows`, or `python -m bench rows 1000000`. The floor is a bare loop over the stored
rows, which decodes each of them. A figure is CPU time, as a ratio to that; of a comparison, to
reading both runs. Memory is what a process takes beyond one that only reads, for each row.
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
from weakincentives.evals import EvalResult, RunStore, Sample, Score, Trajectory, compare_runs
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.reporting.html import write_page
from weakincentives.evals.store.run_store import RunManifest, StoredRow

from .engine import highest_memory

__all__ = ["run"]

RUNS = ("first", "second")
BARS = {  # times the floor, and bytes a row
    "compare": (3.0, 600),
    "csv": (3.0, 100),
    "jsonl": (3.0, 100),
    "page": (3.0, 200),
}


class Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def write_runs(path: Path, count: int) -> None:
    """Two runs of the same samples; scores, times and costs vary."""
    with RunStore(path) as store:
        for name in RUNS:
            chance = random.Random(name)
            store.begin(RunManifest(run_id=name, created_at=datetime.now(UTC), planned=count))
            for at in range(count):
                store.put(stored_row(name, at, chance))
                if store.behind(2_000):
                    store.flush()
            store.finish(name, "complete")


def stored_row(name: str, at: int, chance: random.Random) -> StoredRow:
    value = round(chance.random(), 4)
    usage = TokenUsage(chance.randrange(50, 400), chance.randrange(10, 100))
    result = EvalResult(
        str(at),
        Score(value, value > 0.4, reason="because it was so", criterion="close"),
        chance.randrange(100, 3_000),
        sample=Sample(str(at), f"What is {at} plus {at}, and why?", str(2 * at)),
        trajectory=Trajectory(output=f"it is {2 * at}", usage=usage, cost=chance.random() / 100),
        metadata={"level": at % 5},
        run_id=name,
    )
    return StoredRow(result=result, position=at, sample_digest=f"{at:016x}")


def read_once(store: RunStore) -> None:
    for _ in store.rows(RUNS[0]):
        pass


WORK: dict[str, Callable[[RunStore], Any]] = {
    "read": read_once,
    "compare": lambda store: compare_runs(*RUNS, store=store),
    "csv": lambda store: write_export(store, RUNS[0], Nowhere(), "csv"),  # type: ignore[arg-type]
    "jsonl": lambda store: write_export(store, RUNS[0], Nowhere(), "jsonl"),  # type: ignore[arg-type]
    "page": lambda store: write_page(store, RUNS[0], store.path.with_name("page.html")),
}


def work(path: str, name: str) -> None:
    """Do it once, and print the ratio to reading the rows, and the highest memory in MB."""
    with RunStore(path) as store:
        read_once(store)  # the file is in the system's cache
        start = time.process_time()
        read_once(store)
        read = time.process_time()
        WORK[name](store)
        took, floor = time.process_time() - read, read - start
    print(took / floor / (2 if name == "compare" else 1), highest_memory())


def measured(path: Path, name: str) -> tuple[float, float]:
    code = "from bench.rows import work; import sys; work(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(path), name]
    ratio, memory = subprocess.check_output(command, text=True).split()
    return float(ratio), float(memory)


def run(count: int, slack: int = 1) -> int:
    """Print the figures; how many missed their bar, with `slack` by more than so many times."""
    print(f"Stored runs of {count:,} rows\n")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        write_runs(path, count)
        _, least = measured(path, "read")
        for name, (times, room) in BARS.items():
            ratio, memory = measured(path, name)
            each = (memory - least) * 1e6 / count / (2 if name == "compare" else 1)
            # Of a few thousand rows, most of it is modules that only this work imports.
            wrong = ratio > times * slack or (count >= 100_000 and each > room * slack)
            missed += wrong
            print(
                f"{name:<20}{ratio:>8.2f} x  at most {times:g} x{each:>10,.0f} bytes a row, "
                f"at most {room:,}{'  missed' if wrong else ''}"
            )
    print()
    return missed
