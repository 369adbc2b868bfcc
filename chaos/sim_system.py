"""The simulated system: real loops and the real collector, on the world's connections.

A simulation has three phases: work under faults; recovery without faults, in which dead processes
are restarted; and shutdown, once every key is counted and nothing is queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from weakincentives.errors import MailboxError, StoreError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    EvalReport,
    EvalResult,
    Sample,
    Score,
    collect_results_async,
    submit_dataset,
)
from weakincentives.evals.distributed import Key, Submission
from weakincentives.evals.engine.agents import current, name_agent
from weakincentives.internal import ids as _ids
from weakincentives.internal.threads import in_thread
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.rollouts import Trajectory
from weakincentives.runtime.agent.main_loop import MainLoop, MainLoopConfig
from weakincentives.runtime.agent.provider import PromptResponse
from weakincentives.runtime.mailbox.core import mailbox as mailbox_ids
from weakincentives.runtime.mailbox.core.envelope import pack, unpack
from weakincentives.runtime.session import Session
from weakincentives.runtime.worker.dead_letters import DeadLetter, DLQPolicy
from weakincentives.runtime.worker.leases import LeaseExtenderConfig

from .sim_cancel import OtherRun, check_begin, draw_other_runs, start_other_runs
from .sim_faults import SAMPLE_FAULTS, FaultyStore, Plan, SimMailbox
from .sim_loop import Process, Stuck, current_process, no_threads
from .sim_nemesis import TIMED_FAULT_ACTIONS, inject_repeatedly, poison
from .sim_values import bad_value
from .sim_world import RUN, World, request_id

__all__ = ["Outcome", "answer", "simulate"]

TIMEOUT = 300.0  # seconds per sample; only one that hangs takes so long
RECOVERY_SECONDS = 6 * 3600.0  # after the last fault, until all must be done
FOREVER = 1e9  # seconds
MAX_EXECUTIONS = 200  # of one sample; more means an endless loop
SHUTDOWN_SECONDS = 120.0  # for all workers to stop


@dataclass
class Outcome:
    """The outcome of a simulation, for the checker."""

    plan: Plan
    report: EvalReport[Any] | None
    faults: Counter[str]
    executions: Counter[str]
    rows: dict[Key, bytes]
    outcomes: dict[str, bytes]
    letters: dict[str, DeadLetter[Any]]
    poison: set[str]
    strange: set[bytes]  # invalid messages among the results
    unseen: set[bytes]  # of these, still there or wiped
    set_aside: set[bytes]  # the dead letters of the results
    deliveries: dict[str, int]
    left: dict[str, int]
    other_runs: list[OtherRun]
    violations: list[str]
    seconds: float
    trace: list[str]


def answer(question: str) -> str:
    """Return what an agent must answer, so that every row can be checked."""
    return sha256(question.encode()).hexdigest()[:16]


class System:
    """A submitter, a collector, eval workers and perhaps main workers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.report: EvalReport[Any] | None = None
        self.dataset = Dataset(tuple(_samples(world)), name="sim")
        self.submission = Submission(RUN, self.dataset, epochs=world.plan.epochs)
        # From another generator, so that the plans of old seeds mean what they did.
        other = Random(f"{world.plan} {self.dataset.digest}")
        runs = draw_other_runs(other, answer, lanes=not world.plan.whole)
        if world.plan.other_runs:
            world.other_runs = {run.name: run for run in runs}
        self._agent = name_agent(lambda sample: self._answer(sample), "sim", "")
        world.mains.update(
            submit=self._submit, collect=self._collect, eval=self._eval, main=self._main
        )

    async def run(self) -> None:
        """Run all three phases."""
        world, plan = self.world, self.world.plan
        world.start("submit")
        world.start("collect")
        start_other_runs(world)
        for role, many in (("eval", plan.eval_workers), ("main", plan.main_workers)):
            for number in range(many):
                world.start(role, number)
        for number in range(plan.poison):
            world.call_within(60.0, poison, world, number)
        troubles = [
            world.loop.create_task(
                inject_repeatedly(world, name, interval, TIMED_FAULT_ACTIONS[name])
            )
            for name, interval in plan.rates.items()
            if name in TIMED_FAULT_ACTIONS
        ]
        await world.until(self._done, plan.trouble)
        world.healed = True
        world.log(None, "no more faults")
        for trouble in troubles:
            trouble.cancel()
        world.store_unavailable_until = 0.0
        for process in world.processes:
            process.cut_until = 0.0
        await world.until(self._done, RECOVERY_SECONDS)
        await self._shut_down()

    def _done(self) -> bool:
        world = self.world
        queued = world.queue("requests").count() + world.queue("main").count()
        busy = any(worker.metrics()["in_flight"] for worker in world.workers.values())
        collected = self.report is not None and all(run.done for run in world.other_runs.values())
        return collected and not (queued or busy or world.pending_events)

    async def _shut_down(self) -> None:
        """Tell all workers to stop, and check that they do so in time."""
        leaving = dict(self.world.workers)
        self.world.leaving.update(leaving)
        for process, worker in leaving.items():
            process.on_death = lambda: None
            worker.stop(grace=30.0)
        await self.world.until(lambda: all(process.dead for process in leaving), SHUTDOWN_SECONDS)
        for process in leaving:
            if not process.dead:
                self.world.violations.append(f"{process.name} did not stop in time")

    # ── processes ─────────────────────────────────────────────────────────────────────────────────

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
            if world.loop.now < world.store_unavailable_until:
                raise StoreError("expected a store to write to, got a full disk")
            key = Key(result.experiment_name, result.sample_id, result.epoch)
            if key in world.rows:
                world.violations.append(f"{key} was counted twice")
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
            mainloop_timeout=plan.mainloop_timeout,
            timeout=None if plan.main_workers else TIMEOUT,
            store=self._store(process),
            clock=self.world.clock,
        )
        loop: EvalLoop[Any, Any, Any] = EvalLoop(
            **agent,
            evaluator=_judge,
            results=self._mailbox(process, "results"),
            config=config,
            **self._options(process, "requests"),
        )
        await self._work(process, loop)

    async def _main(self, process: Process) -> None:
        plan = self.world.plan
        config = MainLoopConfig(
            max_concurrent=plan.concurrency,
            lease_extender=LeaseExtenderConfig(enabled=plan.extends),
            clock=self.world.clock,
        )
        options = {"store": self._store(process), **self._options(process, "main")}
        loop = _Loop(adapter=_Adapter(self), config=config, **options)
        await self._work(process, loop)

    def _store(self, process: Process) -> FaultyStore | None:
        return FaultyStore(self.world, process) if self.world.plan.stores else None

    def _options(self, process: Process, name: str) -> dict[str, Any]:
        plan, dead = self.world.plan, self._mailbox(process, f"{name}-dlq")
        return {
            "requests": self._mailbox(process, name),
            "dlq": None if plan.policy is None else DLQPolicy(dead, max_delivery_count=plan.policy),
        }

    async def _work(self, process: Process, loop: Any) -> None:
        loop.worker.random = Random(self.world.random.random())
        self.world.workers[process] = loop.worker
        plan = self.world.plan
        await loop.run_async(visibility_timeout=plan.lease, wait_time_seconds=plan.wait)

    # ── agents ────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, sample: Sample[str, str]) -> tuple[Trajectory[Any], None]:
        this, process = current(), current_process()
        output = await self.execute(sample.input)
        assert process is not None
        id = request_id(sample.id, this.epoch, this.run_id)
        self.world.work_finished(process, id, this.number)
        more = bad_value(sample.input).trajectory if _is_odd(sample.input) else {}
        return Trajectory(output=output, **more), None

    async def execute(self, question: str) -> Any:
        """Run the agent on an input."""
        world, process = self.world, current_process()
        world.executions[question] += 1
        world.log(process, f"executes {question!r}")
        check_begin(world, process, question, "begins")
        if world.executions[question] > MAX_EXECUTIONS:
            world.violations.append(f"{question!r} runs in an endless loop")
        kind = question.partition(" ")[0]
        slow = world.random.uniform(0, 3 * world.plan.lease)
        try:
            await asyncio.sleep(slow if kind == "slow" else world.random.expovariate(0.2))
        finally:  # also when it is cancelled too late
            check_begin(world, process, question, "still runs")
        if kind == "kills" and process is not None:
            world.faults["killed by a sample"] += 1
            world.kill(process)
            process.check()
        if kind == "stops" and process in world.workers:
            world.faults["stopped by a sample"] += 1
            world.leaving.add(process)
            world.workers[process].stop(grace=0.0)
            await asyncio.sleep(TIMEOUT)
        if kind == "hangs" and not world.plan.main_workers:  # a main loop has no timeout
            world.faults["hung thread"] += 1
            await in_thread(lambda: asyncio.sleep(FOREVER))
        if kind in ("cancels", "stale"):
            await _cancel_own_task(world, kind)
        if kind == "raises":
            raise ValueError(f"boom {question}")
        return bad_value(question).output() if kind == "odd" else answer(question)


async def _cancel_own_task(world: World, kind: str) -> None:
    """Cancel the task that the agent runs in, as a hand-written timeout does."""
    task = asyncio.current_task()
    assert task is not None
    world.faults["cancelled by a sample"] += 1
    asyncio.get_running_loop().call_later(world.random.choice((0.0, 5.0)), task.cancel)
    try:
        await asyncio.sleep(TIMEOUT)
    except asyncio.CancelledError:
        if kind == "cancels":
            raise


def _samples(world: World) -> list[Sample[str, str]]:
    samples = []
    for number in range(world.plan.samples):
        kinds = (k for k in SAMPLE_FAULTS if world.random.random() < world.plan.rates.get(k, 0.0))
        question = f"{next(kinds, 'plain')} {number}"
        samples.append(Sample(str(number), question, answer(question)))
    return samples


def _is_odd(question: str) -> bool:
    return question.startswith("odd ")


async def _judge(trajectory: Trajectory[Any], sample: Sample[str, str]) -> Score:
    reason = bad_value(sample.input).reason if _is_odd(sample.input) else ""
    passed = trajectory.output == sample.expected
    return Score(1.0 if passed else 0.0, passed, reason)


TEMPLATE: PromptTemplate[str] = PromptTemplate(
    ns="chaos", key="sim", sections=[MarkdownSection(title="Q", key="q", template="${q}")]
)


class _Loop(MainLoop[str, str]):
    def prepare(self, request: str, *, experiment: Any = None) -> tuple[Prompt[str], Session]:
        return TEMPLATE.bind(q=request), Session(tags={"q": request})


class _Adapter:
    """An adapter that answers as the system's agent does."""

    def __init__(self, system: System) -> None:
        self._system = system

    def evaluate(self, prompt: Any, *, session: Session) -> Any:
        raise NotImplementedError("there are no threads here")

    async def evaluate_async(self, prompt: Any, *, session: Session) -> PromptResponse[Any]:
        return PromptResponse("sim", output=await self._system.execute(session.tags["q"]))


def simulate(seed: int, *, trace: bool = False, plan: Plan | None = None) -> Outcome:
    """Run the simulation of a seed, and return its outcome."""
    random = Random(seed)
    _ids._random.seed(seed)
    mailbox_ids._random.seed(seed)
    world = World(plan or Plan.of(random), random, trace=trace)
    system = System(world)
    try:
        with no_threads(world.loop, world.run_in_thread):
            try:
                world.loop.run_until_complete(system.run())
            except Stuck as error:
                world.violations.append(str(error))
            outcome = _outcome(system)
            world.loop.shut_down(world.processes)
    finally:
        _ids._random.seed()
        mailbox_ids._random.seed()
    return outcome


def _outcome(system: System) -> Outcome:
    world = system.world
    letters = world.queue("requests-dlq").take(10_000, 1e6, 0)
    set_aside = [unpack(each, DeadLetter)[0] for each in world.contents("results-dlq")]
    return Outcome(
        plan=world.plan,
        report=system.report,
        faults=world.faults,
        executions=world.executions,
        rows=dict(world.rows),
        outcomes=dict(world.outcomes),
        letters={each.id: unpack(each.content, DeadLetter)[0] for each in letters},
        poison=set(world.poison),
        strange=set(world.strange),
        unseen={*world.wiped, *world.contents("results")},
        set_aside={letter.raw for letter in set_aside},
        deliveries=dict(world.deliveries),
        left={name: world.queue(name).count() for name in ("requests", "main")},
        other_runs=list(world.other_runs.values()),
        violations=list(world.violations),
        seconds=world.loop.now,
        trace=list(world.trace or ()),
    )
