"""Timed faults: each strikes at random intervals, at a random process or queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weakincentives.evals import EvalResult, Score
from weakincentives.runtime.agent.main_loop import MainLoopRequest
from weakincentives.runtime.mailbox import OutboundMessage
from weakincentives.runtime.mailbox.core.envelope import pack

from .sim_loop import Process
from .sim_world import RUN, World, request_id

__all__ = ["TIMED_FAULT_ACTIONS", "inject_repeatedly", "poison", "victim_of"]


async def inject_repeatedly(
    world: Any, name: str, interval: float, action: Callable[[Any], bool]
) -> None:
    """Inject a fault again and again, `interval` seconds apart on average."""
    while True:
        await asyncio.sleep(world.random.expovariate(1 / interval))
        if action(world):
            world.faults[name] += 1
        if name == "queue wiped":
            return


def poison(world: World, number: int) -> None:
    """Put a message into the requests that is not a request."""
    id = f"poison-{number}"
    letter = pack(world.random.choice(("text", 7, Score(1.0), MainLoopRequest("x"))))
    content = world.random.choice((b"", b"\xff\x00", letter, letter[:-1], letter[:9]))
    world.poison.add(id)
    world.faults["poison"] += 1
    world.log(None, f"poison {id} {len(content)} bytes")
    world.queue("requests").put([OutboundMessage(id, content, None)], None)


def _forge(world: World) -> bool:
    """Put a forged result into the results, perhaps with the message id of a real one."""
    random, number = world.random, len(world.strange)
    sample = str(random.randrange(world.plan.samples))
    good = EvalResult(sample, Score(1.0), metadata={"forged": number}, run_id=RUN)
    body: Any = random.choice(
        (
            *(f"text {number}", number, {"sample_id": number}),
            _unchecked(good, attempt=-5 - number),
            _unchecked(good, attempt=10**30),
            replace(good, epoch=99),
            replace(good, sample_id="unknown"),
            replace(good, sample_id=f"{sample} ***~0123abcd"),
            replace(good, experiment_name="unknown"),
            replace(good, run_id="another"),
        )
    )
    id = random.choice((f"forged-{number}", request_id(sample, 1)))
    world.inject_among_results(id, pack(body))
    return True


def _unchecked(result: EvalResult[Any], **fields: Any) -> EvalResult[Any]:
    """Return the result with fields that its class would reject."""
    result = replace(result)
    for name, value in fields.items():
        object.__setattr__(result, name, value)
    return result


def victim_of(world: World) -> Process | None:
    """Return a random process that runs, if there is one."""
    alive = [each for each in world.processes if not each.dead and not each.paused]
    return world.random.choice(alive) if alive else None


def _kill(world: World) -> bool:
    if (victim := victim_of(world)) is not None:
        world.kill(victim)
    return victim is not None


def _pause(world: World) -> bool:
    if (victim := victim_of(world)) is not None:
        world.log(victim, "pauses")
        victim.paused = True
        world.call_within(3 * world.plan.lease, victim.resume, world.loop)
    return victim is not None


def _cut_off(world: World) -> bool:
    if (victim := victim_of(world)) is not None:
        victim.cut_until = world.loop.now + world.random.uniform(0, 2) * world.plan.lease
        world.log(victim, f"is cut off until {victim.cut_until:.1f}")
    return victim is not None


def _jump(world: World, seconds: float) -> bool:
    world.broker_clock.jump(seconds)
    world.log(None, f"the broker's clock jumps by {seconds:.1f} s")
    return True


def _wipe(world: World) -> bool:
    dead = world.queue("requests-dlq")
    letters = dead.take(1000, 1.0, 0)
    dead.release([each.handle for each in letters], 0)
    world.poison &= {each.id for each in letters}  # the others are lost with the queue
    world.wiped |= {*world.contents("results")}
    for name in ("requests", "main", "results"):
        world.queue(name).purge()
    world.log(None, "the queues are wiped")
    return True


def _make_store_unavailable(world: World) -> bool:
    world.store_unavailable_until = world.loop.now + world.random.uniform(1, 30)
    world.log(None, f"the store is unavailable until {world.store_unavailable_until:.1f}")
    return True


def _stop_gracefully(world: World) -> bool:
    """Stop a worker gracefully, as a supervisor does to deploy a new version."""
    if not world.workers:
        return False
    process, worker = world.random.choice([*world.workers.items()])
    world.leaving.add(process)
    world.log(process, "is stopped gracefully")
    worker.stop(grace=world.random.choice((0.0, 5.0, 60.0)))
    return True


TIMED_FAULT_ACTIONS: dict[str, Callable[[World], bool]] = {
    "kill": _kill,
    "pause": _pause,
    "partition": _cut_off,
    "clock forward": lambda world: _jump(world, world.random.uniform(1, 600)),
    "clock back": lambda world: _jump(world, -world.random.uniform(1, 600)),
    "queue wiped": _wipe,
    "store away": _make_store_unavailable,
    "graceful stop": _stop_gracefully,
    "forged result": _forge,
}
