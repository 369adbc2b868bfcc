"""Which agent is it? A hash for each part of its first-party code and of its settings.

Rules of this file:
1. In the modules of the agent itself, only what its code refers to by name counts: an eval file
   also has datasets and evaluators. Any other first-party module that it imports counts as a whole,
   and so do those that this one imports.
2. Constants count by their source and, if they are read from a file, or are a setting from the
   environment such as MODEL, by their value. What an agent changes while it runs, such as a list
   of calls, does not count.
3. Nothing is run or imported, and nothing that is raised here ends a run. The hashes are the same
   in every process, whatever the agent did before.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...internal.names import display_name
from .fingerprint import source_of
from .source_files import (
    Import,
    Project,
    SourceFile,
    Statement,
    digest,
    imports_of,
    mutated_names,
    retry_parser,
    source_file,
    syntax,
)

_PLAIN = (str, bytes, int, float, bool, type(None))
_MAX_VALUES = 10_000  # plain values that one part may have
_PRIVATE = {"key", "secret", "password", "token", "url", "uri", "host", "port", "address"}
_CONSTRUCTORS = ("__init__", "__post_init__", "__new__")


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The version of an agent: a hash of all parts, and one of each."""

    version: str = ""
    parts: Mapping[str, str] = field(default_factory=dict, hash=False)


def identify(code: Any) -> AgentIdentity:
    """Return the identity of what an agent is made of: functions, objects, prompts, adapters."""
    try:
        parts = _Reach().of(code)
    except Exception as error:  # whatever a user's object does when it is looked at
        parts = {"code": f"unknown: {type(error).__name__}"}
    names = sorted(parts)
    return AgentIdentity(
        digest(*(f"{name} {parts[name]}" for name in names)), {name: parts[name] for name in names}
    )


class _Reach:
    """Collects the parts of one agent: first what is alive, then its source files."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        self._seen: dict[int, Any] = {}
        self._project: Project | None = None
        self._own: dict[Path, dict[str, Any]] = {}  # modules of the agent, with their globals
        self._statements: list[tuple[SourceFile, Statement]] = []
        self._imports: list[tuple[Import, Path]] = []
        self._names: list[tuple[Path, str]] = []
        self._reached: list[tuple[SourceFile, Statement]] = []

    def of(self, code: Any) -> dict[str, str]:
        self._visit(code, "settings")
        self._follow_names()
        self._follow_imports()
        values = {label: digest(*texts) for label, texts in self._values.items() if texts}
        return {**values, **self._parts}

    # ── live objects ────────────────────────────────────────────────────────────────────────────

    def _visit(self, thing: Any, label: str) -> None:
        texts = self._values.setdefault(label, [])
        if len(texts) > _MAX_VALUES:
            return
        if isinstance(thing, _PLAIN) and not isinstance(thing, Enum):
            texts.append(repr(thing))
            return
        if id(thing) in self._seen:
            texts.append("again")
            return
        self._seen[id(thing)] = thing  # kept alive, so that no other object gets its id
        if isinstance(thing, tuple | list):
            texts.append(f"{len(thing)} in order")
            for item in thing:
                self._visit(item, label)
        elif isinstance(thing, Mapping):
            texts.append(f"{len(thing)} by key")
            for key in sorted(thing, key=repr):
                texts.append(repr(key) if isinstance(key, _PLAIN) else display_name(key))
                self._visit(thing[key], label)
        elif isinstance(thing, Set):
            texts += sorted(repr(item) for item in thing if isinstance(item, _PLAIN))
        elif isinstance(thing, re.Pattern):
            texts.append(repr((thing.pattern, thing.flags)))
        elif isinstance(thing, Enum):
            texts.append(str(thing))
        elif isinstance(thing, functools.partial):
            self._visit(thing.func, label)
            self._visit([thing.args, thing.keywords], "arguments")
        elif inspect.ismethod(thing):
            self._visit(thing.__func__, label)
            self._visit(thing.__self__, label)
        elif isinstance(thing, FunctionType):
            texts.append(display_name(thing))
            self._visit_function(thing, label)
        elif isinstance(thing, type):
            texts.append(display_name(thing))
            self._visit_class(thing)
        elif isinstance(thing, ModuleType):
            if file := getattr(thing, "__file__", None):
                self._parts |= self._whole(Path(file).resolve())
        elif hasattr(thing, "__wrapped__"):
            self._visit(thing.__wrapped__, label)
        else:
            self._visit_object(thing, label, texts)

    def _visit_function(self, fn: FunctionType, label: str) -> None:
        if wrapped := vars(fn).get("__wrapped__"):
            self._visit(wrapped, label)
        path = _path(fn.__code__.co_filename)
        if path is None and not _is_typed_in(fn):  # generated, such as the methods of a dataclass
            return
        if path is not None and not self._is_first_party(path):
            self._visit_cells(fn, plain=False)
            return
        if path is not None:
            self._own.setdefault(path, fn.__globals__)
            source = source_file(path)
            line, name = fn.__code__.co_firstlineno, fn.__qualname__
            if source is not None and (found := source.statement_at(line, name)) is not None:
                self._statements.append((source, found))
                return
        tree = _tree_of(fn)
        changed = mutated_names(tree) if tree else set()
        self._parts[f"{display_name(fn)}()"] = digest(source_of(fn))
        self._visit_globals(fn, path, tree, changed)
        self._visit_defaults(fn, changed)
        self._visit_cells(fn, plain=True, changed=changed)

    def _visit_defaults(self, fn: FunctionType, changed: set[str]) -> None:
        positional = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        values = fn.__defaults__ or ()
        named = dict(zip(positional[len(positional) - len(values) :], values, strict=True))
        for name, value in {**named, **(fn.__kwdefaults__ or {})}.items():
            if name not in changed and not _is_private(name):
                self._visit(value, f"{display_name(fn)}: {name}")

    def _visit_globals(
        self, fn: FunctionType, path: Path | None, tree: ast.AST | None, changed: Set[str]
    ) -> None:
        """Visit what a function refers to by global names: in its file, or else as it is."""
        if path is not None and tree is not None:
            self._imports += [(found, path) for found in imports_of(tree)]
        for name in sorted(_global_names(fn.__code__)):
            if path is not None:
                self._names.append((path, name))
            elif name in fn.__globals__ and name not in changed:
                value = fn.__globals__[name]
                # Without source, as in `python -c`, a constant may be any argument of a script.
                if tree is not None or callable(value):
                    self._visit(value, name)

    def _visit_cells(
        self, fn: FunctionType, *, plain: bool, changed: Set[str] = frozenset()
    ) -> None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            if name in changed or _is_private(name):
                continue
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if plain or callable(value):
                self._visit(value, f"{display_name(fn)}: {name}")

    def _visit_class(self, cls: type) -> None:
        path = _path(_file_of(cls))
        if path is None:
            for _, method in sorted(vars(cls).items()) if _is_typed_in(cls) else ():
                if isinstance(method, FunctionType):
                    self._visit(method, "settings")
            return
        if not self._is_first_party(path):
            return
        self._own.setdefault(path, vars(sys.modules[cls.__module__]))
        source, name = source_file(path), cls.__qualname__.partition(".")[0]
        if source is None:
            return
        found = [one for one in source.binding(name) if isinstance(one.node, ast.ClassDef)]
        self._statements += [(source, statement) for statement in found]
        if not found:  # defined within a function
            node = source.class_named(cls.__name__)
            self._parts[cls.__name__] = digest(source_of(cls))
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()
            self._names += [(path, one) for one in sorted(names)]

    def _visit_object(self, thing: Any, label: str, texts: list[str]) -> None:
        cls = type(thing)
        texts.append(display_name(thing))
        self._visit_class(cls)
        for name in self._settings_of(thing):
            try:
                value = getattr(thing, name)
            except Exception:  # a property of a user's class may raise anything
                continue
            self._visit(value, f"{cls.__name__}.{name}" if label == "settings" else label)
        if isinstance(descriptor := getattr(thing, "descriptor", None), str):  # a prompt template
            self._visit(descriptor, "prompt")
            self._visit(_handlers(getattr(thing, "sections", ())), "tools")

    def _settings_of(self, thing: Any) -> Iterator[str]:
        """Yield the attributes that say how an object works, and stay as they are."""
        if isinstance(getattr(thing, "model", None), str):
            # Never the address or the key, which may change between runs.
            yield from ("model", "name", "settings")
            return
        if isinstance(getattr(thing, "descriptor", None), str):
            return
        known = [f.name for f in fields(thing)] if is_dataclass(thing) else []
        if hasattr(thing, "adapter"):  # a main loop
            known.append("adapter")
        changed: set[str] = set()
        for cls in type(thing).__mro__:
            path = _path(_file_of(cls))
            source = source_file(path) if path is not None and self._is_first_party(path) else None
            if source is not None and (node := source.class_named(cls.__name__)) is not None:
                known += _set_by_constructors(node)
                changed |= _changed_by_methods(node)
        for name in dict.fromkeys(known):
            if name not in changed and not _is_private(name):
                yield name

    def _is_first_party(self, path: Path) -> bool:
        if self._project is None:
            project = Project(path)
            if not project.has(path):
                return False
            self._project = project
        return self._project.has(path)

    # ── source files ────────────────────────────────────────────────────────────────────────────

    def _follow_names(self) -> None:
        """Add the statements of the agent's modules that its code refers to, one by one."""
        names: set[tuple[Path, str]] = set()
        statements: set[Statement] = set()
        followed = 0  # imports that were looked at
        while self._statements or self._names or followed < len(self._imports):
            for path, name in set(self._names) - names:
                names.add((path, name))
                if (source := source_file(path)) is not None:
                    found = source.binding(name) or source.star_imports()
                    self._statements += [(source, statement) for statement in found]
            self._names.clear()
            for source, statement in self._statements:
                if statement in statements:
                    continue
                statements.add(statement)
                self._imports += [(one, source.path) for one in statement.imports]
                self._names += [(source.path, name) for name in statement.uses]
                if not isinstance(statement.node, ast.Import | ast.ImportFrom):
                    self._reached.append((source, statement))
            self._statements.clear()
            for one, path in self._imports[followed:]:  # from one module of the agent to another
                targets = self._project.targets(one, path) if self._project and one.name else ()
                self._names += [(target, one.name) for target in targets if target in self._own]
                followed += 1
        for source, statement in sorted(self._reached, key=lambda one: one[1].first):
            self._add_statement(source, statement)

    def _add_statement(self, source: SourceFile, statement: Statement) -> None:
        label = statement.label
        if self._own and source.path != next(iter(self._own)):
            label = f"{source.path.name}:{label}"
        read = [names for node, names in source.read_values() if node is statement.node]
        texts = [syntax(statement.node), *self._read_values(source, read)]
        # A name may be bound more than once.
        self._parts[label] = digest(self._parts.get(label, ""), *texts)

    def _read_values(self, source: SourceFile, read: list[list[str]]) -> Iterator[str]:
        """Yield the values of names that are read."""
        if not read:
            return
        values = self._own.get(source.path) or _globals_of(source.path)
        for name in (name for names in read for name in names):
            if name in values and not source.is_assigned_in_functions(name):
                yield from _plain_values(values[name])

    def _follow_imports(self) -> None:
        """Add the other modules as a whole, and those that they import."""
        project = self._project
        if project is None:
            return
        todo = list(self._imports)
        done: set[Path] = set(self._own)
        lazily: set[Path] = set()
        while todo:
            found, importer = todo.pop()
            for target in project.targets(found, importer):
                if found.lazy or importer in lazily:
                    lazily.add(target)
                for package in project.packages_of(target):
                    if package not in done:
                        self._parts |= self._whole(package, values=False)
                if target not in done:
                    done.add(target)
                    self._parts |= self._whole(target, values=target not in lazily)
                    source = project.file(target)
                    todo += [(one, target) for one in source.imports] if source else []

    def _whole(self, path: Path, *, values: bool = True) -> dict[str, str]:
        """Return the part that a whole file is."""
        source = self._project.file(path) if self._project and self._project.has(path) else None
        if source is None or self._project is None:
            return {}
        names = [names for _, names in source.read_values()] if values else []
        read = list(self._read_values(source, names))
        whole = digest(source.digest, *read) if read else source.digest
        return {self._project.label(path): whole}


def _path(name: str | None) -> Path | None:
    """Return the path of a source file that exists."""
    if not name or name.startswith("<"):
        return None
    path = Path(name)
    try:
        return path.resolve() if path.is_file() else None
    except (OSError, ValueError):
        return None


def _file_of(cls: type) -> str | None:
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


def _is_typed_in(thing: Any) -> bool:
    """Return whether code has no file: it was typed into a notebook or a prompt."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return getattr(module, "__file__", None) is None


def _globals_of(path: Path) -> dict[str, Any]:
    """Return the names of an imported module by its file."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return vars(module)
    return {}


def _tree_of(fn: FunctionType) -> ast.AST | None:
    try:
        tree: ast.AST = retry_parser(ast.parse, dedent(retry_parser(inspect.getsource, fn)))
        return tree
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that code and the functions inside it refer to."""
    names = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return names.union(*map(_global_names, inner))


def _is_private(name: str) -> bool:
    """Return whether a name is that of a key or an address, which may change between runs."""
    return bool(_PRIVATE.intersection(name.lower().split("_")))


def _handlers(sections: Any) -> list[Any]:
    """Return the functions behind the tools of a prompt's sections."""
    found: list[Any] = []
    for section in sections:
        found += [tool.handler for tool in section.tools]
        found += [section.enabled] if callable(section.enabled) else []
        found += _handlers(section.children)
    return found


def _plain_values(value: Any) -> Iterator[str]:
    """Yield plain data as text; nothing for any other object."""
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _plain_values(item)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield repr(key) if isinstance(key, _PLAIN) else ""
            yield from _plain_values(value[key])


def _set_by_constructors(cls: ast.ClassDef) -> list[str]:
    return [
        node.attr
        for method in cls.body
        if isinstance(method, ast.FunctionDef) and method.name in _CONSTRUCTORS
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
    ]


def _changed_by_methods(cls: ast.ClassDef) -> set[str]:
    changed: set[str] = set()
    for method in cls.body:
        if not (isinstance(method, ast.FunctionDef) and method.name in _CONSTRUCTORS):
            changed |= {name.partition(".")[2] for name in mutated_names(method) if "." in name}
    return changed
