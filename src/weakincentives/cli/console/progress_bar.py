"""The console of stderr, and the progress of a run on it: a block that is redrawn, or lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

import anyio
from rich.console import Console

from ...evals.engine.display import Show, live_block, run_with_progress, supports_live
from ...evals.engine.progress import ProgressSnapshot, line
from ...internal.event_loop import run_sync
from .streams import kept_streams, terminal_width
from .text_tables import UNLIMITED, has_width

# Without a terminal: a line after another tenth, but not within 10 s; and at least one a minute.
LINE_SHARE, MIN_LINE_SECONDS, MAX_LINE_SECONDS = 0.1, 10.0, 60.0


def console() -> Console:
    """Return the console of stderr; a pipe or a file has room for everything."""
    width = terminal_width() or (None if has_width(sys.stderr) else UNLIMITED)
    return Console(stderr=True, highlight=False, markup=False, emoji=False, width=width)


def run_showing_progress(
    main: Callable[[], Awaitable[object]],
    now: Callable[[], ProgressSnapshot],
    args: Namespace,
    to: Console,
    data: TextIO,
) -> None:
    """Run `main` on the event loop, and meanwhile show what `now` returns, unless that is hidden.

    A block that is redrawn would mix with lines of `data` on the same terminal.
    """
    moving = supports_live() and not (args.format == "jsonl" and data.isatty())
    hidden = args.quiet or args.no_progress
    with nullcontext(None) if hidden else _progress(now, to, moving=moving) as show, kept_streams():
        run_sync(run_with_progress, main, show)


@contextmanager
def _progress(now: Callable[[], ProgressSnapshot], to: Console, *, moving: bool) -> Iterator[Show]:
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
