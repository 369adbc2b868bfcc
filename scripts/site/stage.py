"""Collect the pages of the site in one folder, with the links between them made right.

1. Sources are docs/ and the pages of the root; a page of the site is named by its source.
2. A link to a page leads to that page. A link into examples/ leads to the page of that example,
   which shows its files. Links to other files of the repository become plain text: the site is
   complete without it.
3. What is not Markdown (pictures) is copied.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from .api import api_pages
from .commands import command_pages

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "ARCHITECTURE.md": "concepts/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",  # for links; docs/index.md is the page
}
LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh"}
LANGUAGES |= {".jsonl": "json", ".json": "json", ".csv": "text", ".txt": "text"}
LISTS = {
    "cookbook": ("Cookbook", "Complete evals to copy. Each runs without a key as it is."),
    "coming-from": (
        "Coming from another tool",
        "For each tool a table of terms, and one eval in both.",
    ),
}
MAX_DATA_LINES = 8  # of a dataset in the page of an example


def stage(folder: Path) -> list[str]:
    """Write all pages into a folder and return their paths in it."""
    pages = generated_pages() | _source_pages()
    for path, text in pages.items():
        _write(folder / path, text.encode())
    for source in (ROOT / "docs").rglob("*"):
        if source.is_file() and source.suffix != ".md":
            _write(folder / source.relative_to(ROOT / "docs"), source.read_bytes())
    return sorted(pages)


def generated_pages() -> dict[str, str]:
    """Return the pages that are not written by hand; one of docs/ with the same name wins."""
    lists = {f"{folder}/index.md": _list(folder, *text) for folder, text in LISTS.items()}
    return command_pages() | api_pages() | _example_pages() | lists


def _list(folder: str, title: str, summary: str) -> str:
    """Return a page that lists the pages of a folder by their titles."""
    lines = [f"# {title}", "", summary, ""]
    for path in sorted((ROOT / "docs" / folder).glob("*.md")):
        heading = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{heading}]({path.name})")
    return "\n".join(lines) + "\n"


def _write(path: Path, content: bytes) -> None:
    """Write a file, unless it is there already: a server rebuilds what changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def _source_pages() -> dict[str, str]:
    """Return the pages that are written by hand, with their links."""
    sources = {name: page for name, page in ROOT_PAGES.items() if name != "README.md"}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        sources[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    return {
        page: with_site_links((ROOT / source).read_text("utf-8"), source, page)
        for source, page in sources.items()
    }


def with_site_links(text: str, source: str, page: str) -> str:
    """Return the text of a source with its links as the page of the site needs them."""

    def replaced(match: re.Match[str]) -> str:
        target = site_target(match["target"], source, page)
        return match["text"][1:-1] if target is None else f"{match['text']}({target})"

    parts, end = [], 0
    for fence in FENCE.finditer(text):  # code is left as it is
        parts += [LINK.sub(replaced, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(replaced, text[end:])])


def site_target(target: str, source: str, page: str) -> str | None:
    """Return where a link of a source leads on its page; None if the site has no such place."""
    path, _, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return target
    named = os.path.normpath(PurePosixPath(source).parent / path)
    if named.startswith("docs/"):
        site_page = named.removeprefix("docs/")
    elif named in ROOT_PAGES:
        site_page = ROOT_PAGES[named]
    elif named.startswith("examples/") and (ROOT / named).exists():
        site_page = f"examples/{_example(named)}.md"
    else:
        return None
    relative = os.path.relpath(site_page, PurePosixPath(page).parent)
    return f"{relative}#{anchor}" if anchor else relative


def _example(path: str) -> str:
    """Return the name of the example that a path in examples/ belongs to."""
    return PurePosixPath(path).parts[1].partition(".")[0]


def _example_pages() -> dict[str, str]:
    """Return a page for each example, a folder or a script, with the files that it consists of."""
    pages: dict[str, list[str]] = {}
    for path in sorted((ROOT / "examples").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if not path.is_file() or path.suffix not in LANGUAGES or path.name.startswith("_"):
            continue
        page = f"examples/{_example(name)}.md"
        pages.setdefault(page, [f"# {_example(name)}", ""]).extend(_file_lines(path, name))
    return {page: "\n".join(lines) for page, lines in pages.items()}


def _file_lines(path: Path, name: str) -> list[str]:
    lines = path.read_text("utf-8").rstrip("\n").split("\n")
    note = []
    if path.suffix in {".jsonl", ".csv"} and len(lines) > MAX_DATA_LINES:
        note = [f"The first {MAX_DATA_LINES} of {len(lines)} lines.", ""]
        lines = lines[:MAX_DATA_LINES]
    return [f"## `{name}`", "", *note, f"````{LANGUAGES[path.suffix]}", *lines, "````", ""]
