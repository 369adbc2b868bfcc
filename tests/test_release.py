"""What a release has: one version, complete packages, licences, and the files around them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from packaging.utils import canonicalize_name

import weakincentives
from scripts.licences import closure, listed, requirements

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]
GITHUB = ROOT / ".github"
NOT_PACKAGED = ("tests/", "bench/", "chaos/", "docs/", "examples/", ".venv", ".wink", "__pycache__")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the sdist, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


def files_of_the_package() -> set[str]:
    """Return the files of the package; its templates are links to the examples."""
    return {
        (Path(folder) / name).relative_to(ROOT / "src").as_posix()
        for folder, _, names in os.walk(ROOT / "src" / "weakincentives", followlinks=True)
        for name in names
        if not name.endswith(".pyc") and ".wink" not in folder
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    info = f"weakincentives_evals-{VERSION}.dist-info/"
    files = files_of_the_package()

    suffixes = {Path(name).suffix for name in files}
    assert {".html", ".css", ".js", ".svg", ".csv", ".jsonl", ".typed"} <= suffixes
    assert "weakincentives/cli/templates/rag/rag_eval.py" in files
    assert {name for name in names if not name.startswith(info)} == files
    assert f"{info}licenses/LICENSE" in names


def test_the_sdist_has_what_is_needed_to_build_and_no_more(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    root = f"weakincentives_evals-{VERSION}/"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(root) for name in archive.getnames()}

    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "THIRD_PARTY.md"}
    assert {f"src/{name}" for name in files_of_the_package()} | beside <= names
    assert [name for name in names if name.startswith(NOT_PACKAGED)] == []


def metadata(built: Path) -> Message:
    (wheel,) = built.glob("*.whl")
    name = f"weakincentives_evals-{VERSION}.dist-info/METADATA"
    return message_from_bytes(ZipFile(wheel).read(name))


def test_the_metadata_is_complete(built: Path) -> None:
    data = metadata(built)

    assert data["Version"] == VERSION
    assert data["License-Expression"] == "Apache-2.0"
    assert data["Description-Content-Type"] == "text/markdown"
    assert data["Summary"] == PROJECT["description"]
    assert data["Requires-Python"] == ">=3.11"
    assert str(data.get_payload()).startswith("# ")  # the README
    core = [each for each in data.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(re.split(r"[<>=]", each)[0] for each in core) == ["anyio", "msgspec", "rich"]


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)

    assert headings[0] == "Unreleased"
    assert headings[1] == VERSION == citation["version"] == weakincentives.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    numbers = [tuple(map(int, each.split("."))) for each in headings[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_the_changelog_dates_every_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))

    dates = re.findall(r"^## \[\d[^\]]*\] - (\d{4}-\d{2}-\d{2})$", text, re.M)
    assert len(dates) == len(re.findall(r"^## \[\d", text, re.M)) > 0
    assert dates[0] == str(citation["date-released"])


def test_every_dependency_is_on_the_list_of_licences() -> None:
    names = listed((ROOT / "THIRD_PARTY.md").read_text("utf-8"))
    groups = requirements()
    direct = {canonicalize_name(each.name) for group in groups.values() for each in group}
    installed = {name for group in groups.values() for name in closure(group)}

    assert {"msgspec", "anyio", "rich", "idna"} <= names
    # Not equal: some are needed by some versions of Python only.
    assert (direct | installed) - names == set(), "run: python scripts/licences.py"


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_are_valid(path: Path) -> None:
    data = yaml.safe_load(path.read_text("utf-8"))

    assert isinstance(data, dict)
    if path.parent.name == "workflows":
        for job in data["jobs"].values():
            assert job["timeout-minutes"] <= 60
            assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    elif path.name != "config.yml":
        fields = [each for each in data["body"] if each["type"] != "markdown"]
        ids = [each["id"] for each in fields]
        assert len(ids) == len({*ids})
        assert all(each["attributes"]["label"] for each in fields)


def test_ci_runs_targets_that_exist_on_both_systems() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]

    targets = {word for each in commands for word in re.findall(r"make ([\w-]+)", each)}
    assert targets == {"test", "quick", "release-check"}
    assert all(f"\n{target}:" in makefile for target in targets)
    for name in ("linux", "macos"):
        assert jobs[name]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]


def test_publishing_needs_no_stored_token() -> None:
    text = (GITHUB / "workflows" / "publish.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]

    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    assert "password" not in text
