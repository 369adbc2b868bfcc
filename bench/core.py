"""The typed core: loading, scoring, reports and import, each beside its floor.

Absolute times depend on the machine; what counts is the last column against its bar.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec

from weakincentives import serde
from weakincentives.evals import (
    Dataset,
    EvalContext,
    EvalReport,
    EvalResult,
    Sample,
    Score,
    Trajectory,
    all_of,
    criterion,
)

__all__ = ["Figure", "measure", "run"]


@dataclass(frozen=True)
class Turn:
    role: str
    text: str


@dataclass(frozen=True)
class Question:
    question: str
    difficulty: int
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One measurement: what, ours, the floor's, and the bar that it must stay under."""

    name: str
    ours: float
    floor: float
    unit: str
    bar: float
    samples: int

    @property
    def value(self) -> float:
        """The ratio to the floor, or the overhead a sample in microseconds."""
        if self.unit == "x":
            return self.ours / self.floor
        return (self.ours - self.floor) / self.samples * 1e6


def best(
    work: Callable[[], Any], rounds: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    """The quickest of several rounds, in CPU seconds: what the code costs when undisturbed."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def rows(count: int) -> list[bytes]:
    turns = tuple(Turn("user", f"turn {n} of a conversation") for n in range(3))
    return [
        serde.encode(
            Sample(
                str(n),
                Question(f"What is {n} + {n}, and why?", n % 5, turns),
                str(2 * n),
                {"level": n % 3, "source": "bench"},
            )
        )
        for n in range(count)
    ]


def bare_read(path: Path, decode: Callable[[bytes], Any]) -> list[Any]:
    """The floor of every load: decode each line and keep it, with the collector paused."""
    gc.disable()
    try:
        with path.open("rb") as file:
            return [decode(line) for line in file]
    finally:
        gc.enable()


def loading(lines: list[bytes], folder: Path) -> Figure:
    path = folder / "rows.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    decode = msgspec.json.Decoder(Sample[Question, str]).decode

    ours = best(lambda: Dataset.load(path, Question, str))
    floor = best(lambda: bare_read(path, decode))
    return Figure("load typed JSONL / bare msgspec", ours, floor, "x", 3.0, len(lines))


def same(output: str, expected: str) -> Score:
    return Score(float(output == expected), reason="" if output == expected else "differs")


def inside(output: str, expected: str) -> Score:
    return Score(float(expected in output))


def brief(output: str, expected: str) -> Score:
    return Score(float(len(output) < 20))


def scoring(count: int) -> Figure:
    contexts = [
        EvalContext(sample=Sample(str(n), "?", str(n)), trajectory=Trajectory(output=str(n)))
        for n in range(count)
    ]
    combined = all_of(same, inside, brief)

    def floor() -> None:
        for context in contexts:
            output, expected = context.trajectory.output, context.sample.expected
            same(output, expected)
            inside(output, expected)
            brief(output, expected)

    async def ask() -> float:
        start = time.process_time()
        for context in contexts:
            await combined.ask(context)
        return time.process_time() - start

    ours = min(anyio.run(ask) for _ in range(5))
    return Figure("score with all_of of three / bare calls", ours, best(floor), "x", 10.0, 1)


def reporting(count: int, folder: Path) -> list[Figure]:
    judge = all_of(same, inside, criterion(brief))
    results = [
        EvalResult(
            str(n),
            judge(str(n), str(n)),
            12,
            sample=Sample(str(n), "?", str(n), {"level": n % 3}),
            trajectory=Trajectory(output=str(n)),
            metadata={"level": n % 3},
        )
        for n in range(count)
    ]
    report = EvalReport(results)
    path = folder / "plain.jsonl"
    decode = msgspec.json.Decoder(EvalResult).decode

    def aggregate() -> None:
        str(report)
        _ = report.summary, report.scores_by_criterion, report.mean_latency_ms

    def bare_aggregate() -> None:
        values = [result.score.value for result in results]
        by_name: dict[str, list[float]] = {}
        for result in results:
            for metric in result.score.metrics:
                by_name.setdefault(metric.name, []).append(metric.value)
        _ = sum(values) / count, {name: sum(v) / len(v) for name, v in by_name.items()}

    def bare_save() -> None:
        with path.open("wb") as file:
            file.writelines(msgspec.json.encode(result) + b"\n" for result in results)

    save = best(lambda: report.save(folder / "report"), 3)
    load = best(lambda: EvalReport.load(folder / "report"), 3)
    return [
        Figure(
            "aggregate a report / bare loop",
            best(aggregate),
            best(bare_aggregate),
            "x",
            12.0,
            count,
        ),
        Figure("save a report / bare msgspec", save, best(bare_save, 3), "x", 4.0, count),
        Figure(
            "load a report / bare msgspec",
            load,
            best(lambda: bare_read(path, decode), 3),
            "x",
            3.0,
            count,
        ),
    ]


def importing() -> Figure:
    def start(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    ours, floor = [], []
    for _ in range(9):  # in turns, so that both meet the same disturbances
        ours.append(best(start("import weakincentives.evals"), 1, time.perf_counter))
        floor.append(best(start("import asyncio, anyio, msgspec"), 1, time.perf_counter))
    # Both read files, so the ratio depends on the machine: 1.4 and 1.8 were seen for one version.
    return Figure("import / import asyncio, anyio, msgspec", min(ours), min(floor), "x", 2.0, 1)


def measure(count: int) -> list[Figure]:
    """All figures of the typed core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            loading(rows(count), folder),
            scoring(count),
            *reporting(count, folder),
            importing(),
        ]


def run(count: int) -> int:
    """Print the figures; the number of bars that were missed."""
    print(f"{count:,} samples, Python {sys.version.split()[0]}; best of several rounds\n")
    print(f"{'':<42}{'ours':>9}{'floor':>9}{'figure':>11}{'bar':>9}")
    missed = 0
    for f in measure(count):
        mark = "" if f.value <= f.bar else "  missed"
        missed += bool(mark)
        print(
            f"{f.name:<42}{f.ours:>8.3f}s{f.floor:>8.3f}s"
            f"{f.value:>9.2f} {f.unit:<2}{f.bar:>6.1f} {f.unit:<2}{mark}"
        )
    print()
    return missed
