"""Poison and pressure: undecodable and deadly messages, full disks, and overload.

python -m chaos pressure [messages]
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from weakincentives.errors import MailboxConnectionError, MailboxFullError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    Sample,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import (
    OutboundMessage,
    QueueMailbox,
    RedisMailbox,
    SqliteMailbox,
)
from weakincentives.runtime.worker.dead_letters import dead_letters_of
from weakincentives.runtime.worker.worker import DEFAULT_MAX_DELIVERIES

from . import _full_disk
from ._nemesis import Workers
from ._server import Server
from ._worker_script import SELF_HARM, answer

__all__ = ["PARTS", "run"]

ROOT = Path(__file__).parent.parent
MAX_MEMORY_MB = 300.0  # of a process that sends and receives many messages

HUNG = """
import time
from weakincentives.evals import EvalConfig, EvalSuite, Sample, exact_match

def agent(number):
    while number % 10 == 0:
        time.sleep(3600)
    return number

samples = [Sample(str(number), number, number) for number in range(200)]
config = EvalConfig(timeout_per_sample_ms=10_000, max_concurrent=50)
print(EvalSuite(agent, samples, exact_match, config=config).run())
"""
DEADLY = """
import os, sys
from weakincentives.evals import EvalConfig, EvalSuite, Sample, exact_match

def agent(number):
    if number == 7:
        os._exit(0)
    return number

samples = [Sample(str(number), number, number) for number in range(20)]
suite = EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=4))
print(suite.run(store=sys.argv[1], progress=False, **{sys.argv[2]: "run"}))
"""
IMPORT = """
import sys
from weakincentives.contrib.importers.import_to_store import store_reports
from weakincentives.evals import EvalReport, EvalResult, open_store, Score

reports = [EvalReport([EvalResult(str(n), Score(1.0)) for n in range(5_000)]) for _ in range(2)]
with open_store(sys.argv[1]) as store:
    print("ready", flush=True)
    store_reports(store, reports)
"""
MILLION = """
import sys
from bench.engine import highest_memory
from bench.mailbox import million
million(int(sys.argv[1]))
print(highest_memory())
"""


def undecodable() -> str:
    """Half of the messages are undecodable: they become dead letters, the rest is processed."""
    with _folder() as folder, Server() as server, server.client() as client:
        for mailbox in (RedisMailbox[Any]("requests", client), _file_mailbox(folder)):
            results: QueueMailbox[Any] = mailbox.sibling("results")
            garbage = [OutboundMessage(f"g{number}", bytes([number]) * 50) for number in range(100)]
            mailbox.queue.put(garbage, None)
            dataset = Dataset([Sample(str(number), "q", answer("q")) for number in range(100)])
            submission = submit_dataset(dataset, mailbox)
            loop = EvalLoop(answer, exact_match, mailbox, results)
            loop.run(max_iterations=1, wait_time_seconds=1)
            report = collect_results(results, submission, timeout_seconds=30)
            dead = {letter.message_id: letter.raw for letter in dead_letters_of(loop.dead_letters)}
            assert (report.passed, report.total) == (100, 100), report
            assert dead == {letter.id: letter.content for letter in garbage}
    return "2 backends, 100 undecodable of 200: 100 dead letters byte for byte, 100 results each"


def deadly() -> str:
    """A sample kills every worker that runs it; the other samples finish."""
    with _folder() as folder:
        mailbox, results = _file_mailbox(folder), _file_mailbox(folder, "eval-results")
        samples = [Sample(str(number), f"plain:{number}") for number in range(19)]
        dataset = Dataset([*samples, Sample("deadly", "deadly:0")])
        submission = submit_dataset(dataset, mailbox)
        workers = Workers(["own"], [str(folder / "mail.db"), str(folder), "1", "0"])
        with _supervised(workers):
            report = collect_results(results, submission, timeout_seconds=60)
            _wait_until(lambda: mailbox.approximate_count() == 0)  # the dead letter follows
        wrong = [each for each in report.results if each.error and each.sample_id != "deadly"]
        dead = dead_letters_of(mailbox.sibling("eval-requests-dlq"))
        assert report.total == 20, report
        assert not wrong, wrong[:3]
        assert [letter.body.sample.id for letter in dead if letter.body] == ["deadly"], dead
    return f"{workers.ended} workers died of it, 19 of 19 other samples answered, 1 dead letter"


def deadly_local() -> str:
    """A sample ends every process of a local run; resuming gets past it."""
    with _folder() as folder:
        command = [sys.executable, "-c", DEADLY, str(folder / "runs.db")]
        output, processes = _output_of([*command, "run_id"]), 1
        while not output and processes < 10:
            output, processes = _output_of([*command, "resume"]), processes + 1
    assert output.startswith("19/20 passed, 1 error"), output
    assert processes == 4, processes
    return f"{processes - 1} processes ended with exit code 0, then {output.strip()}"


def killed_import() -> str:
    """An import is killed at several moments: its runs are stored whole, or not at all."""
    with _folder() as folder:
        path = folder / "runs.db"
        seconds = _import(path, None)
        for part in range(10):
            _import(path, seconds * part / 5)
        with closing(sqlite3.connect(path)) as reader:
            query = "SELECT status, (SELECT count(*) FROM rows WHERE run = runs.id) FROM runs"
            runs = reader.execute(query).fetchall()
    assert set(runs) == {("complete", 5_000)}, runs
    assert len(runs) % 2 == 0, runs
    return f"10 imports of 2 runs killed, {len(runs) // 2 - 1} were done by then: no run in part"


def _import(path: Path, seconds: float | None) -> float:
    """Import in a process that is killed after so many seconds; return how long it took."""
    command = [sys.executable, "-c", IMPORT, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        process.wait()
    return time.monotonic() - begin


def _output_of(command: list[str]) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout


def self_harm() -> str:
    """Samples cancel their tasks, exit, or stop the event loop: their attempts are limited."""
    with _folder() as folder:
        mailbox, results = _file_mailbox(folder), _file_mailbox(folder, "eval-results")
        questions = [f"{kind}:0" for kind in SELF_HARM] + [f"plain:{n}" for n in range(16)]
        submission = submit_dataset(Dataset([Sample(each, each) for each in questions]), mailbox)
        workers = Workers(["own"], [str(folder / "mail.db"), str(folder), "1", "0"])
        with _supervised(workers):
            report = collect_results(results, submission, timeout_seconds=300)
        tried = Counter((folder / "executions").read_text().splitlines())
        failed = {result.sample_id for result in report.results if result.error}
        assert report.total == len(questions), report
        assert failed == {f"{kind}:0" for kind in SELF_HARM}, failed
        assert max(tried[id] for id in failed) <= DEFAULT_MAX_DELIVERIES, tried
    return (
        f"{len(failed)} samples, {sum(tried[id] for id in failed)} tries, 16 of 16 others answered"
    )


def hung_threads() -> str:
    """Agents hang in threads: their samples time out, the others and the process finish."""
    done = subprocess.run(
        [sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("180/200 passed, 20 errors"), done.stdout
    return f"20 of 200 hang: {done.stdout.strip()}, and the process ended"


def full_disk() -> str:
    """The disks of client and server are full for a while."""
    outcome = _full_disk.run()
    how = outcome.pop("how")
    for name, part in outcome.items():
        assert part["lost"] == part["twice"] == 0 < part["accepted"], (name, part)
    parts = ", ".join(f"{name} {part['accepted']} accepted" for name, part in outcome.items())
    return f"by {how}: {parts}; lost 0, twice 0"


def full_memory() -> str:
    """The server is out of memory: it rejects messages, and those it has can be received."""
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
    with Server(*options) as server, server.client() as client:
        mailbox: RedisMailbox[Any] = RedisMailbox("full", client)
        sent, refusal = 0, ""
        while not refusal:
            try:
                mailbox.send({"number": sent, "text": "x" * 2000}, id=str(sent))
                sent += 1
            except MailboxConnectionError as error:
                refusal = str(error)
        assert "out of memory" in refusal, refusal
        received = [message.body["number"] for message in _drained(mailbox)]
        assert sorted(received) == list(range(sent)), (sent, len(received))
        mailbox.send("again")
        assert mailbox.approximate_count() == 1
    return (
        f"{sent:,} accepted, {len(received):,} received and acknowledged while it was full; lost 0"
    )


def slow_consumer(count: int = 5_000, depth: int = 500) -> str:
    """Senders are faster than the receiver: the queue keeps its limit, and nothing is lost."""
    deepest = refused = 0
    with Server() as server, server.client() as client:
        mailbox: RedisMailbox[Any] = RedisMailbox("deep", client, max_size=depth)

        def send() -> None:
            nonlocal refused
            numbers = iter(range(count))
            while part := list(islice(numbers, 100)):
                ids = [str(number) for number in part]
                while True:
                    try:
                        mailbox.send_all(part, ids=ids)
                        break
                    except MailboxFullError:
                        refused += 1
                        time.sleep(0.005)

        sender = threading.Thread(target=send)
        sender.start()
        received: list[int] = []
        while len(received) < count:
            deepest = max(deepest, mailbox.approximate_count())
            messages = mailbox.receive(max_messages=50, wait_time_seconds=5)
            assert messages, f"{len(received)} of {count} arrived"
            received += [message.body for message in messages]
            assert all(mailbox.acknowledge_all(messages))
            time.sleep(0.002)
        sender.join()
    assert sorted(received) == list(range(count))
    assert deepest <= depth, deepest
    return f"{count:,} sent, {refused:,} times rejected, at most {deepest} queued; lost 0, twice 0"


def many_messages(count: int = 1_000_000) -> str:
    """Sender and receiver handle any number of messages in bounded memory."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION, str(count)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    *figures, peak = done.stdout.strip().splitlines()
    assert float(peak) < MAX_MEMORY_MB, done.stdout
    return f"{'; '.join(figures)}; {float(peak):.0f} MB peak"


PARTS: dict[str, Callable[..., str]] = {
    "undecodable bodies": undecodable,
    "a sample that kills its worker": deadly,
    "a sample that ends a local run": deadly_local,
    "imports that are killed": killed_import,
    "samples that end their task or loop": self_harm,
    "threads that hang": hung_threads,
    "disks full": full_disk,
    "server's memory full": full_memory,
    "slow consumer": slow_consumer,
    "many messages": many_messages,
}


def run(argv: list[str]) -> int:
    """Run every part, and print one line each; return 0 if all passed."""
    logging.disable()
    count = int(argv[0]) if argv else 1_000_000
    failed = 0
    for name, part in PARTS.items():
        start = time.monotonic()
        try:
            line = part(count) if part is many_messages else part()
        except AssertionError as error:
            failed += 1
            line = f"FAILED: {error}"
        print(f"{name:34}{time.monotonic() - start:6.1f} s  {line}", flush=True)
    return 1 if failed else 0


# ── helpers ───────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="wink-chaos-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _file_mailbox(folder: Path, name: str = "eval-requests") -> SqliteMailbox[Any]:
    return SqliteMailbox(name, folder / "mail.db")


def _drained(mailbox: QueueMailbox[Any]) -> Iterator[Any]:
    while messages := mailbox.receive(max_messages=100, visibility_timeout=60):
        yield from messages
        assert all(mailbox.acknowledge_all(messages))


def _wait_until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)


@contextmanager
def _supervised(workers: Workers) -> Iterator[None]:
    """Restart workers that end, inside this context."""
    leave = threading.Event()

    def supervise() -> None:
        while not leave.wait(0.02):
            workers.supervise()

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join()
        workers.end()
