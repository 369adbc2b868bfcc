"""Code that all drivers share: the work to do, the clock, and how figures are returned.

A driver runs in the environment of its tool, so this file needs the standard library only. It is
started as `python run_TOOL.py JOB`, where JOB is JSON, and writes its figures to a file.

The work is the same for every tool: sample `i` has the input "question i", and the agent or the
model server answers "yes". Every tenth sample expects "no", so that a tool that does not score
is noticed: nine tenths pass, exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "MODEL",
    "Clock",
    "Job",
    "answer_or_interrupt",
    "expected",
    "job",
    "number",
    "passing",
    "question",
    "run",
]

MODEL = "m"
FIGURES = "figures.json"


@dataclass(frozen=True)
class Job:
    """One measurement, as the runner asks for it."""

    kind: str  # in_process, http, store, load, interrupt, resume
    count: int
    concurrency: int
    folder: str  # for what the tool stores; `load` and `resume` find there what was stored
    url: str = ""  # of the model server
    variant: str = ""
    done: int = 0  # samples after which `interrupt` sends SIGINT

    @property
    def path(self) -> Path:
        """Return the folder as a path."""
        return Path(self.folder)


class Clock:
    """Time of the measured part of a driver; everything outside `with clock:` is not counted."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0  # of this process and of those that ended in it

    def __enter__(self) -> Clock:
        self._start, self._cpu = time.perf_counter(), cpu_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
        self.cpu_seconds += cpu_time() - self._cpu


def cpu_time() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, processes))


def job() -> Job:
    """Read the job from the command line."""
    return Job(**json.loads(sys.argv[1]))


def question(index: int) -> str:
    """Return the input of a sample."""
    return f"question {index}"


def number(text: str) -> int:
    """Return the index of the sample with this input."""
    return int(text.rpartition(" ")[2])


def expected(index: int) -> str:
    """Return the expected output of a sample."""
    return "no" if index % 10 == 0 else "yes"


def passing(count: int) -> int:
    """Return how many of the first `count` samples pass."""
    return count - (count + 9) // 10


async def answer_or_interrupt(text: str) -> str:
    """Answer at once; in the job `interrupt`, press Ctrl-C when the first `done` are answered."""
    # The environment and not a global: a tool may take the values of globals for the agent's code.
    stop_at = int(os.environ.get("BENCH_STOP_AT", "0"))
    if stop_at and number(text) >= stop_at:
        if number(text) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(3600)
    return "yes"


@contextlib.contextmanager
def stop_at(index: int) -> Iterator[None]:
    """Make `answer_or_interrupt` press Ctrl-C at this sample."""
    os.environ["BENCH_STOP_AT"] = str(index)
    try:
        yield
    finally:
        del os.environ["BENCH_STOP_AT"]


def peak_memory() -> float:
    """Return the highest memory of this process in MB."""
    with contextlib.suppress(OSError):  # `ru_maxrss` would include the parent before exec
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def run(work: dict[str, Callable[[Job, Clock], dict[str, Any]]], cannot: dict[str, str]) -> None:
    """Do the job and write its figures: seconds, memory, passed, errors, or why it cannot be done.

    `work` has a function for each kind of job; `cannot` says why the tool lacks the others.
    """
    # A background job of a shell ignores Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requested = job()
    figures: dict[str, Any]
    if requested.kind in work:
        clock = Clock()
        requested.path.mkdir(parents=True, exist_ok=True)
        figures = work[requested.kind](requested, clock)
        measured = {"seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}
        figures = {**measured, "peak_mb": peak_memory(), **figures}
    else:
        figures = {"cannot": cannot.get(requested.kind, "not supported")}
    (requested.path / FIGURES).write_text(json.dumps(figures))
