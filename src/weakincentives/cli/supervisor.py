"""Several worker processes: started, restarted when they die, and stopped together.

Rules of this file:
1. A process is started by a command, never forked: threads and connections are not inherited.
2. A child whose parent is gone stops by itself: it sees the end of its stdin.
3. The first signal is passed on, and children have time to finish; the second kills them.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import random

from ..clock import SYSTEM_CLOCK
from ..internal.interrupts import handled_signals
from .console.styled_text import print_stderr

EXIT_FINISHED = 90  # exit code of a child that has nothing left to do; an agent may exit with 0
EXIT_USAGE = 2  # exit code of a command that will never work
WORKER_NUMBER = "WINK_WORKER"  # environment variable: the number of a child, from 1
RESTARTED = "WINK_WORKER_RESTARTED"  # environment variable: set if it replaces one that died
POLL_SECONDS = 0.1
STABLE_SECONDS = 60.0  # after running this long, the backoff is reset
KILL_AFTER_SECONDS = 10.0  # beyond its own shutdown timeout, before a child is killed
CLEAN_EXITS = (EXIT_FINISHED, 0, 130, -signal.SIGTERM, -signal.SIGINT)  # of a stopped child


class Child:
    """A worker process that is running, or is about to be started."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        self.started_at = self.start_at = 0.0
        self.done = False

    def signal(self, number: int) -> None:
        """Send it a signal, if it is running."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps `args.processes` children of a command running."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], args: Namespace):
        from ..runtime.worker.dead_letters import Backoff  # here: `--help` must not wait for it

        self._backoff = Backoff(base=0.5, max_delay=30.0, jitter=0.5)
        self._command = list(command)
        if args.health_port is not None:
            self._command += ["--health-port", str(args.health_port)]
        self._environment = {**os.environ, **variables}
        self._children = [Child(number) for number in range(1, args.processes + 1)]
        self._shutdown_seconds: float = args.shutdown_timeout + KILL_AFTER_SECONDS
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._stop_requests = 0
        self._kill_at = float("inf")
        self._code = 0

    def run(self, announce: Callable[[], object]) -> int:
        """Run until all children have ended; return 0 if they stopped cleanly.

        `announce` is called once signals are handled.
        """
        # Its `put` is reentrant, unlike a lock.
        with handled_signals(self._signals.put, signal.SIGTERM, signal.SIGINT):
            announce()
            try:
                while not all(child.done for child in self._children):
                    self._poll()
                    with suppress(queue.Empty):
                        self._stop(self._signals.get(timeout=POLL_SECONDS))
            finally:
                self._kill_all()
        return self._code

    def _kill_all(self) -> None:
        for child in self._children:
            child.signal(signal.SIGKILL)

    def _poll(self) -> None:
        now = SYSTEM_CLOCK.monotonic()
        for child in self._children:
            if child.done:
                continue
            if child.process is None:
                if self._stop_requests:
                    child.done = True
                elif now >= child.start_at:
                    self._start(child, now)
            elif (code := child.process.poll()) is not None:
                self._ended(child, code, now)
        if now >= self._kill_at:
            self._kill_at = float("inf")
            print_stderr(
                "wink worker: killed processes that did not stop in time; their messages will be "
                "redelivered"
            )
            self._code = 1
            self._kill_all()

    def _start(self, child: Child, now: float) -> None:
        child.started_at = now
        own = {WORKER_NUMBER: str(child.number)} | ({RESTARTED: "1"} if child.deaths else {})
        child.process = subprocess.Popen(
            self._command,
            env={**self._environment, **own},
            stdin=subprocess.PIPE,  # kept open: its end means that the parent is gone
            process_group=0,  # Ctrl-C reaches only the parent, which passes it on once
        )

    def _ended(self, child: Child, code: int, now: float) -> None:
        if child.process is not None and child.process.stdin is not None:
            child.process.stdin.close()
        child.process = None
        if self._stop_requests or code == EXIT_FINISHED:  # an empty queue, or a spent budget
            child.done = True
            if code not in CLEAN_EXITS and self._stop_requests < 2:
                self._code = max(self._code, 1)
        elif code == EXIT_USAGE:  # the child has printed what is wrong
            child.done = True
            self._code = EXIT_USAGE
            self._stop(signal.SIGTERM)
        else:
            child.deaths = 1 if now - child.started_at > STABLE_SECONDS else child.deaths + 1
            delay = self._backoff.delay(child.deaths, random())
            child.start_at = now + delay
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            print_stderr(f"wink worker {child.number}: died ({how}), restarts in {delay:.1f} s")

    def _stop(self, number: int) -> None:
        """Pass on the first signal; kill all children at the second."""
        self._stop_requests += 1
        if self._stop_requests == 1:
            self._kill_at = SYSTEM_CLOCK.monotonic() + self._shutdown_seconds
        elif self._stop_requests == 2:
            self._code = 128 + number
        for child in self._children:
            child.signal(number if self._stop_requests == 1 else signal.SIGKILL)
