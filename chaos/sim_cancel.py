"""Other runs in the same queue: with priorities, and some of them cancelled.

Each has a submitter and a collector of its own, and is worked on by the same workers. A run that is
not cancelled ends in one row a sample; of a cancelled one nothing begins, continues or becomes a
dead letter some time after `cancel_run` has returned: ten seconds, or with faults some leases.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from weakincentives.errors import MailboxError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalReport,
    EvalResult,
    Sample,
    cancel_run,
    collect_results_async,
    submit_dataset,
)
from weakincentives.evals.distributed import Key, Submission

from .sim_faults import Plan, SimMailbox
from .sim_loop import Process

if TYPE_CHECKING:
    from .sim_world import World

__all__ = ["OtherRun", "check_begin", "draw_other_runs", "start_other_runs"]

CALM_SECONDS = 10.0
LATE_LEASES, LATE_SECONDS = 8.0, 30.0  # with pauses, lost calls and late answers


@dataclass
class OtherRun:
    """A run next to the main one."""

    name: str
    dataset: Dataset[str, str]
    priority: int
    submitted_after: float  # seconds
    cancelled_after: float | None  # seconds; None: it is not cancelled
    cancelled_at: float | None = None  # when `cancel_run` had returned
    report: EvalReport[Any] | None = None
    rows: dict[Key, EvalResult[Any]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Return whether it is collected and, if it is to be, cancelled."""
        is_cancelled = self.cancelled_after is None or self.cancelled_at is not None
        return self.report is not None and is_cancelled

    def ended_before(self, now: float, plan: Plan) -> bool:
        """Return whether it was cancelled so long ago that nothing of it may go on."""
        late = CALM_SECONDS if plan.calm else LATE_LEASES * plan.lease + LATE_SECONDS
        return self.cancelled_at is not None and now > self.cancelled_at + late

    def problems(self, problem_of: Callable[[EvalResult[Any]], str | None]) -> list[str]:
        """Return what is wrong at the end."""
        if not self.done or self.report is None:
            return [f"the collection of {self.name} did not end"]
        wanted = {Key("baseline", sample.id, 1) for sample in self.dataset}
        counted = Counter(Key.of(result) for result in self.report.results)
        found = [f"{self.name}: {key} was not submitted" for key in counted.keys() - wanted]
        found += [f"{self.name}: {key} has {n} rows" for key, n in counted.items() if n > 1]
        if self.cancelled_after is None:
            found += [f"{self.name}: {key} has no row" for key in wanted - counted.keys()]
        for result in self.report.results:
            if (problem := problem_of(result)) is not None:
                found.append(f"{self.name}: {result.sample_id}: {problem}")
        return found


def draw_other_runs(random: Random, answer: Callable[[str], str], *, lanes: bool) -> list[OtherRun]:
    """Draw up to three runs; without lanes, as on SQS, there are no priorities."""
    runs = []
    for number in range(random.choice((0, 1, 1, 2, 3))):
        name = f"other{number}"
        questions = {
            f"{name}-{n}": f"{random.choice(('plain', 'slow'))} {name} {n}"
            for n in range(random.randint(2, 15))
        }
        samples = [Sample(id, text, answer(text)) for id, text in questions.items()]
        cancelled = random.uniform(0, 120) if random.random() < 0.6 else None
        runs.append(
            OtherRun(
                name,
                Dataset(samples, name=name),
                random.choice((-1, 0, 0, 2)) if lanes else 0,
                random.uniform(0, 60),
                cancelled,
            )
        )
    return runs


def start_other_runs(world: World) -> None:
    """Start a submitter, a collector and perhaps a canceller for each."""
    for run in world.other_runs.values():
        world.mains[f"submit:{run.name}"] = partial(_submit, world, run)
        world.mains[f"collect:{run.name}"] = partial(_collect, world, run)
        world.start(f"submit:{run.name}")
        world.start(f"collect:{run.name}")
        if run.cancelled_after is not None:
            world.mains[f"cancel:{run.name}"] = partial(_cancel, world, run)
            world.start(f"cancel:{run.name}")


async def _submit(world: World, run: OtherRun, process: Process) -> None:
    await asyncio.sleep(max(0.0, run.submitted_after - world.loop.now))
    requests = SimMailbox(world, process, "requests")
    while True:
        try:
            submit_dataset(run.dataset, requests, run_id=run.name, priority=run.priority)
            return
        except UsageError:
            if run.cancelled_after is None:
                raise
            return  # it is cancelled already
        except MailboxError:
            await asyncio.sleep(1)


async def _collect(world: World, run: OtherRun, process: Process) -> None:
    def keep(result: EvalResult[Any]) -> None:
        if Key.of(result) in run.rows:
            world.violations.append(f"{run.name}: {result.sample_id} was counted twice")
        run.rows[Key.of(result)] = result

    run.report = await collect_results_async(
        SimMailbox(world, process, "results"),
        Submission(run.name, run.dataset, priority=run.priority),
        timeout_seconds=1e9,
        requests=SimMailbox(world, process, "requests"),
        known=run.rows.values(),
        on_result=keep,
        clock=world.clock,
    )


async def _cancel(world: World, run: OtherRun, process: Process) -> None:
    """Cancel it among the samples, and among the requests to main loops."""
    await asyncio.sleep(max(0.0, (run.cancelled_after or 0.0) - world.loop.now))
    for name in ("requests", "main"):
        while True:
            try:
                cancel_run(run.name, SimMailbox(world, process, name))
                break
            except MailboxError:
                await asyncio.sleep(1)
    run.cancelled_at = world.loop.now
    world.faults["run cancelled"] += 1
    world.log(process, f"has cancelled {run.name}")


def check_begin(world: World, process: Process | None, question: str, what: str) -> None:
    """Note a violation if a sample of a run that was cancelled long ago begins or ends."""
    run = world.other_runs.get(question.split(" ")[1])
    if run is not None and run.ended_before(world.loop.now, world.plan):
        name = "nobody" if process is None else process.name
        world.violations.append(f"{question!r} {what} in {name}, long after it was cancelled")
