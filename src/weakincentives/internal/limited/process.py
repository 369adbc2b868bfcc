"""Start Python code in a process with limits, and end it with everything that it started.

Rules of this file:
1. The process gets no variable of ours, no file of ours but its folder, and no open pipe.
2. However a call ends, the process and its group are killed, and its files are removed.
3. A limit that the system cannot enforce is named in the result, never ignored.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import sysconfig
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.abc

from ...errors import UsageError, WinkError
from ..checks import check_number, check_whole
from ..threads import in_thread

_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The limits of code: wall time and CPU time in seconds, memory, size of each file, output."""

    timeout: float = 10.0
    memory_bytes: int = 512 << 20
    file_bytes: int = 16 << 20
    output_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        check_number(self.timeout, "ProcessLimits.timeout", least=0)
        if not self.timeout:
            raise UsageError("expected `ProcessLimits.timeout` > 0, got 0")
        check_whole(self.memory_bytes, 64 << 20, "ProcessLimits.memory_bytes")
        for name in ("file_bytes", "output_bytes"):
            check_whole(getattr(self, name), 1, f"ProcessLimits.{name}")


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process ended. `exit_code` is negative for a signal, and None after a timeout.

    `unlimited` names what this system could not limit: `network`, `files`, `processes`.
    """

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    unlimited: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        """Whether it was killed after its timeout."""
        return self.exit_code is None


async def run_python(
    code: str, *, limits: ProcessLimits | None = None, folder: Path | None = None
) -> ProcessResult:
    """Run code with the standard library of this Python, in a process with limits.

    It works in `folder`, the only place where it can write; without one, in a folder that is
    removed afterwards.
    """
    if os.name != "posix":
        raise WinkError("expected a POSIX system, which can limit a process, to run Python code")
    limits = limits or ProcessLimits()
    async with AsyncExitStack() as stack:
        private = _temporary_folder(stack)  # ours: the code cannot read it
        folder = _temporary_folder(stack) if folder is None else folder
        program = private / "program.py"
        await anyio.Path(program).write_text(code, "utf-8", "surrogatepass")
        out, err, status = (private / name for name in ("stdout", "stderr", "status"))
        settings = {
            "program": str(program),
            "status": str(status),
            "folder": str(folder),
            "readable": [str(program), *_readable_paths()],
            "memory_bytes": limits.memory_bytes,
            "file_bytes": max(limits.file_bytes, limits.output_bytes),
            "cpu_seconds": math.ceil(limits.timeout) + 1,
        }
        exit_code = await _run(json.dumps(settings), folder, out, err, limits.timeout)
        return ProcessResult(
            exit_code,
            _text(out, limits.output_bytes),
            _text(err, limits.output_bytes),
            () if exit_code is None and not status.exists() else _unlimited(status, err),
        )


def _temporary_folder(stack: AsyncExitStack) -> Path:
    folder = TemporaryDirectory(prefix="wink-", ignore_cleanup_errors=True)

    async def remove() -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(folder.cleanup)

    stack.push_async_callback(remove)
    return Path(folder.name).resolve()


async def _run(settings: str, folder: Path, out: Path, err: Path, timeout: float) -> int | None:
    python = getattr(sys, "_base_executable", None) or sys.executable
    with out.open("wb") as stdout, err.open("wb") as stderr:
        with anyio.CancelScope(shield=True):  # otherwise a process that has just started would leak
            process = await anyio.open_process(
                [python, "-I", "-S", str(_CHILD), settings],
                stdin=DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,  # its own process group
            )
        try:
            with anyio.move_on_after(timeout):
                return await process.wait()
            return None
        finally:
            await _kill(process)


async def _kill(process: anyio.abc.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with anyio.CancelScope(shield=True):
        await process.wait()
        await process.aclose()


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _readable_paths() -> list[str]:
    """Return what Python and its standard library need."""
    paths = sysconfig.get_paths()
    python = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    system = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf"]
    system += ["/etc/localtime", "/usr/share/zoneinfo"]
    shared = sysconfig.get_config_var("LIBDIR")
    own = [str(python), str(python.parent), paths["stdlib"], paths["platstdlib"]]
    return [*own, *([shared] if shared else []), *system]


def _text(file: Path, limit: int) -> str:
    with file.open("rb") as opened:
        data = opened.read(limit + 1)
    text = data[:limit].decode("utf-8", "replace")
    return f"{text}\n... ({limit:,} bytes shown)" if len(data) > limit else text


def _unlimited(status: Path, err: Path) -> tuple[str, ...]:
    try:
        limited: dict[str, Any] = json.loads(status.read_text())
    except (OSError, ValueError):
        raise WinkError(
            f"expected a process with limits to start, but it did not: {_text(err, 500).strip()}"
        ) from None
    return tuple(name for name, is_limited in limited.items() if not is_limited)
