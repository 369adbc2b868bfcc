"""Public objects say in `__module__` where users find them, not in which file they are defined.

That is what `repr`, tracebacks, documentation and pickle show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from inspect import get_annotations
from types import FunctionType
from typing import Any


def set_public_module(package: str, namespace: Mapping[str, Any], names: Iterable[str]) -> None:
    """Set `__module__` of the classes and functions that a private file offers for a package.

    Annotations of dataclasses that are strings are resolved first: a decoder would look their names
    up in the package.
    """
    for name in names:
        value = namespace[name]
        if not isinstance(value, type | FunctionType) or value.__module__ != namespace["__name__"]:
            continue
        if isinstance(value, type) and is_dataclass(value):
            value.__annotations__ = get_annotations(value, eval_str=True)
        value.__module__ = package
