"""A disk that fills up and gets space again.

`python -m chaos._full_disk FOLDER tmpfs|limit` prints JSON.

With `tmpfs`, a file system of a few megabytes is mounted at the folder, in a mount namespace of
this process only (see `run`). With `limit`, no file of this process may grow further; a server
cannot be tested that way.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weakincentives.errors import MailboxConnectionError, StoreError, WinkError
from weakincentives.evals import EvalResult, Score, open_store
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.runtime.mailbox import QueueMailbox, RedisMailbox, SqliteMailbox

from ._server import Server

__all__ = ["run"]

ROOT = Path(__file__).parent.parent
SIZE = 8_000_000
BALLAST = 4_000_000
MAX_MESSAGES = 100_000


def run() -> dict[str, Any]:
    """Return for each part how many messages were accepted, and how many of them were lost."""
    with tempfile.TemporaryDirectory(prefix="wink-chaos-") as folder:
        command = [sys.executable, "-m", "chaos._full_disk", folder]
        mount = f"mount -t tmpfs -o size={SIZE} tmpfs '{folder}' && exec \"$@\""
        isolate = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]
        if os.geteuid() == 0 and _works(["unshare", "--mount", "true"]):
            done = _output([*isolate, *command, "tmpfs"])
        else:
            done = _output([*command, "limit"])
    return dict(json.loads(done))


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _output(command: list[str]) -> bytes:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


class Disk:
    """A disk that fills up and gets space again."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how = folder, how

    def shrink(self) -> None:
        if self.how == "tmpfs":
            (self.folder / "ballast").write_bytes(bytes(BALLAST))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE - BALLAST, resource.RLIM_INFINITY))

    def grow(self) -> None:
        if self.how == "tmpfs":
            (self.folder / "ballast").unlink()
        else:
            unlimited = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))


def body() -> str:
    return secrets.token_hex(4000)  # which does not compress


def accepted(put: Callable[[int], object], error: type[WinkError], first: int = 0) -> int:
    """Return how many were accepted before the disk-full error."""
    for number in range(first, MAX_MESSAGES):
        try:
            put(number)
        except error as refused:
            if not any(word in str(refused) for word in ("disk", "AOF")):
                raise
            return number
    raise AssertionError("expected a disk that fills up, got one that does not")


def through_mailbox(mailbox: QueueMailbox[Any], disk: Disk) -> dict[str, int]:
    def put(number: int) -> object:
        return mailbox.send({"number": number, "text": body()}, id=str(number))

    disk.shrink()
    many = accepted(put, MailboxConnectionError)
    disk.grow()
    _retry(lambda: put(many))  # the one that was refused
    received: list[int] = []
    while messages := mailbox.receive(max_messages=100, visibility_timeout=600):
        received += [message.body["number"] for message in messages]
        mailbox.acknowledge_all(messages)
    return _lost(received, many + 1)


def _retry(call: Callable[[], object]) -> None:
    """Retry until it succeeds: a server checks its disk once a second."""
    end = time.monotonic() + 60
    while True:
        try:
            call()
            return
        except MailboxConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def through_run_store(disk: Disk) -> dict[str, int]:
    path = disk.folder / "runs.db"
    with open_store(path) as store:
        store.begin(RunManifest(run_id="run", created_at=datetime.now(UTC)))

        def put(number: int) -> None:
            result = EvalResult(str(number), Score(1.0, reason=body()), run_id="run")
            store.put(StoredRow(result=result, position=number))
            store.flush()

        disk.shrink()
        many = accepted(put, StoreError)
        disk.grow()
        store.flush()  # the one that was refused is still queued
        put(many + 1)
    with open_store(path) as store:
        received = [int(row.result.sample_id) for row in store.rows("run")]
    path.unlink()
    return _lost(received, many + 2)


def through_server(disk: Disk) -> dict[str, int]:
    # With `always`, a server that cannot write ends itself; nothing is lost then either.
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    with Server(*options, folder=str(disk.folder)) as server, server.client() as client:
        return through_mailbox(RedisMailbox("full", client), disk)


def _lost(received: list[int], many: int) -> dict[str, int]:
    return {
        "accepted": many,
        "lost": len(set(range(many)) - set(received)),
        "twice": len(received) - len(set(received)),
    }


def main(folder: str, how: str) -> None:
    logging.disable()
    disk = Disk(Path(folder), how)
    mail = Path(folder, "mail.db")
    outcome: dict[str, Any] = {"how": how}
    outcome["SqliteMailbox"] = through_mailbox(SqliteMailbox("full", mail), disk)
    for file in Path(folder).glob("mail.db*"):
        file.unlink()
    outcome["RunStore"] = through_run_store(disk)
    if how == "tmpfs":
        outcome["server"] = through_server(disk)
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
