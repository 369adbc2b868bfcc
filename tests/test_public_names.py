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

from weakincentives.evals import Dataset, EvalConfig, Sample, Score
from weakincentives.evals.distributed import Submission
from weakincentives.evals.judges import JudgeOutput

SOURCE = Path(__file__).parent.parent / "src"
INITS = sorted(SOURCE.rglob("__init__.py"))


def module_name(init: Path) -> str:
    return ".".join(init.parent.relative_to(SOURCE).parts)


def sort_key(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: CONSTANTS, then Classes, then functions, as ruff sorts."""
    return not name.isupper(), not name[0].isupper(), name


def public_names(init: Path) -> list[str]:
    """Return the names that the file imports in the form that type checkers take for public."""
    return [
        alias.name
        for node in ast.walk(ast.parse(init.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name and not alias.name.startswith("_")
    ]


@pytest.mark.parametrize("init", INITS, ids=module_name)
def test_each_name_is_listed_once_and_can_be_loaded(init: Path) -> None:
    package = import_module(module_name(init))
    names = public_names(init)

    assert sorted(names) == sorted(set(names))
    if names:
        assert package.__all__ == sorted(names, key=sort_key)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(package.__all__) <= set(dir(package))


def test_a_name_that_moved_is_offered_for_one_more_version_with_a_warning() -> None:
    from weakincentives import evals
    from weakincentives.evals import judges

    with pytest.deprecated_call(match=r"`weakincentives\.evals\.judges\.groundedness` now") as seen:
        from weakincentives.evals import groundedness  # type: ignore[attr-defined]

    assert groundedness is judges.groundedness
    assert {warning.filename for warning in seen} == {__file__}
    assert not {"groundedness", "RunManifest"} & {*evals.__all__, *dir(evals)}


def test_a_name_that_was_renamed_is_offered_for_one_more_version_with_a_warning() -> None:
    from weakincentives.evals import comparison, distributed

    with pytest.deprecated_call(match=r"`weakincentives\.evals\.comparison\.SliceComparison` now"):
        assert comparison.Slice is comparison.SliceComparison  # type: ignore[attr-defined]
    with pytest.deprecated_call(match=r"distributed\.Ledger` is .*distributed\.ResultLedger` now"):
        assert distributed.Ledger is distributed.ResultLedger  # type: ignore[attr-defined]


def test_every_name_of_the_version_before_is_offered() -> None:
    before = (Path(__file__).parent / "compat" / "names_0.2.txt").read_text().split()
    evals = import_module("weakincentives.evals")

    with pytest.deprecated_call():
        assert [name for name in before if not hasattr(evals, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'EvalSweet'"):
        from weakincentives.evals import EvalSweet  # type: ignore[attr-defined]  # noqa: F401


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
