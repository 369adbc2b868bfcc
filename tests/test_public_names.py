"""Every package says what it offers: a sorted, complete `__all__` of documented names."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
INITS = sorted(SOURCE.rglob("__init__.py"))


def module_name(init: Path) -> str:
    return ".".join(init.parent.relative_to(SOURCE).parts)


def order(name: str) -> tuple[bool, bool, str]:
    """CONSTANTS, then Classes, then functions: the order that ruff keeps."""
    return not name.isupper(), not name[0].isupper(), name


def offered(init: Path) -> set[str]:
    """The public names that the file takes from our own modules or defines itself."""
    body = ast.parse(init.read_text("utf-8")).body
    guarded = [inner for node in body if isinstance(node, ast.If) for inner in node.body]
    found: set[str] = set()
    for node in (*body, *guarded):
        if isinstance(node, ast.ImportFrom) and node.level:
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_all_is_sorted_complete_and_true(init: Path) -> None:
    package = import_module(module_name(init))

    assert package.__all__ == sorted(set(package.__all__), key=order)
    assert offered(init) - set(package.__all__) == set()
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_every_public_name_has_a_docstring(init: Path) -> None:
    package = import_module(module_name(init))
    bare = [
        name
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) or inspect.isroutine(value)
        # A dataclass without words gets its signature as docstring.
        if not value.__doc__ or value.__doc__.startswith(f"{name}(")
    ]

    assert bare == []
