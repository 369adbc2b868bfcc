"""Importing is cheap and quiet, and nothing in the source runs code that came as data."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

SOURCE = Path(__file__).parent.parent / "src"
OPTIONAL = {
    *("anthropic", "boto3", "hypothesis", "jsonschema_rs", "langsmith", "math_verify"),
    *("numpy", "openai", "opentelemetry", "pyarrow", "pydantic", "redis", "rich"),
    *("sympy", "trio", "zstandard"),
}
# Modules and built-ins that turn data into running code.
FORBIDDEN = {"dill", "eval", "exec", "joblib", "marshal", "pickle", "shelve"}

WATCHED_IMPORT = """
import sys, threading
seen = []
def watch(event, args):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.system")):
        seen.append(event)
sys.addaudithook(watch)
import weakincentives.evals
print(*seen, "thread" * (threading.active_count() - 1))
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_evals_loads_no_optional_package() -> None:
    loaded = python("import weakincentives.evals, sys; print(*sys.modules)").split()

    assert "weakincentives.evals" in loaded
    assert OPTIONAL & set(loaded) == set()


def test_importing_opens_no_socket_and_starts_no_thread_or_process() -> None:
    assert python(WATCHED_IMPORT) == ""


def test_the_watch_sees_a_socket_and_a_thread() -> None:
    """Otherwise the silence above would mean nothing."""
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    noisy = f"import socket; socket.socket(); {thread}"

    seen = python(WATCHED_IMPORT.replace("import weakincentives.evals", noisy))

    assert seen.split() == ["socket.__new__", "thread"]


def forbidden(text: str) -> set[str]:
    """The forbidden modules that a source imports and the forbidden built-ins that it names."""
    if not FORBIDDEN.intersection(re.findall(r"\w+", text)):  # as in nearly every file
        return set()
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found & FORBIDDEN


def test_no_source_file_turns_data_into_code() -> None:
    assert {
        str(file): names
        for file in SOURCE.rglob("*.py")
        if (names := forbidden(file.read_text("utf-8")))
    } == {}


@pytest.mark.parametrize(
    "text", ["import pickle", "def f():\n from joblib.x import y", "run = eval", "exec('1')"]
)
def test_planted_danger_is_found(text: str) -> None:
    assert forbidden(text)


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    """Also those that are no modules: the report's style sheet and script, and `py.typed`."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*build, "--directory", str(tmp_path)], cwd=SOURCE.parent, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    files = {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "weakincentives").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }

    assert {path for path in files if path.endswith(("report.css", "report.js"))} != set()
    packed = set(ZipFile(wheel).namelist())
    assert files - packed == set()
    examples = {path.name for path in (SOURCE.parent / "examples" / "rag").iterdir()}
    templates = "weakincentives/cli/templates"  # a link to the example
    assert {f"{templates}/rag/{name}" for name in examples if "." in name} <= packed
