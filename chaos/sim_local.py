"""A local run as the system under test: the real engine and run store, on simulated machines.

One or more processes run `EvalSuite` with the same store, and whoever fails or dies tries again. A
simulation has two phases: work under faults; and recovery without faults, in which one process must
complete the run.
"""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import anyio

from weakincentives.clock import SystemClock
from weakincentives.contrib.importers.import_to_store import store_reports
from weakincentives.errors import UsageError
from weakincentives.evals import Dataset, EvalConfig, EvalReport, EvalSuite, Sample, Score
from weakincentives.evals.engine import run_manifest
from weakincentives.evals.engine.agents import current, name_agent
from weakincentives.evals.store.human_labels import add_entries
from weakincentives.evals.store.sqlite import ownership
from weakincentives.evals.store.sqlite.sqlite_store import SqliteRunStore
from weakincentives.internal import ids as _ids
from weakincentives.internal.threads import in_thread
from weakincentives.rollouts import Trajectory

from .sim_disk import Disk
from .sim_local_check import Audit, answer, imported
from .sim_local_faults import DAMAGES, KILLS, SAMPLE_FAULTS, TIMED_ACTIONS, LocalPlan
from .sim_loop import EPOCH, Process, Stuck, current_process, no_threads
from .sim_nemesis import inject_repeatedly
from .sim_threads import SimThread, pause, simulated_threads
from .sim_world import RUN, World

__all__ = ["LocalOutcome", "LocalWorld", "simulate_local"]

MAX_TRIES = 5  # to complete a run from a damaged file, before it is begun again
LARGE_CHARACTERS = 70_000  # such rows are not queued
FIRST, LAST = "process 0", "last process"
IMPORT, REVIEW = "import", "reviewer"
MAX_LABELS = 8  # of one reviewer


@dataclass
class LocalOutcome:
    """The outcome of a simulation, for the table."""

    plan: LocalPlan
    faults: Counter[str]
    executions: Counter[str]
    seconds: float
    trace: list[str]
    audit: Audit


class LocalWorld(World):
    """The machines, their disk, and the processes that run one run."""

    plan: LocalPlan  # type: ignore[assignment]
    downtimes = 120.0, 60.0

    def __init__(self, plan: LocalPlan, random: Random, *, trace: bool = False) -> None:
        super().__init__(plan, random, trace=trace)  # type: ignore[arg-type]
        self.disk = Disk(self)
        self.audit = Audit(self)
        self.clock_offsets = [plan.skew * number for number in range(plan.machines)]
        self.stores: dict[Process, list[SqliteRunStore]] = {}
        self.threads: list[SimThread] = []
        self.damage = ""  # what struck the file
        self.in_flight: dict[Process, Counter[tuple[str, int]]] = {}  # questions and epochs
        self.deaths: Counter[tuple[str, int]] = Counter()  # of processes, while they ran a sample

    def start_thread(self, call: Callable[[], Any]) -> SimThread:
        """Start a thread of the current process."""
        thread = SimThread(self.loop, call)
        self.threads.append(thread)
        thread.wake()
        return thread

    async def run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a blocking call in a thread that takes turns with the event loop."""
        if (process := current_process()) is not None:
            process.check()
        done = self.loop.create_future()
        thread = self.start_thread(call)
        thread.on_end.append(lambda: done.done() or done.set_result(None))
        await done
        if thread.error is not None:
            raise thread.error
        return thread.value

    def kill(self, process: Process, cut_log: float | None = None) -> None:
        """Crash a process, perhaps while it writes the log; its locks end with it."""
        if process.dead:
            return
        process.dead = True
        self.log(process, "dies")
        self.deaths.update(self.in_flight.pop(process, {}))
        self._clean_up(process, cut_log)
        self.audit.after_death(process)
        process.on_death()

    def _clean_up(self, process: Process, cut_log: float | None = None) -> None:
        """Do what the kernel does when a process ends."""
        stores = self.stores.pop(process, [])
        for store in stores:
            store._finalizer.detach()
        databases = [store._database for store in stores]
        for claim in [*ownership._claims]:
            if claim._database in databases:
                claim.close_file()
        self.disk.process_died(process, cut_log)

    @contextmanager
    def running(self, process: Process, sample: tuple[str, int]) -> Iterator[None]:
        """Note that a process runs a sample, and check that a suspect runs alone."""
        running = self.in_flight.setdefault(process, Counter())
        running[sample] += 1
        suspects = [each for each in running if self.deaths[each]]
        # A loss of power may undo that a death was counted, and damage may lose it.
        known = not self.plan.damage and not self.faults["power loss"]
        if suspects and running.total() > 1 and known and self.plan.locks != "none":
            self.audit.note(f"{suspects[0]} runs in company after a death")
        yield
        del running[sample]

    def _ended(self, process: Process, role: str, error: BaseException | None) -> None:
        """Handle a process that ended by itself; one that was told of an error tries again."""
        process.dead = True
        self._clean_up(process)
        self.log(process, f"ends: {self._first_line(error)}")
        if error is not None:
            self.audit.reported_error(process, error)
            process.on_death()

    def _first_line(self, error: BaseException | None) -> str:
        """Return what is in a trace of an error: nothing that is new in every run."""
        if error is None:
            return ""
        text = f"{type(error).__name__}: {error}".replace(f"{self.disk.folder}/", "")
        return text.splitlines()[0][:300]

    def strike_damage(self) -> None:
        """Damage the file."""
        if self.healed:
            return
        self.damage = self.plan.damage
        self.faults[self.damage] += 1
        what = DAMAGES[self.damage](self)
        self.log(None, f"! {what if isinstance(what, str) else self.damage}")

    def now(self) -> datetime:
        """Return the time on the wall clock of the current process's machine."""
        process = current_process()
        offset = 0.0 if process is None else self.clock_offsets[process.machine]
        return datetime.fromtimestamp(EPOCH + self.loop.now + offset, UTC)


class SimStore(SqliteRunStore):
    """The run store of one process, which tells the auditor what it said was stored."""

    def __init__(self, world: LocalWorld, process: Process) -> None:
        self._world, self._owner = world, process
        self._offered: list[Any] = []
        super().__init__(world.disk.path)
        world.stores.setdefault(process, []).append(self)

    def begin(self, manifest: Any, claim: Any = None) -> None:
        if not self._world.healed:
            pause(self._world.random.uniform(0, 2) * self._world.plan.begin_seconds)
        super().begin(manifest, claim)
        self._world.audit.begun()

    def offer(self, row: Any) -> bool:
        queued = super().offer(row)
        if queued:
            self._offered.append(row)
            if self._world.strikes("row repeated"):
                earlier = self._world.random.choice(self._offered[-5:])
                super().offer(_altered(earlier))
        return queued

    def put(self, row: Any) -> None:
        offered = [*self._offered]
        super().put(row)
        self._world.audit.promised_rows(self._owner, [*offered, row])

    def flush(self, run_id: str | None = None) -> None:
        offered = [*self._offered]
        super().flush(run_id)
        self._world.audit.promised_rows(self._owner, offered)

    def finish(self, run_id: str, status: str, *args: Any, **more: Any) -> None:
        super().finish(run_id, status, *args, **more)
        self._world.audit.finished(self._owner, status, more["settled"])


def _altered(row: Any) -> Any:
    """Return another row of the same key, as an agent that ran twice may give."""
    return replace(row, result=replace(row.result, score=Score(0.5), latency_ms=123_456))


class LocalSystem:
    """The processes: each runs the suite, and may find that another one does."""

    def __init__(self, world: LocalWorld) -> None:
        self.world = world
        self.reports = 0
        self._completed = False  # by the last process
        plan = world.plan
        agent = name_agent(lambda sample: self._answer(sample), "sim", "")
        config = EvalConfig(max_concurrent=plan.concurrency, epochs=plan.epochs)
        dataset = Dataset(tuple(_samples(world)), name="sim")
        self._suite: EvalSuite[Any, Any, Any] = EvalSuite(agent, dataset, _judge, config=config)
        for number in range(plan.processes):
            world.mains[f"process {number}"] = partial(self._work, number)
        world.mains[LAST] = partial(self._work, 0)
        world.mains.update({IMPORT: self._import, REVIEW: self._review})

    async def run(self) -> None:
        """Run both phases."""
        world, plan = self.world, self.world.plan
        world.start(FIRST)
        for number in range(1, plan.processes):
            world.call_within(60.0, world.start, f"process {number}")
        for role, many in ((IMPORT, plan.imports), (REVIEW, plan.reviewers)):
            for number in range(many):
                world.call_within(90.0, world.start, role, number)
        if plan.damage:
            world.call_within(60.0, world.strike_damage)
        troubles = [
            world.loop.create_task(inject_repeatedly(world, name, interval, TIMED_ACTIONS[name]))
            for name, interval in plan.rates.items()
            if name in TIMED_ACTIONS
        ]
        await world.until(lambda: self.reports > 0 and not world.pending_events, plan.trouble)
        world.healed = True
        world.log(None, "no more faults")
        for trouble in troubles:
            trouble.cancel()
        world.disk.full_until = world.disk.read_only_until = 0.0
        await world.until(lambda: not world.pending_events, 120.0)
        world.start(LAST)
        if not await world.until(lambda: self._completed and not world.audit.active, plan.recovery):
            world.violations.append("the run could not be completed after the last fault")

    async def _work(self, number: int, process: Process) -> None:
        world = self.world
        process.machine = number % world.plan.machines
        world.audit.begins(process)
        is_last = process.name.startswith(LAST)
        if is_last and world.damage and world.audit.failures > MAX_TRIES:
            world.log(process, "removes the damaged store")
            for other in world.processes:
                other.troubled = True
            world.disk.delete_files()
            world.audit.forget()
            world.damage = ""
        try:
            store = await in_thread(SimStore, world, process)
            try:
                report = await self._run(store, new=process.name == f"{FIRST}-0.1")
            finally:
                with anyio.CancelScope(shield=True):
                    await in_thread(store.close)
        finally:
            world.audit.ends(process)
        world.audit.reported(process, report, self._suite.dataset)
        self.reports += 1
        self._completed = self._completed or is_last

    async def _run(self, store: SimStore, *, new: bool) -> EvalReport[Any]:
        options: dict[str, Any] = {"store": store, "progress": False}
        if not new:
            retry = self.world.plan.retry_errors
            try:
                return await self._suite.run_async(resume=RUN, retry_errors=retry, **options)
            except UsageError as error:
                if not str(error).startswith("expected the id of a run"):
                    raise
        return await self._suite.run_async(run_id=RUN, **options)

    async def _import(self, process: Process) -> None:
        """Import results; two of one key are refused, and then nothing is stored."""
        world = self.world
        has_duplicates = world.random.random() < 0.5
        reports = [imported(world.random, duplicates=False), imported(world.random, has_duplicates)]
        store = await in_thread(SimStore, world, process)
        try:
            run_ids = await in_thread(store_reports, store, reports)
            world.audit.imported(process, run_ids, refused=has_duplicates)
        except UsageError as error:
            if not (has_duplicates and "each sample and epoch once" in str(error)):
                raise
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(store.close)

    async def _review(self, process: Process) -> None:
        """Label outputs of the run, whatever else happens to it."""
        world = self.world
        store = await in_thread(SimStore, world, process)
        try:
            for _ in range(MAX_LABELS):
                await anyio.sleep(world.random.expovariate(0.1))
                labels = [world.audit.new_label() for _ in range(world.random.randint(1, 3))]
                await in_thread(add_entries, store, labels)
                world.audit.labelled(labels)
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(store.close)

    async def _answer(self, sample: Sample[str, str]) -> tuple[Trajectory[Any], None]:
        world, question = self.world, sample.input
        world.executions[question] += 1
        process, kind = current_process(), question.partition(" ")[0]
        assert process is not None
        world.log(process, f"executes {question!r}")
        with world.running(process, (question, current().epoch)):
            await anyio.sleep(world.random.expovariate(1 / world.plan.seconds))
            if kind == KILLS:
                world.faults["killed by a sample"] += 1
                world.kill(process)
                process.check()
        if kind == "raises" or (kind == "flaky" and world.random.random() < 0.5):
            raise ValueError(f"boom {question}")
        return Trajectory(output=answer(question)), None


async def _judge(trajectory: Trajectory[Any], sample: Sample[str, str]) -> Score:
    return Score(1.0 if trajectory.output == sample.expected else 0.0)


def _samples(world: LocalWorld) -> Iterator[Sample[str, str]]:
    for number in range(world.plan.samples):
        kinds = (
            kind
            for kind in (*SAMPLE_FAULTS, KILLS)
            if world.random.random() < world.plan.rates.get(kind, 0.0)
        )
        question = f"{next(kinds, 'plain')} {number}"
        expected = "no such answer" if question.startswith("wrong") else answer(question)
        yield Sample(str(number), question, expected)


# ── the machines ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _machines(world: LocalWorld) -> Iterator[None]:
    """Let the code under test see the machine of its process: clocks, locks, ids."""
    locks = _Locks(world)

    def machine() -> str:
        process = current_process()
        return "checker" if process is None else f"machine {process.machine}"

    replaced: list[tuple[Any, str, Any]] = [
        (SystemClock, "now", lambda clock: world.now()),
        (SystemClock, "monotonic", lambda clock: world.loop.now),
        (run_manifest, "git_commit", lambda: None),
        (ownership, "_machine", machine),
        (ownership, "fcntl", locks),
        (ownership, "os", _Os(locks)),
        (ownership, "process_id", lambda: 1234),  # always the same, so a seed stores the same bytes
        (run_manifest, "uuid4", lambda: _uuid(world.random)),
        (ownership, "uuid", SimpleNamespace(uuid4=lambda: _uuid(world.random))),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _uuid(random: Random) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


class _Locks:
    """The module `fcntl`: file locks that hold on one machine only, on all of them, or nowhere."""

    LOCK_EX, LOCK_SH, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB

    def __init__(self, world: LocalWorld) -> None:
        self._mode = world.plan.locks
        self._holders: dict[tuple[int, int], int] = {}  # descriptors, by machine and inode

    def flock(self, file: Any, operation: int) -> None:
        """Lock a file for the machine of the current process, or raise as the kernel does."""
        if self._mode == "none":
            raise OSError(errno.ENOLCK, "No locks available")
        process = current_process()
        machine = process.machine if process is not None and self._mode == "own" else 0
        descriptor = file if isinstance(file, int) else file.fileno()
        key = machine, os.fstat(descriptor).st_ino
        if self._holders.get(key, descriptor) != descriptor:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        if operation & self.LOCK_EX:  # a shared one is held for a moment only
            self._holders[key] = descriptor

    def close(self, descriptor: int) -> None:
        """Close a file, which ends its lock."""
        self._holders = {key: held for key, held in self._holders.items() if held != descriptor}
        os.close(descriptor)


class _Os:
    """The module `os`, with simulated locks."""

    def __init__(self, locks: _Locks) -> None:
        self.close = locks.close

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def simulate_local(
    seed: int, *, trace: bool = False, plan: LocalPlan | None = None
) -> LocalOutcome:
    """Run the simulation of a seed, and return its outcome."""
    random = Random(f"local {seed}")
    _ids._random.seed(seed)
    world = LocalWorld(plan or LocalPlan.of(random), random, trace=trace)
    world.disk.on_commit = world.audit.after_commit
    world.disk.on_power_loss = world.audit.after_power_loss
    try:
        with ExitStack() as stack:
            stack.enter_context(no_threads(world.loop, world.run_in_thread))
            stack.enter_context(simulated_threads(world.loop, world.start_thread))
            stack.enter_context(_machines(world))
            stack.enter_context(world.disk.mounted())
            system = LocalSystem(world)
            try:
                world.loop.run_until_complete(system.run())
                world.audit.at_the_end(system._suite.dataset)
            except Stuck as error:
                world.violations.append(str(error))
            _shut_down(world)
    finally:
        _ids._random.seed()
        world.disk.remove()
    return LocalOutcome(
        plan=world.plan,
        faults=world.faults,
        executions=world.executions,
        seconds=world.loop.now,
        trace=list(world.trace or ()),
        audit=world.audit,
    )


def _shut_down(world: LocalWorld) -> None:
    """End all processes, threads and tasks, so that nothing outlives the simulation."""
    world.audit.over = True
    for process in world.processes:
        process.on_death = lambda: None
        world.kill(process)
    for thread in world.threads:
        thread.end()
    world.loop.shut_down(world.processes)
    for thread in world.threads:
        thread.end()
