"""Processes for math-verify, with a timeout that starts when the work starts.

A symbolic check may never end, or take all memory, and a thread could not be stopped. So it runs in
processes that are reused and check one pair at a time, a JSON line each way. Waiting for a free
process, starting it and importing SymPy do not count against the timeout.

Rules of this file:
1. A check that times out, runs out of memory or crashes is an `EvaluatorError`, never a verdict.
2. A process ends with its parent, even when that is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from ....errors import EvaluatorError, MissingExtraError, short_repr
from ....internal.threads import in_thread
from ....secrets import shorten

_MAX_MEMORY_BYTES = 2 << 30

_idle: list[subprocess.Popen[bytes]] = []
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("weakincentives.evals.math")


async def verify(answer: str, expected: str, timeout: float) -> bool:
    """Return whether math-verify finds the two equal."""
    if find_spec("math_verify") is None:
        raise MissingExtraError("math-verify", "math", "a symbolic check of answers")
    limiter = _limiter.get(None)
    if limiter is None:
        _limiter.set(limiter := anyio.CapacityLimiter(os.cpu_count() or 1))
    question = json.dumps([answer, expected, timeout]).encode() + b"\n"
    async with limiter:
        process, begun = _idle_process(), threading.Lock()
        try:
            reply = await in_thread(_ask, process, question, begun)
        except BaseException:  # such as a cancellation
            process.kill()
            if begun.acquire(blocking=False):  # no thread uses the process, and none will
                _close(process)
            raise
        if not reply:
            raise EvaluatorError(
                f"expected a verdict on {short_repr(answer)}, got {_end(process, timeout)}"
            )
        _idle.append(process)
    verdict = json.loads(reply)
    if not isinstance(verdict, bool):
        raise EvaluatorError(f"expected a verdict on {short_repr(answer)}, got {verdict}")
    return verdict


def _idle_process() -> subprocess.Popen[bytes]:
    """Return an idle process, or a new one."""
    while _idle:
        if (process := _idle.pop()).poll() is None:
            return process
        _close(process)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C is for the parent
    )


def _ask(process: subprocess.Popen[bytes], question: bytes, begun: threading.Lock) -> bytes:
    """Return the reply, or nothing if the process has ended."""
    if not begun.acquire(blocking=False):  # cancelled before it began, and closed
        return b""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question)
        process.stdin.flush()
        reply = process.stdout.readline()
    except OSError:
        reply = b""
    if not reply:
        _close(process)
    return reply


def _close(process: subprocess.Popen[bytes]) -> None:
    # Leaving `with` closes the pipes, which ends it if nothing did, and waits. A process that died
    # before it read the question leaves that in the buffer, and closing tries to send it again.
    with suppress(BrokenPipeError), process:
        pass


def _end(process: subprocess.Popen[bytes], timeout: float) -> str:
    if process.returncode == -signal.SIGALRM:
        return f"none in {timeout:g} s of work - raise it: symbolic_equal(..., timeout=...)"
    return f"the end of the checking process (code {process.returncode})"


@atexit.register
def _end_all() -> None:
    while _idle:
        _close(_idle.pop())


if hasattr(os, "register_at_fork"):
    # Two processes that read from one pipe would get each other's verdicts.
    os.register_at_fork(after_in_child=_idle.clear)


# ── in the child process ────────────────────────────────────────────────────────────────────────


def _verdict(answer: str, expected: str) -> bool:
    from math_verify import parse, verify as are_equal

    gold, target = (
        parse(f"${text.replace('$', '')}$", parsing_timeout=None, raise_on_error=True)
        for text in (expected, answer)
    )
    return bool(are_equal(gold, target, timeout_seconds=None, raise_on_error=True))


def _serve() -> None:
    """Check pairs from standard input until it ends."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be read as a reply
    _limit_memory()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _verdict("1", "2")  # warm up: some modules are imported on first use
    for line in questions:
        answer, expected, timeout = json.loads(line)
        # By the kernel, since Python code would not run during one long multiplication.
        signal.setitimer(signal.ITIMER_REAL, timeout)
        reply: Any
        try:
            reply = _verdict(answer, expected)
        except BaseException as error:
            reply = shorten(f"{type(error).__name__}: {error}", 500)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on every system
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    _serve()
