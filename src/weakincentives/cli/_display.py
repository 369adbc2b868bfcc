"""What one sees while a run goes on: a block that stays in its place, or a line now and then.

Rules of this file:
1. Everything goes to stderr. Nothing moves unless stderr is a terminal and nobody said CI.
2. The block has the same lines from the first frame to the last; numbers change, places do not.
3. It asks the engine; the engine does not know that it is watched.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..clock import SYSTEM_CLOCK
from ..evals._config import stops_early
from ..evals._words import duration, money
from ..evals.statistics import wilson_interval
from ._summary import harmless

if TYPE_CHECKING:
    from ..evals._evaluate import Run

__all__ = ["Moment", "console", "frame", "line", "moment", "moves", "watching"]

FRAMES = 8  # a second
STEP, SOON, LATE = 0.1, 10.0, 60.0  # a line after a tenth and 10 s, or after a minute
SLOW = 1.0  # seconds under way, before one is named
SETTLED = 2.0  # seconds before a speed can be told
NOTHING = Text("-", "dim")


def console() -> Console:
    """The console for people."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def moves() -> bool:
    """True where a block can be drawn again and again in its place."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A run at one moment. `done` counts what is reused, `seen` only what was counted so far."""

    total: int
    done: int = 0
    seen: int = 0
    passed: int = 0
    errors: tuple[tuple[str, int], ...] = ()
    tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    speed: float = 0.0
    slowest: tuple[tuple[str, float], ...] = ()
    plain: bool = True  # neither epochs nor a rule to stop early: the interval is Wilson's
    queue: str = ""  # of a run that others carry out: what is known of it from here

    @property
    def left(self) -> str:
        """How long it may still take."""
        if self.done >= self.total:
            return "finishing"
        if self.elapsed < SETTLED or not self.speed:
            return ""
        whole = math.ceil((self.total - self.done) / self.speed)
        return f"{whole} s left" if whole < 60 else f"{duration(whole)} left"


def moment(run: Run, total: int, began: float) -> Moment:
    """What can be seen of the run now."""
    now = SYSTEM_CLOCK.monotonic()
    engine = getattr(run, "engine", None)
    if engine is None:
        return Moment(total=total, elapsed=now - began)
    tally, elapsed = engine.tally, now - began
    kept = len(run.reuse.kept) if run.reuse else 0  # counted by the tally when all else is done
    slowest = nsmallest(3, engine.running.items(), key=lambda item: item[1])
    return Moment(
        total=total,
        done=min(total, tally.done + kept),
        seen=tally.done,
        passed=tally.passed,
        errors=tuple(sorted(tally.errors.items())),
        tokens=tally.tokens,
        cost=tally.cost,
        elapsed=elapsed,
        speed=tally.done / elapsed if elapsed else 0.0,
        plain=run.config.epochs == 1 and not stops_early(run.config),
        slowest=tuple(
            (task.sample.id, now - since) for task, since in slowest if now - since >= SLOW
        ),
    )


@contextmanager
def watching(
    now: Callable[[], Moment], *, to: Console, moving: bool
) -> Iterator[Callable[[], Any]]:
    """An async function that shows what `now` gives, until it is cancelled."""
    if not moving:

        async def tell() -> None:
            last, told = 0.0, 0.0
            while True:
                await anyio.sleep(0.5)
                this = now()
                share, waited = this.done / this.total, this.elapsed - last
                if waited >= LATE or (waited >= SOON and share - told >= STEP):
                    last, told = this.elapsed, share
                    to.print(line(this), soft_wrap=True)

        yield tell
        return

    with Live(frame(now()), console=to, auto_refresh=False, transient=True) as live:

        async def draw() -> None:
            while True:
                live.update(frame(now()), refresh=True)
                await anyio.sleep(1 / FRAMES)

        yield draw


def line(this: Moment) -> Text:
    """The moment in a line."""
    failed = sum(count for _, count in this.errors)
    parts = [
        f"{this.done:>{len(str(this.total))}}/{this.total}",
        f"{this.done / this.total:4.0%}",
        f"{this.passed} passed, {failed} error{'' if failed == 1 else 's'}",
        f"{duration(this.elapsed)} so far" + (f", {this.left}" if this.left else ""),
    ]
    return Text("  ".join(parts))


def frame(this: Moment) -> Group:
    """The moment as a block: the bar, and four facts."""
    done = Table.grid(padding=(0, 2, 0, 0), expand=True)
    done.add_column(ratio=1)
    done.add_column(justify="right", no_wrap=True)
    width = len(str(this.total))
    done.add_row(
        ProgressBar(total=this.total, completed=this.done, complete_style="cyan"),
        Text(f"{this.done:>{width}}/{this.total} {this.done / this.total:4.0%} {this.left:>13}"),
    )
    facts = Table.grid(padding=(0, 2, 0, 0), expand=True)
    facts.add_column(style="dim", width=7)
    facts.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    facts.add_row("passed", _passed(this))
    facts.add_row("errors", _errors(this))
    facts.add_row("speed", _speed(this))
    if this.queue:
        facts.add_row("queue", Text(this.queue))
    else:
        facts.add_row("slowest", _slowest(this))
    return Group("", done, facts)


def _passed(this: Moment) -> Text:
    if not this.seen:
        return NOTHING
    low, high = wilson_interval(this.passed, this.seen)
    new = " new" if this.done > this.seen else ""
    interval = f", 95% interval {low:.1%} to {high:.1%}" if this.plain else ""
    of = f" {this.passed} of {this.seen}{new}{interval}"
    return Text.assemble((f"{this.passed / this.seen:<7.1%}", "bold"), of)


def _errors(this: Moment) -> Text:
    if not this.errors:
        return Text("none", "dim")
    return Text(", ".join(f"{count} {source}" for source, count in this.errors), "red")


def _speed(this: Moment) -> Text:
    if not this.speed:
        return NOTHING
    parts = [f"{this.speed:,.1f} samples/s"]
    if this.tokens:
        parts.append(f"{this.tokens:,} tokens")
    if this.cost:
        parts.append(money(this.cost))
    return Text(", ".join(parts))


def _slowest(this: Moment) -> Text:
    listed = ", ".join(f"{harmless(name)} {duration(age)}" for name, age in this.slowest)
    return Text(listed) if listed else NOTHING
