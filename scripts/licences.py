"""List the licences of all packages that WINK can install, from their installed metadata.

`python scripts/licences.py` writes THIRD_PARTY.md. It follows the requirements of the core and of
every extra for users; packages that are not installed here are listed without a licence.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["closure", "listed", "requirements"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "THIRD_PARTY.md"
OWN = "weakincentives-evals"
UNKNOWN = "not installed when this list was made"
HEAD = """\
# Third-party packages

WINK Evals contains no third-party code. These packages are installed with it, or with the extra
that is named, and come under their own licences, as their metadata states them.
`python scripts/licences.py` writes this list.

| package | licence | needed by |
|---|---|---|
"""


def requirements() -> dict[str, list[Requirement]]:
    """Return the requirements of the core ("") and of each extra for users, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    del groups["dev"]
    return {name: [Requirement(each) for each in group] for name, group in groups.items()}


def closure(wanted: list[Requirement]) -> dict[str, Distribution | None]:
    """Return what is installed for these requirements, by canonical name; None if it is not."""
    installed: dict[str, Distribution | None] = {}
    visited = set()
    queue = [(each, {*each.extras, ""}) for each in wanted]
    while queue:
        required, extras = queue.pop()
        name = canonicalize_name(required.name)
        if (name, *sorted(extras)) in visited or name == OWN:
            continue
        visited.add((name, *sorted(extras)))
        try:
            installed[name] = package = distribution(required.name)
        except PackageNotFoundError:
            installed[name] = None
            continue
        for text in package.requires or ():
            each = Requirement(text)
            if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append((each, {*each.extras, ""}))
    return installed


def licence(package: Distribution | None) -> str:
    """Return the licence that the metadata of a package states."""
    if package is None:
        return UNKNOWN
    data = package.metadata
    if expression := data.get("License-Expression"):
        return expression
    short = (data.get("License") or "").strip()
    if short and "\n" not in short and len(short) < 60 and short not in ("UNKNOWN", "Dual License"):
        return short
    names = [each.rpartition(" :: ")[2] for each in data.get_all("Classifier") or ()
             if each.startswith("License ::")]  # fmt: skip
    return ", ".join(dict.fromkeys(names)) or "see its files"


def rows() -> list[tuple[str, str, str]]:
    """Return package, licence and what needs it, by name."""
    needed: dict[str, list[str]] = {}
    packages: dict[str, Distribution | None] = {}
    for extra, wanted in requirements().items():
        for name, package in closure(wanted).items():
            packages[name] = package
            needed.setdefault(name, []).append(f"`{extra}`" if extra else "core")
    return [
        (name, licence(package), "core" if "core" in needed[name] else ", ".join(needed[name]))
        for name, package in sorted(packages.items())
    ]


def listed(page: str) -> set[str]:
    """Return the names in the list."""
    return set(re.findall(r"^\| ([a-z0-9-]+) \|", page, re.MULTILINE)) - {"package"}


if __name__ == "__main__":
    PAGE.write_text(HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows()), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    sys.exit()
