"""The simulated system: real loops and real collection, on the world's wires.

A simulation has three parts: work under faults; then no more faults, and everything that died is
started again; then the end, when every key is counted and nothing is queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from weakincentives import _ids
from weakincentives.errors import MailboxError, StoreError
from weakincentives.evals import Dataset, EvalReport, EvalResult, Sample, Score, Submission
from weakincentives.evals._agents import _named, current
from weakincentives.evals._helpers import Key, collect_results_async, submit_dataset
from weakincentives.evals._loop import EvalLoop, EvalLoopConfig
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.rollouts import Trajectory
from weakincentives.runtime.dlq import DeadLetter, DLQPolicy
from weakincentives.runtime.leases import LeaseExtenderConfig
from weakincentives.runtime.mailbox import _mailbox as mailbox_ids
from weakincentives.runtime.mailbox._envelope import pack, unpack
from weakincentives.runtime.main_loop import MainLoop, MainLoopConfig
from weakincentives.runtime.provider import PromptResponse
from weakincentives.runtime.session import Session

from .sim_faults import IN_THE_WORK, FaultyStore, Plan, SimMailbox
from .sim_loop import Process, Stuck, current_process, no_threads
from .sim_nemesis import NEMESES, haunt, poison
from .sim_world import RUN, World, request_id

__all__ = ["Outcome", "answer", "simulate"]

HEALED = 6 * 3600.0  # seconds after the last fault in which all must be done
STOPPED = 120.0  # seconds in which all must have stopped when asked to


@dataclass
class Outcome:
    """What came of a simulation, for the checker."""

    plan: Plan
    report: EvalReport[Any] | None
    faults: Counter[str]
    executions: Counter[str]
    rows: dict[Key, bytes]
    outcomes: dict[str, bytes]
    letters: dict[str, DeadLetter[Any]]
    poison: set[str]
    deliveries: dict[str, int]
    left: dict[str, int]
    complaints: list[str]
    seconds: float
    trace: list[str]


def answer(given: str) -> str:
    """What an agent must answer, so that every row can be checked."""
    return sha256(given.encode()).hexdigest()[:16]


class System:
    """A submitter, a collector, eval workers and perhaps main workers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.report: EvalReport[Any] | None = None
        self.dataset = Dataset(tuple(_samples(world)), name="sim")
        self.submission = Submission(RUN, self.dataset, epochs=world.plan.epochs)
        self._agent = _named(lambda sample: self._answer(sample), "sim", "")
        world.mains.update(
            submit=self._submit, collect=self._collect, eval=self._eval, main=self._main
        )

    async def course(self) -> None:
        """Trouble, then none, then the end."""
        world, plan = self.world, self.world.plan
        world.start("submit")
        world.start("collect")
        for role, many in (("eval", plan.eval_workers), ("main", plan.main_workers)):
            for number in range(many):
                world.start(role, number)
        for number in range(plan.poison):
            world.sometime(60.0, poison, world, number)
        troubles = [
            world.loop.create_task(haunt(world, name, apart))
            for name, apart in plan.rates.items()
            if name in NEMESES
        ]
        await world.until(self._done, plan.trouble)
        world.healed = True
        world.log(None, "no more faults")
        for trouble in troubles:
            trouble.cancel()
        world.store_away_until = 0.0
        for process in world.processes:
            process.cut_until = 0.0
        await world.until(self._done, HEALED)
        await self._leave()

    def _done(self) -> bool:
        world = self.world
        queued = world.queue("requests").count() + world.queue("main").count()
        busy = any(worker.metrics()["in_flight"] for worker in world.workers.values())
        return self.report is not None and not (queued or busy or world.to_come)

    async def _leave(self) -> None:
        """Everybody is asked to stop, and must, in time."""
        leaving = dict(self.world.workers)
        self.world.leaving.update(leaving)
        for process, worker in leaving.items():
            process.on_death = lambda: None
            worker.stop(grace=30.0)
        await self.world.until(lambda: all(process.dead for process in leaving), STOPPED)
        for process in leaving:
            if not process.dead:
                self.world.complaints.append(f"{process.name} did not stop in time")

    # ── what each process does ──────────────────────────────────────────────────────────────────

    def _mailbox(self, process: Process, name: str) -> SimMailbox:
        return SimMailbox(self.world, process, name)

    async def _submit(self, process: Process) -> None:
        requests, epochs = self._mailbox(process, "requests"), self.world.plan.epochs
        while True:
            try:
                submit_dataset(self.dataset, requests, run_id=RUN, epochs=epochs)
                return
            except MailboxError:
                await asyncio.sleep(1)

    async def _collect(self, process: Process) -> None:
        world = self.world

        def keep(result: EvalResult[Any]) -> None:
            if world.loop.now < world.store_away_until:
                raise StoreError("expected a store to write to, got a full disk")
            key = Key(result.experiment_name, result.sample_id, result.epoch)
            if key in world.rows:
                world.complaints.append(f"{key} was counted twice")
            world.rows[key] = pack(result)
            world.log(process, f"counts {key.sample_id} {key.epoch}")

        self.report = await collect_results_async(
            self._mailbox(process, "results"),
            self.submission,
            timeout_seconds=1e9,
            requests=self._mailbox(process, "requests") if world.plan.resubmits else None,
            known=[unpack(row, EvalResult)[0] for row in world.rows.values()],
            on_result=keep,
            clock=world.clock,
        )

    async def _eval(self, process: Process) -> None:
        plan = self.world.plan
        agent: dict[str, Any] = (
            {"mainloop_requests": self._mailbox(process, "main")}
            if plan.main_workers
            else {"loop": self._agent}
        )
        config = EvalLoopConfig(
            max_concurrent=plan.concurrency,
            lease_extender=LeaseExtenderConfig(enabled=plan.extends),
            mainloop_timeout=plan.patience,
        )
        loop: EvalLoop[Any, Any, Any] = EvalLoop(
            **agent,
            evaluator=_judge,
            results=self._mailbox(process, "results"),
            config=config,
            clock=self.world.clock,
            **self._options(process, "requests"),
        )
        await self._work(process, loop)

    async def _main(self, process: Process) -> None:
        plan = self.world.plan
        config = MainLoopConfig(
            max_concurrent=plan.concurrency,
            lease_extender=LeaseExtenderConfig(enabled=plan.extends),
        )
        loop = _Loop(adapter=_Adapter(self), config=config, **self._options(process, "main"))
        await self._work(process, loop)

    def _options(self, process: Process, name: str) -> dict[str, Any]:
        plan, dead = self.world.plan, self._mailbox(process, f"{name}-dlq")
        return {
            "requests": self._mailbox(process, name),
            "store": FaultyStore(self.world, process) if plan.stores else None,
            "dlq": None if plan.policy is None else DLQPolicy(dead, max_delivery_count=plan.policy),
        }

    async def _work(self, process: Process, loop: Any) -> None:
        loop.worker.random = Random(self.world.random.random())
        self.world.workers[process] = loop.worker
        plan = self.world.plan
        await loop.run_async(visibility_timeout=plan.lease, wait_time_seconds=plan.wait)

    # ── agents ──────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, sample: Sample[str, str]) -> tuple[Trajectory[Any], None]:
        this, process = current(), current_process()
        said = await self.execute(sample.input)
        assert process is not None
        self.world.worked(process, request_id(sample.id, this.epoch), this.number)
        return Trajectory(output=said), None

    async def execute(self, given: str) -> Any:
        """What an agent does with an input."""
        world, process = self.world, current_process()
        world.executions[given] += 1
        world.log(process, f"executes {given!r}")
        kind = given.partition(" ")[0]
        slow = world.random.uniform(0, 3 * world.plan.lease)
        await asyncio.sleep(slow if kind == "slow" else world.random.expovariate(0.2))
        if kind == "kills" and process is not None:
            world.faults["killed by a sample"] += 1
            world.kill(process)
            process.check()
        if kind == "raises":
            raise ValueError(f"boom {given}")
        return object() if kind == "odd" else answer(given)


def _samples(world: World) -> list[Sample[str, str]]:
    samples = []
    for number in range(world.plan.samples):
        kinds = (k for k in IN_THE_WORK if world.random.random() < world.plan.rates.get(k, 0.0))
        given = f"{next(kinds, 'plain')} {number}"
        samples.append(Sample(str(number), given, answer(given)))
    return samples


async def _judge(output: str, expected: str) -> Score:
    return Score(1.0 if output == expected else 0.0, output == expected)


TEMPLATE: PromptTemplate[str] = PromptTemplate(
    ns="chaos", key="sim", sections=[MarkdownSection(title="Q", key="q", template="${q}")]
)


class _Loop(MainLoop[str, str]):
    def prepare(self, request: str, *, experiment: Any = None) -> tuple[Prompt[str], Session]:
        return TEMPLATE.bind(q=request), Session(tags={"q": request})


class _Adapter:
    """Answers as the system's agent does."""

    def __init__(self, system: System) -> None:
        self._system = system

    def evaluate(self, prompt: Any, *, session: Session) -> Any:
        raise NotImplementedError("there are no threads here")

    async def evaluate_async(self, prompt: Any, *, session: Session) -> PromptResponse[Any]:
        return PromptResponse("sim", output=await self._system.execute(session.tags["q"]))


def simulate(seed: int, *, trace: bool = False, plan: Plan | None = None) -> Outcome:
    """Everything that a seed stands for, from its first fault to the end."""
    random = Random(seed)
    _ids._random.seed(seed)
    mailbox_ids._random.seed(seed)
    world = World(plan or Plan.of(random), random, trace=trace)
    system = System(world)
    try:
        with no_threads(world.loop, world.in_a_thread):
            try:
                world.loop.run_until_complete(system.course())
            except Stuck as error:
                world.complaints.append(str(error))
            outcome = _outcome(system)
            world.loop.bury(world.processes)
    finally:
        _ids._random.seed()
        mailbox_ids._random.seed()
    return outcome


def _outcome(system: System) -> Outcome:
    world = system.world
    letters = world.queue("requests-dlq").take(10_000, 1e6, 0)
    return Outcome(
        plan=world.plan,
        report=system.report,
        faults=world.faults,
        executions=world.executions,
        rows=dict(world.rows),
        outcomes=dict(world.outcomes),
        letters={each.id: unpack(each.content, DeadLetter)[0] for each in letters},
        poison=set(world.poison),
        deliveries=dict(world.deliveries),
        left={name: world.queue(name).count() for name in ("requests", "main")},
        complaints=list(world.complaints),
        seconds=world.loop.now,
        trace=list(world.trace or ()),
    )
