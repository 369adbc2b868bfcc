"""Check the documents: examples print the output on the page, and the paths they name exist."""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from doctest import ELLIPSIS, DocTestFinder, DocTestRunner
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from scripts.site.commands import parser_of
from scripts.site.stage import generated_pages
from tests.forked_wink import run_file, run_python
from tests.processes import plain_environment
from weakincentives.cli.command_table import COMMANDS, GROUPS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "weakincentives"
PATH = re.compile(r"(?<=`)[\w/]+(?:\.py|/)(?=`)|\b(?:\w+/)+\w+\.py\b")
LINK = re.compile(r"\[[^\]]*\]\(([\w./-]+)(?:#[\w-]+)?\)")
EXAMPLE = re.compile(
    r"```python\n(?P<code>(?:(?!```).)*)```\n\n```text\n(?P<output>.*?)```", re.DOTALL
)
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text("utf-8")
)


README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^ *(?:<!-- (?P<mark>[^>]*) -->\n *)?```(?P<language>\w+)(?P<title> title=[^\n]*)?\n"
    r"(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
# Blocks that other tests execute: about deployment (tests/test_deploy.py), or in environments with
# packages of gigabytes (tests/rl, tests/neighbours).
MARKS = re.compile(r"file: \S+|run: \S+|make rl-test|make neighbours: [\w-]+")
# Texts that no command prints: pictures, and examples of sentences with numbers of large runs.
PICTURES = {
    "docs/index.md": (" dataset ──▶ agent",),
    "docs/statistics.md": ("B is better: ", "falls by "),
}


def examples(*pages: Path) -> list[Any]:
    return [
        pytest.param(found["code"], found["output"], id=f"{page.relative_to(ROOT)}-{number}")
        for page in pages
        for number, found in enumerate(EXAMPLE.finditer(page.read_text("utf-8")))
    ]


@pytest.mark.parametrize(("code", "output"), examples(*PAGES))
def test_an_example_prints_what_the_page_says(code: str, output: str, tmp_path: Path) -> None:
    done = run_python(code, cwd=tmp_path, env=plain_environment())

    assert done.stdout == output, done.stderr


def unread_blocks(page: Path, text: str) -> Iterator[str]:
    """Yield the blocks of Python and the outputs on a page that no test executes.

    A file of a walk-through (tests/test_walkthroughs.py) has a title. The cookbook shows parts of
    the examples, which tests/test_examples.py runs. `py` is code for another tool.
    """
    executed = {part for found in EXAMPLE.finditer(text) for part in found.groupdict().values()}
    parts = "".join(file.read_text("utf-8") for file in (ROOT / "examples").rglob("*.py"))
    previous = ""
    for block in BLOCK.finditer(text):
        is_marked = MARKS.fullmatch(block["mark"] or "") is not None
        before, previous = previous, "marked" if is_marked else block["language"]
        if block["title"] or is_marked or block["text"] in executed:
            continue
        pictures = PICTURES.get(page.relative_to(ROOT).as_posix(), ())
        is_known = {
            "python": block["text"] in parts,
            "py": page.parent.name == "coming-from",
            "text": before == "marked" or block["text"].startswith(pictures),
        }
        if not is_known.get(block["language"], True):
            yield block["text"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_a_page_is_executed(page: Path) -> None:
    assert list(unread_blocks(page, page.read_text("utf-8"))) == []


def test_an_example_that_is_not_executed_is_found() -> None:
    text = "```python\nf()\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\n2\n```\n"

    assert list(unread_blocks(README, text)) == ["f()\n", "2\n"]
    assert list(unread_blocks(README, "```py\nimport other\n```\n")) == ["import other\n"]
    assert list(unread_blocks(README, '```python title="a.py"\nf()\n```\n')) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_data_and_code_for_other_tools_can_be_parsed(page: Path) -> None:
    parsers: dict[str, Callable[[str], object]] = {
        "py": ast.parse,
        "json": lambda text: [json.loads(each) for each in re.split(r"\n(?=\{)", text)],
        "yaml": yaml.safe_load,
        "toml": tomllib.loads,
    }
    for block in BLOCK.finditer(page.read_text("utf-8")):
        if parse := parsers.get(block["language"]):
            parse(dedent(block["text"]))


def test_the_readme_is_short_and_names_the_commands_of_ci() -> None:
    text = README.read_text("utf-8")

    assert len(text.splitlines()) < 150
    assert "make demo" in text
    assert "make test" in text


class Finder(DocTestFinder):
    """Finds also what a private file offers, whose `__module__` is that of its package."""

    def _from_module(self, module: Any, object: Any) -> bool:
        if inspect.isfunction(object):
            return object.__globals__ is vars(module)
        if super()._from_module(module, object):  # type: ignore[misc]
            return True
        package = str(module.__package__)
        is_public = isinstance(object, type) and object.__module__.startswith(package)
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
    line = "`evals/store/sqlite/` (`rows.py`, `novel.py`), `evals/novel/`, `tests/test_docs.py`"

    assert list(missing_paths("`evals/store/sqlite/` (`rows.py`)")) == []
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
    generated = {ROOT / "docs" / path for path in generated_pages()}
    missing = {path.resolve() for path in links if not path.exists()}

    assert len(links) > 10
    assert sorted(missing - generated) == []


def wink_commands(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each `wink` command in code of a page, up to a pipe or a comment."""
    for line in re.findall(
        r"(?:^|`|\$ |run: )(wink (?:[^`\n]|`(?=[^`]*`\n))*)", text, re.MULTILINE
    ):
        words = re.split(r"\s+(?:[|#;>&]|2>)|[;|)]", line)[0].split()[1:]
        yield tuple(word.rstrip(".,:") for word in words)


def unknown_words(words: tuple[str, ...]) -> list[str]:
    """Return the command, or the options of a command, that do not exist."""
    path = words[: 2 if words[:1] and words[0] in GROUPS else 1]
    if not path or path[0].startswith("-") or path in [(group,) for group in GROUPS]:
        return []
    names = GROUPS.get(path[0], {}) if len(path) == 2 else COMMANDS
    if path[-1] not in names:
        return [f"wink {' '.join(path)}"] if re.fullmatch(r"[a-z-]+", path[-1]) else []
    known_options = parser_of(path)._option_string_actions
    options = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z-]+(=.*)?", word)]
    return [f"wink {' '.join(path)} {name}" for name in options if name not in known_options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    commands = wink_commands(page.read_text("utf-8"))

    assert [problem for words in commands for problem in unknown_words(words)] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    text = "`wink eval rnu` and `wink eval run --fail-udner 3`\n$ wink eval show latest | head\n"

    assert [*map(unknown_words, wink_commands(text))] == [
        ["wink eval rnu"],
        ["wink eval run --fail-udner"],
        [],
    ]


def test_every_extra_is_on_the_page_about_installing() -> None:
    page = (ROOT / "docs" / "start" / "install.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {name for names in re.findall(r"\[([\w,]+)\]", page) for name in names.split(",")}

    assert set(project["optional-dependencies"]) - {"dev", "docs"} <= named


def test_every_variable_of_ours_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    code = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))

    assert sorted(set(re.findall(r"\bWINK_[A-Z_]+", code)) - set(re.findall(r"\w+", page))) == []


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text("utf-8")
    code = "".join(path.read_text("utf-8") for path in (PACKAGE / "cli").rglob("*.py"))
    codes = re.findall(r"^  (\d+)  ", code, re.MULTILINE)

    assert {"0", "1", "130"} <= set(codes)
    assert sorted(set(codes) - set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))) == []


def test_the_demo_runs_without_a_network_and_prints_the_pass_rates(tmp_path: Path) -> None:
    example = ROOT / "examples" / "quickstart.py"
    done = run_file(example, cwd=tmp_path, env=plain_environment())

    assert "demo/small: 26/40 passed, 0 errors" in done.stdout, done.stderr
    assert "demo/large: 34/40 passed, 0 errors" in done.stdout
    assert "wink view --open" in done.stdout
    assert (tmp_path / ".wink" / "runs.db").exists()
