"""The watchdog, on a clock that tests move, and on real processes that are stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from tests.processes import until
from weakincentives.errors import UsageError
from weakincentives.runtime.process.watchdog import Watchdog
from weakincentives.runtime.worker.heartbeat import Heartbeat
from weakincentives.testing import FakeClock

TIMEOUT = 60.0


def test_only_an_old_heartbeat_is_a_stall() -> None:
    clock = FakeClock()
    alive, stuck = Heartbeat(clock), Heartbeat(clock)
    stalls: list[Sequence[str]] = []
    watchdog = Watchdog([alive, stuck], loop_names=["a", "b"], on_stall=stalls.append)
    clock.advance(720)
    at_the_threshold = watchdog.check()
    alive.beat()
    clock.advance(1)

    assert at_the_threshold == ()
    assert watchdog.check() == ("b",)
    assert stalls == [("b",)]


def test_a_stall_is_reported_once_until_the_next_heartbeat() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)
    stalls: list[Sequence[str]] = []
    watchdog = Watchdog([heartbeat], on_stall=stalls.append)
    for _ in range(2):
        clock.advance(721)
        watchdog.check()
        watchdog.check()
        heartbeat.beat()
        watchdog.check()

    assert stalls == [("loop-0",), ("loop-0",)]


def test_all_stacks_are_logged_and_a_failing_callback_is_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    watchdog = Watchdog([Heartbeat(clock)], loop_names=["evals"], on_stall=lambda names: 1 / 0)
    clock.advance(800)
    watchdog.check()

    # Logged by another thread, for which the watchdog waits a little.
    until(lambda: "no heartbeat for more than 720 s: evals (800.0 s)" in caplog.text)
    assert "test_all_stacks_are_logged" in caplog.text  # where this thread was
    assert "ZeroDivisionError" in caplog.text


def test_a_removed_or_unstarted_heartbeat_is_not_a_stall() -> None:
    clock = FakeClock()
    ended, waiting = Heartbeat(clock), Heartbeat(clock)
    clock.advance(10_000)
    watchdog = Watchdog([ended, waiting], on_stall=lambda names: None)
    with watchdog:
        watchdog.forget(ended)
        watchdog.start()  # twice is fine
        assert watchdog.check() == ()
    watchdog.stop()


def test_its_thread_checks_periodically_and_ends_with_it() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)
    stalled = threading.Event()
    with Watchdog(
        [heartbeat], stall_threshold=1, check_interval=0.01, on_stall=lambda names: stalled.set()
    ):
        clock.advance(2)
        assert stalled.wait(TIMEOUT)

    until(lambda: "wink-watchdog" not in [thread.name for thread in threading.enumerate()])


def test_a_callback_may_stop_the_watchdog() -> None:
    clock = FakeClock()
    done = threading.Event()

    def stop(names: Sequence[str]) -> None:
        watchdog.stop()
        done.set()

    watchdog = Watchdog([Heartbeat(clock)], stall_threshold=1, check_interval=0.01, on_stall=stop)
    watchdog.start()
    clock.advance(2)

    assert done.wait(TIMEOUT)


@pytest.mark.parametrize(("threshold", "interval"), [(60, 60), (0, 0), (1, 0), (-1, -2)])
def test_the_interval_must_be_shorter_than_the_threshold(threshold: float, interval: float) -> None:
    with pytest.raises(UsageError, match="check_interval"):
        Watchdog([], stall_threshold=threshold, check_interval=interval)


def test_there_must_be_one_name_per_heartbeat() -> None:
    with pytest.raises(UsageError, match="a name for each of 1"):
        Watchdog([Heartbeat()], loop_names=[])


# The code sets the age of the heartbeat, so that the speed of the machine does not matter.
WATCHED = """
import logging, sys, threading, time
from weakincentives.runtime.process import watchdog as module
from weakincentives.testing import FakeClock
logging.basicConfig(stream=sys.stderr)
clock = FakeClock()
heartbeat = module.Heartbeat(clock)

def watch(threshold=60.0, last_words=30.0):
    module._LOG_TIMEOUT_SECONDS = last_words
    watchdog = module.Watchdog(
        [heartbeat], stall_threshold=threshold, check_interval=0.05, loop_names=["evals"]
    )
    watchdog.start()
    return watchdog
"""
WAITS = """
def stuck_here():
    clock.advance(61)
    threading.Event().wait(600)
watch()
stuck_here()
"""
HOLDS_THE_LOG = """
watch(last_words=0.5)
logging.root.handlers[0].acquire()
clock.advance(61)
threading.Event().wait(600)
"""
HOLDS_PYTHON = """
import re
watch(threshold=0.5, last_words=0.5)
re.match('(a*)*b', 'a' * 40)  # for as good as ever
"""
BEATS = """
watchdog = watch()
for _ in range(50):
    clock.advance(40)
    heartbeat.beat()
    time.sleep(0.01)
watchdog.stop()
print("alive")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WATCHED + code],
        env=os.environ | {"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_process_with_a_stuck_worker_exits_and_prints_its_stack() -> None:
    ended = run(WAITS)

    assert ended.returncode == -signal.SIGKILL
    assert "no heartbeat for more than 60 s: evals (61.0 s)" in ended.stderr
    assert "in stuck_here" in ended.stderr


def test_it_exits_even_if_logging_is_stuck() -> None:
    assert run(HOLDS_THE_LOG).returncode == -signal.SIGKILL


def test_it_exits_even_if_no_other_thread_can_run() -> None:
    ended = run(HOLDS_PYTHON)

    assert ended.returncode == 1  # by the C library: no Python ran
    assert "Timeout" in ended.stderr


def test_a_process_with_heartbeats_keeps_running() -> None:
    ended = run(BEATS)

    assert (ended.returncode, ended.stdout) == (0, "alive\n")
