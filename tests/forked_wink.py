"""Run `wink`, or Python code, in a fork of a process that has already imported WINK.

Starting Python and importing WINK takes 0.3 s, and the tests do so a thousand times. Here each
command still has a process, folder, environment, streams and exit code of its own. Tests of the
process itself (signals, terminals, pipes, imports) start the installed command instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import IO, Any, NoReturn

__all__ = [
    "Completed",
    "Started",
    "run_file",
    "run_python",
    "run_wink",
    "start_python",
    "start_wink",
]

TIMEOUT = 120  # seconds; only a command that hangs needs as long
MAX_REQUEST = 1_000_000  # bytes
# No optional package: which of them a command imports is part of what it stores.
PRELOADED = (
    "anyio._backends._asyncio",
    "email.parser",
    "statistics",
    "weakincentives.cli.runner",
    "weakincentives.evals.benchmarks.summaries",
    "weakincentives.evals.datasets",
    "weakincentives.evals.engine.resume",
    "weakincentives.evals.engine.row_writer",
    "weakincentives.runtime.agent.main_loop",
)


class Completed(subprocess.CompletedProcess[str]):
    """A process that has ended, and how much memory it used."""

    peak_kb: int  # about 40,000 of them are Python and WINK


class Started:
    """A process that runs, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, argv: list[str], control: socket.socket, out: int, err: int) -> None:
        self.args, self.returncode = argv, None
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)
        self._control = control
        self.pid = int(control.recv(64))

    args: list[str]
    returncode: int | None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return the rest of both streams, the first time."""
        if self.stdout.closed:
            return "", ""
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as threads:
            out, err = (threads.submit(file.read) for file in (self.stdout, self.stderr))
            self.wait(timeout)
            return out.result(), err.result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._control], [], [], timeout)[0]:
            self.returncode = int(self._control.recv(64).split()[0])
            self._control.close()
        return self.returncode


def start_wink(*words: str, cwd: str | Path, env: dict[str, str]) -> Started:
    """Start `wink WORDS` in a session of its own, with nothing on standard input."""
    return _start(["wink", *words], cwd=cwd, env=env)


def start_python(code: str, *words: str, cwd: str | Path, env: dict[str, str]) -> Started:
    """Start `python -c CODE WORDS` in a session of its own, with nothing on standard input."""
    return _start(["-c", *words], cwd=cwd, env=env, code=code)


def _start(
    argv: list[str], *, cwd: str | Path, env: dict[str, str], code: str | None = None
) -> Started:
    (out, for_out), (err, for_err) = os.pipe(), os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {"argv": argv, "cwd": str(cwd), "env": env, "code": code, "merged": False}
    request["timeout"] = 5 * TIMEOUT  # a test may wait for several things while it runs
    with theirs, Path(os.devnull).open() as nothing:
        descriptors = [nothing.fileno(), for_out, for_err, theirs.fileno()]
        socket.send_fds(_server()[0], [json.dumps(request).encode()], descriptors)
        os.close(for_out)
        os.close(for_err)
    return Started(argv, ours, out, err)


def run_wink(*words: str, **options: Any) -> Completed:
    """Run `wink WORDS` and wait for it; the options are those of `_run`."""
    return _run(["wink", *words], **options)


def run_python(code: str, *words: str, **options: Any) -> Completed:
    """Run `python -c CODE WORDS` and wait for it; the options are those of `_run`."""
    return _run(["-c", *words], code=code, **options)


def run_file(path: str | Path, *words: str, **options: Any) -> Completed:
    """Run `python FILE WORDS` and wait for it; the options are those of `_run`."""
    code = Path(options["cwd"], path).read_text("utf-8")
    return _run([str(path), *words], code=code, **options)


def _run(
    argv: list[str],
    *,
    cwd: str | Path,
    env: dict[str, str],
    code: str | None = None,
    stdin: str = "",
    merged: bool = False,
    preload: tuple[str, ...] = (),
) -> Completed:
    """Run the Python code, or `wink` without any.

    With `merged`, stdout also has what goes to stderr, in the order of a terminal. `preload` names
    more modules that have already been imported: those of a provider take a second or two.
    """
    request = {"argv": argv, "cwd": str(cwd), "env": env, "code": code, "merged": merged}
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(stdin)
        given.seek(0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                files: list[IO[str] | socket.socket] = [given, out, out if merged else err, theirs]
                descriptors = [file.fileno() for file in files]
                socket.send_fds(_server(*preload)[0], [json.dumps(request).encode()], descriptors)
            ours.recv(64)  # the process id
            returncode, peak_kb = map(int, ours.recv(64).split())
        out.seek(0)
        err.seek(0)
        completed = Completed(argv, returncode, out.read(), err.read())
    completed.peak_kb = peak_kb
    return completed


@cache
def _server(*preload: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that is forked; it ends once this one has closed the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptor = theirs.fileno()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, __file__, str(descriptor), *preload]
    with theirs:
        process = subprocess.Popen(
            command, env=variables, pass_fds=[descriptor], start_new_session=True
        )
    atexit.register(_end, ours, process)
    return ours, process


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.wait(TIMEOUT)


def _serve(requests: socket.socket, *preload: str) -> None:
    """Fork for each request, until the tests end."""
    sys.path[0] = str(Path(sys.executable).parent)  # as for the installed script
    for module in (*PRELOADED, *_commands(), *preload):
        import_module(module)
    evals = import_module("weakincentives.evals")
    for name in evals.__all__:
        getattr(evals, name)  # imported when it is first used
    main = sys.modules["weakincentives.cli"].main
    gc.freeze()
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    running: dict[int, int] = {}  # process id of a command, descriptor for its exit code
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            _report_ended(running)
        if requests not in ready:
            continue
        request, descriptors, *_ = socket.recv_fds(requests, MAX_REQUEST, 4)
        if not request:
            return
        if (command := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (requests.fileno(), ended.fileno(), wake.fileno()):
                os.close(descriptor)
            for descriptor in running.values():
                os.close(descriptor)
            code = _become(json.loads(request), descriptors)
            _exit_after(main if code is None else partial(_execute, code))
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        running[command] = descriptors[3]
        os.write(descriptors[3], str(command).encode())


def _commands() -> list[str]:
    """Return the modules of all commands."""
    package = import_module("weakincentives.cli.commands")
    return [f"{package.__name__}.{module.name}" for module in iter_modules(package.__path__)]


def _report_ended(running: dict[int, int]) -> None:
    """Send the exit code and peak memory of each command that has ended."""
    while running:
        command, status, usage = os.wait4(-1, os.WNOHANG)
        if command == 0:
            return
        ended = f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}"
        with suppress(ConnectionError):  # the test did not wait for it
            os.write(running[command], ended.encode())
        os.close(running.pop(command))


def _exit_after(run: Callable[[], Any]) -> NoReturn:
    """Exit with the code that the function returns, like Python, but without freeing all modules.

    That would take 30 ms of CPU time, ten times as long as the fork.
    """
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code
    if code is not None and not isinstance(code, int):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads
    atexit._run_exitfuncs()
    gc.collect()  # report what is only found to be left open when it is freed
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _execute(code: str) -> None:
    """Run the code, of `-c` or of a file, as the main module."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.path[0], name = "", "<string>"
    if sys.argv[0] != "-c":
        main.__file__ = name = sys.argv[0]
        sys.path[0] = str(Path(name).parent.absolute())
    exec(compile(code, name, "exec"), vars(main))


def _become(request: dict[str, Any], descriptors: list[int]) -> str | None:
    """Take on the arguments, folder, variables and streams of the command; return its code."""
    # Otherwise a file that a test changes within a second, at the same length, would not be read.
    sys.dont_write_bytecode = True
    for number, descriptor in enumerate(descriptors):
        if number < 3:
            os.dup2(descriptor, number)
        os.close(descriptor)
    if request["merged"]:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.setsid()
    signal.alarm(request.get("timeout", TIMEOUT))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = request["argv"]
    code: str | None = request["code"]
    return code


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
