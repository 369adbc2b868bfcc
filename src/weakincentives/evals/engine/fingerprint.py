"""Short hashes of evaluators, which change when their code or their settings do.

What identifies an agent is in `engine/identity.py`; earlier releases used these hashes for it too.

A user's function is hashed by its syntax tree, so that comments, docstrings and formatting do not
matter; by its defaults; and by what it closes over: plain values, containers and dataclasses of
them, functions, and the model and settings of an adapter. What it calls by a global name is not
included. Our own evaluators have an explicit identity instead: a name, a version and their
parameters.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from textwrap import dedent
from types import CodeType
from typing import Any

from ...internal.names import display_name
from ..evaluators.criteria import Criterion
from .source_files import retry_parser

_PLAIN = (str, bytes, int, float, bool, type(None))
_SOURCELESS = ("builtins", "threading", "weakincentives")


def fingerprint(thing: Any) -> str:
    """Return a short hash of code and settings, which is the same in every process."""
    return _digest(thing, by_text=False)


def criteria_fingerprint(criterion: Criterion) -> str:
    """Return what identifies a set of criteria: a hash of the whole, and one of each part."""
    parts = [fingerprint([part.name, part]) for part in criterion.parts or (criterion,)]
    return " ".join([fingerprint(criterion), *parts])


def fingerprint_by_text(thing: Any) -> str:
    """Return the hash of earlier releases, by source text; for runs that they stored."""
    return "" if thing is None else _digest(thing, by_text=True)


def _digest(thing: Any, *, by_text: bool) -> str:
    content = blake2b(digest_size=6)
    for part in _parts(thing, {}, by_text):
        content.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return content.hexdigest()


def _parts(thing: Any, seen: dict[int, Any], by_text: bool) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield repr(thing)
        return
    if id(thing) in seen:
        yield "again"
        return
    seen[id(thing)] = thing  # kept alive, so that no other object gets its id
    if isinstance(thing, (tuple, list)):
        yield f"{len(thing)} in order"
        for item in thing:
            yield from _parts(item, seen, by_text)
    elif isinstance(thing, Mapping | Set):
        items = thing.items() if isinstance(thing, Mapping) else thing
        yield f"{len(thing)} in no order"
        yield from sorted("\0".join(_parts(item, dict(seen), by_text)) for item in items)
    elif isinstance(thing, re.Pattern):
        yield repr((thing.pattern, thing.flags))
    elif isinstance(thing, functools.partial):
        yield from _parts((thing.func, thing.args, thing.keywords), seen, by_text)
    elif inspect.ismethod(thing):
        yield from _parts((thing.__func__, thing.__self__), seen, by_text)
    elif isinstance(thing, Criterion) and thing.identity:
        yield from _parts(thing.identity, seen, by_text)
    elif hasattr(thing, "__wrapped__"):
        yield from _parts(thing.__wrapped__, seen, by_text)
    elif inspect.isfunction(thing):
        yield display_name(thing)
        yield _source(thing, by_text)
        yield from _parts([thing.__defaults__, thing.__kwdefaults__], seen, by_text)
        for cell in thing.__closure__ or ():
            try:
                yield from _parts(cell.cell_contents, seen, by_text)
            except ValueError:  # not filled yet
                continue
    elif isinstance(thing, type):
        yield display_name(thing)
    else:
        yield from _object(thing, seen, by_text)


def _object(thing: Any, seen: dict[int, Any], by_text: bool) -> Iterator[str]:
    yield display_name(thing)
    if type(thing).__module__.partition(".")[0] not in _SOURCELESS:
        yield _source(type(thing), by_text)
    if isinstance(model := getattr(thing, "model", None), str):
        # Never the address or the key, which may change between runs.
        settings = [getattr(thing, name, None) for name in ("name", "settings")]
        yield from _parts([model, settings], seen, by_text)
    elif is_dataclass(thing):
        values = [getattr(thing, field.name) for field in fields(thing)]
        yield from _parts(values, seen, by_text)


def _source(thing: Any, by_text: bool) -> str:
    try:
        source = retry_parser(inspect.getsource, thing)
    except (OSError, TypeError):  # typed into a prompt, or written in C
        source = ""
    code = getattr(thing, "__code__", None)
    # The source of a lambda is that of its whole line, which may have another one.
    if code is not None and (not source or "<" in code.co_name):
        return repr(_code(code))
    return source if by_text else _syntax(source)


def source_of(thing: Any) -> str:
    """Return the syntax tree of a function or class as text; compiled code if it has no source."""
    return _source(thing, by_text=False)


def _syntax(source: str) -> str:
    """Return the syntax tree without docstrings; the source itself if it cannot be parsed."""
    try:
        tree = retry_parser(ast.parse, dedent(source))
    except (SyntaxError, ValueError):  # the middle of an expression
        return source
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            del node.body[0]
    return _dumped(tree)


def _dumped(node: Any) -> str:
    """Return the tree as text. (`ast.dump` differs between versions of Python.)"""
    if isinstance(node, ast.AST):
        fields = (
            f"{name}={_dumped(value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != []
        )
        return f"{type(node).__name__}({','.join(fields)})"
    return f"[{','.join(map(_dumped, node))}]" if isinstance(node, list) else repr(node)


def _code(code: CodeType) -> tuple[Any, ...]:
    """Return compiled code as data, without addresses and orders that differ between processes."""
    constants = [_code(item) if isinstance(item, CodeType) else item for item in code.co_consts]
    plain = [sorted(map(repr, item)) if isinstance(item, Set) else item for item in constants]
    return code.co_code, code.co_names, code.co_varnames, plain
