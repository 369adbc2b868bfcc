"""Start separate processes that do not depend on this one, and wait for them."""

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
    "TIMEOUT",
    "forked_workers",
    "machine_variables",
    "outputs_by_hash_seed",
    "plain_environment",
    "running_loops",
    "until",
    "worker_processes",
]

TIMEOUT = 120.0  # seconds; only a process that hangs needs as long, even on a slow machine
_NAMES = {"CI", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE"}
_FAMILIES = ("WINK_", "GITHUB_", "OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "OTEL_")


def machine_variables() -> list[str]:
    """Return the variables of this machine that affect WINK: CI, colours, keys, services."""
    return [name for name in os.environ if name in _NAMES or name.startswith(_FAMILIES)]


def plain_environment(**variables: str) -> dict[str, str]:
    """Return the environment without those variables, and with these."""
    left_out = set(machine_variables())
    allowed = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**allowed, **variables}


def until(holds: Callable[[], Any], seconds: float = TIMEOUT) -> None:
    """Wait until a condition holds, such as the effect of another process."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition was never true"
        time.sleep(0.01)


def outputs_by_hash_seed(code: str) -> set[str]:
    """Return the outputs of the code with three seeds of Python's string hash."""
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
            assert loop.shutdown(timeout=TIMEOUT)
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
        # A process that is still importing is killed by the signal.
        assert {process.wait(TIMEOUT) for process in started} <= {0, -signal.SIGTERM}


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
            process.join(TIMEOUT)
        assert {process.exitcode for process in started} <= {0, -signal.SIGTERM}


def _work(variables: dict[str, str], work: Callable[..., None], *args: str) -> None:
    signal.alarm(300)  # even if the test that started it dies
    os.environ.clear()  # the forked process has those of an earlier test
    os.environ.update(variables)
    work(*args)
