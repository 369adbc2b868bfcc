"""Python code in a limited process: what it cannot do, and that nothing of it survives."""

from __future__ import annotations

import socket
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from weakincentives.errors import UsageError
from weakincentives.internal.limited import ProcessLimits, ProcessResult, run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and Landlock")


def run(code: str, **limits: float) -> ProcessResult:
    return anyio.run(lambda: run_python(code, limits=ProcessLimits(**limits)))  # type: ignore[arg-type]


def test_code_runs_and_its_output_is_returned() -> None:
    result = run("import json; print(json.dumps('ü')); raise SystemExit(3)")

    assert (result.exit_code, result.stdout, result.timed_out) == (3, '"\\u00fc"\n', False)


def test_code_that_never_ends_is_killed_after_its_timeout() -> None:
    result = run("print('started', flush=True)\nwhile True: pass", timeout=0.5)

    assert (result.timed_out, result.exit_code) == (True, None)


def test_memory_is_limited() -> None:
    result = run("x = bytearray(10**9)", memory_bytes=128 << 20)

    assert result.exit_code == 1
    assert "MemoryError" in result.stderr


def test_a_file_is_limited_in_size() -> None:
    result = run("open('big', 'wb').write(bytes(10**6))", file_bytes=10_000, output_bytes=1000)

    assert result.exit_code != 0


def test_long_output_is_truncated() -> None:
    result = run("print('x' * 5000)", output_bytes=100)

    assert result.stdout == "x" * 100 + "\n... (100 bytes shown)"


def test_our_environment_variables_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-model-code")
    result = run("import os; print(sorted(os.environ))")

    assert "API_KEY" not in result.stdout
    assert "HOME" in result.stdout


def test_code_cannot_reach_the_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)"
        result = run(code)

    assert "network" not in result.unlimited
    assert result.exit_code == 1
    assert "OSError" in result.stderr or "PermissionError" in result.stderr


def test_code_cannot_read_or_write_files_outside_its_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do not read")

    read = run(f"print(open({str(secret)!r}).read())")
    written = run(f"open({str(tmp_path / 'new')!r}, 'w')")

    assert "files" not in read.unlimited
    assert "PermissionError" in read.stderr
    assert "PermissionError" in written.stderr
    assert not (tmp_path / "new").exists()


def test_files_written_to_its_folder_are_kept(tmp_path: Path) -> None:
    async def main() -> ProcessResult:
        await run_python("open('note', 'w').write('kept')", folder=tmp_path)
        return await run_python("print(open('note').read())", folder=tmp_path)

    assert anyio.run(main).stdout == "kept\n"


def processes_in(folder: Path) -> list[str]:
    """Return the processes whose current folder this is."""
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                names.append(process.name)
        except OSError:  # it has ended
            continue
    return names


def test_child_processes_do_not_survive(tmp_path: Path) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('alive', 'w').close()
        time.sleep(60)
    os._exit(0)
while not os.path.exists('alive'):
    time.sleep(0.01)
"""
    result = anyio.run(lambda: run_python(code, folder=tmp_path))

    assert (result.exit_code, (tmp_path / "alive").exists()) == (0, True)
    assert processes_in(tmp_path) == []


def test_a_cancelled_call_ends_its_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run_python, "while True: pass", folder=tmp_path))
            while not processes_in(tmp_path):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"memory_bytes": 1}, {"output_bytes": 0}])
def test_an_invalid_limit_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        ProcessLimits(**limits)  # type: ignore[arg-type]
