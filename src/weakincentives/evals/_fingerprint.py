"""What an agent or an evaluator is, in a few letters: they differ when its own code does.

It sees the function's source, its defaults and what it closes over: plain values, containers and
dataclasses of them, functions, and of a model who answers. It does not see what the function calls
by a global name: a change there goes unnoticed.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from types import CodeType
from typing import Any

__all__ = ["fingerprint", "name_of"]

_PLAIN = (str, bytes, int, float, bool, type(None))
_SOURCELESS = ("builtins", "threading", "weakincentives")


def fingerprint(thing: Any) -> str:
    """A short hash of what can be known of it; equal in every process."""
    content = blake2b(digest_size=6)
    for part in _parts(thing, {}):
        content.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return content.hexdigest()


def name_of(thing: Any) -> str:
    """What people call it: the name of a function or a class, the class of an object."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(named.__qualname__).replace("<locals>.", "")


def _parts(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield repr(thing)
        return
    if id(thing) in seen:
        yield "again"
        return
    seen[id(thing)] = thing  # kept, so that nothing else gets its id meanwhile
    if isinstance(thing, (tuple, list)):
        yield f"{len(thing)} in order"
        for each in thing:
            yield from _parts(each, seen)
    elif isinstance(thing, Mapping | Set):
        items = thing.items() if isinstance(thing, Mapping) else thing
        yield f"{len(thing)} in no order"
        yield from sorted("\0".join(_parts(each, dict(seen))) for each in items)
    elif isinstance(thing, re.Pattern):
        yield repr((thing.pattern, thing.flags))
    elif isinstance(thing, functools.partial):
        yield from _parts((thing.func, thing.args, thing.keywords), seen)
    elif inspect.ismethod(thing):
        yield from _parts((thing.__func__, thing.__self__), seen)
    elif hasattr(thing, "__wrapped__"):
        yield from _parts(thing.__wrapped__, seen)
    elif inspect.isfunction(thing):
        yield name_of(thing)
        yield _source(thing)
        yield from _parts([thing.__defaults__, thing.__kwdefaults__], seen)
        for cell in thing.__closure__ or ():
            try:
                yield from _parts(cell.cell_contents, seen)
            except ValueError:  # not filled yet
                continue
    elif isinstance(thing, type):
        yield name_of(thing)
    else:
        yield from _object(thing, seen)


def _object(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    yield name_of(thing)
    if type(thing).__module__.partition(".")[0] not in _SOURCELESS:
        yield _source(type(thing))
    if isinstance(model := getattr(thing, "model", None), str):
        # Who answers and how; never its address or key, which may change in between.
        how = [getattr(thing, each, None) for each in ("name", "settings")]
        yield from _parts([model, how], seen)
    elif is_dataclass(thing):
        yield from _parts([getattr(thing, each.name) for each in fields(thing)], seen)


def _source(thing: Any) -> str:
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):  # typed into a prompt, or written in C
        source = ""
    code = getattr(thing, "__code__", None)
    # The source of a lambda is that of its whole line, where another one may stand.
    return repr(_code(code)) if code is not None and (not source or "<" in code.co_name) else source


def _code(code: CodeType) -> tuple[Any, ...]:
    """Compiled code as data, without the addresses and orders that differ between processes."""
    constants = [_code(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    plain = [sorted(map(repr, each)) if isinstance(each, Set) else each for each in constants]
    return code.co_code, code.co_names, code.co_varnames, plain
