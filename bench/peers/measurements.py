"""What is measured: the same work for every tool, in sizes that follow from one number."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "SMALLEST", "Measurement", "measurements"]

FULL = 50_000  # the largest in-process run; all other sizes follow from it
SMALLEST = 250


@dataclass(frozen=True)
class Measurement:
    """One column of the tables."""

    name: str
    title: str
    steps: tuple[str, ...]  # kinds of job, each in a process of its own; the last is timed
    count: int = 0
    concurrency: int = 10
    done: int = 0  # samples that are done when a run is resumed
    delay: float = 0.0  # seconds that the model server takes
    refusing: bool = False  # it refuses every tenth sample once, with a 429
    rounds: int = 3  # the best counts

    @property
    def http(self) -> bool:
        """Return whether it needs the model server."""
        return self.steps == ("http",)


def measurements(size: int) -> list[Measurement]:
    """Return all measurements for the size of the largest in-process run."""
    few, calls, stored = size // 50, size // 25, size // 5
    resumed = [
        Measurement(
            f"resume-{done}",
            f"resume, {done:,} done",
            ("interrupt", "resume"),
            done + size // 50,
            done=done,
            rounds=1,
        )
        for done in (stored, 2 * size)
    ]
    return [
        Measurement("import", "import", ("import",), rounds=5),
        Measurement(f"in-process-{few}", f"in process, {few:,}", ("in_process",), few),
        Measurement(f"in-process-{size}", f"in process, {size:,}", ("in_process",), size, rounds=1),
        Measurement("http-0", f"HTTP 0 ms, {calls:,}", ("http",), calls, 50),
        Measurement("http-100", f"HTTP 100 ms, {calls:,}", ("http",), calls, 200, delay=0.1),
        Measurement("http-429", f"10 % 429s, {calls:,}", ("http",), calls, 50, refusing=True),
        Measurement(f"load-{stored}", f"load {stored:,}", ("store", "load"), stored, rounds=1),
        *resumed,
    ]
