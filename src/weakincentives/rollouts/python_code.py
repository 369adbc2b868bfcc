"""An environment in which an agent runs Python code, in processes with limits."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..internal.limited import ProcessLimits, ProcessResult, run_python
from ..internal.threads import in_thread
from ..prompt import Tool, ToolResult
from .environment import check_envelope

MAX_SNAPSHOT_BYTES = 4 << 20  # all files together


@dataclass(frozen=True, slots=True)
class PythonCode:
    """The parameters of the tool: a program. Only what it prints is returned."""

    code: str


class PythonEnvironment:
    """Python code as a tool. Each call is a new process; files in its folder stay.

    A call may take `timeout` seconds and `memory_mb`; it has the standard library, no network and
    no files but those of its folder, as far as the system can guarantee it (docs/security.md;
    `unlimited` names what it cannot). Snapshots hold the files, up to 4 MiB in all.

    >>> import asyncio
    >>> env = PythonEnvironment({"numbers.txt": "3 4"})
    >>> code = "print(sum(map(int, open('numbers.txt').read().split())))"
    >>> asyncio.run(env.tools[0].call({"code": code})).text
    '7\\n'
    >>> asyncio.run(env.close())
    """

    ENV_KIND = "python_code"
    VERSION = "1.0.0"

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        timeout: float = 10.0,
        memory_mb: int = 512,
    ) -> None:
        self._limits = ProcessLimits(timeout=timeout, memory_bytes=memory_mb << 20)
        self._memory_mb = memory_mb
        checked = {_checked_path(name): data for name, data in (files or {}).items()}
        self.calls = 0
        self.unlimited: tuple[str, ...] = ()
        self._open = True
        self._folder = TemporaryDirectory(prefix="wink-code-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name).resolve()
        for name, data in checked.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data.encode() if isinstance(data, str) else data)
        about = "Run a Python program with the standard library. Print what you want to see."
        self.tools = (Tool[PythonCode, str]("run_python", about, self._run),)

    async def _run(self, params: PythonCode) -> ToolResult[str]:
        if not self._open:
            return ToolResult.failed("the environment is closed")
        self.calls += 1
        result = await run_python(params.code, limits=self._limits, folder=self.folder)
        self.unlimited = result.unlimited
        return self._tool_result(result)

    def _tool_result(self, result: ProcessResult) -> ToolResult[str]:
        text = result.stdout + (f"\n{result.stderr}" if result.stderr else "")
        if result.timed_out:
            return ToolResult.failed(f"timed out after {self._limits.timeout:g} s\n{text}".strip())
        if result.exit_code:
            return ToolResult.failed(f"exit code {result.exit_code}\n{text}".strip())
        return ToolResult.ok(text or "(no output)")

    async def serialize(self) -> dict[str, Any]:
        """Return the files, with kind and version."""
        return {
            "env_kind": self.ENV_KIND,
            "version": self.VERSION,
            "files": await in_thread(_read_files, self.folder),
            "calls": self.calls,
            "timeout": self._limits.timeout,
            "memory_mb": self._memory_mb,
        }

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> PythonEnvironment:
        """Return an environment with those files, in a new folder."""
        check_envelope(data, PythonEnvironment.ENV_KIND, PythonEnvironment.VERSION)
        files = {
            name: base64.b64decode(text)
            for name, text in serde.convert(data["files"], dict[str, str]).items()
        }
        env = await in_thread(
            lambda: PythonEnvironment(
                files,
                timeout=serde.convert(data["timeout"], float),
                memory_mb=serde.convert(data["memory_mb"], int),
            )
        )
        env.calls = serde.convert(data["calls"], int)
        return env

    async def close(self) -> None:
        """Remove the folder, and make every further call fail."""
        self._open = False
        await in_thread(self._folder.cleanup)


def _checked_path(name: str) -> str:
    """Refuse a path that leads out of the folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise UsageError(f"expected a path inside the folder, got {short_repr(name)}")
    return name


def _read_files(folder: Path) -> dict[str, str]:
    """Return the regular files in base64; links, which code may have made, are not followed."""
    found: dict[str, str] = {}
    total = 0
    for place, _, names in os.walk(folder, followlinks=False):
        for name in sorted(names):
            file = Path(place, name)
            if not stat.S_ISREG(file.lstat().st_mode):
                continue
            total += file.lstat().st_size
            if total > MAX_SNAPSHOT_BYTES:
                raise SerializationError(
                    f"expected files of at most {MAX_SNAPSHOT_BYTES:,} bytes in all for a "
                    f"snapshot, got more ({file.relative_to(folder)})"
                )
            with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:  # noqa: PTH123
                data = opened.read()
            found[file.relative_to(folder).as_posix()] = base64.b64encode(data).decode()
    return dict(sorted(found.items()))
