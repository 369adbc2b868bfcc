"""Loops that are started, stopped and watched together; signals in processes of their own."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.processes import until
from weakincentives.errors import DeadlineExceededError, UsageError
from weakincentives.runtime.mailbox import InMemoryMailbox
from weakincentives.runtime.process.lifecycle import LoopGroup
from weakincentives.runtime.worker import shutdown
from weakincentives.runtime.worker.dead_letters import DeadLetter
from weakincentives.runtime.worker.dlq_consumer import DLQConsumer
from weakincentives.runtime.worker.heartbeat import Heartbeat
from weakincentives.runtime.worker.shutdown import ShutdownCoordinator

TIMEOUT = 60.0


class Loop:
    """A loop that runs until it is stopped, unless it is made to crash, finish or ignore that."""

    def __init__(self, name: str = "", error: BaseException | None = None) -> None:
        self.name = name
        self.error = error
        self.deaf = False
        self.heartbeat = Heartbeat()
        self.options: Mapping[str, Any] = {}
        self.stop_requested = threading.Event()
        self.begun = threading.Event()
        self.leave = threading.Event()
        self.running = False

    def run(self, **options: Any) -> None:
        self.options = options
        self.running = True
        self.begun.set()
        try:
            if self.error is not None:
                raise self.error
            assert self.leave.wait(TIMEOUT)
        finally:
            self.running = False

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        self.stop_requested.set()
        if not self.deaf:
            self.leave.set()
        return self.leave.wait(timeout)


@pytest.fixture(autouse=True)
def _restore_signal_handlers() -> Iterator[None]:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    yield
    ShutdownCoordinator.reset()
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def in_thread(group: LoopGroup, **options: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Run the group in a thread, without signals; return the thread and a list of its errors."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            group.run(**options)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def wait_until_running(*loops: Loop) -> None:
    assert all(loop.begun.wait(TIMEOUT) for loop in loops)


# ── the group ───────────────────────────────────────────────────────────────────────────────────


def test_loops_run_side_by_side_until_they_are_asked_to_stop() -> None:
    loops = [Loop(), Loop()]
    group = LoopGroup(loops)
    thread, raised = in_thread(group, visibility_timeout=7, wait_time_seconds=3)
    wait_until_running(*loops)
    was_running = group.running

    assert group.shutdown()
    thread.join(TIMEOUT)
    assert (was_running, group.running, thread.is_alive(), raised) == (True, False, False, [])
    assert loops[0].options == {
        "max_iterations": None,
        "visibility_timeout": 7,
        "wait_time_seconds": 3,
    }


def test_a_real_worker_that_waits_for_messages_stops_at_once() -> None:
    mailbox = InMemoryMailbox[DeadLetter[str]]()
    consumers = [DLQConsumer(mailbox=mailbox, handler=print) for _ in range(3)]
    beaten = [threading.Event() for _ in consumers]
    for consumer, event in zip(consumers, beaten, strict=True):
        consumer.heartbeat.add_callback(event.set)
    group = LoopGroup(consumers, shutdown_timeout=TIMEOUT)
    thread, raised = in_thread(group, wait_time_seconds=3600)
    assert all(event.wait(TIMEOUT) for event in beaten)

    assert group.shutdown()
    thread.join(TIMEOUT)
    assert raised == []


def test_all_loops_are_asked_to_stop_even_if_the_first_hangs() -> None:
    deaf, others = Loop(), [Loop(), Loop()]
    deaf.deaf = True
    group = LoopGroup([deaf, *others], shutdown_timeout=10 * TIMEOUT)
    thread, raised = in_thread(group)
    wait_until_running(deaf, *others)
    in_time = group.shutdown(timeout=0)

    assert not in_time
    assert all(loop.stop_requested.wait(TIMEOUT) for loop in others)
    until(lambda: not any(loop.running for loop in others))
    assert thread.is_alive()
    deaf.leave.set()
    thread.join(TIMEOUT)
    assert raised == []


def test_a_loop_that_does_not_stop_in_time_is_named() -> None:
    loops = [Loop("deaf"), Loop("other"), Loop("also deaf")]
    loops[0].deaf = loops[2].deaf = True
    group = LoopGroup(loops, shutdown_timeout=0.5)
    thread, raised = in_thread(group)
    wait_until_running(*loops)
    began = time.monotonic()
    in_time = group.shutdown()
    thread.join(TIMEOUT)
    seconds = time.monotonic() - began
    for loop in loops:
        loop.leave.set()

    assert not in_time
    assert seconds >= 0.5
    (error,) = raised
    assert isinstance(error, DeadlineExceededError)
    assert "still running: deaf, " in str(error)
    assert "also deaf - their messages are redelivered" in str(error)


def test_a_crash_stops_the_others_and_is_raised() -> None:
    error = RuntimeError("boom")
    steady = [Loop(), Loop()]
    group = LoopGroup([steady[0], Loop(error=error), steady[1]])

    with pytest.raises(RuntimeError) as caught:
        group.run()
    assert caught.value is error
    assert all(loop.stop_requested.is_set() and not loop.running for loop in steady)


def test_several_crashes_are_raised_together() -> None:
    class CrashesWhenAsked(Loop):
        def run(self, **options: Any) -> None:
            super().run(**options)
            raise ValueError("on the way out")

    group = LoopGroup([CrashesWhenAsked(), Loop(error=RuntimeError("boom"))])

    with pytest.raises(ExceptionGroup, match="several loops failed") as caught:
        group.run()
    assert {type(error) for error in caught.value.exceptions} == {RuntimeError, ValueError}


def test_a_loop_that_finishes_leaves_the_others_running() -> None:
    short, long = Loop("short"), Loop("long")
    group = LoopGroup([short, long], watchdog_threshold=60)
    thread, raised = in_thread(group)
    wait_until_running(short, long)
    short.leave.set()
    until(lambda: not short.running and len(group._watchdog._watched) == 1)  # type: ignore[union-attr]

    assert thread.is_alive()
    assert not long.stop_requested.is_set()
    long.leave.set()
    thread.join(TIMEOUT)
    assert raised == []


def test_a_group_that_ended_can_run_again_and_is_watched_again() -> None:
    loop = Loop()
    loop.leave.set()
    group = LoopGroup([loop], watchdog_threshold=60)
    group.run()
    loop.error = RuntimeError("this time")

    with pytest.raises(RuntimeError, match="this time"):
        group.run()


def test_a_shutdown_before_the_start_is_not_forgotten() -> None:
    loop = Loop()
    group = LoopGroup([loop])
    assert group.shutdown()
    group.run()

    assert not loop.begun.is_set()


def test_exiting_the_context_shuts_down() -> None:
    loop = Loop()
    with LoopGroup([loop], health_port=0) as group:
        thread, _ = in_thread(group)
        wait_until_running(loop)
        with pytest.raises(UsageError, match="not running, got one that is"):
            group.run()
        assert ask(group, "/health/live")[0] == 200  # the refused call changed nothing
    thread.join(TIMEOUT)

    assert not thread.is_alive()


def test_a_loop_whose_shutdown_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class FailsToShutDown(Loop):
        def shutdown(self, *, timeout: float = 30.0) -> bool:
            super().shutdown(timeout=timeout)
            raise RuntimeError("no manners")

    loops = [FailsToShutDown(), Loop()]
    group = LoopGroup(loops)
    thread, raised = in_thread(group)
    wait_until_running(*loops)

    assert group.shutdown()
    thread.join(TIMEOUT)
    assert raised == []
    until(lambda: "no manners" in caplog.text)  # logged by another thread


@pytest.mark.parametrize(
    "loops", [[], ["loop"], [same := Loop(), same]], ids=["none", "a word", "one twice"]
)
def test_a_group_must_consist_of_loops(loops: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        LoopGroup(loops)


def test_a_negative_timeout_is_refused() -> None:
    with pytest.raises(UsageError, match="shutdown_timeout"):
        LoopGroup([Loop()], shutdown_timeout=-1)


# ── health ──────────────────────────────────────────────────────────────────────────────────────


def ask(group: LoopGroup, path: str) -> tuple[int, str]:
    assert group.health_address is not None
    connection = http.client.HTTPConnection(*group.health_address, timeout=TIMEOUT)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_group_is_ready_while_all_run_and_beat() -> None:
    loops = [Loop("a"), Loop("b")]
    loops[0].metrics = lambda: {"acknowledged_total": 3}  # type: ignore[attr-defined]
    group = LoopGroup(loops, health_port=0, watchdog_threshold=60)
    thread, _ = in_thread(group)
    wait_until_running(*loops)
    ready, metrics = ask(group, "/health/ready"), ask(group, "/metrics")[1]
    loops[1].running = False
    one_ended = ask(group, "/health/ready")
    group.shutdown()
    thread.join(TIMEOUT)

    assert (ready[0], one_ended[0]) == (200, 503)
    assert 'wink_loop_running{loop="a"} 1.0\n' in metrics
    assert 'wink_acknowledged_total{loop="a"} 3.0\n' in metrics
    assert "# TYPE wink_acknowledged_total counter\n" in metrics
    assert 'wink_heartbeat_age_seconds{loop="b"} ' in metrics
    assert LoopGroup([Loop()]).health_address is None


def test_a_group_that_stops_is_alive_but_not_ready() -> None:
    loop = Loop()
    loop.deaf = True
    group = LoopGroup([loop], health_port=0)
    thread, _ = in_thread(group)
    wait_until_running(loop)
    group.shutdown(timeout=0)
    live, ready = ask(group, "/health/live"), ask(group, "/health/ready")
    loop.leave.set()
    thread.join(TIMEOUT)

    assert (live[0], ready[0]) == (200, 503)


def test_a_port_in_use_is_reported_before_anything_runs() -> None:
    first, loop = LoopGroup([Loop()], health_port=0), Loop()
    thread, _ = in_thread(first)
    wait_until_running(*first.loops)  # type: ignore[arg-type]
    assert first.health_address is not None
    with pytest.raises(UsageError, match="a free address"):
        LoopGroup([loop], health_port=first.health_address[1]).run()
    first.shutdown()
    thread.join(TIMEOUT)

    assert not loop.begun.is_set()


# ── the coordinator ─────────────────────────────────────────────────────────────────────────────


def test_callbacks_are_called_once_in_order_and_each_on_its_own() -> None:
    coordinator = ShutdownCoordinator.install()
    called: list[str] = []
    coordinator.register(lambda: called.append("first"))
    coordinator.register(lambda: 1 / 0)
    coordinator.register(lambda: coordinator.register(lambda: called.append("from inside")))
    coordinator.register(unregistered := lambda: called.append("unregistered"))
    coordinator.unregister(unregistered)
    before = coordinator.triggered
    coordinator.trigger()
    coordinator.trigger()
    coordinator.register(lambda: called.append("late"))

    assert (before, coordinator.triggered) == (False, True)
    assert called == ["first", "from inside", "late"]


def test_reset_restores_the_earlier_signal_handlers() -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    try:
        coordinator = ShutdownCoordinator.install([signal.SIGUSR1])
        assert ShutdownCoordinator.install() is coordinator is ShutdownCoordinator.get()
        ShutdownCoordinator.reset()
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert signals == [signal.SIGUSR1]
    assert ShutdownCoordinator.get() is None


def test_a_signal_wakes_a_thread_that_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_DUPLICATE_SIGNAL_SECONDS", 3600.0)
    coordinator = ShutdownCoordinator.install([signal.SIGUSR1])
    where: list[str] = []
    called = threading.Event()

    def callback() -> None:
        where.append(threading.current_thread().name)
        called.set()

    coordinator.register(callback)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)  # at the same moment: counts as one

    assert called.wait(TIMEOUT)
    assert where == ["wink-shutdown"]


def test_only_the_main_thread_can_install() -> None:
    raised: list[type[BaseException]] = []

    def install() -> None:
        try:
            ShutdownCoordinator.install()
        except UsageError as error:
            raised.append(type(error))

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()

    assert raised == [UsageError]


def test_a_group_uses_an_installed_coordinator_and_keeps_it() -> None:
    coordinator = ShutdownCoordinator.install()
    loop = Loop()
    thread, raised = in_thread(LoopGroup([loop]))
    wait_until_running(loop)
    coordinator.trigger()
    thread.join(TIMEOUT)

    assert not thread.is_alive()
    assert raised == []
    assert coordinator._callbacks == []
    assert ShutdownCoordinator.get() is coordinator


# ── real signals ────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
import os
from weakincentives.runtime.worker import shutdown
from weakincentives.runtime.worker import DLQConsumer
from weakincentives.runtime.process.lifecycle import LoopGroup
from weakincentives.runtime.mailbox import InMemoryMailbox

shutdown._DUPLICATE_SIGNAL_SECONDS = {same_wish}
busy = InMemoryMailbox("busy")

def handle(body):
    print("at work", flush=True)
    os.read(0, 1)
    print("done", flush=True)

consumers = [DLQConsumer(mailbox=InMemoryMailbox("idle"), handler=print) for _ in range(3)]
consumers.append(DLQConsumer(mailbox=busy, handler=handle))
busy.send("job")
LoopGroup(consumers, shutdown_timeout={timeout}).run(install_signals={signals})
print("ended,", busy.approximate_count(), "left")
"""


class Process:
    """Starts the program and waits until it is working; it is ended with the context."""

    def __init__(
        self, timeout: float = TIMEOUT, signals: bool = True, same_wish: float = 3600.0
    ) -> None:
        code = PROGRAM.format(timeout=timeout, signals=signals, same_wish=same_wish)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": ":".join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if first != "at work\n":
            pytest.fail(f"{first}{self.process.communicate()[1]}")
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let its work finish; return the exit code, stdout and stderr."""
    out, err = process.communicate(".", timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_work_finishes_and_no_more_is_taken(number: signal.Signals) -> None:
    with Process() as process:
        process.send_signal(number)
        code, out, _ = ended(process)

    assert (code, out) == (0, "done\nended, 0 left\n")


def test_two_signals_in_quick_succession_count_as_one() -> None:
    with Process() as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0


def test_a_second_signal_exits_immediately() -> None:
    with Process(timeout=10 * TIMEOUT, same_wish=0.2) as process:
        end = time.monotonic() + TIMEOUT
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        assert process.poll() == -signal.SIGTERM


def test_work_that_does_not_finish_in_time_is_abandoned() -> None:
    with Process(timeout=0.3) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 1  # though its work was not done
        err = ended(process)[2]

    assert "DeadlineExceededError: expected all loops to end within 0.3 s" in err
    assert "DLQConsumer-4 - their messages are redelivered" in err


def test_an_interrupt_without_our_handlers_stops_cleanly_too() -> None:
    with Process(signals=False) as process:
        process.send_signal(signal.SIGINT)
        code, out, err = ended(process)

    assert code == -signal.SIGINT
    assert out == "done\n"
    assert "KeyboardInterrupt" in err
