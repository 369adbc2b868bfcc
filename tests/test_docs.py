"""Check the documents: examples run and print what is shown, and the paths they name exist."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from doctest import ELLIPSIS, DocTestFinder, DocTestRunner
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE, plain_environment

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "weakincentives"
PATH = re.compile(r"(?<=`)[\w/]+(?:\.py|/)(?=`)|\b(?:\w+/)+\w+\.py\b")
LINK = re.compile(r"\[[^\]\n]*\]\(([\w./-]+)(?:#[\w-]+)?\)")
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
    """Run Python in a separate process, in this folder."""
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


class Finder(DocTestFinder):
    """Finds also what a private file offers, whose `__module__` is that of its package."""

    def _from_module(self, module: Any, object: Any) -> bool:
        if inspect.isfunction(object):
            return object.__globals__ is vars(module)
        if super()._from_module(module, object):  # type: ignore[misc]
            return True
        is_public = isinstance(object, type) and object.__module__ == module.__package__
        return is_public and f"\nclass {object.__name__}" in inspect.getsource(module)


@pytest.mark.parametrize("name", MODULES)
def test_an_example_in_a_docstring_is_true(name: str) -> None:
    module = import_module(name)
    runner = DocTestRunner(optionflags=ELLIPSIS)
    for example in Finder().find(module, name, globs=vars(module).copy()):
        runner.run(example)

    assert (runner.failures, runner.tries > 0) == (0, True)


def missing_paths(text: str) -> Iterator[str]:
    """Yield the files and folders that a page names and that do not exist.

    It checks names in backticks and, in pictures, paths of Python files. They are relative to the
    package, to the repository, or to a folder named before on the line, as in "`evals/store/`
    (`rows.py`)".
    """
    for line in text.splitlines():
        bases = [PACKAGE, ROOT]
        for name in PATH.findall(line):
            found = [base / name for base in bases if (base / name).exists()]
            if not found:
                yield name
            bases += [path for path in found if path.is_dir()]


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_names_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")

    assert len(PATH.findall(text)) > 10
    assert list(missing_paths(text)) == []


def test_a_path_that_does_not_exist_is_found() -> None:
    line = "`evals/store/` (`rows.py`, `novel.py`), `evals/novel/`, `tests/test_docs.py`, `rows.py`"

    assert list(missing_paths(line)) == ["novel.py", "evals/novel/"]
    assert list(missing_paths("`rows.py`")) == ["rows.py"]


def test_every_sub_package_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = [path.parent for path in PACKAGE.glob("*/__init__.py")]
    folders += [path.parent for path in (PACKAGE / "evals").glob("*/__init__.py")]

    assert [folder.name for folder in folders if folder.name not in text] == []


def test_a_link_leads_to_a_file() -> None:
    pages = [*PAGES, *ROOT.glob("*.md")]
    links = {page.parent / link for page in pages for link in LINK.findall(page.read_text("utf-8"))}

    assert len(links) > 10
    assert [str(path) for path in links if not path.exists()] == []


def test_the_demo_runs_without_a_network_and_prints_the_pass_rates(tmp_path: Path) -> None:
    done = printed(tmp_path, ROOT / "examples" / "quickstart.py")

    assert "demo/small: 26/40 passed, 0 errors" in done.stdout, done.stderr
    assert "demo/large: 34/40 passed, 0 errors" in done.stdout
    assert "wink view --open" in done.stdout
    assert (tmp_path / ".wink" / "runs.db").exists()
