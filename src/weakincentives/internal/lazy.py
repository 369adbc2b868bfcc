"""Load the names of a package when they are first used, so that importing it stays light.

This module imports nothing but the standard library's `importlib`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_exports(
    package: str, modules: "Mapping[str, str]"
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return `__getattr__` and `__dir__` for a package.

    `modules` has the names that each module offers, separated by blanks: `{".suite": "EvalSuite"}`.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> "Any":
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name], package), name)
        vars(import_module(package))[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return get, names
