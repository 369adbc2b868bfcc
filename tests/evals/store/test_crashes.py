"""Processes die, disks fill up, calls fail: rows that were reported durable exist exactly once."""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.faulty_sqlite import failing_statement
from tests.forked_wink import Started, start_python
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import EvalResult, Score, Trajectory
from weakincentives.evals.store import RunStore, open_store
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.stored_row import StoredRow
from weakincentives.runtime import Session

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANIFEST = RunManifest(run_id="run", created_at=NOW)
PRELUDE = f"""
import json, os, random, resource, signal, sys, time
sys.path[:] = {sys.path!r}
from tests.evals.store.test_crashes import *
path = sys.argv[1]
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        opened.begin(MANIFEST)
        yield opened


def row(index: int, value: float = 1.0, output: Any = None) -> StoredRow:
    result = EvalResult(
        str(index), Score(value), trajectory=Trajectory(output=output), run_id="run"
    )
    return StoredRow(result=result, position=index)


def put(store: RunStore, indexes: range, value: float = 1.0) -> None:
    for index in indexes:
        store.put(row(index, value))


def positions(path: Path | str) -> list[int]:
    """Return every stored position, after an integrity check of the file."""
    with open_store(path) as store:
        read = store._database.read
        assert read("PRAGMA integrity_check") == [(b"ok",)]
        assert read("SELECT id FROM bodies ORDER BY 1") == read("SELECT body FROM rows ORDER BY 1")
        stored_positions = [row.position for row in store.rows("run")] if store.runs() else []
        assert (
            len(set(stored_positions))
            == len(stored_positions)
            == sum(record.total for record in store.runs())
        )
        return stored_positions


def start_process(code: str, path: Path) -> Started:
    return start_python(PRELUDE + code, str(path), cwd=Path.cwd(), env={**os.environ})


def finish_process(process: Started) -> str:
    stdout, stderr = process.communicate(timeout=240)
    assert (process.returncode, stderr) == (0, "")
    return stdout


# ── processes ───────────────────────────────────────────────────────────────────────────────────


def test_processes_can_create_the_file_and_write_the_same_run_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    code = """
while not os.path.exists(path + ".go"): time.sleep(0.001)
with open_store(path) as store:
    store.begin(MANIFEST)
    put(store, range(300), value=os.getpid())
"""
    processes = [start_process(code, path) for _ in range(3)]
    (tmp_path / "runs.db.go").touch()
    for process in processes:
        finish_process(process)

    assert positions(path) == list(range(300))
    with open_store(path) as store:
        writers = {row.result.score.value for row in store.rows("run")}
    assert writers <= {process.pid for process in processes}


def test_flushed_rows_survive_kill_9(tmp_path: Path) -> None:
    """Twenty writers, each killed at a random moment; the next one continues where it stopped."""
    code = """
durable, random_ = 0, random.Random(9)
for moment in range(20):
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        store = open_store(path)
        store.begin(MANIFEST)
        end = durable
        while True:
            start, end = end, end + random_.choice([1, 7, 150])
            put(store, range(start, end), value=moment)
            store.flush()
            os.write(writer, b"%d " % end)
    os.close(writer)
    first = os.read(reader, 20)  # it is running
    time.sleep(random_.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    reported = first
    while more := os.read(reader, 65536): reported += more
    os.close(reader)
    durable = int(reported.split()[-1])
    found = positions(path)
    assert found == list(range(len(found))) and len(found) >= durable, (len(found), durable)
print(durable)
"""
    flushed = int(finish_process(start_process(code, tmp_path / "runs.db")))
    with open_store(tmp_path / "runs.db") as store:
        writers = [row.result.score.value for row in store.rows("run")]

    assert writers == sorted(writers)  # no writer replaced rows of an earlier one
    assert len(writers) >= flushed


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "gc.collect()"])
def test_a_process_writes_queued_rows_before_it_exits(tmp_path: Path, end: str) -> None:
    code = "store = open_store(path); store.begin(MANIFEST); put(store, range(250))\n"
    finish_process(start_process(code + end, tmp_path / "runs.db"))

    assert positions(tmp_path / "runs.db") == list(range(250))


def test_a_store_that_is_garbage_collected_writes_queued_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")
    store.begin(MANIFEST)
    put(store, range(3))
    del store
    gc.collect()

    assert positions(tmp_path / "runs.db") == [0, 1, 2]


def test_a_forked_process_cannot_use_the_store_of_its_parent(tmp_path: Path) -> None:
    code = """
import warnings; warnings.simplefilter("ignore")  # Python's own, about forks beside threads
store = open_store(path)
store.begin(MANIFEST)
put(store, range(3))
if not os.fork():
    for use in (lambda: put(store, range(3, 6)), store.flush, store.runs):
        try: use()
        except UsageError as error: print(error)
    with open_store(path) as own: put(own, range(6, 9))
else:
    os.wait()
"""
    printed = finish_process(start_process(code, tmp_path / "runs.db"))

    assert printed.count("call `open_store` in the new process") == 3
    assert positions(tmp_path / "runs.db") == [0, 1, 2, 6, 7, 8]


# ── faults at every step ────────────────────────────────────────────────────────────────────────


def work(path: Path, durable: list[Any]) -> None:
    """Write a short run; add to `durable` everything that the store has reported as durable."""
    with open_store(path) as store:
        store.begin(MANIFEST)
        for start in (0, 3):
            put(store, range(start, start + 3))
            store.flush()
            durable += range(start, start + 3)
        store.save("s", Session())
        durable.append("saved")
        put(store, range(6, 9))
        store.finish("run", "complete")
        durable += [*range(6, 9), "complete"]


def check(path: Path, durable: list[Any]) -> None:
    stored_positions = positions(path)
    assert stored_positions == list(range(len(stored_positions)))
    assert set(stored_positions) >= {item for item in durable if isinstance(item, int)}
    with open_store(path) as store:
        if "saved" in durable:
            store.load("s")
        if "complete" in durable:
            assert store.run("run").status == "complete"


@pytest.mark.no_cover
@pytest.mark.parametrize("late", [False, True])
def test_a_fault_at_any_step_neither_loses_nor_duplicates_rows(tmp_path: Path, late: bool) -> None:
    failed = 0
    for step in range(1, 1000):
        path, durable = tmp_path / str(step) / "runs.db", list[Any]()
        message = ""
        with failing_statement(step, late=late) as fault:
            try:
                work(path, durable)
            except StoreError as error:
                message = str(error)
                failed += 1
        assert not message or "disk I/O error" in message
        assert not message or " - an I/O error: check" in message
        check(path, durable)
        if not fault.reached:
            break
        durable_again: list[Any] = []
        work(path, durable_again)  # as a resumed run does
        assert positions(path) == list(range(9))
        check(path, durable_again)
    assert failed > 40  # a failing ROLLBACK, or a failure in the writer thread, may raise nothing


def test_a_write_that_fails_at_any_file_size_loses_nothing(tmp_path: Path) -> None:
    """The operating system limits the size of files, to one more page each time."""
    code = """
from pathlib import Path
failed = 0
for limit in range(0, 240_000, 4096):
    file, durable = Path(path) / str(limit) / "runs.db", []
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
    try: work(file, durable)
    except StoreError as error:
        failed += 1
        assert " - the disk is full" in str(error) or " - an I/O error" in str(error), error
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    check(file, durable)
    work(file, [])
    assert positions(file) == list(range(9))
print(failed)
"""
    assert 10 < int(finish_process(start_process(code, tmp_path))) < 55


def limit_pages(store: RunStore, more: int) -> None:
    """Limit the database to this many more pages, like a disk that is nearly full."""
    ((pages,),) = store._database.read("PRAGMA page_count")
    store._database.read(f"PRAGMA max_page_count = {pages + more}")


def test_a_full_disk_is_reported_and_queued_rows_are_kept(store: RunStore) -> None:
    put(store, range(5))
    store.flush()
    limit_pages(store, 2)
    store.put(row(5, output=os.urandom(20_000).hex()))
    with pytest.raises(StoreError, match=r"full .*the disk is full: free some space, then flush"):
        store.flush()
    with pytest.raises(StoreError, match="the disk is full"):
        store.put(row(6))
    with pytest.raises(StoreError, match="the disk is full"):
        store.finish("run", "complete")

    assert (store.pending, store.run("run").total) == (1, 5)
    limit_pages(store, 1000)
    store.flush()
    store.put(row(6))
    store.finish("run", "complete")
    assert positions(store.path) == list(range(7))


def test_the_next_put_raises_the_error_of_the_writer_thread(store: RunStore) -> None:
    def put_until_full() -> None:
        for index in range(100_000):
            store.put(row(index, output=os.urandom(10_000).hex()))
            time.sleep(0.001)  # let the writer thread run

    limit_pages(store, 2)
    with pytest.raises(StoreError, match="the disk is full"):
        put_until_full()
    queued = store.pending
    limit_pages(store, 1_000_000)
    store.close()

    assert queued > 0
    assert positions(store.path) == list(range(queued))


def test_closing_with_a_full_disk_raises_and_still_closes(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")
    store.begin(MANIFEST)
    limit_pages(store, 0)
    store.put(row(0, output=os.urandom(25_000).hex()))
    with pytest.raises(StoreError, match="the disk is full"):
        store.close()
    with pytest.raises(UsageError, match="closed"):
        store.runs()

    assert positions(tmp_path / "runs.db") == []


def test_rows_that_are_lost_at_exit_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "runs.db")
    store.begin(MANIFEST)
    limit_pages(store, 0)
    store.put(row(0, output=os.urandom(25_000).hex()))
    with caplog.at_level(logging.ERROR):
        del store
        gc.collect()

    assert "1 rows could not be stored" in caplog.text
    assert "the disk is full" in caplog.text


def test_a_file_that_is_locked_for_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.database.BUSY_SECONDS", 0.05)
    with open_store(tmp_path / "runs.db") as store:
        store.begin(MANIFEST)
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        put(store, range(3))
        with pytest.raises(StoreError, match=r"locked .*another process held it.*wait for that"):
            store.flush()
        assert store.run("run").total == 0  # reading needs no lock
        other.execute("COMMIT")
        other.close()
        store.flush()

        assert positions(store.path) == [0, 1, 2]


def test_a_forked_process_with_its_own_store_loses_nothing(tmp_path: Path) -> None:
    """SQLite's locks belong to a process: a connection that a fork inherits would break them."""
    code = f"""
import os, warnings; warnings.simplefilter("ignore")  # Python's own, about forks beside threads
from weakincentives.evals import RunStore, open_store
path = {str(tmp_path / "runs.db")!r}
parent = open_store(path)
parent.keep("before", b"1")
to_parent, to_child = os.pipe(), os.pipe()
if not os.fork():
    child = open_store(path)
    child.keep("first", b"2")
    os.write(to_parent[1], b"x"); os.read(to_child[0], 1)
    child.keep("second", b"3")
    os._exit(0)
os.read(to_parent[0], 1)
parent.keep("meanwhile", b"4")
parent.close()
os.write(to_child[1], b"x"); os.wait()
with open_store(path) as store:
    print([store.find(key) for key in ("before", "first", "meanwhile", "second")])
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )

    assert process.stdout == "[b'1', b'2', b'4', b'3']\n", process.stderr


def test_a_fork_while_other_threads_open_stores_does_no_harm(tmp_path: Path) -> None:
    code = f"""
import os, sys, threading, warnings; warnings.simplefilter("ignore")
from weakincentives.evals import RunStore, open_store
sys.setswitchinterval(1e-6)
others = [open_store(os.path.join({str(tmp_path)!r}, f"open {{number}}")) for number in range(30)]
ended = threading.Event()
def open_stores(name):
    while not ended.is_set():
        open_store(os.path.join({str(tmp_path)!r}, name)).close()
threads = [threading.Thread(target=open_stores, args=(name,)) for name in "abc"]
for thread in threads: thread.start()
for _ in range(30):
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
ended.set()
for thread in threads: thread.join()
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )

    assert (process.returncode, process.stderr) == (0, "")
