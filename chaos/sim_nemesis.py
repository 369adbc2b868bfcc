"""What happens from time to time, to whomever it hits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weakincentives.evals import Score
from weakincentives.runtime.mailbox import Letter
from weakincentives.runtime.mailbox._envelope import pack
from weakincentives.runtime.main_loop import MainLoopRequest

from .sim_loop import Process
from .sim_world import World

__all__ = ["NEMESES", "haunt", "poison"]


async def haunt(world: World, name: str, apart: float) -> None:
    """Let it happen again and again, on average so many seconds apart."""
    while True:
        await asyncio.sleep(world.random.expovariate(1 / apart))
        if NEMESES[name](world):
            world.faults[name] += 1
        if name == "queue wiped":
            return


def poison(world: World, number: int) -> None:
    """Lay something into the requests that is none."""
    id = f"poison-{number}"
    letter = pack(world.random.choice(("text", 7, Score(1.0), MainLoopRequest("x"))))
    content = world.random.choice((b"", b"\xff\x00", letter, letter[:-1], letter[:9]))
    world.poison.add(id)
    world.faults["poison"] += 1
    world.log(None, f"poison {id} {len(content)} bytes")
    world.queue("requests").put([Letter(id, content, None)], None)


def _victim(world: World) -> Process | None:
    alive = [each for each in world.processes if not each.dead and not each.paused]
    return world.random.choice(alive) if alive else None


def _kill(world: World) -> bool:
    if (victim := _victim(world)) is not None:
        world.kill(victim)
    return victim is not None


def _pause(world: World) -> bool:
    if (victim := _victim(world)) is not None:
        world.log(victim, "pauses")
        victim.paused = True
        world.sometime(3 * world.plan.lease, victim.resume, world.loop)
    return victim is not None


def _cut_off(world: World) -> bool:
    if (victim := _victim(world)) is not None:
        victim.cut_until = world.loop.now + world.random.uniform(0, 2) * world.plan.lease
        world.log(victim, f"is cut off until {victim.cut_until:.1f}")
    return victim is not None


def _jump(world: World, seconds: float) -> bool:
    world.broker_clock.offset += seconds
    world.log(None, f"the broker's clock jumps by {seconds:.1f} s")
    return True


def _wipe(world: World) -> bool:
    dead = world.queue("requests-dlq")
    buried = dead.take(1000, 1.0, 0)
    dead.release([each.handle for each in buried], 0)
    world.poison &= {each.id for each in buried}  # the others are gone for good
    for name in ("requests", "main", "results"):
        world.queue(name).purge()
    world.log(None, "the queues are wiped")
    return True


def _take_the_store_away(world: World) -> bool:
    world.store_away_until = world.loop.now + world.random.uniform(1, 30)
    world.log(None, f"the store is away until {world.store_away_until:.1f}")
    return True


def _ask_to_stop(world: World) -> bool:
    """As a supervisor does for a new version."""
    if not world.workers:
        return False
    process, worker = world.random.choice([*world.workers.items()])
    world.leaving.add(process)
    world.log(process, "is asked to stop")
    worker.stop(grace=world.random.choice((0.0, 5.0, 60.0)))
    return True


NEMESES: dict[str, Callable[[World], bool]] = {
    "kill": _kill,
    "pause": _pause,
    "partition": _cut_off,
    "clock forward": lambda world: _jump(world, world.random.uniform(1, 600)),
    "clock back": lambda world: _jump(world, -world.random.uniform(1, 600)),
    "queue wiped": _wipe,
    "store away": _take_the_store_away,
    "graceful stop": _ask_to_stop,
}
