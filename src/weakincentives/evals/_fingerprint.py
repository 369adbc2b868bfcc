"""What an agent or an evaluator is, in a few letters: they differ when its own code does.

It sees the function's source, its defaults and the plain values that it closes over. It does not
see what the function calls: a change there goes unnoticed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

__all__ = ["fingerprint", "name_of"]

_PLAIN = (str, bytes, int, float, bool, type(None))


def fingerprint(thing: Any) -> str:
    """A short hash of what can be known of it; equal in every process."""
    content = blake2b(digest_size=6)
    for part in _parts(thing, set()):
        content.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return content.hexdigest()


def name_of(thing: Any) -> str:
    """What people call it: `module:qualname` of a function or a class, the class of an object."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(named.__qualname__).replace("<locals>.", "")


def _parts(thing: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield repr(thing)
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, (tuple, list)):
        for each in thing:
            yield from _parts(each, seen)
    elif isinstance(thing, functools.partial):
        yield from _parts((thing.func, thing.args, *sorted(thing.keywords.items())), seen)
    elif hasattr(thing, "__wrapped__"):
        yield from _parts(thing.__wrapped__, seen)
    elif inspect.isfunction(thing) or inspect.ismethod(thing):
        yield name_of(thing)
        yield _source(thing)
        yield from _parts(list(thing.__defaults__ or ()), seen)
        cells = getattr(thing, "__closure__", None) or ()
        for cell in cells:
            try:
                yield from _parts(cell.cell_contents, seen)
            except ValueError:  # not filled yet
                continue
    else:
        yield name_of(thing)
        if not isinstance(thing, type) and type(thing).__module__ not in ("builtins", "threading"):
            yield _source(type(thing))


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into a prompt, or written in C
        code = getattr(thing, "__code__", None)
        return repr((code.co_code, code.co_consts[1:])) if code is not None else ""
