"""Run user code in a separate task, so that it can end neither our task nor our event loop.

Theory of operation. On asyncio any code can cancel any task: an agent with its own timer, a
library that cancels every task, a cancellation that was caught but never taken back. In our own
task such a cancellation looks just like one of ours, and a task group that sees it ends quietly,
with samples missing. So user code runs in a task that belongs to no task group:

- cancelled from inside: an ordinary error (`CancelledFromInside`) of that piece of work;
- cancelled from outside, or out of time: its task is cancelled, again each second, and left behind
  after five, so that code which swallows cancellations can hold neither Ctrl-C nor the run;
- whatever it raises is returned, `SystemExit` and Rust panics included. Only `KeyboardInterrupt`,
  which is the user's, passes through.

Trio has no tasks outside of a nursery and no way to cancel one task, so there the code runs in its
own nursery. It cannot be left behind: code that shields itself is waited for.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator

import anyio
import anyio.lowlevel

from ..secrets import logger_for
from .forks import end_if_forked, fork_count

logger = logger_for(__name__)

CANCELLATIONS = 5  # one a second, until a task that ignores them is left behind


class CancelledFromInside(Exception):
    """The code was cancelled by itself, or by something that it called."""

    def __init__(self) -> None:
        super().__init__(
            "cancelled from inside: the code, or something that it called, cancelled its own task "
            "or awaited a task that was cancelled"
        )


async def run_isolated(
    fn: Callable[[], Awaitable[object]], timeout: float | None = None
) -> BaseException | None:
    """Run `fn` in a separate task; return what it raised, or None if it returned.

    After `timeout` seconds it is cancelled; unless it returns anyway, the error is a
    `TimeoutError`. Cancelling the caller cancels it, too.
    """
    if _in_asyncio_task():
        return await _in_own_task(fn, timeout)
    return await _in_own_nursery(fn, timeout)


def _in_asyncio_task() -> bool:
    """Return False on trio, also where trio runs as a guest of asyncio's event loop."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # no event loop of asyncio
        return False


async def _in_own_task(
    fn: Callable[[], Awaitable[object]], timeout: float | None
) -> BaseException | None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    code = _outcome(fn, woken)
    code.send(None)  # enter its `try`, which then catches a cancellation before the first step
    task = loop.create_task(code)
    timer = None if timeout is None else loop.call_later(timeout, _wake, woken)
    try:
        await woken
    except BaseException:
        await _end(task)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if task.done():
        failure = task.result()
        return CancelledFromInside() if isinstance(failure, asyncio.CancelledError) else failure
    if await _end(task):
        return task.result() and _timed_out(timeout)
    return _timed_out(timeout, " (it ignored its cancellation and was left running)")


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _outcome(
    fn: Callable[[], Awaitable[object]], woken: asyncio.Future[None]
) -> BaseException | None:
    """Catch everything here: asyncio would let a `SystemExit` end the whole event loop."""
    forks = fork_count()
    try:
        await _pause()
        await fn()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    finally:
        end_if_forked(forks)
        _wake(woken)
    return None


@types.coroutine
def _pause() -> Generator[None]:
    yield


async def _end(task: asyncio.Task[BaseException | None]) -> bool:
    """Cancel the task; return False if it does not end and is left behind."""
    # From here on asyncio does not know it, or `asyncio.run` would wait for it forever.
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # nor complain about it
    with anyio.CancelScope(shield=True):
        for _ in range(CANCELLATIONS):
            task.cancel()
            await asyncio.wait([task], timeout=1.0)
            if task.done():
                return True
    logger.warning(
        "code that ignored its cancellation for %d s was left running - let CancelledError pass",
        CANCELLATIONS,
    )
    return False


async def _in_own_nursery(
    fn: Callable[[], Awaitable[object]], timeout: float | None
) -> BaseException | None:
    cancelled = anyio.get_cancelled_exc_class()
    ended: list[BaseException | None] = []

    async def run() -> None:
        forks = fork_count()
        try:
            await fn()
        except (KeyboardInterrupt, cancelled):
            raise
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)
        finally:
            end_if_forked(forks)

    with anyio.move_on_after(timeout) as limit:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(run)
        except BaseExceptionGroup as errors:  # such as of a cancel scope that was left open
            if interrupts := errors.subgroup(KeyboardInterrupt):
                raise interrupts.exceptions[0] from None
            ended = [errors.exceptions[0]]
    await anyio.lowlevel.checkpoint_if_cancelled()  # if we were cancelled, there is no result
    failure = ended[0] if ended else CancelledFromInside()
    return failure and (_timed_out(timeout) if limit.cancel_called else failure)


def _timed_out(timeout: float | None, note: str = "") -> TimeoutError:
    return TimeoutError(
        f"timed out after {timeout:g} s{note} - raise --timeout or EvalConfig.timeout "
        "(of an EvalLoop: EvalLoopConfig.timeout)"
    )
