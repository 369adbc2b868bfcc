"""Processes die and fork, disks fill up, calls fail: nothing is lost or delivered twice."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.faulty_sqlite import failing_statement
from tests.runtime.mailbox.test_sqlite import WallClock, bodies, output_of, start_python
from weakincentives.errors import MailboxConnectionError, MailboxError, MailboxFullError
from weakincentives.runtime.mailbox import OutboundMessage, SqliteMailbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


# ── processes ───────────────────────────────────────────────────────────────────────────────────


def test_killed_receivers_neither_lose_nor_repeat_messages(path: Path) -> None:
    """Four processes compete for 2,000 messages; whenever 150 are done one of them gets SIGKILL."""
    code = """
SqliteMailbox("orders", path).send_all(range(2000), ids=map(str, range(2000)))
chance = random.Random(1)

def work(log):
    box = SqliteMailbox("orders", path)
    while box.approximate_count():
        found = box.receive(max_messages=8, visibility_timeout=1, wait_time_seconds=0.5)
        time.sleep(0.002)
        ids = [message.id for message in found]
        os.write(log, json.dumps(["tried", ids]).encode() + b"\\n")
        done = box.acknowledge_all(found)
        os.write(log, json.dumps(["done", [i for i, d in zip(ids, done) if d]]).encode() + b"\\n")
    os._exit(0)

def begin():
    log = os.open(f"{path}.{len(pids) + kills}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    if not (pid := os.fork()): work(log)
    os.close(log)
    return pid

pids, kills = [], 0
for _ in range(4): pids.append(begin())
box = SqliteMailbox("orders", path)
while kills < 12:
    while box.approximate_count() > 2000 - 150 * kills: time.sleep(0.002)
    time.sleep(chance.random() * 0.01)
    os.kill(victim := pids.pop(chance.randrange(4)), signal.SIGKILL)
    os.waitpid(victim, 0)
    kills += 1
    pids.append(begin())
for pid in pids: os.waitpid(pid, 0)
print(kills, SqliteMailbox("orders", path).approximate_count())
"""
    kills, remaining = map(int, output_of(start_python(code, path)).split())
    tried: list[str] = []
    done: list[str] = []
    for log in path.parent.glob("*.log"):
        for line in log.read_text().splitlines():
            kind, ids = json.loads(line)
            (tried if kind == "tried" else done).extend(ids)

    assert (kills, remaining) == (12, 0)
    assert len(done) == len(set(done))  # by one receiver each
    assert set(tried) == {str(i) for i in range(2000)}
    # A receiver may be killed after an acknowledgement and before it printed that.
    assert 2000 - 8 * kills <= len(done) <= 2000


def test_a_sender_that_is_killed_leaves_whole_batches(path: Path) -> None:
    code = """
chance = random.Random(2)
sent = 0
SqliteMailbox("orders", path)
for kill in range(15):
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        box = SqliteMailbox("orders", path)
        while True:
            box.send_all(range(500))
            os.write(writer, b".")
    os.close(writer)
    output = os.read(reader, 1)
    time.sleep(chance.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(reader, 1000): output += more
    os.close(reader)
    sent += len(output) * 500
    count = SqliteMailbox("orders", path).approximate_count()
    assert count % 500 == 0 and sent <= count <= sent + 500, (count, sent)
    sent = count
print(sent)
"""
    assert int(output_of(start_python(code, path))) >= 15 * 500


def test_processes_create_the_file_concurrently(path: Path) -> None:
    code = """
print("here", flush=True)
while not os.path.exists(path + ".go"): time.sleep(0.001)
SqliteMailbox("orders", path).send(os.getpid())
"""
    processes = [start_python(code, path) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    Path(f"{path}.go").touch()
    for process in processes:
        output_of(process)

    assert sorted(bodies(path)) == sorted(process.pid for process in processes)


def test_a_fork_shares_the_mailbox_and_loses_nothing(path: Path) -> None:
    """Check that the child can still write after its parent has closed the mailbox."""
    code = """
box = SqliteMailbox("orders", path)
box.send("before")
parent_closed, signal_child = os.pipe()
if not (child := os.fork()):
    box.send("child")
    other = SqliteMailbox("others", path)
    os.read(parent_closed, 1)
    box.send("child, later")
    other.send("child, elsewhere")
    os._exit(0)
box.send("parent")
while box.approximate_count() < 3: time.sleep(0.01)
box.close()
os.write(signal_child, b".")
assert os.waitpid(child, 0)[1] == 0
"""
    output_of(start_python(code, path))

    assert sorted(bodies(path)) == ["before", "child", "child, later", "parent"]
    assert bodies(path, "others") == ["child, elsewhere"]


def test_a_fork_outside_python_may_not_use_the_mailbox(path: Path) -> None:
    code = """
import ctypes
box = SqliteMailbox("orders", path)
if not (child := ctypes.CDLL(None).fork()):
    try: box.send("tea")
    except Exception as error: print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert "open another in the new process" in output_of(start_python(code, path))


# ── disks ───────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    """Use a small file system if we may mount one, and otherwise a limit on file sizes."""
    code = """
folder, mounted = Path(path).parent, sys.argv[2] == "mounted"
box = SqliteMailbox("orders", path)
sent, refused = [], 0
if not mounted: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, -1))
while not refused:
    batch = [f"{len(sent) + i} " + "x" * 5000 for i in range(7)]
    try: box.send_all(batch)
    except MailboxConnectionError as error:
        assert " - the disk " in str(error), error
        refused += 1
    else: sent += batch
held = []
try: held = box.receive(max_messages=3, visibility_timeout=0)
except MailboxConnectionError as error: assert " - the disk " in str(error), error
assert box.approximate_count() == len(sent)
if mounted: (folder / "filler").unlink()
else: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
box.send_all(batch)
found = []
while part := box.receive(max_messages=50):
    found += [message.body for message in part]
    assert all(box.acknowledge_all(part))
assert sorted(found) == sorted(sent + batch), (len(found), len(sent))
print(len(sent))
"""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        (disk / "filler").write_bytes(b"x" * 1_200_000)
        how = "mounted" if mounted else "limited"
        assert int(output_of(start_python(code, disk / "mail.db", how))) > 7
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_a_file_that_is_not_writable_is_an_error(locked: str) -> None:
    """Run as the user `nobody` if we are root, because root may write everything."""
    code = """
if os.getuid() == 0: os.setuid(65534)
try: SqliteMailbox("orders", path).send("tea")
except MailboxConnectionError as error: print(error)
"""
    with TemporaryDirectory() as name:  # other users cannot enter pytest's own directory
        folder = Path(name)
        if locked == "file":
            SqliteMailbox("orders", folder / "mail.db").close()
            (folder / "mail.db").chmod(0o444)
        folder.chmod(0o555)
        output = output_of(start_python(code, folder / "mail.db"))
        folder.chmod(0o755)

    word = "cannot be written" if locked == "file" else "cannot be opened"
    assert f" - it {word}: " in output
    assert "or use another path" in output


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MailboxConnectionError, match="check that its directory exists"):
        SqliteMailbox("orders", tmp_path / "file" / "mail.db")


# ── a fault at every step ───────────────────────────────────────────────────────────────────────


def work(path: Path, queued: set[str], finished: set[str], acknowledged: set[str]) -> None:
    """Send, receive and acknowledge; record what must be queued, may be queued, and is removed."""
    with SqliteMailbox("orders", path, max_size=9) as mailbox:
        for batch in ("abc", "def"):
            mailbox.send_all(batch, ids=batch)
            queued |= set(batch)
        mailbox.receive(max_messages=4, visibility_timeout=0.001)
        held = mailbox.receive(max_messages=2, visibility_timeout=600)
        queued -= {held[0].id}
        finished.add(held[0].id)
        held[0].acknowledge()
        acknowledged.add(held[0].id)
        held[1].extend_visibility(900)
        held[1].nack()


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_fault_at_any_step_neither_loses_nor_repeats_messages(tmp_path: Path, late: bool) -> None:
    failed = 0
    for at in range(1, 1000):
        path = tmp_path / str(at) / "mail.db"
        queued, finished, acknowledged = set[str](), set[str](), set[str]()
        error_text = ""
        with failing_statement(at, late=late) as fault:
            try:
                work(path, queued, finished, acknowledged)
            except MailboxConnectionError as error:
                error_text = str(error)
                failed += 1
        assert not error_text or " - an I/O error: check" in error_text
        with SqliteMailbox("orders", path, clock=(clock := WallClock())) as mailbox:
            clock.at = datetime.now(UTC) + timedelta(days=1)  # every lease has expired
            bodies = [message.body for message in mailbox.receive(max_messages=20)]
        assert len(bodies) == len(set(bodies))
        assert queued <= set(bodies)
        assert not acknowledged & set(bodies)
        assert len({"d", "e", "f"} & {*bodies, *finished}) in (0, 3)  # a whole batch
        if not fault.reached:
            break
    assert failed > 15


def test_a_batch_that_fails_half_way_leaves_nothing(path: Path) -> None:
    with SqliteMailbox("orders", path, max_size=3) as mailbox:
        with pytest.raises(MailboxFullError, match="0 of 3"):
            mailbox.send_all("abcd")
        bad: Any = [OutboundMessage("1", b"x"), OutboundMessage("2", object())]
        with pytest.raises(MailboxError):
            mailbox.queue.put(bad, None)

        assert mailbox.approximate_count() == 0
