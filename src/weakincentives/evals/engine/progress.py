"""A run at one moment, as a block of text or as a line; `display.py` shows it.

Rules of this file:
1. The block has the same lines from the first frame to the last; only the numbers change.
2. Progress is read from the engine; the engine does not know about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import nsmallest

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...clock import SYSTEM_CLOCK
from ...internal.escaping import one_line
from ...internal.formatting import duration, money, pluralize, tokens_text
from .._types import stops_early
from ..stats.basic import wilson_interval
from ..stats.intervals import ends_text
from .engine import Tally
from .run import Run

SLOW_SECONDS = 1.0  # a sample that runs longer is listed
MIN_RATE_SECONDS = 2.0  # before that, the remaining time is not estimated
NOTHING = Text("-", "dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """A run at one moment. `done` includes reused results, `seen` only those counted so far."""

    total: int
    done: int = 0
    seen: int = 0
    passed: int = 0
    errors: tuple[tuple[str, int], ...] = ()
    tokens: int = 0
    judge_tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    speed: float = 0.0
    slowest: tuple[tuple[str, float], ...] = ()
    slow: frozenset[str] = frozenset()  # ids of samples that run unusually long
    plain: bool = True  # one epoch and no early stopping: Wilson's interval is valid
    queue: str = ""  # the state of the queue, if workers run the samples

    @property
    def left(self) -> str:
        """The estimated remaining time."""
        if self.done >= self.total:
            return "finishing"
        if self.elapsed < MIN_RATE_SECONDS or not self.speed:
            return ""
        seconds = math.ceil((self.total - self.done) / self.speed)
        return f"{seconds} s left" if seconds < 60 else f"{duration(seconds)} left"


def tally_snapshot(tally: Tally, total: int, elapsed: float) -> ProgressSnapshot:
    """Return the totals so far, of this many planned results."""
    return ProgressSnapshot(
        total=total,
        done=min(total, tally.done),
        seen=tally.done,
        passed=tally.passed,
        errors=tuple(sorted(tally.errors.items())),
        tokens=tally.tokens,
        judge_tokens=tally.judge_tokens,
        cost=tally.cost,
        elapsed=elapsed,
        speed=tally.done / elapsed if elapsed else 0.0,
    )


def progress_snapshot(run: Run, total: int, began: float) -> ProgressSnapshot:
    """Return the state of the run at this moment."""
    now = SYSTEM_CLOCK.monotonic()
    elapsed = now - began
    engine = getattr(run, "engine", None)
    if engine is None:
        return ProgressSnapshot(total=total, elapsed=elapsed)
    tally, plan = engine.tally, run.resume_plan
    reused = len(plan.reused) if plan else 0  # the tally counts them at the very end
    slowest = nsmallest(3, engine.running.items(), key=lambda item: item[1])
    return replace(
        tally_snapshot(tally, total, elapsed),
        done=min(total, tally.done + reused),
        plain=run.config.epochs == 1 and not stops_early(run.config),
        slowest=tuple(
            (task.sample.id, now - since) for task, since in slowest if now - since >= SLOW_SECONDS
        ),
        slow=frozenset(task.sample.id for task in engine.slow),
    )


def line(this: ProgressSnapshot) -> Text:
    """Return the snapshot in a line."""
    parts = [
        f"{this.done:>{len(str(this.total))}}/{this.total}",
        f"{this.done / this.total:4.0%}",
        f"{this.passed} passed, {pluralize(sum(count for _, count in this.errors), 'error')}",
        f"{duration(this.elapsed)} so far" + (f", {this.left}" if this.left else ""),
    ]
    return Text("  ".join(parts))


def frame(this: ProgressSnapshot) -> Group:
    """Return the snapshot as a block: the bar, and four facts."""
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
    facts.add_row(*(("queue", Text(this.queue)) if this.queue else ("slowest", _slowest(this))))
    return Group("", done, facts)


def _passed(this: ProgressSnapshot) -> Text:
    if not this.seen:
        return NOTHING
    low, high = wilson_interval(this.passed, this.seen)
    low_text, high_text = ends_text(low * 100, high * 100)
    new = " new" if this.done > this.seen else ""
    interval = f", 95% interval {low_text}% to {high_text}%" if this.plain else ""
    of = f" {this.passed} of {this.seen}{new}{interval}"
    return Text.assemble((f"{this.passed / this.seen:<7.1%}", "bold"), of)


def _errors(this: ProgressSnapshot) -> Text:
    if not this.errors:
        return Text("none", "dim")
    return Text(", ".join(f"{count} {source}" for source, count in this.errors), "red")


def _speed(this: ProgressSnapshot) -> Text:
    if not this.speed:
        return NOTHING
    parts = [f"{this.speed:,.1f} samples/s"]
    if this.tokens:
        parts.append(tokens_text(this.tokens - this.judge_tokens, this.judge_tokens))
    if this.cost:
        parts.append(money(this.cost))
    return Text(", ".join(parts))


def _slowest(this: ProgressSnapshot) -> Text:
    listed = ", ".join(f"{one_line(name)} {duration(age)}" for name, age in this.slowest)
    if any(name in this.slow for name, _ in this.slowest):
        return Text.assemble(("unusually long, no timeout: ", "yellow"), listed)
    return Text(listed) if listed else NOTHING
