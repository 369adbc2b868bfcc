r"""The far side of `run_remote`: the text of this file is sent over ssh, and runs there.

    it reads    a JSON line, a tar of the project, then a \x03 for every Ctrl-C; the end of its
                input means that nobody is there any more
    it writes   MARK, then frames: a letter, a length, so many bytes
                (o and e: what the script wrote; t: a piece of the results; x: how it ended)

Rules of this file:
1. It stands alone: only the standard library, and nothing newer than Python 3.8.
2. Whatever happens, the script ends before it does, and its folder is removed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["MARK", "main"]

MARK = b"--- wink remote ---\n"
PATIENCE = 5.0  # seconds in which a script may end by itself once nobody waits for it

_writing = threading.Lock()


class Sender:
    """Writes frames of one kind."""

    def __init__(self, kind: bytes) -> None:
        self.kind = kind

    def write(self, data: bytes) -> int:
        frame = struct.pack(">cI", self.kind, len(data)) + data
        with _writing:
            while frame:
                frame = frame[os.write(1, frame) :]
        return len(data)

    def pass_on(self, pipe: IO[bytes]) -> None:
        """What comes out of the pipe, as it comes."""
        with suppress(BrokenPipeError):  # nobody listens any more
            while data := os.read(pipe.fileno(), 65536):
                self.write(data)


class Received:
    """So many bytes of the input, as a file."""

    def __init__(self, source: io.FileIO, left: int) -> None:
        self.source, self.left = source, left

    def read(self, size: int) -> bytes:
        data = self.source.read(min(size, self.left)) or b""
        self.left -= len(data)
        return data


def end(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the script and all that it started."""
    with suppress(ProcessLookupError, PermissionError):  # none of them is left
        os.killpg(child.pid, number)


def watch(source: io.FileIO, child: subprocess.Popen[bytes]) -> None:
    """Hand Ctrl-C on; end the script when the other side is gone."""
    while source.read(1):
        end(child, signal.SIGINT)
    end(child, signal.SIGTERM)
    last = threading.Timer(PATIENCE, end, (child, signal.SIGKILL))
    last.daemon = True
    last.start()


def run(job: dict[str, Any], source: io.FileIO, project: Path) -> None:
    """Run the script; send what it writes, its results and how it ended."""
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    sent: Any = Received(source, job["size"])
    with tarfile.open(fileobj=sent, mode="r|") as tar:
        tar.extractall(project, **safely)
    while sent.read(65536):  # what a tar is filled up with is no Ctrl-C
        pass
    path = os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [sys.executable, f"./{job['script']}", *job["args"]],  # its name may be `-c`
        cwd=project,
        env={**os.environ, "PYTHONPATH": path, **job["env"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        threading.Thread(target=watch, args=(source, child), daemon=True).start()
        readers = [
            threading.Thread(target=Sender(kind).pass_on, args=(pipe,), daemon=True)
            for kind, pipe in ((b"o", child.stdout), (b"e", child.stderr))
        ]
        for reader in readers:
            reader.start()
        code = child.wait()
    finally:
        end(child, signal.SIGKILL)  # nothing that it started outlives its folder
    for reader in readers:
        reader.join(PATIENCE)  # who left the group may hold its pipes for ever
    results = project / job["results"]
    if results.is_dir():
        pieces: Any = Sender(b"t")
        with tarfile.open(fileobj=pieces, mode="w|") as tar:
            for each in sorted(results.iterdir()):
                tar.add(each, arcname=each.name)
    Sender(b"x").write(json.dumps(code).encode())


def main() -> None:
    """Do the job that comes in."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # where it is ignored, the script would as well
    source = io.FileIO(0, closefd=False)
    job = json.loads(source.readline())
    where = Path(job["workdir"]).expanduser() if job["workdir"] else None
    folder = tempfile.mkdtemp(prefix="wink-", dir=where)
    try:
        os.write(1, MARK)
        with suppress(BrokenPipeError):
            run(job, source, Path(folder, "project"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
