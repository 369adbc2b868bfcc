"""The console of stderr, and the progress of a run on it: a block that is redrawn, or lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from rich.console import Console

from ...evals.engine.display import Show, live_block
from ...evals.engine.progress import ProgressSnapshot, line
from .streams import terminal_width

# Without a terminal: a line after another tenth, but not within 10 s; and at least one a minute.
LINE_SHARE, MIN_LINE_SECONDS, MAX_LINE_SECONDS = 0.1, 10.0, 60.0


def console() -> Console:
    """Return the console of stderr."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, width=terminal_width())


@contextmanager
def live_progress(
    now: Callable[[], ProgressSnapshot], *, to: Console, moving: bool
) -> Iterator[Show]:
    """Yield an async function that shows what `now` returns, until it is cancelled."""
    if moving:
        with live_block(now, width=terminal_width()) as show:
            yield show
        return

    async def print_lines() -> None:
        last_time, last_share = 0.0, 0.0
        while True:
            await anyio.sleep(0.5)
            this = now()
            share, waited = this.done / this.total, this.elapsed - last_time
            if waited >= MAX_LINE_SECONDS or (
                waited >= MIN_LINE_SECONDS and share - last_share >= LINE_SHARE
            ):
                last_time, last_share = this.elapsed, share
                to.print(line(this), soft_wrap=True)

    yield print_lines
