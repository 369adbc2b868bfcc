"""Fault injection from a seed, and a supervisor that restarts workers."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import TracebackType

from . import _worker_script
from ._proxy import Proxy
from ._server import Server

__all__ = ["Fault", "Nemesis", "Workers"]

# Dozens of workers start, and each would import the library first: they are forks of a process
# that has done so.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([_worker_script.__name__])


@dataclass(slots=True)
class _WorkerSlot:
    """A supervised worker process."""

    role: str
    process: BaseProcess
    stopped_until: float | None = None


class Workers:
    """Worker processes; one that ends is restarted."""

    def __init__(self, roles: list[str], arguments: list[str]) -> None:
        self.ended = 0
        self._arguments = arguments
        self.slots = [_WorkerSlot(role, self._start(role)) for role in roles]

    def _start(self, role: str) -> BaseProcess:
        process = _FORKS.Process(target=_worker_script.work, args=(role, *self._arguments))
        process.start()
        return process

    def supervise(self) -> None:
        """Resume workers whose pause is over, and restart dead ones."""
        for slot in self.slots:
            if slot.stopped_until is not None and time.monotonic() >= slot.stopped_until:
                self.resume(slot)
            if slot.process.exitcode is not None:
                self.ended += 1
                slot.process, slot.stopped_until = self._start(slot.role), None

    def resume(self, slot: _WorkerSlot) -> None:
        slot.stopped_until = None
        _send_signal(slot.process, signal.SIGCONT)

    def resume_all(self) -> None:
        for slot in self.slots:
            self.resume(slot)

    def end(self) -> None:
        """Kill all workers, including stopped ones."""
        for slot in self.slots:
            slot.process.kill()
            slot.process.join()


def _send_signal(process: BaseProcess, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault, and when it was over."""

    kind: str
    over: float


class Nemesis:
    """A thread that injects faults for some seconds, and supervises the workers until it is closed.

    Kinds, times and targets are drawn from the seed; the effects depend on the machine.
    """

    def __init__(
        self, seed: int, workers: Workers, server: Server, proxy: Proxy, *, lease: float, gap: float
    ) -> None:
        self.faults: list[Fault] = []
        self._random = random.Random(seed)
        self._bag: list[str] = []
        self._workers = workers
        self._server = server
        self._proxy = proxy
        self._lease = lease
        self._gap = gap
        self._injecting = threading.Event()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-nemesis", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Nemesis:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave.set()
        self._thread.join()
        self._workers.end()
        if self._error is not None:
            raise self._error

    def attack(self, seconds: float) -> None:
        """Inject faults for `seconds`, in the background."""
        self._until = time.monotonic() + seconds
        self._injecting.set()

    def calm(self) -> None:
        """Stop injecting, and end the faults of the network."""
        self._injecting.clear()
        self._proxy.heal()

    @property
    def stopped_injecting(self) -> bool:
        """Return whether no more faults are injected."""
        return not self._injecting.is_set()

    def counts(self) -> Counter[str]:
        """Return the number of faults of each kind."""
        return Counter(fault.kind for fault in self.faults)

    def _run(self) -> None:
        try:
            next_time = 0.0
            while not self._leave.wait(0.02):
                self._workers.supervise()
                now = time.monotonic()
                if self._injecting.is_set() and now >= self._until:
                    self.calm()
                    self._workers.resume_all()
                elif self._injecting.is_set() and now >= next_time:
                    self._inject_fault()
                    next_time = now + self._random.expovariate(1 / self._gap)
        except BaseException as error:
            self._error = error

    def _inject_fault(self) -> None:
        kinds: dict[str, tuple[int, Callable[[], float]]] = {
            "worker killed": (4, self._kill),
            "worker stopped": (3, self._stop),
            "server killed": (1, self._kill_server),
            "connections cut": (2, lambda: self._now(self._proxy.cut)),
            "connections reset": (2, lambda: self._now(lambda: self._proxy.cut(reset=True))),
            "replies lost": (4, self._lose_replies),
            "requests lost": (3, self._lose_requests),
            "network slow": (1, self._slow),
            "network silent": (1, self._black_hole),
        }
        if not self._bag:  # every kind has its turn, by weight
            self._bag = [kind for kind, (times, _) in kinds.items() for _ in range(times)]
            self._random.shuffle(self._bag)
        kind = self._bag.pop()
        lasting = kinds[kind][1]()
        self.faults.append(Fault(kind, time.monotonic() + lasting))

    def _now(self, call: Callable[[], object]) -> float:
        call()
        return 0.0

    def _kill(self) -> float:
        self._random.choice(self._workers.slots).process.kill()
        return 0.0

    def _stop(self) -> float:
        """Pause a worker for up to three leases: it resumes with leases that have expired."""
        slot = self._random.choice(self._workers.slots)
        lasting = self._random.uniform(0.1, 3) * self._lease
        _send_signal(slot.process, signal.SIGSTOP)
        slot.stopped_until = time.monotonic() + lasting
        return lasting

    def _kill_server(self) -> float:
        downtime = self._random.uniform(0, 1)
        self._server.kill()
        time.sleep(downtime)
        self._server.start()
        return 0.0

    def _lose_replies(self) -> float:
        self._proxy.lose_replies(self._random.randint(1, 5))
        return 0.0

    def _lose_requests(self) -> float:
        self._proxy.lose_requests(self._random.randint(1, 5))
        return 0.0

    def _slow(self) -> float:
        lasting = self._random.uniform(0.2, 1)
        self._proxy.delay(self._random.uniform(0.01, 0.2), lasting)
        return lasting

    def _black_hole(self) -> float:
        lasting = self._random.uniform(0.2, 2) * self._lease
        self._proxy.black_hole(lasting)
        return lasting
