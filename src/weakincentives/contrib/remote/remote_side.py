r"""The remote side of `run_remote`: the text of this file is sent over ssh, and runs there.

    input     a JSON line, a tar of the project, then a \x03 for every Ctrl-C; the end of the input
              means that the other side is gone
    output    MARK, then frames: a kind (one letter), a length, that many bytes
              o, e   stdout and stderr of the script
              d      a folder of the results: its relative path
              f      a file: FILE_HEADER and its relative path
              t      a piece of the current file
              x      the exit code of the script

Rules of this file:
1. It uses only the standard library, and nothing newer than Python 3.8.
2. Whatever happens, the script ends before this process does, and its folder is removed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MARK = b"--- wink remote ---\n"
FRAME = struct.Struct(">cI")  # kind, length
MAX_FRAME = 1 << 20
FILE_HEADER = struct.Struct(">I?")  # modified at (seconds), executable
PIECE_BYTES = 1 << 16
TERMINATION_SECONDS = 5.0  # between SIGTERM and SIGKILL, once the other side is gone

_writing = threading.Lock()


def send(kind: bytes, data: bytes) -> None:
    """Write a frame."""
    frame = FRAME.pack(kind, len(data)) + data
    with _writing:
        while frame:
            frame = frame[os.write(1, frame) :]


def forward(kind: bytes, pipe: IO[bytes]) -> None:
    """Write what comes out of the pipe as frames, until its end."""
    with suppress(BrokenPipeError):  # the other side is gone
        while data := os.read(pipe.fileno(), PIECE_BYTES):
            send(kind, data)


class Received:
    """A limited number of bytes of the input, as a file."""

    def __init__(self, source: io.FileIO, left: int) -> None:
        self.source, self.left = source, left

    def read(self, size: int) -> bytes:
        data = self.source.read(min(size, self.left)) or b""
        self.left -= len(data)
        return data


def end(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the script and its child processes."""
    with suppress(ProcessLookupError, PermissionError):  # all have ended
        os.killpg(child.pid, number)


def forward_interrupt(source: io.FileIO, child: subprocess.Popen[bytes]) -> None:
    """Forward Ctrl-C; end the script when the other side is gone."""
    while source.read(1):
        end(child, signal.SIGINT)
    end(child, signal.SIGTERM)
    timer = threading.Timer(TERMINATION_SECONDS, end, (child, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def run(job: dict[str, Any], source: io.FileIO, project: Path) -> None:
    """Run the script; send its output, its results and its exit code."""
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    sent: Any = Received(source, job["size"])
    with tarfile.open(fileobj=sent, mode="r|") as tar:
        tar.extractall(project, **safely)
    while sent.read(PIECE_BYTES):  # skip the padding of the tar
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
        threading.Thread(target=forward_interrupt, args=(source, child), daemon=True).start()
        readers = [
            threading.Thread(target=forward, args=(kind, pipe), daemon=True)
            for kind, pipe in ((b"o", child.stdout), (b"e", child.stderr))
        ]
        for reader in readers:
            reader.start()
        code = child.wait()
    finally:
        end(child, signal.SIGKILL)  # no child process outlives the folder
    for reader in readers:
        reader.join(TERMINATION_SECONDS)  # a process that left the group may hold the pipes open
    send_results(project / job["results"])
    send(b"x", str(code).encode())


def send_results(results: Path) -> None:
    """Send folders and plain files; report everything else on stderr."""

    def report(file: Path, problem: object) -> None:
        line = f"wink: {file.relative_to(results)} is not sent back: {problem}\n"
        send(b"e", line.encode(errors="replace"))

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # there are no results
            report(Path(error.filename), error.strerror)

    for name, folders, names in os.walk(results, onerror=unreadable):  # follows no link
        folder = Path(name)
        folders.sort()
        send(b"d", os.fsencode(folder.relative_to(results)))
        links = [each for each in folders if (folder / each).is_symlink()]
        for file in sorted(folder / each for each in names + links):
            problem = send_file(file, results)
            if problem:
                report(file, problem)


def send_file(file: Path, results: Path) -> str:
    """Send a file, or the target of a link within the results; return why it is not sent, or ''."""
    try:
        real = file.resolve()
        if results.resolve() not in real.parents:
            return "a link to something outside of the results"
        if not real.is_file():
            return "a link to a folder" if real.is_dir() else "neither a file nor a folder"
        with real.open("rb") as source:
            status = os.fstat(source.fileno())
            modified = min(max(0, int(status.st_mtime)), 2**32 - 1)
            head = FILE_HEADER.pack(modified, bool(status.st_mode & stat.S_IXUSR))
            send(b"f", head + os.fsencode(file.relative_to(results)))
            left = status.st_size  # the file may keep growing
            while left > 0 and (data := source.read(min(left, PIECE_BYTES))):
                send(b"t", data)
                left -= len(data)
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError) as error:  # a RuntimeError is a link to itself
        return str(error)
    return ""


def main() -> None:
    """Read a job from stdin and run it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the script must not inherit SIG_IGN
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
