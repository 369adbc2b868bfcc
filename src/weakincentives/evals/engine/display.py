"""Show the progress of a run: in a terminal as a block that is redrawn, in a notebook as an output.

Rules of this file:
1. Nothing is shown unless stderr is a terminal or the code runs in a notebook; nothing in CI and
   under pytest.
2. What other code prints or logs during that time appears above the block. The `write` method of
   the streams is replaced while the block is shown, and not `sys.stderr`: a logging handler keeps
   the stream that it was made with.
3. One block at a time: a run in another thread, or inside an agent, is not shown.
4. A display that fails never ends a run. Rich is imported only if something is shown.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ...clock import SYSTEM_CLOCK
from ...internal.concurrency import unwrap_exception_group
from .tasks import count_of

if TYPE_CHECKING:
    from .progress import ProgressSnapshot
    from .run import Run

T = TypeVar("T")
Show = Callable[[], Coroutine[Any, Any, None]]
"""Shows progress until it is cancelled."""

FRAMES_PER_SECOND = 8
NOTEBOOK_SECONDS = 0.5  # between two updates of a notebook's output

_display_lock = threading.Lock()


def supports_live() -> bool:
    """Return True if stderr is a terminal on which a block can be redrawn."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


def progress_of(run: Run, *, wanted: bool = True) -> AbstractContextManager[Show | None]:
    """Return a context that yields how to show the run's progress; None if it cannot be shown."""
    total = (count_of(run.samples, run.config) or 0) * run.config.epochs
    if not wanted or not total or {"PYTEST_CURRENT_TEST", "PYTEST_VERSION"} & os.environ.keys():
        return nullcontext()
    show = _notebook_output if _in_notebook() else live_block if supports_live() else None
    if show is None:
        return nullcontext()
    from .progress import progress_snapshot

    return show(partial(progress_snapshot, run, total, SYSTEM_CLOCK.monotonic()))


async def run_with_progress(run: Callable[[], Awaitable[T]], show: Show | None) -> T:
    """Run to the end, and show progress while it runs."""
    if show is None:
        return await run()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(show)
            result = await run()
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        error = unwrap_exception_group(errors)
        raise error from error.__cause__
    return result


# ── terminals ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def live_block(now: Callable[[], ProgressSnapshot], *, width: int | None = None) -> Iterator[Show]:
    """Yield a function that redraws a block on stderr with what `now` returns."""
    from rich.console import Console
    from rich.live import Live

    from .progress import frame

    if not _display_lock.acquire(blocking=False):
        yield anyio.sleep_forever
        return
    terminal: Any = _Terminal(sys.stderr)
    console = Console(file=terminal, highlight=False, markup=False, emoji=False, width=width)
    try:
        with (
            _written_above(console),
            Live(
                frame(now()),
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            ) as live,
        ):

            async def draw() -> None:
                with suppress(OSError):  # the terminal is closed
                    while True:
                        live.update(frame(now()), refresh=True)
                        await anyio.sleep(1 / FRAMES_PER_SECOND)
                await anyio.sleep_forever()

            yield draw
    finally:
        _display_lock.release()


class _Terminal:
    """The stream that the block itself is written to, with its own `write` method."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.write = stream, stream.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _written_above(console: Any) -> Iterator[None]:
    """Print what is written to stdout and stderr above the block of `console`.

    Text appears once its line is complete, before a line of stdin is read, or at the end.
    """
    owner = os.getpid()
    lock = threading.RLock()  # a destructor may print while this thread prints
    unfinished: dict[int, str] = {}

    def write(stream: Any, original: Callable[[str], int], text: str) -> int:
        if os.getpid() != owner:  # in a forked process, which has no block
            return original(text)
        with lock:
            before = unfinished.get(id(stream), "")
            *lines, unfinished[id(stream)] = (before + text).split("\n")
            if lines:
                console.out(*map(_after_last_return, lines), sep="\n", highlight=False)
        return len(text)

    def read_line(original: Callable[..., str], *size: int) -> str:
        with lock:
            prompts = [text for text in unfinished.values() if text]
            unfinished.clear()
            if prompts:
                console.out(*prompts, sep="\n", highlight=False)
        return original(*size)

    streams = {
        id(stream): stream
        for stream in (sys.stdout, sys.stderr)
        if stream.isatty() and "write" not in getattr(stream, "__dict__", {"write"})
    }
    for stream in streams.values():
        setattr(stream, "write", partial(write, stream, stream.write))  # noqa: B010  # for mypy
    stdin: Any = sys.stdin
    asks = stdin is not None and "readline" not in getattr(stdin, "__dict__", {"readline"})
    if asks:
        stdin.readline = partial(read_line, stdin.readline)
    try:
        yield
    finally:
        if asks:
            del stdin.readline
        for number, stream in streams.items():
            delattr(stream, "write")
            with suppress(OSError):
                stream.write(unfinished.get(number, ""))


def _after_last_return(line: str) -> str:
    """Return what a terminal would show of a line that was rewritten, as progress bars do."""
    return line.rstrip("\r").rpartition("\r")[2]


# ── notebooks ───────────────────────────────────────────────────────────────────────────────────


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _notebook_output(now: Callable[[], ProgressSnapshot]) -> Iterator[Show]:
    """Yield a function that updates an output of the cell with what `now` returns."""
    from IPython.display import display

    output = display(_as_output(now()), raw=True, display_id=True)

    async def draw() -> None:
        while True:
            await anyio.sleep(NOTEBOOK_SECONDS)
            output.update(_as_output(now()), raw=True)

    try:
        yield draw
    finally:
        output.update(_as_output(now()), raw=True)


def _as_output(this: ProgressSnapshot) -> dict[str, str]:
    from html import escape  # here: its table of entities is only for notebooks

    from .progress import line

    text = str(line(this))
    bar = f'<progress value="{this.done}" max="{this.total}"></progress>'
    return {"text/plain": text, "text/html": f"{bar} <code>{escape(text)}</code>"}
