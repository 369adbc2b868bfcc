"""The documents tell the truth: their examples run and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from doctest import ELLIPSIS, DocTestFinder, DocTestRunner
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE, plain_environment

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
EXAMPLE = re.compile(
    r"```python\n(?P<code>(?:(?!```).)*)```\n\n```text\n(?P<output>.*?)```", re.DOTALL
)
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text("utf-8")
)


README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def examples(*pages: Path) -> list[Any]:
    return [
        pytest.param(found["code"], found["output"], id=f"{page.name}-{number}")
        for page in pages
        for number, found in enumerate(EXAMPLE.finditer(page.read_text("utf-8")))
    ]


def printed(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, in this folder."""
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=plain_environment(),
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(("code", "output"), examples(*PAGES))
def test_an_example_prints_what_the_page_says(code: str, output: str, tmp_path: Path) -> None:
    done = printed(tmp_path, "-c", code)

    assert done.stdout == output, done.stderr


def test_no_example_of_the_readme_goes_unread() -> None:
    assert README.read_text("utf-8").count("```python") == len(examples(README))


@pytest.mark.parametrize("name", MODULES)
def test_an_example_in_a_docstring_is_true(name: str) -> None:
    module = import_module(name)
    runner = DocTestRunner(optionflags=ELLIPSIS)
    for example in DocTestFinder().find(module, name, globs=vars(module).copy()):
        runner.run(example)

    assert (runner.failures, runner.tries > 0) == (0, True)


def test_every_file_that_the_readme_lists_is_there() -> None:
    text = README.read_text("utf-8")
    tree = text.split("## The files")[1].split("```")[1]
    listed = set(re.findall(r"[\w/]+\.py", tree))
    files = {path.name for path in SOURCE.rglob("*.py")}

    assert listed
    assert {Path(name).name for name in listed} - files == set()


def test_the_demo_runs_without_a_network_and_says_what_came_of_it(tmp_path: Path) -> None:
    done = printed(tmp_path, ROOT / "examples" / "quickstart.py")

    assert "demo/small: 26/40 passed, 0 errors" in done.stdout, done.stderr
    assert "demo/large: 34/40 passed, 0 errors" in done.stdout
    assert (tmp_path / ".wink" / "runs.db").exists()
