"""Imports point down through the layers of DESIGN, and files stay small.

The whole file is read, so an import inside a function or under TYPE_CHECKING counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# Lowest first; names on one line may not import each other. "" is the package's own __init__, which
# offers names from everywhere: a file that imports from it could mean any layer.
LAYERS = (
    {"secrets"},
    {"errors", "_frozen", "_ids", "_lazy", "_slots", "_sqlite", "_typevars"},
    {"_checks"},
    {"chat", "clock", "experiment", "serde"},
    {"budget"},
    {"prompt"},
    {"runtime"},
    {"adapters"},
    {"rollouts"},
    {"evals"},
    {"contrib", "pytest_plugin", "rl", "testing", "web"},
    {""},
    {"cli"},
    {"__main__"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LONGEST = 400
NAMES_THAT_SAY_NOTHING = {"common.py", "utils.py"}
SOURCE = Path(__file__).parent.parent / "src" / "weakincentives"


def imports(file: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every import of our own package."""
    here = ("weakincentives", *file.relative_to(root).with_suffix("").parts)
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = here[: -node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            targets = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            first, *rest = target.split(".")
            if first == "weakincentives":
                # `from weakincentives import __version__` asks the package itself.
                yield node.lineno, rest[0] if rest and rest[0] in LEVEL else ""


def faults(root: Path) -> Iterator[str]:
    """What is wrong in the source tree under `root`, one line each."""
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        lines = len(file.read_text("utf-8").splitlines())
        if lines > LONGEST:
            yield f"{name}: {lines} lines, at most {LONGEST} - split or simplify"
        if file.name in NAMES_THAT_SAY_NOTHING:
            yield f"{name}: the name says nothing - name the job"
        mine = name.parts[0].removesuffix(".py").replace("__init__", "")
        if mine not in LEVEL:
            yield f"{name}: in no layer - give `{mine}` one in LAYERS"
            continue
        for line, theirs in imports(file, root):
            if theirs != mine and LEVEL[theirs] >= LEVEL[mine]:
                yield f"{name}:{line}: `{mine}` may not import `{theirs or 'weakincentives'}`"


def test_imports_point_down_and_files_are_small() -> None:
    assert list(faults(SOURCE)) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("runtime/loop.py", "import weakincentives.evals", "`runtime` may not import `evals`"),
        ("runtime/loop.py", "from ..evals import run", "`runtime` may not import `evals`"),
        ("runtime/loop.py", "from .. import evals", "`runtime` may not import `evals`"),
        ("runtime/a/b.py", "from ...cli import main", "`runtime` may not import `cli`"),
        ("evals/__init__.py", "from ..cli import main", "`evals` may not import `cli`"),
        ("evals/_run.py", "def f():\n  from weakincentives import cli", "may not import `cli`"),
        ("rollouts/a.py", "if TYPE_CHECKING:\n  from ..evals import b", "may not import `evals`"),
        ("chat.py", "from .serde import encode", "`chat` may not import `serde`"),
        ("web/a.py", "from ..testing import b", "`web` may not import `testing`"),
        ("errors.py", "from weakincentives import x", "`errors` may not import `weakincentives`"),
        ("novel/a.py", "", "in no layer"),
        ("evals/utils.py", "", "the name says nothing"),
        ("evals/long.py", "\n" * 401, "401 lines, at most 400"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, name: str, text: str, fault: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)

    (found,) = faults(tmp_path)
    assert fault in found


def test_imports_that_point_down_are_fine(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "_run.py").write_text(
        "import ast\nfrom . import _types\nfrom .. import serde, rollouts\nfrom ..errors import X\n"
    )

    assert list(faults(tmp_path)) == []
