"""Processes of their own, which must not depend on this one, and how a test waits for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "PATIENCE",
    "forked_workers",
    "machine_variables",
    "outputs_by_hash_seed",
    "plain_environment",
    "running_loops",
    "until",
    "worker_processes",
]

PATIENCE = 120.0  # seconds that only a process that hangs can need, on however slow a machine
_NAMES = {"CI", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE"}
_FAMILIES = ("WINK_", "GITHUB_", "OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "OTEL_")


def machine_variables() -> list[str]:
    """Variables by which a machine says how to look and whom to ask: CI, colours, keys."""
    return [name for name in os.environ if name in _NAMES or name.startswith(_FAMILIES)]


def plain_environment(**variables: str) -> dict[str, str]:
    """The environment without those variables, and with these."""
    left_out = set(machine_variables())
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **variables}


def until(holds: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def outputs_by_hash_seed(code: str) -> set[str]:
    """What the code prints under three seeds of Python's string hash."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "2")
    }


@contextmanager
def running_loops(*loops: Any) -> Iterator[None]:
    """Run each loop in a thread, and shut all of them down at the end."""
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for loop in loops:
            assert loop.shutdown(timeout=PATIENCE)
        for thread in threads:
            thread.join()


@contextmanager
def worker_processes(module: str, roles: tuple[str, ...], *args: str) -> Iterator[None]:
    """Run `python -m module ROLE ARGS` for each role, and stop them by SIGTERM at the end."""
    command = [sys.executable, "-m", module]
    started = [subprocess.Popen([*command, role, *args]) for role in roles]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        # One that is still importing its modules is ended by the signal itself.
        assert {process.wait(PATIENCE) for process in started} <= {0, -signal.SIGTERM}


@contextmanager
def forked_workers(work: Callable[..., None], *arguments: tuple[str, ...]) -> Iterator[None]:
    """Call `work` in a process for each of the arguments, and stop them by SIGTERM at the end.

    They are forks of a process that has imported the module of `work`, which takes a second.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([work.__module__])
    started = [forks.Process(target=_work, args=(dict(os.environ), work, *a)) for a in arguments]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(PATIENCE)
        assert {process.exitcode for process in started} <= {0, -signal.SIGTERM}


def _work(variables: dict[str, str], work: Callable[..., None], *args: str) -> None:
    signal.alarm(300)  # whatever happens to the test that started it
    os.environ.clear()  # the process that is forked has those of an earlier test
    os.environ.update(variables)
    work(*args)
