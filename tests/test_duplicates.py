"""No logic of six or more lines is duplicated in `src`: it belongs into one function.

Statements are compared by their shape: names of variables and texts may differ, while attributes,
keywords, numbers and the order of the statements count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "weakincentives"
MIN_LINES = 6
MIN_PARTS = 60  # with fewer it is one call with its arguments on lines of their own


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the statements of each function, loop and branch, without docstrings and imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                yield [each for each in statements if is_logic(each)]


def is_logic(statement: ast.stmt) -> bool:
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not text and not isinstance(statement, ast.Import | ast.ImportFrom)


def runs(block: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield, from each statement on, as many as make the least number of lines."""
    for start in range(len(block)):
        lines = 0
        for end in range(start, len(block)):
            lines += (block[end].end_lineno or 0) - block[end].lineno + 1
            if lines >= MIN_LINES:
                yield block[start : end + 1]
                break


def shape(run: list[ast.stmt]) -> tuple[str, ...]:
    """Return what counts in statements: variables are numbered in the order of their use."""
    parts: list[str] = []
    variables: dict[str, str] = {}
    for node in (node for statement in run for node in ast.walk(statement)):
        parts.append(type(node).__name__)
        if isinstance(node, ast.Name):
            parts.append(variables.setdefault(node.id, str(len(variables))))
        elif isinstance(node, ast.arg):
            parts.append(variables.setdefault(node.arg, str(len(variables))))
        elif isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node, ast.keyword):
            parts.append(str(node.arg))
        elif isinstance(node, ast.Constant):
            parts.append("text" if isinstance(node.value, str) else repr(node.value))
    return tuple(parts)


def duplicates(root: Path) -> list[str]:
    """Return the places below a folder that have the same logic, all of each in one line."""
    places: dict[int, list[str]] = defaultdict(list)
    for file in sorted(root.rglob("*.py")):
        for block in blocks(ast.parse(file.read_text("utf-8"))):
            for run in runs(block):
                if len(parts := shape(run)) >= MIN_PARTS:
                    where = f"{file.relative_to(root)}:{run[0].lineno}-{run[-1].end_lineno}"
                    places[hash(parts)].append(where)
    return [" and ".join(found) for found in places.values() if len(found) > 1]


@pytest.mark.slow
def test_no_logic_is_duplicated() -> None:
    assert duplicates(SOURCE) == []


def test_a_copy_with_other_names_is_found_and_other_logic_is_not(tmp_path: Path) -> None:
    original = """
def read(path, size):
    lines = []
    with path.open() as file:
        for line in file:
            if line.strip() and len(line) < size:
                lines.append(line.strip().lower())
    if not lines:
        raise ValueError(f"nothing in {path}")
    return sorted(lines)
"""
    copy = original.replace("path", "source").replace("lines", "kept").replace("nothing", "none")
    (tmp_path / "a.py").write_text(original)
    (tmp_path / "b.py").write_text(copy)
    (tmp_path / "c.py").write_text(copy.replace("strip", "rstrip"))

    assert duplicates(tmp_path) == ["a.py:3-9 and b.py:3-9", "a.py:4-9 and b.py:4-9"]
