"""The tree is the architecture: imports point down, there are no cycles, and nothing is hidden.

Every import counts, also one inside a function or under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

# Lowest first; names in one set may not import each other. "" is the package's own `__init__`,
# which offers names from everywhere below it.
FORMER = {"statistics"}  # a name that is importable for one more version
LAYERS: Mapping[str, tuple[set[str], ...]] = {
    "": (
        {
            "internal.backoff",
            "internal.closing",
            "internal.encodings",
            "internal.forks",
            "internal.lazy",
            "internal.names",
            "internal.wire_names",
        },
        {"internal.redaction"},
        {"secrets"},
        {
            "errors",
            "internal.atomic_write",
            "internal.frozen",
            "internal.garbage",
            "internal.http_server",
            "internal.ids",
            "internal.interrupts",
            "internal.isolation",
            "internal.public_module",
            "internal.slots",
            "internal.sqlite",
            "internal.state_cache",
            "internal.threads",
            "internal.typevars",
        },
        {"internal.checks", "internal.concurrency", "internal.event_loop"},
        {"internal.error_details"},
        {"chat", "clock", "experiment", "serde"},
        {"internal.escaping"},
        {"internal.formatting"},
        {"internal"},
        {"budget", "eval_config"},
        {"prompt"},
        {"runtime"},
        {"adapters"},
        {"rollouts"},
        {"evals"},
        {"contrib", "pytest_plugin", "rl", "testing", "view"},
        {""},
        {"cli"},
        {"__main__"},
    ),
    "runtime": (
        {"dispatcher", "metering", "tracing"},
        {"events"},
        {"session"},
        {"mailbox"},
        {"worker"},
        {"process"},
        {"agent"},
        {""},
    ),
    "runtime.mailbox": ({"core"}, {"backends"}, {"open"}, {""}),
    "evals": (
        {"stats", "datasets"},
        {"_samples"},
        {"_types"},
        {"loaders", "model"},
        {"runs"},
        {"analysis", "evaluators"},
        {"_evaluators", "_session_evaluators", "_judge"},
        {"built_ins"},
        {"judges", "store", "benchmarks"},
        {"engine", "comparison"},
        {"review"},
        {"audit", "distributed", "reporting"},
        {"_loop"},
        {"_helpers"},
        {"statistics", ""},
    ),
    "cli": (
        {"command_table"},
        {"options", "shell_completion"},
        {"console"},
        {"targets", "guard"},
        {"plan"},
        {"runner", "supervisor"},
        {"bisect", "worker_process"},
        {"commands"},
        {"main"},
        {""},
    ),
}
MAX_LINES, MAX_FUNCTION_LINES = 700, 60  # of a file; of a function, without its docstring
VAGUE_NAMES = {"common.py", "utils.py", "helpers.py", "misc.py"}
SOURCE = Path(__file__).parent.parent / "src" / "weakincentives"


def module_of(file: Path, root: Path) -> str:
    """Return the dotted name of a file below the package: "" is the package itself."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path, module: str) -> tuple[tuple[int, str], ...]:
    """Return the line and the full name of everything that is imported from our own package."""
    package = tuple(module.split(".")) if module else ()
    if file.name != "__init__.py":
        package = package[:-1]
    return _imports(file.read_text("utf-8"), package)


@cache
def _imports(code: str, package: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple(_find_imports(code, package))


def _find_imports(code: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ["weakincentives", *package[: len(package) - node.level + 1]]
                origin = ".".join([*base, *filter(None, [node.module])])
            else:
                origin = node.module or ""
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "weakincentives":
                yield node.lineno, name.removeprefix("weakincentives").lstrip(".")


def edges(root: Path) -> dict[str, list[tuple[int, str]]]:
    """Return the modules that each module imports, with the lines."""
    files = {module_of(file, root): file for file in sorted(root.rglob("*.py"))}
    modules = {*files}.union(*LAYERS[""])
    return {
        module: [(line, _longest(name, modules)) for line, name in imports(file, module)]
        for module, file in files.items()
    }


def _longest(name: str, modules: set[str]) -> str:
    """Return the longest beginning of a dotted name that is known; "" if none is."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def layer(module: str, package: str) -> str:
    """Return the name in LAYERS that a module belongs to; "" for the package itself."""
    name = module.removeprefix(package).lstrip(".") if package else module
    return _longest(name, set().union(*LAYERS[package]))


def level(module: str, package: str) -> int | None:
    """Return the place of a module in the layers of a package; None if it has none."""
    name = layer(module, package)
    places = (place for place, names in enumerate(LAYERS[package]) if name in names)
    return next(places, None) if name or module == package else None


def upward(root: Path) -> Iterator[str]:
    """Yield each import that does not point down."""
    for module, found in edges(root).items():
        for package in LAYERS:
            if package and module != package and not module.startswith(f"{package}."):
                continue
            mine = level(module, package)
            if mine is None:
                yield f"{module}: in no layer - give it one in LAYERS[{package!r}]"
                continue
            for line, theirs in found:
                if package and theirs != package and not theirs.startswith(f"{package}."):
                    continue
                if layer(module, package) == layer(theirs, package):
                    continue
                below = level(theirs, package)
                if below is not None and below >= mine:
                    yield f"{module}:{line}: may not import `{theirs or 'weakincentives'}`"


def private(root: Path) -> Iterator[str]:
    """Yield each import of a private module of another package, or a private name of a module."""
    for file in sorted(root.rglob("*.py")):
        module = module_of(file, root)
        for line, name in imports(file, module):
            parts = name.split(".")
            for index, part in enumerate(parts):
                owner = ".".join(parts[:index])
                inside = module == owner or module.startswith(f"{owner}.")
                if part.startswith("_") and not part.startswith("__") and not inside:
                    yield f"{module}:{line}: `{name}` is private to `{owner}`"


def cycles(root: Path) -> list[set[str]]:
    """Return the strongly connected components of two modules or more."""
    graph = {module: {name for _, name in found} for module, found in edges(root).items()}
    reach: dict[str, set[str]] = {}
    for module in graph:
        reachable: set[str] = set()
        todo = [*graph[module]]
        while todo:
            name = todo.pop()
            if name not in reachable:
                reachable.add(name)
                todo.extend(graph.get(name, ()))
        reach[module] = reachable
    groups = {
        frozenset(other for other in reach[module] if module in reach.get(other, ()))
        for module in graph
        if module in reach[module]
    }
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


def style(root: Path) -> Iterator[str]:
    """Yield files and functions that are too long, and vague names."""
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        text = file.read_text("utf-8")
        lines = len(text.splitlines())
        if lines > MAX_LINES:
            yield f"{name}: {lines} lines, at most {MAX_LINES} - split or simplify"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = code_lines(node)
                if lines > MAX_FUNCTION_LINES:
                    yield f"{name}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"
        if file.name in VAGUE_NAMES:
            yield f"{name}: the name says nothing - name the job"


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function, without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_imports_point_down() -> None:
    assert list(upward(SOURCE)) == []


def test_no_private_module_of_another_package_is_imported() -> None:
    assert list(private(SOURCE)) == []


def test_there_are_no_cycles() -> None:
    assert cycles(SOURCE) == []


def test_files_and_functions_are_short_and_have_specific_names() -> None:
    assert list(style(SOURCE)) == []


def test_the_map_of_a_package_has_its_files() -> None:
    for door in SOURCE.rglob("__init__.py"):
        map = ast.get_docstring(ast.parse(door.read_text("utf-8"))) or ""
        if map.count("\n") < 3:
            continue
        files = {file.stem for file in door.parent.glob("*.py") if file.stem[0] != "_"}
        named = set(re.findall(r"^(?:    )?([a-z]\w*) {2,}", map, re.MULTILINE))
        folders = {folder.name for folder in door.parent.iterdir() if folder.is_dir()}

        assert files - set(re.findall(r"\w+", map)) - FORMER == set(), door
        assert named - files - folders == set(), door


def test_only_the_store_knows_its_database() -> None:
    outside = [
        str(file.relative_to(SOURCE))
        for file in sorted((SOURCE / "evals").rglob("*.py"))
        if file.parent.name != "sqlite" and "_database" in file.read_text("utf-8")
    ]

    assert outside == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("runtime/events.py", "import weakincentives.evals", "`evals`"),
        ("runtime/events.py", "from ..evals import run", "`evals`"),
        ("runtime/events.py", "from .. import evals", "`evals`"),
        ("runtime/worker/b.py", "from ...cli import main", "`cli`"),
        ("runtime/worker/b.py", "from ..agent import x", "`runtime.agent`"),
        ("evals/__init__.py", "from ..cli import main", "`cli`"),
        ("evals/engine/a.py", "def f():\n  from weakincentives import cli", "`cli`"),
        ("evals/store/a.py", "if TYPE_CHECKING:\n  from ..engine import b", "`evals.engine`"),
        ("chat.py", "from .serde import encode", "`serde`"),
        ("rl/a.py", "from ..testing import b", "`testing`"),
        ("errors.py", "from weakincentives import x", "`weakincentives`"),
        ("novel/a.py", "", "in no layer"),
    ],
)
def test_an_import_that_points_up_is_found(
    tmp_path: Path, name: str, text: str, fault: str
) -> None:
    for folder in ("evals/engine", "runtime/agent"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)

    assert any(fault in found for found in upward(tmp_path))


def test_other_planted_faults_are_found(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "_types.py").write_text("from .utils import x")
    (tmp_path / "evals" / "utils.py").write_text("from ._types import y" + "\n" * 701)
    (tmp_path / "cli.py").write_text("from .evals._types import z")
    (tmp_path / "chat.py").write_text("def f():\n" + "    x = 1\n" * 61)

    assert cycles(tmp_path) == [{"evals._types", "evals.utils"}]
    assert list(private(tmp_path)) == ["cli:1: `evals._types.z` is private to `evals`"]
    assert len(list(style(tmp_path))) == 3


def test_imports_that_point_down_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "_types.py").touch()
    (tmp_path / "evals" / "loaders.py").write_text(
        "import ast\nfrom . import _types\nfrom .. import serde, rollouts\nfrom ..errors import X\n"
    )

    assert list(upward(tmp_path)) == []
    assert list(private(tmp_path)) == []
