"""Follow the pages that are walked through: save their files, run their commands, compare outputs.

1. A fenced block with `title="path"` is a file, saved in the folder of the page.
2. A block `console` has commands after `$ `, each with the output that a terminal shows. A line
   `...` stands for any lines, `...` inside a line for any text. Run ids, dates, durations and
   hashes may differ.
3. A block of Python without a title prints what the block after it says (tests/test_docs.py).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked_wink import run_file, run_wink
from tests.processes import TIMEOUT, plain_environment

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# A command of ours, where its errors go, and the commands that follow it in the line.
WINK = re.compile(
    r"wink (?P<words>[^|;&<>$`]+?)(?: 2>(?P<stderr> ?/dev/null|&1))?(?P<rest> [|].*|;.*)?"
)
WIDTH = 100  # of the terminal
CHANGING = {  # what differs from run to run
    r"\b\d{8}-\d{6}(?:-[0-9a-f]{6})?": "RUN",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "UUID",
    r"\b[0-9a-f]{12}\b": "HASH",
    r"\b\d{2}:\d{2}:\d{2}\.\d{3}\b": "CLOCK",
    r"\b\d+(?:\.\d+)? (?:ms|s|min)\b": "TIME",
    r"\b(?:\d+(?:s|m|min|h) ago|now)\b": "TIME ago",
    r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}(?::\d{2})?)?": "DATE",
}


def steps(page: Path) -> list[tuple[str, str]]:
    """Return the files and commands of a page in their order; of a command, with its output."""
    found = []
    for block in BLOCK.finditer(page.read_text("utf-8")):
        if block["title"]:
            found.append((block["title"], block["text"]))
        elif block["language"] == "console":
            found += commands(block["text"])
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console with its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more.strip()}"
        yield f"$ {command}", output


def plain(text: str) -> str:
    """Return an output without what differs from run to run."""
    for pattern, name in CHANGING.items():
        text = re.sub(pattern, name, text)
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.strip().split("\n"))


def is_like(output: str, page: str) -> bool:
    """Return whether an output is the one of the page."""
    lines = [
        ".*" if line == "..." else re.escape(line).replace(r"\.\.\.", "[^\n]*")
        for line in plain(page).split("\n")
    ]
    return re.fullmatch("\n".join(lines), plain(output), re.DOTALL) is not None


def terminal(command: str, folder: Path) -> str:
    """Run a command as in a terminal and return what it prints."""
    path = f"{Path(sys.executable).parent}:{plain_environment()['PATH']}"
    variables = {"PYTHONUNBUFFERED": "1", "COLUMNS": str(WIDTH), "PATH": path}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of our own tests
    env = plain_environment(**variables)
    if re.fullmatch(r"python [^-|;&<>$`][^|;&<>$`]*", command):
        return run_file(*shlex.split(command)[1:], cwd=folder, env=env, merged=True).stdout
    if not (found := WINK.fullmatch(command)):
        return in_shell(command, folder, env)
    rest, stderr = found["rest"] or "", found["stderr"] or ""
    merged = "1" in stderr or not (stderr or "|" in rest)
    done = run_wink(*shlex.split(found["words"]), cwd=folder, env=env, merged=merged)
    stderr_text = "" if merged or stderr else done.stderr
    if not rest:
        return stderr_text + done.stdout
    return stderr_text + in_shell(f"(cat; exit {done.returncode}){rest}", folder, env, done.stdout)


def in_shell(command: str, folder: Path, env: dict[str, str], stdin: str = "") -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    return done.stdout


OWN_TEST = {ROOT / "docs" / "deploy.md"}  # tests/test_deploy.py, with servers and machines
WALKED = [
    page
    for page in PAGES
    if page not in OWN_TEST and any(name.startswith("$ ") for name, _ in steps(page))
]


@pytest.mark.parametrize("page", WALKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed_step_by_step(page: Path, tmp_path: Path) -> None:
    for name, text in steps(page):
        if not name.startswith("$ "):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
            continue
        output = terminal(name[2:], tmp_path)

        assert is_like(output, text), f"{name}\n{output}"


def test_an_output_that_differs_is_found() -> None:
    page = "run 20260101-101010-abcdef\n...\n1/2 passed, took 3 ms\n"

    assert is_like("run 20270202-111111-123456\nany\nthing\n1/2 passed, took 1.5 s\n", page)
    assert not is_like("run 20270202-111111-123456\nany\n2/2 passed, took 1.5 s\n", page)
    assert not is_like("1/2 passed, took 1.5 s\n", page)


def test_a_line_of_a_terminal_is_run_with_its_streams_and_its_exit_code(tmp_path: Path) -> None:
    assert "expected" in terminal("wink eval show none", tmp_path)
    assert terminal("wink eval show none 2> /dev/null", tmp_path) == ""
    assert terminal("wink eval show none 2>&1 | grep -c expected", tmp_path) == "1\n"
    assert terminal("wink eval show none | grep -c expected", tmp_path).endswith("\n0\n")
    assert terminal("wink eval show none; echo code $?", tmp_path).endswith("code 2\n")


def test_a_console_has_commands_with_their_outputs() -> None:
    assert [*commands("$ echo a \\\n    b\na b\n$ true\n")] == [
        ("$ echo a b", "a b\n"),
        ("$ true", ""),
    ]
