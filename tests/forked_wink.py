"""Run `wink`, or Python, in a fork of a process that has already imported WINK.

Starting Python and importing WINK takes 0.3 s, and the tests run `wink` a thousand times. Here each
command still has a process, folder, environment, streams and exit code of its own. Tests of the
process itself (signals, terminals, pipes, imports, memory) start the installed command instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

__all__ = ["run_python", "run_wink"]

TIMEOUT = 120  # seconds; only a command that hangs needs as long
MAX_REQUEST = 1_000_000  # bytes
# No optional package: which of them a command imports is part of what it stores.
PRELOADED = (
    "anyio._backends._asyncio",
    "statistics",
    "weakincentives.cli.commands.eval_compare",
    "weakincentives.cli.commands.eval_run",
    "weakincentives.cli.commands.eval_show",
    "weakincentives.cli.runner",
    "weakincentives.evals.datasets",
    "weakincentives.evals.engine.resume",
    "weakincentives.evals.engine.row_writer",
    "weakincentives.runtime.agent.main_loop",
)


def run_wink(
    *words: str, cwd: str | Path, env: dict[str, str], stdin: str = "", merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `wink WORDS` and wait for it, as `subprocess.run` does with text.

    With `merged`, stdout also has what goes to stderr, in the order of a terminal.
    """
    return _run(["wink", *words], cwd=cwd, env=env, stdin=stdin, merged=merged)


def run_python(
    *words: str, cwd: str | Path, env: dict[str, str], merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE` or `python FILE ARGUMENTS` in the same way, and wait for it."""
    return _run(["python", *words], cwd=cwd, env=env, merged=merged)


def _run(
    words: list[str], *, cwd: str | Path, env: dict[str, str], stdin: str = "", merged: bool
) -> subprocess.CompletedProcess[str]:
    request = json.dumps({"words": words, "cwd": str(cwd), "env": env, "merged": merged}).encode()
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(stdin)
        given.seek(0)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                files: list[IO[str] | socket.socket] = [given, out, out if merged else err, theirs]
                socket.send_fds(_server()[0], [request], [file.fileno() for file in files])
            code = int(ours.recv(16))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that is forked; it ends once this one has closed the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptor = theirs.fileno()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, __file__, str(descriptor)]
    with theirs:
        process = subprocess.Popen(
            command, env=variables, pass_fds=[descriptor], start_new_session=True
        )
    atexit.register(_end, ours, process)
    return ours, process


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.wait(TIMEOUT)


def _serve(requests: socket.socket) -> None:
    """Fork for each request, until the tests end."""
    sys.path[0] = str(Path(sys.executable).parent)  # as for the installed script
    for module in PRELOADED:
        import_module(module)
    main = sys.modules["weakincentives.cli"].main
    gc.freeze()
    while True:
        request, descriptors, *_ = socket.recv_fds(requests, MAX_REQUEST, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            if (command := os.fork()) == 0:
                _become(json.loads(request), descriptors)
                sys.exit(main() if sys.argv[0] == "wink" else _execute(*sys.argv[1:]))
            _report(command, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        while _ended_child():
            pass


def _ended_child() -> int:
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def _report(command: int, descriptors: list[int]) -> NoReturn:
    """Wait for the command and send its exit code."""
    _, status = os.waitpid(command, 0)
    os.write(descriptors[3], str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take on the arguments, folder, variables and streams of the command."""
    # Otherwise a file that a test changes within a second, at the same length, would not be read.
    sys.dont_write_bytecode = True
    for number, descriptor in enumerate(descriptors):
        if number < 3:
            os.dup2(descriptor, number)
        os.close(descriptor)
    if request["merged"]:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.setsid()
    signal.alarm(TIMEOUT)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = request["words"]


def _execute(option: str, *rest: str) -> None:
    """Do what `python` does with these arguments."""
    is_file = option != "-c"
    code = Path(option).read_text("utf-8") if is_file else rest[0]
    sys.argv = [option, *rest[0 if is_file else 1 :]]
    sys.path[0] = str(Path(option).parent.absolute()) if is_file else ""
    module = sys.modules["__main__"] = ModuleType("__main__")
    if is_file:
        module.__file__ = option
    exec(compile(code, option if is_file else "<string>", "exec"), vars(module))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
