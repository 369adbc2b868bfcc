"""A process of its own for math-verify, whose clock starts when the work starts.

A symbolic check may take for ever, or all memory, and in a thread nothing could end it. So it is
done in processes that are kept and asked one question at a time, a JSON line each way. Waiting for
a free one, starting it and importing SymPy do not count against the time of a check.

Rules of this file:
1. A check that takes too long, runs out of memory or dies is an `EvaluatorError`, never a verdict.
2. A process ends with whoever started it, also when that one is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from ..errors import EvaluatorError, MissingExtraError, shown
from ._threads import in_thread

__all__ = ["checked"]

_MEMORY = 2 << 30  # bytes that a process may take

_idle: list[subprocess.Popen[bytes]] = []
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("weakincentives.evals.math")


async def checked(answer: str, expected: str, timeout: float) -> bool:
    """What math-verify says of the two."""
    if find_spec("math_verify") is None:
        raise MissingExtraError("math-verify", "math", "a symbolic check of answers")
    limiter = _limiter.get(None)
    if limiter is None:
        _limiter.set(limiter := anyio.CapacityLimiter(os.cpu_count() or 1))
    question = json.dumps([answer, expected, timeout]).encode() + b"\n"
    async with limiter:
        process, begun = _taken(), threading.Lock()
        try:
            said = await in_thread(_asked, process, question, begun)
        except BaseException:  # nobody waits for it any more
            process.kill()
            if begun.acquire(blocking=False):  # no thread has it, and none will
                _close(process)
            raise
        if not said:
            raise EvaluatorError(
                f"expected a verdict on {shown(answer)}, got {_end(process, timeout)}"
            )
        _idle.append(process)
    verdict = json.loads(said)
    if not isinstance(verdict, bool):
        raise EvaluatorError(f"expected a verdict on {shown(answer)}, got {verdict}")
    return verdict


def _taken() -> subprocess.Popen[bytes]:
    """A process that waits for a question, or a new one."""
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
        start_new_session=True,  # Ctrl-C is for who asks
    )


def _asked(process: subprocess.Popen[bytes], question: bytes, begun: threading.Lock) -> bytes:
    """A line, or nothing where the process has ended."""
    if not begun.acquire(blocking=False):  # cancelled before it began, and closed
        return b""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question)
        process.stdin.flush()
        said = process.stdout.readline()
    except OSError:
        said = b""
    if not said:
        _close(process)
    return said


def _close(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes the pipes, which ends it if nothing did, and waits
        pass


def _end(process: subprocess.Popen[bytes], timeout: float) -> str:
    if process.returncode == -signal.SIGALRM:
        return f"none in {timeout:g} s of work - give it more: symbolic_equal(..., timeout=...)"
    return f"the end of the checking process (code {process.returncode})"


@atexit.register
def _end_all() -> None:
    while _idle:
        _close(_idle.pop())


if hasattr(os, "register_at_fork"):
    # Two that read from one pipe would take each other's verdicts.
    os.register_at_fork(after_in_child=_idle.clear)


# ── in the other process ────────────────────────────────────────────────────────────────────────


def _verdict(answer: str, expected: str) -> bool:
    from math_verify import parse, verify

    gold, target = (
        parse(f"${text.replace('$', '')}$", parsing_timeout=None, raise_on_error=True)
        for text in (expected, answer)
    )
    return bool(verify(gold, target, timeout_seconds=None, raise_on_error=True))


def _serve() -> None:
    """Answer questions until there are no more."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the libraries print is not an answer
    _limit_memory()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _verdict("1", "2")  # loads what is loaded at the first use
    for line in questions:
        answer, expected, timeout = json.loads(line)
        # The kernel ends it, so that one long multiplication cannot hold that up.
        signal.setitimer(signal.ITIMER_REAL, timeout)
        said: Any
        try:
            said = _verdict(answer, expected)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:500]
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(said).encode() + b"\n")
        answers.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on every system
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    _serve()
