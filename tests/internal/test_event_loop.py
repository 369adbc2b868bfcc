"""One event loop runs all synchronous functions, in whichever thread they are called."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import pytest
import trio

from tests.processes import TIMEOUT
from weakincentives.internal import event_loop
from weakincentives.internal.event_loop import run_sync
from weakincentives.internal.threads import in_thread


async def loop_and_thread() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    await anyio.lowlevel.checkpoint()
    return asyncio.get_running_loop(), threading.current_thread()


async def failing(message: str) -> int:
    raise ValueError(message)


async def cell() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Call a synchronous function while an event loop is running, as in a notebook."""
    return run_sync(loop_and_thread)


def call_in_thread() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run_sync, loop_and_thread).result()


def test_all_callers_share_one_loop_which_runs_in_the_main_thread_if_called_there() -> None:
    loop, thread = run_sync(loop_and_thread)
    from_other_places = [asyncio.run(cell()), trio.run(cell), call_in_thread()]

    assert thread is threading.main_thread()
    assert {each for each, _ in from_other_places} == {loop}
    assert threading.main_thread() not in {thread for _, thread in from_other_places}
    assert run_sync(loop_and_thread) == (loop, thread)


@pytest.mark.parametrize(
    "call", [run_sync, lambda fn: asyncio.run(anyio.to_thread.run_sync(partial(run_sync, fn)))]
)
def test_the_error_of_a_call_is_raised_unchanged(call: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="wrong"):
        call(partial(failing, "wrong"))


@pytest.mark.anyio
async def test_in_a_worker_thread_a_call_runs_on_the_loop_of_that_thread(
    anyio_backend: str,
) -> None:
    async def token() -> object:
        return anyio.lowlevel.current_token()

    assert await in_thread(run_sync, token) == await token()


def test_a_nested_call_from_the_loop_does_not_deadlock() -> None:
    async def nested() -> list[asyncio.AbstractEventLoop]:
        inner = [run_sync(loop_and_thread)[0] for _ in range(2)]
        return [asyncio.get_running_loop(), *inner, await asyncio.to_thread(run_loop)]

    def run_loop() -> asyncio.AbstractEventLoop:
        return run_sync(loop_and_thread)[0]

    outer, inner, second_inner, from_thread = run_sync(nested)

    assert inner is second_inner is not outer
    assert from_thread is outer  # a thread can wait for the outer loop


def test_a_call_runs_on_another_loop_if_the_shared_one_is_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "BLOCKED_SECONDS", 0.01)

    async def blocking() -> bool:
        return call_in_thread()[0] is not asyncio.get_running_loop()

    assert run_sync(blocking)
    assert asyncio.run(notebook(blocking))


async def notebook(call: Callable[[], Any]) -> Any:
    return run_sync(call)


def test_concurrent_calls_share_the_loop_and_continue_when_its_first_caller_returns() -> None:
    started, first_ended = threading.Event(), threading.Event()

    async def second() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        started.set()
        await in_thread(first_ended.wait, TIMEOUT)
        return await loop_and_thread()

    async def first() -> asyncio.AbstractEventLoop:
        future = thread.submit(run_sync, second)
        await in_thread(started.wait, TIMEOUT)
        futures.append(future)
        return asyncio.get_running_loop()

    futures: list[Any] = []
    with ThreadPoolExecutor(1) as thread:
        loop = run_sync(first)
        first_ended.set()
        other, background = futures[0].result(TIMEOUT)

    assert other is loop
    assert background is not threading.main_thread()
    assert run_sync(loop_and_thread) == (loop, threading.main_thread())


def test_a_call_has_the_context_of_its_caller() -> None:
    from contextvars import ContextVar

    name: ContextVar[str] = ContextVar("name", default="")

    async def read() -> str:
        return name.get()

    async def calls() -> str:
        name.set("caller")
        return run_sync(read)

    assert (asyncio.run(calls()), trio.run(calls), run_sync(read)) == ("caller", "caller", "")


def exit_later(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(sys.exit, 7)


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks():
        task.cancel()


ATTACKS: dict[str, tuple[Callable[[asyncio.AbstractEventLoop], object], type[BaseException]]] = {
    "stop": (lambda loop: loop.stop(), RuntimeError),
    "exit": (exit_later, SystemExit),
    "cancel": (cancel_all, asyncio.CancelledError),
    "close": (lambda loop: loop.close(), RuntimeError),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("caller", ["main thread", "other thread"])
def test_the_loop_survives_calls_that_stop_cancel_or_close_it(attack: str, caller: str) -> None:
    action, error = ATTACKS[attack]
    cleaned_up = []

    async def attack_loop() -> None:
        action(asyncio.get_running_loop())
        try:
            await asyncio.sleep(TIMEOUT)
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(attack)

    with ThreadPoolExecutor(1) as thread:
        run = (
            run_sync if caller == "main thread" else lambda fn: thread.submit(run_sync, fn).result()
        )
        before = run(loop_and_thread)[0]
        with pytest.raises(error):
            run(attack_loop)

        assert cleaned_up == ([] if attack == "close" else [attack])
        assert run(loop_and_thread)[0] is before


def test_a_closed_loop_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # A separate loop: that of the process has open connections of other tests.
    own = event_loop._SharedLoop()
    monkeypatch.setattr(event_loop, "_loops", [own])
    before, _ = run_sync(loop_and_thread)
    before.close()

    assert run_sync(loop_and_thread)[0] is not before
    own.close()


def test_an_error_of_a_signal_handler_cancels_the_call_in_another_thread() -> None:
    async def interrupted() -> None:
        try:
            signal.raise_signal(signal.SIGUSR1) if in_main_thread() else os.kill(
                os.getpid(), signal.SIGUSR1
            )
            await asyncio.sleep(TIMEOUT)
        finally:
            ended.append("cleaned up")

    def in_main_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    def handler(*_: object) -> None:
        raise TimeoutError("as pytest-timeout raises it")

    async def notebook() -> None:
        run_sync(interrupted)

    ended: list[str] = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="pytest-timeout"):
            asyncio.run(notebook())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended == ["cleaned up"]


def test_a_connection_closed_between_two_calls_is_noticed() -> None:
    """A server may close a connection that was idle for too long."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        async def connect() -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(*server.getsockname())
            writers.append(writer)
            return reader

        writers: list[asyncio.StreamWriter] = []
        reader = run_sync(connect)
        server.accept()[0].close()

        async def closed() -> bool:
            return reader.at_eof()

        assert run_sync(closed)

        async def close() -> None:
            writers[0].close()
            await writers[0].wait_closed()

        run_sync(close)


# ── exit of the process ─────────────────────────────────────────────────────────────────────────

HEAD = """
import asyncio, os, signal, sys, threading, time
from functools import partial
from weakincentives.internal.event_loop import run_sync
"""


def python(code: str, *, strict: bool = True) -> subprocess.CompletedProcess[str]:
    options = ["-W", "error"] if strict else []
    return subprocess.run(
        [sys.executable, *options, "-c", HEAD + code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


UNFINISHED = {
    "a task": "async def unfinished():\n    await asyncio.sleep(3600)",
    "a task that fails when cancelled": """
async def unfinished():
    try:
        await asyncio.sleep(3600)
    finally:
        raise ValueError("at the end")
""",
    "a task that ignores cancellations": """
async def unfinished():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
""",
    "a task that stops the loop when cancelled": """
async def unfinished():
    try:
        await asyncio.sleep(3600)
    finally:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
""",
    "a thread that hangs": "async def unfinished():\n    await asyncio.to_thread(time.sleep, 3600)",
    "an open generator": """
async def numbers():
    try:
        yield 1
    finally:
        print("closed")
async def unfinished():
    async for _ in numbers():
        await asyncio.sleep(3600)
""",
    "an open connection": """
import socket
server = socket.create_server(("127.0.0.1", 0))
async def unfinished():
    address = server.getsockname()
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
    await asyncio.sleep(3600)
import atexit
atexit.register(server.close)
""",
}


@pytest.mark.parametrize("call", ["run_sync(main)", "asyncio.run(cell())"])
@pytest.mark.parametrize("kind", UNFINISHED)
def test_unfinished_work_ends_silently_with_the_process(kind: str, call: str) -> None:
    code = f"""
{UNFINISHED[kind]}
tasks = []
async def main():
    tasks.append(asyncio.create_task(unfinished()))
    await asyncio.sleep(0.01)
async def cell():
    run_sync(main)
{call}
print("end of script", flush=True)
"""
    done = python(code)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("end of script\n")
    assert ("closed" in done.stdout) == ("generator" in kind)


def test_a_process_exits_while_a_daemon_thread_waits_for_a_call() -> None:
    code = """
begun = threading.Event()
async def forever():
    begun.set()
    await asyncio.sleep(3600)
threading.Thread(target=run_sync, args=(forever,), daemon=True).start()
begun.wait()
print("end of script")
"""
    done = python(code)

    assert (done.returncode, done.stdout) == (0, "end of script\n")


FORK = """
async def answer():
    await asyncio.sleep(0)
    return 42
async def cell():
    return run_sync(answer)
assert run_sync(answer) == 42
child = os.fork()
if not child:
    assert run_sync(answer) == asyncio.run(cell()) == 42
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
assert run_sync(answer) == asyncio.run(cell()) == 42  # the child has not touched its selector
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_forked_process_has_its_own_loop() -> None:
    done = python(FORK, strict=False)

    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # also if it was started ignoring it
async def main():
    print("begun", flush=True)
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.01)
        print("cleaned up", flush=True)
async def stubborn():
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            # Not in this task, in which the next interrupt would be another error.
            asyncio.get_running_loop().call_later(0.01, partial(print, "ignored", flush=True))
async def cell(call):
    try:
        run_sync(call)
    except KeyboardInterrupt as error:
        return error
def notebook(call):
    loop = asyncio.new_event_loop()  # without the signal handler of `asyncio.run`, as in a kernel
    error = loop.run_until_complete(cell(call))
    loop.close()
    raise error
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
async def later():
    return "usable"
print(run_sync(later))
"""


@pytest.mark.parametrize("call", ["run_sync(main)", "notebook(main)"])
def test_ctrl_c_cancels_the_call_and_waits_for_it(call: str) -> None:
    with _start(INTERRUPTED.replace("CALL", call)) as process:
        _interrupt_after(process, "begun")
        out, err = process.communicate(timeout=TIMEOUT)

    assert (process.returncode, err) == (0, "")
    assert out == "cleaned up\ninterrupted\nusable\n"


@pytest.mark.parametrize("call", ["run_sync(stubborn)", "notebook(stubborn)"])
def test_the_third_ctrl_c_abandons_a_call_that_ignores_cancellation(call: str) -> None:
    with _start(INTERRUPTED.replace("CALL", call)) as process:
        for line in ("begun", "ignored", "ignored"):
            _interrupt_after(process, line)
        out, err = process.communicate(timeout=TIMEOUT)

    assert (process.returncode, err) == (0, "")
    assert "interrupted\nusable\n" in out.replace("ignored\n", "")


def _start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _interrupt_after(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"
    process.send_signal(signal.SIGINT)
