"""SIGTERM to a plain `loop.run()`: messages in flight finish, or return to their queue at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import TIMEOUT, plain_environment
from weakincentives.evals import Sample, submit_dataset
from weakincentives.runtime.mailbox import SqliteMailbox

PROGRAM = """
import sys, time
from weakincentives.evals import EvalLoop, exact_match
from weakincentives.runtime.mailbox import SqliteMailbox
from weakincentives.runtime.worker import mailbox_loop

mailbox_loop.SIGTERM_GRACE_SECONDS = float(sys.argv[2])
requests, results = (SqliteMailbox(name, sys.argv[1]) for name in ("requests", "results"))

def agent(text):
    print("started", flush=True)
    sys.stdin.read(1)
    return text

EvalLoop(agent, exact_match, requests, results).run()
print("ended", flush=True)
"""


@contextmanager
def worker(file: Path, grace: float) -> Iterator[subprocess.Popen[str]]:
    with started(PROGRAM, file, grace) as process:
        process.send_signal(signal.SIGTERM)
        yield process


@contextmanager
def started(program: str, file: Path, grace: float) -> Iterator[subprocess.Popen[str]]:
    submit_dataset([Sample("1", "a", "a")], SqliteMailbox("requests", file))
    with subprocess.Popen(
        [sys.executable, "-c", program, str(file), str(grace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=plain_environment(PYTHONPATH=os.pathsep.join(sys.path)),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


def test_a_message_that_does_not_finish_is_released_at_once(tmp_path: Path) -> None:
    with worker(tmp_path / "queue.db", grace=0.0) as process:
        process.wait(TIMEOUT)  # its standard input stays open, and the agent waits for it
        out = process.stdout.read() if process.stdout is not None else ""
    (message,) = SqliteMailbox[object]("requests", tmp_path / "queue.db").receive()

    assert (out, process.returncode) == ("ended\n", 0)
    assert message.delivery_count == 2


def test_a_message_in_flight_may_finish(tmp_path: Path) -> None:
    with worker(tmp_path / "queue.db", grace=TIMEOUT) as process:
        out, _ = process.communicate("x", timeout=TIMEOUT)

    assert (out, process.returncode) == ("ended\n", 0)
    assert SqliteMailbox[object]("requests", tmp_path / "queue.db").approximate_count() == 0
    assert SqliteMailbox[object]("results", tmp_path / "queue.db").approximate_count() == 1


def test_the_programs_own_signal_handler_is_kept(tmp_path: Path) -> None:
    program = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('own', flush=True), "
        "sys.exit(3)))\n" + PROGRAM
    )
    with started(program, tmp_path / "queue.db", 60) as process:
        process.send_signal(signal.SIGTERM)

        assert process.stdout is not None
        assert process.stdout.readline() == "own\n"
