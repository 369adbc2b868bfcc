"""Several worker processes: started, started again where they die, and stopped together.

Rules of this file:
1. A process is started by a command, never forked: threads and connections stay where they are.
2. A child whose parent is gone stops by itself: it sees the end of its stdin.
3. The first signal is passed on, and everybody has time to finish; the second kills.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import random
from types import FrameType

from ..clock import SYSTEM_CLOCK
from ..runtime.dlq import Backoff
from ._views import say
from ._workers import NUMBER

__all__ = ["Supervisor"]

LOOK = 0.1  # seconds between two looks at the children
STEADY = 60.0  # seconds after which a death is no longer one of a series
MORE = 10.0  # seconds beyond its own time to stop, before a child is killed
BACKOFF = Backoff(base=0.5, longest=30.0, jitter=0.5)
UNBEGUN = (0, 130, -signal.SIGTERM, -signal.SIGINT)  # stopped, some before they had begun
WRONG = 2  # the exit code of a command that will never work


class Child:
    """One of the processes: the one that runs, or the one to be started next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        self.since = self.start_at = 0.0
        self.done = False

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there to hear it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps as many children of a command alive as `args.processes` says."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], args: Namespace):
        self._command = list(command)
        if args.health_port is not None:
            self._command += ["--health-port", str(args.health_port)]
        self._variables = {**os.environ, **variables}
        self._children = [Child(number) for number in range(1, args.processes + 1)]
        self._drains: bool = args.drain
        self._patience: float = args.shutdown_timeout + MORE
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._asked = 0
        self._end = float("inf")  # when those that have not stopped are killed
        self._code = 0

    def run(self, announce: Callable[[], object]) -> int:
        """Until all have ended; 0 where they did so cleanly. `announce` says that it begins."""
        with _signals_into(self._signals):
            announce()
            try:
                while not all(child.done for child in self._children):
                    self._look()
                    with suppress(queue.Empty):
                        self._stop(self._signals.get(timeout=LOOK))
            finally:
                for child in self._children:
                    child.signal(signal.SIGKILL)
        return self._code

    def _look(self) -> None:
        now = SYSTEM_CLOCK.monotonic()
        for child in self._children:
            if child.done:
                continue
            if child.process is None:
                if self._asked:
                    child.done = True
                elif now >= child.start_at:
                    self._start(child, now)
            elif (code := child.process.poll()) is not None:
                self._ended(child, code, now)
        if now >= self._end:
            self._end = float("inf")
            say("wink worker: not all stopped in time: killed, their messages come back")
            self._code = 1
            for child in self._children:
                child.signal(signal.SIGKILL)

    def _start(self, child: Child, now: float) -> None:
        child.since = now
        child.process = subprocess.Popen(
            self._command,
            env={**self._variables, NUMBER: str(child.number)},
            stdin=subprocess.PIPE,  # held open: its end says that this process is gone
            process_group=0,  # a Ctrl-C comes to the parent alone, which passes it on once
        )

    def _ended(self, child: Child, code: int, now: float) -> None:
        if child.process is not None and child.process.stdin is not None:
            child.process.stdin.close()
        child.process = None
        if self._asked or code == 0:  # asked to, or done: the queue is empty, a budget used up
            child.done = True
            if code not in UNBEGUN and self._asked < 2:
                self._code = max(self._code, 1)
        elif code == WRONG:  # it has said what is wrong
            child.done = True
            self._code = WRONG
            self._stop(signal.SIGTERM)
        else:
            child.deaths = 1 if now - child.since > STEADY else child.deaths + 1
            delay = BACKOFF.delay(child.deaths, random())
            child.start_at = now + delay
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            say(f"wink worker {child.number}: died ({how}), starts again in {delay:.1f} s")

    def _stop(self, number: int) -> None:
        """Ask all to stop; those who were asked before are killed."""
        self._asked += 1
        if self._asked == 1:
            self._end = SYSTEM_CLOCK.monotonic() + self._patience
        elif self._asked == 2:
            self._code = 128 + number
        for child in self._children:
            child.signal(number if self._asked == 1 else signal.SIGKILL)


@contextmanager
def _signals_into(found: queue.SimpleQueue[int]) -> Iterator[None]:
    """Put signals into a queue, as far as this thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def put(number: int, frame: FrameType | None) -> None:
        found.put(number)  # may interrupt itself, unlike a lock

    before = {each: signal.signal(each, put) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
