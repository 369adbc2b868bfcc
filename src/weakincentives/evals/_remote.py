"""`run_remote`: the same script on another machine, over the system's `ssh`.

One connection does it all: the project goes there in a tar, what the script writes comes back as it
is written, and its results at the end (`_remote_side.py` is the other side).

Rules of this file:
1. Nothing secret is on a command line: values of the environment go through the connection.
2. What comes back is not trusted: no file is written outside the folder of the results.
"""

from __future__ import annotations

import codecs
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..errors import RemoteError, UsageError, shown
from ..secrets import scrub
from . import _remote_side

__all__ = ["run_remote"]

_MOST = 1 << 30  # bytes of a project that is sent
_LAST = 2000  # characters of what a script wrote that are in the error when it fails
_FRAME = struct.Struct(">cI")
_UTF8 = codecs.getincrementaldecoder("utf-8")  # a character may be in two pieces
# So that Ctrl-C, which a terminal sends to all, leaves the connection to bring the results.
_UNTOUCHED = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def run_remote(
    script: str | Path,
    host: str | None = None,
    gpu_id: str | int | None = None,
    *,
    args: Sequence[str] | None = None,
    files: Sequence[str | Path] | None = None,
    results: str = "outputs",
    env: Sequence[str] = (),
    python: str | None = None,
    workdir: str = "",
    ssh: Sequence[str] = ("ssh",),
) -> Path:
    """Run a script on another machine, and bring its results back; gives their folder.

    The script runs in a fresh copy of the current folder, which is removed afterwards. What it
    writes is shown as it comes; Ctrl-C ends it there, and its results still come. A script that
    fails is a `RemoteError` with its last lines.

    `host` is what ssh takes, or `WINK_REMOTE_HOST`; `gpu_id` becomes `CUDA_VISIBLE_DEVICES`.
    `args` are the script's own; by default those of this process, less `--remote` and `--gpu-id`.
    `files` are what is sent: by default all but hidden files, virtual environments and `results`.
    `env` names variables whose values go along; no others do. `python`, or `WINK_REMOTE_PYTHON`,
    is the Python there, with WINK installed; `workdir` is where the copy is made.
    """
    if "WINK_REMOTE" in os.environ:
        raise UsageError("expected a run on this machine, the remote one, got `run_remote` again")
    if not hasattr(tarfile, "data_filter"):
        raise UsageError(f"expected Python 3.11.4 or later, got {sys.version.split()[0]}")
    host = host or os.environ.get("WINK_REMOTE_HOST")
    if not host or host.startswith("-"):
        raise UsageError(
            f"expected a host for `run_remote`, got {shown(host)} - "
            "pass `host`, or set WINK_REMOTE_HOST"
        )
    script, here = Path(script).resolve(), Path.cwd().resolve()
    if not script.is_file():
        raise UsageError(f"expected a script, got no file: {script}")
    root = here if script.is_relative_to(here) else script.parent
    place = PurePosixPath(results)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise UsageError(f"expected a folder of the project as `results`, got {shown(results)}")
    job: dict[str, Any] = {
        "script": script.relative_to(root).as_posix(),
        "args": _own_args(script) if args is None else [str(each) for each in args],
        "results": results,
        "workdir": workdir,
        "env": _environment(env, gpu_id),
    }
    python = python or os.environ.get("WINK_REMOTE_PYTHON") or "python3"
    command = f"exec {_path(python)} -c {shlex.quote(_source())}"
    call = (*_UNTOUCHED, *ssh, "-T", "-o", "ServerAliveInterval=15", "--", host, command)
    with tempfile.TemporaryFile() as project:
        _pack(project, root, _chosen(root, script, files, root / results))
        job["size"] = project.tell()
        project.seek(0)
        return _Connection(call, host, root / results).run(job, project)


def _own_args(script: Path) -> list[str]:
    """Those of this process, without what made it go elsewhere; none if it runs another script."""
    if Path(sys.argv[0]).resolve() != script:
        return []
    own, given = [], iter(sys.argv[1:])
    for each in given:
        if each == "--gpu-id":
            next(given, None)
        elif each != "--remote" and not each.startswith("--gpu-id="):
            own.append(each)
    return own


def _environment(names: Sequence[str], gpu_id: str | int | None) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if isinstance(names, str) or missing:
        raise UsageError(
            f"expected names of variables that are set here for `env`, got {shown(names)}"
        )
    more = {} if gpu_id is None else {"CUDA_VISIBLE_DEVICES": str(gpu_id)}
    return {
        "PYTHONUNBUFFERED": "1",
        "WINK_REMOTE": "1",
        **more,
        **{name: os.environ[name] for name in names},
    }


def _path(path: str) -> str:
    """A path in a command; the home folder is the one there."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _source() -> str:
    return Path(_remote_side.__file__).read_text("utf-8")


# ── what is sent ────────────────────────────────────────────────────────────────────────────────


def _chosen(
    root: Path, script: Path, files: Sequence[str | Path] | None, results: Path
) -> Iterator[Path]:
    yield script
    for start in [root] if files is None else [root / each for each in files]:
        if not start.is_relative_to(root) or ".." in start.parts or not start.exists():
            raise UsageError(f"expected files in {root} for `files`, got {shown(str(start))}")
        if start.is_file():
            yield start
        for folder, folders, names in os.walk(start):
            here = Path(folder)
            folders[:] = [
                name
                for name in sorted(folders)
                if not name.startswith((".", "__pycache__"))
                and here / name != results
                and not (here / name / "pyvenv.cfg").exists()
            ]
            yield from (here / name for name in sorted(names) if not name.startswith("."))


def _pack(target: IO[bytes], root: Path, files: Iterator[Path]) -> None:
    size = 0
    with tarfile.open(fileobj=target, mode="w", dereference=True) as tar:
        for file in dict.fromkeys(files):
            if not file.is_file():  # a pipe, a socket, a link to nothing
                continue
            size += file.stat().st_size
            if size > _MOST:
                raise UsageError(
                    f"expected at most {_MOST >> 20} MB to send from {root}, got more - "
                    "name what the script needs: run_remote(..., files=[...])"
                )
            tar.add(file, arcname=file.relative_to(root).as_posix())


# ── what comes back ─────────────────────────────────────────────────────────────────────────────


class _Connection:
    """One ssh, from the first byte that is sent to the last that comes."""

    def __init__(self, call: Sequence[str], host: str, results: Path) -> None:
        self.host, self.results = host, results
        self.last = ""
        self.interrupts = 0
        self.sent = False
        try:
            self.ssh = subprocess.Popen(
                call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise RemoteError(f"expected to run `{call[0]}`, got {error}") from None
        self.input: Any = self.ssh.stdin
        self.output: Any = self.ssh.stdout

    def run(self, job: dict[str, Any], project: IO[bytes]) -> Path:
        """Send, show, receive; the folder of the results."""
        words = threading.Thread(target=self._pass_words_on, daemon=True)
        words.start()
        with self.ssh, _on_interrupt(self._interrupt), tempfile.TemporaryFile() as received:
            with suppress(BrokenPipeError):  # its words say why
                self.input.write(json.dumps(job).encode() + b"\n")
                shutil.copyfileobj(project, self.input)
                self.input.flush()
            self.sent = True
            code = self._frames(received)
            with suppress(BrokenPipeError):
                self.input.close()
            words.join()
            if code is not None and received.tell():
                self._unpack(received)
        if self.interrupts:
            raise KeyboardInterrupt
        if code == 0:
            return self.results
        end = "the connection ended" if code is None else f"it ended with code {code}"
        said = scrub(self.last.strip())
        raise RemoteError(f"{job['script']} on {self.host}: {end}" + (f"\n{said}" if said else ""))

    def _interrupt(self) -> None:
        self.interrupts += 1
        if self.interrupts == 1 and self.sent:
            with suppress(OSError):
                os.write(self.input.fileno(), b"\x03")
        else:
            self.ssh.kill()  # the other side then ends what runs there

    def _pass_words_on(self) -> None:
        """What ssh itself says, and the Python there before it is ours."""
        assert self.ssh.stderr is not None
        for line in self.ssh.stderr:
            self._show(sys.stderr, line.decode(errors="replace"))

    def _frames(self, received: IO[bytes]) -> int | None:
        """How the script ended; None if the connection did before it."""
        for line in self.output:
            greeting = line.removesuffix(_remote_side.MARK)  # of the machine, not of ours
            self._show(sys.stderr, greeting.decode(errors="replace"))
            if greeting != line:
                break
        decode = {kind: _UTF8("replace").decode for kind in (b"o", b"e")}
        while len(head := self.output.read(_FRAME.size)) == _FRAME.size:
            kind, size = _FRAME.unpack(head)
            data = self.output.read(size)
            if kind == b"x":
                code: int = json.loads(data)
                return code
            if kind == b"t":
                received.write(data)
            elif kind in decode:
                self._show(sys.stdout if kind == b"o" else sys.stderr, decode[kind](data))
        return None

    def _show(self, stream: Any, text: str) -> None:
        """At once, and kept in case that it is the last."""
        self.last = (self.last + text)[-_LAST:]
        stream.write(text)
        stream.flush()

    def _unpack(self, received: IO[bytes]) -> None:
        received.seek(0)
        try:
            with tarfile.open(fileobj=received, mode="r:") as tar:
                for member in tar:  # all of them before any is written
                    tarfile.data_filter(member, str(self.results))
                self.results.mkdir(parents=True, exist_ok=True)
                tar.extractall(self.results, filter="data")
        except (tarfile.TarError, OSError) as error:
            received.seek(0)
            with tempfile.NamedTemporaryFile(suffix=".tar", delete=False) as kept:
                shutil.copyfileobj(received, kept)
            raise RemoteError(
                f"expected results for {self.results} from {self.host}, got: {error} - "
                f"what came is in {kept.name}"
            ) from error


@contextmanager
def _on_interrupt(act: Any) -> Iterator[None]:
    """Instead of an exception in the middle of a frame. Only the main thread hears of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
