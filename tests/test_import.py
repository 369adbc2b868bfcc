"""Imports are cheap and have no side effects, and no source file executes data as code."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
events = []
def watch(event, args):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.system")):
        events.append(event)
sys.addaudithook(watch)
import weakincentives.evals
print(*events, "thread" * (threading.active_count() - 1))
"""


# What the first run with a store does not need, with what importing it would cost.
NOT_FOR_A_FUNCTION = {
    "weakincentives.prompt",  # 7 ms
    "weakincentives.runtime.agent.main_loop",  # 23 ms
    "weakincentives.adapters",  # 8 ms
    "importlib.metadata",  # 10 ms
    "weakincentives.evals.engine.resume",  # 4 ms
    "weakincentives.evals.store.calibrations",  # 7 ms
    "statistics",  # 2.5 ms
}
FIRST_RUN = """
import sys, tempfile
from weakincentives.evals import Dataset, EvalSuite, open_store, Sample, exact_match
dataset = Dataset([Sample("fr", "Capital of France?", "Paris")])
with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/runs.db") as store:
    report = EvalSuite(lambda question: "Paris", dataset, exact_match).run(store=store)
    assert str(report) == str(store.report("latest")), report
print(*sys.modules)
"""


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_evals_loads_no_optional_package() -> None:
    loaded = run_python("import weakincentives.evals, sys; print(*sys.modules)").split()

    assert "weakincentives.evals" in loaded
    assert OPTIONAL & set(loaded) == set()


def test_the_first_run_of_a_function_loads_only_what_it_needs() -> None:
    loaded = set(run_python(FIRST_RUN).split())

    assert "weakincentives.evals.engine.run" in loaded
    assert NOT_FOR_A_FUNCTION & loaded == set()


@pytest.mark.slow
def test_a_package_can_be_imported_from_a_zip(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "wink"), "zip", SOURCE, "weakincentives")
    code = f"import sys; sys.path.insert(0, {archive!r})\n{FIRST_RUN}print(Dataset.__module__)"

    assert run_python(code + "\nimport weakincentives; print(weakincentives.__file__)").endswith(
        f"{archive}/weakincentives/__init__.py"
    )


def test_importing_opens_no_socket_and_starts_no_thread_or_process() -> None:
    assert run_python(WATCHED_IMPORT) == ""


def test_a_socket_and_a_thread_are_detected() -> None:
    """Check that the test above can fail."""
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    noisy = f"import socket; socket.socket(); {thread}"

    output = run_python(WATCHED_IMPORT.replace("import weakincentives.evals", noisy))

    assert output.split() == ["socket.__new__", "thread"]


def forbidden(text: str) -> set[str]:
    """Return the forbidden modules that a source imports, and the forbidden built-ins it names."""
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
        str(file.relative_to(SOURCE)): names
        for file in SOURCE.rglob("*.py")
        if (names := forbidden(file.read_text("utf-8")))
    } == {
        "weakincentives/internal/frozen.py": {"exec"}
    }  # of the fields of a class, as in `dataclasses`


@pytest.mark.parametrize(
    "text", ["import pickle", "def f():\n from joblib.x import y", "run = eval", "exec('1')"]
)
def test_a_planted_forbidden_name_is_found(text: str) -> None:
    assert forbidden(text)
