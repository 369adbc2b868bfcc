"""`run_remote`: run a script on another machine, over the system's `ssh`.

One connection is used: the project is sent as a tar, the output of the script is received while it
runs, and its results at the end (`contrib/remote/remote_side.py` is the remote side).

Rules of this file:
1. No secret is on a command line: values of the environment are sent through the connection.
2. Data from the remote side is not trusted: `contrib/remote/results.py` checks and writes it.
3. Memory is bounded by the largest frame, whatever the remote side sends.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ...errors import RemoteError, UsageError, short_repr
from ...internal.checks import check_whole
from ...internal.interrupts import handled_signals
from ...secrets import redact
from . import remote_side as _remote_side
from .project import pack_project
from .remote_side import FRAME, MARK, MAX_FRAME
from .results import IncomingResults, ResultsError

_MAX_OUTPUT_IN_ERROR = 2000  # characters of the script's output in the error when it fails
_CLEANUP_TIMEOUT_SECONDS = 30.0  # for the remote side, after it has sent the exit code
_UTF8 = codecs.getincrementaldecoder("utf-8")  # a character may be split between two pieces
_EXIT_CODE = re.compile(rb"-?[0-9]{1,10}").fullmatch
# A terminal sends Ctrl-C to all processes; ssh must survive it to bring the results back.
_IGNORE_SIGINT = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


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
    max_results_bytes: int = 10 << 30,
    ssh: Sequence[str] = ("ssh",),
) -> Path:
    """Run a script on another machine, copy its results back, and return their folder.

    The script runs in a fresh copy of the current folder, which is removed afterwards. Its output
    is printed while it runs; Ctrl-C ends the script, and its results are still copied. A script
    that fails raises a `RemoteError` with its last lines of output.

    `host` is a host for ssh, or `WINK_REMOTE_HOST`; `gpu_id` becomes `CUDA_VISIBLE_DEVICES`.
    `args` are the script's arguments; by default those of this process, without `--remote` and
    `--gpu-id`. `files` are sent: by default all but hidden files, virtual environments and
    `results`. `env` names the variables whose values are sent. `python`, or `WINK_REMOTE_PYTHON`,
    is the remote Python, with WINK installed; `workdir` is the remote folder for the copy.

    The other machine is not trusted: it can write plain files into `results`, at most
    `max_results_bytes` in all, and nothing anywhere else. A link in the project is sent if its
    target is sent, or if `files` names it; a message lists the others.
    """
    if "WINK_REMOTE" in os.environ:
        raise UsageError("expected no `run_remote` inside a script on the remote machine")
    host = _checked_host(host)
    script, root = _script_and_root(script)
    _check_results(results)
    check_whole(max_results_bytes, 1, "max_results_bytes")
    job: dict[str, Any] = {
        "script": script.relative_to(root).as_posix(),
        "args": _own_args(script) if args is None else [str(arg) for arg in args],
        "results": results,
        "workdir": workdir,
        "env": _environment(env, gpu_id),
    }
    python = python or os.environ.get("WINK_REMOTE_PYTHON") or "python3"
    command = f"exec {_quote_path(python)} -c {shlex.quote(_source())}"
    call = (*_IGNORE_SIGINT, *ssh, "-T", "-o", "ServerAliveInterval=15", "--", host, command)
    with tempfile.TemporaryFile() as project:
        sys.stderr.write(pack_project(project, root, script, files, root / results))
        job["size"] = project.tell()
        project.seek(0)
        incoming = IncomingResults(root / results, max_results_bytes)
        return _Connection(call, host, incoming).run(job, project)


def _checked_host(host: str | None) -> str:
    """Return the host, or that of WINK_REMOTE_HOST; it must not be an option of ssh."""
    host = host or os.environ.get("WINK_REMOTE_HOST")
    if not host or host.startswith("-"):
        raise UsageError(
            f"expected a host for `run_remote`, got {short_repr(host)} - "
            "pass `host`, or set WINK_REMOTE_HOST"
        )
    return host


def _script_and_root(script: str | Path) -> tuple[Path, Path]:
    """Return the script, and the folder to send: the current one, if the script is in it."""
    path, folder = Path(script).resolve(), Path.cwd().resolve()
    if not path.is_file():
        raise UsageError(f"expected a script, got no file: {path}")
    return path, folder if path.is_relative_to(folder) else path.parent


def _check_results(results: str) -> None:
    path = PurePosixPath(results)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(
            f"expected a folder of the project as `results`, got {short_repr(results)}"
        )


def _own_args(script: Path) -> list[str]:
    """Return the arguments of this process without the remote options; none for another script."""
    if Path(sys.argv[0]).resolve() != script:
        return []
    args, rest = [], iter(sys.argv[1:])
    for arg in rest:
        if arg == "--gpu-id":
            next(rest, None)
        elif arg != "--remote" and not arg.startswith("--gpu-id="):
            args.append(arg)
    return args


def _environment(names: Sequence[str], gpu_id: str | int | None) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if isinstance(names, str) or missing:
        raise UsageError(
            f"expected names of variables that are set here for `env`, got {short_repr(names)}"
        )
    return {
        "PYTHONUNBUFFERED": "1",
        "WINK_REMOTE": "1",
        **({} if gpu_id is None else {"CUDA_VISIBLE_DEVICES": str(gpu_id)}),
        **{name: os.environ[name] for name in names},
    }


def _quote_path(path: str) -> str:
    """Quote a path for the remote shell, which expands the home folder."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _source() -> str:
    return Path(_remote_side.__file__).read_text("utf-8")


# ── the connection ──────────────────────────────────────────────────────────────────────────────


class _Connection:
    """One ssh process, from start to end."""

    def __init__(self, call: Sequence[str], host: str, incoming: IncomingResults) -> None:
        self.host, self.incoming = host, incoming
        self.last = ""
        self.interrupts = 0
        self.sent = False
        try:
            self.ssh = subprocess.Popen(
                call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise RemoteError(f"cannot run `{call[0]}`: {error}") from None
        self.input: Any = self.ssh.stdin
        self.output: Any = self.ssh.stdout

    def run(self, job: dict[str, Any], project: IO[bytes]) -> Path:
        """Send the project, print the output, receive the results; return their folder."""
        stderr = threading.Thread(target=self._forward_stderr, daemon=True)
        stderr.start()
        # Ctrl-C must not raise within a frame.
        with self.ssh, handled_signals(self._interrupt, signal.SIGINT):
            with suppress(BrokenPipeError):  # stderr has the reason
                self.input.write(json.dumps(job).encode() + b"\n")
                shutil.copyfileobj(project, self.input)
                self.input.flush()
            self.sent = True
            try:
                code = self._receive()
                with suppress(BrokenPipeError):
                    self.input.close()
                with suppress(subprocess.TimeoutExpired):
                    self.ssh.wait(_CLEANUP_TIMEOUT_SECONDS)
                if code is not None:
                    self.incoming.move_into_place()
                elif self.interrupts:
                    self.incoming.discard()
            except (ResultsError, OSError) as error:
                if isinstance(error, OSError):  # such as a full disk
                    error = self.incoming.error(str(error))
                raise RemoteError(
                    f"expected results for {self.incoming.results} from {self.host}, got: {error}"
                ) from None
            finally:
                self.ssh.kill()  # it may hang
                stderr.join(_CLEANUP_TIMEOUT_SECONDS)
        if self.interrupts:
            raise KeyboardInterrupt
        if code == 0:
            return self.incoming.results
        reason = f"it ended with code {code}"
        if code is None:
            reason = str(self.incoming.error("the connection ended"))
        output = redact(self.last.strip())[-_MAX_OUTPUT_IN_ERROR:]  # redacted before it is cut
        raise RemoteError(
            f"{job['script']} on {self.host}: {reason}" + (f"\n{output}" if output else "")
        )

    def _interrupt(self, number: int) -> None:
        self.interrupts += 1
        if self.interrupts == 1 and self.sent:
            with suppress(OSError, ValueError):  # closed, since the script has ended
                os.write(self.input.fileno(), b"\x03")
        else:
            self.ssh.kill()  # the remote side then ends the script

    def _forward_stderr(self) -> None:
        """Print what ssh writes, and the remote Python before our code runs in it."""
        stderr: Any = self.ssh.stderr
        decode = _UTF8("replace").decode
        while data := stderr.read1(MAX_FRAME):
            self._print(sys.stderr, decode(data))

    def _receive(self) -> int | None:
        """Print output, store results; return the exit code, None if the connection ended first."""
        while line := self.output.readline(MAX_FRAME):
            banner = line.removesuffix(MARK)  # what the machine prints at login
            self._print(sys.stderr, banner.decode(errors="replace"))
            if banner != line:
                break
        decode = {kind: _UTF8("replace").decode for kind in (b"o", b"e")}
        store = {
            b"d": self.incoming.add_folder,
            b"f": self.incoming.begin_file,
            b"t": self.incoming.write,
        }
        while len(head := self.output.read(FRAME.size)) == FRAME.size:
            kind, size = FRAME.unpack(head)
            if size > MAX_FRAME:
                raise self.incoming.error(f"expected frames of at most 1 MB, got {size:,} bytes")
            data = self.output.read(size)
            if len(data) < size:
                break
            if kind == b"x":
                if not _EXIT_CODE(data):
                    raise self.incoming.error(f"expected an exit code, got {short_repr(data)}")
                return int(data)
            if kind in decode:
                self._print(sys.stdout if kind == b"o" else sys.stderr, decode[kind](data))
            elif kind in store:
                store[kind](data)
            else:
                raise self.incoming.error(
                    f"expected a frame of a known kind, got {short_repr(kind)}"
                )
        return None

    def _print(self, stream: Any, text: str) -> None:
        """Print at once, and keep the last lines for an error."""
        self.last = (self.last + text)[-2 * _MAX_OUTPUT_IN_ERROR :]
        stream.write(text)
        stream.flush()
