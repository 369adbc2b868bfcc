"""First-party source files: what their statements bind and refer to, and what they import.

Rules of this file:
1. Nothing is run or imported: files are parsed. One that cannot be parsed has no content.
2. Comments, docstrings and formatting do not matter. A file is parsed again when its size or its
   time of change differs.
3. A file is first-party if it is in the project of the agent, except installed packages and ours.
"""

from __future__ import annotations

import ast
import os
import re
import symtable
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from ...internal.garbage import collector_paused

T = TypeVar("T")
_OUR_PACKAGE = Path(__file__).resolve().parents[2]
_INSTALLED = {"site-packages", "dist-packages"}
_READING = re.compile(r"(?:^|_)(?:load|loads|read|reads)(?:_|$)")
_FROM_ENVIRONMENT = {"environ", "getenv", "environb"}
# Of variables of the environment, what an agent is made of: others are keys, addresses and places.
_SETTING = re.compile(r"model|prompt|temperature|effort|variant|version", re.IGNORECASE)
_MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "reverse", "setdefault", "sort", "update", "subtract"),
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def digest(*texts: str) -> str:
    """Return a short hash of texts."""
    content = blake2b(digest_size=6)
    for text in texts:
        content.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return content.hexdigest()


def retry_parser(parse: Callable[[Any], T], argument: Any) -> T:
    """Return what the parser returns; repeat it if Python 3.11 lost count of its own recursion.

    Its count is shared by all threads: parsing in two of them concurrently may raise a SystemError.
    """
    for _ in range(9):
        with suppress(SystemError):
            return parse(argument)
    return parse(argument)


def syntax(node: ast.AST) -> str:
    """Return a syntax tree without docstrings as text, which is the same in every Python.

    (`ast.dump` differs between versions.)
    """
    parts: list[str] = []
    _dump(node, parts.append)
    return "".join(parts)


def _dump(node: Any, add: Callable[[str], None]) -> None:
    # One string for each token: building nested strings takes three times as long.
    if isinstance(node, ast.AST):
        add(node.__class__.__name__)
        add("(")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == []:
                continue
            if name == "body" and _has_docstring(node):
                value = value[1:]
                if not value:
                    continue
            add(name)
            add("=")
            _dump(value, add)
            add(",")
        add(")")
    elif isinstance(node, list):
        add("[")
        for item in node:
            _dump(item, add)
            add(",")
        add("]")
    else:
        add(repr(node))


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, _Function | ast.ClassDef | ast.Module) or not node.body:
        return False
    first = node.body[0]
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


@dataclass(frozen=True, slots=True)
class Import:
    """`from module import name`, or `import module` with an empty name."""

    module: str
    name: str = ""
    level: int = 0
    lazy: bool = False  # within a function, so it may or may not have happened


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement at the top level of a file: what it binds, and which global names it uses."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    first: int
    last: int

    @property
    def label(self) -> str:
        """The name for people: `answer()`, `Agent`, `SYSTEM`."""
        name = ", ".join(sorted(self.binds))
        return f"{name}()" if isinstance(self.node, _Function) else name

    @property
    def imports(self) -> list[Import]:
        return list(imports_of(self.node))


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def imports_of(tree: ast.AST) -> Iterator[Import]:
    """Yield the imports in a tree."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, lazy = stack.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, lazy=lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node.module or "", alias.name, node.level, lazy)
        elif not isinstance(node, ast.expr):
            lazy = lazy or isinstance(node, _Function)
            stack += [(child, lazy) for child in ast.iter_child_nodes(node)]


class SourceFile:
    """One parsed file."""

    def __init__(self, path: Path, source: str) -> None:
        self.path = path
        with collector_paused():
            self.tree = retry_parser(ast.parse, source)
        for node in self.tree.body:
            _remove_pytest_marks(node)
        self._source = source
        self._statements: list[Statement] | None = None
        self._digest = ""
        self._read: list[tuple[ast.stmt, list[str]]] | None = None
        self.imports = list(imports_of(self.tree))

    @property
    def digest(self) -> str:
        """The hash of the whole file."""
        self._digest = self._digest or digest(syntax(self.tree))
        return self._digest

    @property
    def statements(self) -> list[Statement]:
        """The statements at the top level, with the names that each one binds and uses."""
        if self._statements is None:
            parse = lambda source: symtable.symtable(source, "file", "exec")  # noqa: E731
            tables = retry_parser(parse, self._source).get_children()
            self._statements = [_statement(node, tables) for node in self.tree.body]
        return self._statements

    def read_values(self) -> list[tuple[ast.stmt, list[str]]]:
        """Return the assignments whose values count, not only their source: see `_is_read`."""
        if self._read is None:
            found = (node for node in self.tree.body if _is_read(node))
            self._read = [(node, sorted(set(_bound_by(node)))) for node in found]
        return self._read

    def binding(self, name: str) -> list[Statement]:
        """Return the statements that bind a global name, or change what it refers to."""
        return [statement for statement in self.statements if name in statement.binds]

    def star_imports(self) -> list[Statement]:
        """Return the statements `from module import *`."""
        return [item for item in self.statements if any(i.name == "*" for i in item.imports)]

    def statement_at(self, line: int, name: str) -> Statement | None:
        """Return the function or class of this name that begins in a line."""
        for statement in self.statements:
            if statement.first <= line <= statement.last and name in statement.binds:
                return statement
        return None

    def class_named(self, name: str) -> ast.ClassDef | None:
        """Return the class of this name, wherever it is defined."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))
        return next((node for node in nodes if node.name == name), None)

    def is_assigned_in_functions(self, name: str) -> bool:
        """Return whether a function has the name in a `global` statement."""
        return any(isinstance(n, ast.Global) and name in n.names for n in ast.walk(self.tree))


def _remove_pytest_marks(node: ast.stmt) -> None:
    """Remove `@pytest.mark.…`: the dataset and the gate of a mark are not part of an agent."""
    if isinstance(node, _Function) and any(map(_is_pytest_mark, node.decorator_list)):
        node.lineno = min(each.lineno for each in node.decorator_list)  # where it begins
        node.decorator_list = [each for each in node.decorator_list if not _is_pytest_mark(each)]


def _is_pytest_mark(node: ast.expr) -> bool:
    mark = getattr(node.func if isinstance(node, ast.Call) else node, "value", None)
    return getattr(mark, "attr", getattr(mark, "id", "")) == "mark"


def _is_read(node: ast.stmt) -> bool:
    """Return whether the value is read from a file, or is a setting from the environment.

    A function with a name such as `read_text` or `load_prompt` reads a file. A variable of the
    environment is a setting if its name, or the name that is bound, says so, as MODEL does.
    """
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    parts = [*ast.walk(node)]
    if _FROM_ENVIRONMENT.isdisjoint(getattr(x, "attr", getattr(x, "id", "")) for x in parts):
        return any(isinstance(x, ast.Call) and _READING.search(_called(x)) for x in parts)
    texts = (x.value for x in parts if isinstance(x, ast.Constant))
    variable = next((text for text in texts if isinstance(text, str)), "")
    return any(_SETTING.search(name) for name in (variable, *_bound_by(node)))


def _statement(node: ast.stmt, tables: list[symtable.SymbolTable]) -> Statement:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    last = node.end_lineno or node.lineno
    uses = {n.id for n in _outside_functions(node) if isinstance(n, ast.Name)}
    for table in tables:
        if first <= table.get_lineno() <= last:
            uses |= _global_names(table)
    return Statement(node, frozenset(_bound_by(node)), frozenset(uses), first, last)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated in the scope of the module."""
    yield node
    children: list[Any] = list(ast.iter_child_nodes(node))
    if isinstance(node, _Function | ast.Lambda | ast.ClassDef):
        body = node.body if isinstance(node.body, list) else [node.body]
        children = [child for child in children if child not in body]
    for child in children:
        yield from _outside_functions(child)


def _global_names(table: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_global_names, table.get_children()))


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the global names that a statement binds, or whose objects it changes."""
    parts = list(_outside_functions(node))
    targets = (part.target for part in parts if isinstance(part, ast.comprehension))
    local = {name for target in targets for name in ast.walk(target)}  # bound by a comprehension
    for part in parts:
        if isinstance(part, _Function | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.Import | ast.ImportFrom):
            for alias in part.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            if part not in local:
                yield part.id
        elif (name := _changed(part)) and "." not in name:
            yield name


def mutated_names(tree: ast.AST) -> set[str]:
    """Return the names whose values code changes: `calls`, or `self.calls` for an attribute."""
    return {name for node in ast.walk(tree) if (name := _changed(node))} | {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }


def _changed(node: ast.AST) -> str:
    """Return the name whose value a node changes: `x[i] = 1`, `x.y = 1`, `x.append(1)`."""
    target: ast.AST | None = None
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        target = node.value if isinstance(node, ast.Subscript) else node
    elif isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Call) and _called(node) in _MUTATORS:
        target = getattr(node.func, "value", None)
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return f"{target.value.id}.{target.attr}"
    return ""


# ── the project ─────────────────────────────────────────────────────────────────────────────────


class Project:
    """The first-party files around one file."""

    def __init__(self, file: Path) -> None:
        self.root = _root_of(file)
        self._found: dict[tuple[str, Path | None], Path | None] = {}
        self._bases: list[Path] | None = None
        self._has: dict[Path, bool] = {}
        self._packages: dict[Path, list[Path]] = {}

    def has(self, file: Path) -> bool:
        """Return whether a file is first-party."""
        if file not in self._has:
            self._has[file] = self._contains(file)
        return self._has[file]

    def _contains(self, file: Path) -> bool:
        if file != self.root and self.root not in file.parents:
            return False
        inside = set(file.relative_to(self.root).parts)
        ours = file.is_relative_to(_OUR_PACKAGE) or file.is_relative_to(_standard_library())
        return not ours and not inside & _INSTALLED

    def label(self, file: Path) -> str:
        """Return the path of a file within the project."""
        return file.name if file == self.root else file.relative_to(self.root).as_posix()

    def file(self, path: Path) -> SourceFile | None:
        """Return a first-party file, parsed; None if it cannot be."""
        return source_file(path) if self.has(path) else None

    def targets(self, found: Import, importer: Path) -> list[Path]:
        """Return the first-party files that an import refers to: the module, or its submodule."""
        folder: Path | None = None
        if found.level:
            folder = importer.parent
            for _ in range(found.level - 1):
                folder = folder.parent
        module = self._module(found.module, folder) if found.module else None
        if found.name and found.name != "*":
            name = f"{found.module}.{found.name}" if found.module else found.name
            if (submodule := self._module(name, folder)) is not None:
                return [submodule]
        if not found.module and folder is not None:
            module = _existing(folder / "__init__.py")
        return [] if module is None or not self.has(module) else [module]

    def packages_of(self, file: Path) -> list[Path]:
        """Return the `__init__.py` of the packages that a module is in."""
        if file not in self._packages:
            found = self._packages[file] = []
            for folder in file.parents:
                if folder == self.root or not (folder / "__init__.py").is_file():
                    break
                if folder / "__init__.py" != file:
                    found.append(folder / "__init__.py")
        return self._packages[file]

    def _module(self, name: str, folder: Path | None) -> Path | None:
        if (name, folder) not in self._found:
            bases = [folder] if folder is not None else self._import_folders()
            if folder is None and name.partition(".")[0] in sys.stdlib_module_names:
                bases = []
            files = (file for base in bases for file in _files_of(base, name))
            self._found[name, folder] = next((file for file in files if self.has(file)), None)
        return self._found[name, folder]

    def _import_folders(self) -> list[Path]:
        """Return the folders of the project that modules are imported from."""
        if self._bases is None:
            folders = [Path(entry or ".").resolve() for entry in sys.path]
            root = self.root if self.root.is_dir() else self.root.parent
            inside = [f for f in folders if f == root or root in f.parents]
            self._bases = list(dict.fromkeys([*inside, root, root / "src", root.parent]))
        return self._bases


def _files_of(base: Path, name: str) -> Iterator[Path]:
    path = base.joinpath(*name.split("."))
    for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if file.is_file():
            yield file


def _existing(file: Path) -> Path | None:
    return file if file.is_file() else None


@lru_cache(maxsize=1)
def _standard_library() -> Path:
    return Path(os.__file__).resolve().parent


@lru_cache(maxsize=256)
def _root_of(file: Path) -> Path:
    """Return the folder of the project: with a pyproject.toml or .git, or else that of the file.

    Of an installed package it is the package.
    """
    for folder in file.parents:
        if folder.name in _INSTALLED:
            return folder / file.relative_to(folder).parts[0]
    for folder in file.parents:
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return file.parent


_files: dict[Path, tuple[tuple[int, int], SourceFile | None]] = {}


def source_file(path: Path) -> SourceFile | None:
    """Return a file, parsed once for each of its versions; None if it cannot be parsed."""
    try:
        status = path.stat()
        version = (status.st_mtime_ns, status.st_size)
        if path not in _files or _files[path][0] != version:
            try:
                parsed = SourceFile(path, path.read_bytes().decode("utf-8-sig"))
            except (SyntaxError, ValueError, RecursionError):
                parsed = None
            _files[path] = version, parsed
        return _files[path][1]
    except OSError:
        return None
