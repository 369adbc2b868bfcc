"""The faults of a local run: which ones a seed enables, and what each does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from .sim_nemesis import victim_of

if TYPE_CHECKING:
    from .sim_local import LocalWorld

__all__ = ["DAMAGES", "TIMED_ACTIONS", "LocalPlan"]

# Highest probability per statement, commit or row.
CALL_FAULTS = {
    "disk error": 0.01,
    "write reported as failed": 0.02,  # it was carried out
    "disk slow": 0.02,
    "crash before commit": 0.02,
    "crash in commit": 0.02,  # a part of it reached the disk
    "crash after commit": 0.02,
    "row repeated": 0.3,  # with other values, as by a second collector
}
# Shortest mean interval, in seconds.
TIMED_FAULTS = {
    "kill": 15.0,
    "pause": 20.0,  # of a process, for up to two minutes
    "power loss": 40.0,
    "clock jump": 20.0,  # of one machine, by up to an hour
    "disk full": 30.0,
    "disk read-only": 30.0,
    "locked by another program": 30.0,
}
# Highest share of the samples.
SAMPLE_FAULTS = {"wrong": 0.3, "raises": 0.2, "flaky": 0.2, "large": 0.2}
KILLS = "kills"  # the share of samples that end their process
MAX_KILLS = 0.15
# Each strikes once, in some of the seeds.
DAMAGES: dict[str, Callable[[LocalWorld], object]] = {
    "bit flipped": lambda world: world.disk.flip_bit(),
    "file removed": lambda world: world.disk.delete_files(),
    "file replaced": lambda world: world.disk.replace_file(),
    "file cut": lambda world: world.disk.cut(""),
    "log cut": lambda world: world.disk.cut("-wal"),
}


@dataclass(frozen=True)
class LocalPlan:
    """The parameters of the simulation of a local run, drawn from a seed."""

    rates: dict[str, float] = field(default_factory=dict)
    samples: int = 20
    epochs: int = 1
    concurrency: int = 4
    seconds: float = 1.0  # of a sample, on average
    begin_seconds: float = 0.0  # between claim and begin
    processes: int = 1  # more of them try to run the run as well
    machines: int = 1
    locks: str = "shared"  # with the kernel's locks between machines; "own": within one; "none"
    skew: float = 0.0  # seconds by which the clocks of two machines differ
    retry_errors: bool = False
    damage: str = ""
    imports: int = 0  # processes that import results, every second time with two of one key
    reviewers: int = 0  # processes that label the run
    trouble: float = 120.0  # seconds until all faults end
    recovery: float = 3600.0  # seconds after that, until the run must be complete

    @classmethod
    def of(cls, random: Random) -> LocalPlan:
        """Draw a plan; some have no faults."""
        swarm = random.choice((0.0, 0.2, 0.5, 0.5, 0.8))
        rates = {
            name: highest * random.random() ** 2
            for name, highest in (CALL_FAULTS | SAMPLE_FAULTS).items()
            if random.random() < swarm
        }
        for name, shortest in TIMED_FAULTS.items():
            if random.random() < swarm:
                rates[name] = shortest * random.uniform(1, 10)
        machines = random.choice((1, 1, 2, 3))
        locks = random.choice(("shared", "own", "none")) if machines > 1 else "shared"
        # Without locks nobody can tell which samples were in flight; a retry runs them again.
        if locks != "none" and random.random() < swarm / 2:
            rates[KILLS] = MAX_KILLS * random.random()
        return cls(
            rates,
            samples=random.randint(5, 40),
            epochs=random.choice((1, 1, 1, 2)),
            concurrency=random.choice((1, 3, 8)),
            seconds=random.choice((0.05, 1.0, 5.0)),
            begin_seconds=random.choice((0.0, 0.0, 10.0, 300.0)),
            processes=random.choice((1, 1, 2, 3)),
            machines=machines,
            locks=locks,
            skew=random.choice((0.0, 60.0, -600.0)),
            retry_errors=random.random() < 0.3 and KILLS not in rates,
            damage=random.choice((*DAMAGES, "bit flipped")) if random.random() < 0.3 else "",
            imports=random.choice((0, 0, 1, 2)),
            reviewers=random.choice((0, 0, 1, 2)),
            trouble=random.uniform(30, 300),
        )


def _kill(world: LocalWorld) -> bool:
    if (victim := victim_of(world)) is not None:
        world.kill(victim)
    return victim is not None


def _pause(world: LocalWorld) -> bool:
    if (victim := victim_of(world)) is not None:
        world.log(victim, "pauses")
        victim.paused = victim.troubled = True
        world.call_within(120.0, victim.resume, world.loop)
    return victim is not None


def _lose_power(world: LocalWorld) -> bool:
    world.log(None, "loses power")
    world.disk.lose_power()
    return True


def _jump(world: LocalWorld) -> bool:
    machine = world.random.randrange(world.plan.machines)
    world.clock_offsets[machine] += world.random.uniform(-3600, 3600)
    return True


def _fill(world: LocalWorld) -> bool:
    world.disk.full_until = world.loop.now + world.random.uniform(1, 60)
    return True


def _protect(world: LocalWorld) -> bool:
    world.disk.read_only_until = world.loop.now + world.random.uniform(1, 60)
    return True


def _lock(world: LocalWorld) -> bool:
    world.disk.hold_lock(world.random.uniform(1, 60))
    return True


TIMED_ACTIONS: dict[str, Callable[[LocalWorld], bool]] = {
    "kill": _kill,
    "pause": _pause,
    "power loss": _lose_power,
    "clock jump": _jump,
    "disk full": _fill,
    "disk read-only": _protect,
    "locked by another program": _lock,
}
