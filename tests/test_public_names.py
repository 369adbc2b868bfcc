"""Every package says what it offers: a sorted, complete `__all__` of documented names.

A public object is at home in a public module: its `__module__` names no private file. In a file, a
name without an underscore is offered to the files around it; `__all__` would only repeat it.
"""

from __future__ import annotations

import ast
import inspect
import pickle
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

from weakincentives.evals import Dataset, EvalConfig, JudgeOutput, Sample, Score, Submission

SOURCE = Path(__file__).parent.parent / "src"
INITS = sorted(SOURCE.rglob("__init__.py"))


def module_name(init: Path) -> str:
    return ".".join(init.parent.relative_to(SOURCE).parts)


def sort_key(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: CONSTANTS, then Classes, then functions, as ruff sorts."""
    return not name.isupper(), not name[0].isupper(), name


def public_names(init: Path) -> set[str]:
    """Return the public names that the file imports from our own modules or defines."""
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
def test_all_is_sorted_and_complete(init: Path) -> None:
    package = import_module(module_name(init))

    assert package.__all__ == sorted(set(package.__all__), key=sort_key)
    assert public_names(init) - set(package.__all__) == set()
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def files_that_repeat_names(root: Path) -> list[str]:
    """Return the files whose `__all__` has only names that they define themselves."""
    found = []
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        listed = {text for node in tree.body if is_all(node) for text in texts_in(node)}
        nodes = list(ast.walk(tree))
        imported = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        is_read = any(
            isinstance(node, ast.Name) and node.id == "__all__" and isinstance(node.ctx, ast.Load)
            for node in nodes
        )
        if file.name != "__init__.py" and listed and not is_read and not listed & imported:
            found.append(str(file.relative_to(root)))
    return found


def is_all(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def texts_in(node: ast.AST) -> set[str]:
    constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


@pytest.mark.slow
def test_a_file_does_not_repeat_its_names() -> None:
    package = SOURCE / "weakincentives"
    named = {"loaders.py", "analysis.py"}  # modules that users import by name
    public = {file.name for file in package.glob("*.py")} | {f"evals/{name}" for name in named}
    found = files_that_repeat_names(package)

    # verifiers looks for the class of a harness in the `__all__` of its module
    assert set(found) - public == {"contrib/verifiers/harness.py"}


def test_a_file_that_repeats_its_names_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('__all__ = ["f"]\n\n\ndef f(): ...\n')
    (tmp_path / "b.py").write_text('from .a import f\n\n__all__ = ["f", "g"]\ng = 1\n')
    (tmp_path / "c.py").write_text("def f(): ...\n")

    assert files_that_repeat_names(tmp_path) == ["a.py"]


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_every_public_name_has_a_docstring(init: Path) -> None:
    package = import_module(module_name(init))
    bare = [
        name
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) or inspect.isroutine(value)
        # A dataclass without a docstring gets its signature as docstring.
        if not value.__doc__ or value.__doc__.startswith(f"{name}(")
    ]

    assert bare == []


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_no_public_object_has_a_private_module(init: Path) -> None:
    package = import_module(module_name(init))
    private = [
        f"{name}: {value.__module__}"
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) or inspect.isfunction(value)
        if any(part.startswith("_") for part in value.__module__.split("."))
    ]

    assert private == []


@pytest.mark.parametrize(
    "value",
    [
        Sample("1", "a", "b", {"k": 1}),
        Dataset([Sample("1", "a")], "d"),
        Score(1.0, reason="r"),
        EvalConfig(timeout=2.5),
        JudgeOutput(reason="r", rating="good"),
        Submission("r", Dataset([Sample("1", "a")])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_public_values_can_be_pickled_and_their_annotations_resolved(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    hints = get_type_hints(type(value)).keys() - {"_"}  # marks the fields after it as keywords
    assert hints == {each.name for each in fields(value)}  # type: ignore[arg-type]


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_no_name_is_also_the_name_of_a_module(init: Path) -> None:
    """Importing the module would replace the public name of the package."""
    offered_names = set(import_module(module_name(init)).__all__)
    modules = {path.stem for path in init.parent.iterdir()}

    assert offered_names & modules - {"main"} == set()  # `cli` imports its `main` eagerly
