"""A package lists its names once, and loads each when it is first used, so that importing is light.

The list is the imports in its `__init__.py`, each in the form that type checkers take for public:
`from .suite import EvalSuite as EvalSuite`. Those under `if TYPE_CHECKING:` never run; `lazy_names`
reads them from the source, which a wheel always has.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(
    package: str, moved: "Mapping[str, str] | None" = None
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return `__getattr__`, which also has `__all__`, and `__dir__` for a package.

    `moved` has names that the package offers for one more version, by the module that has them now:
    `{"weakincentives.evals.judges": "judge_panel llm_rubric"}`. `OLD=NEW` has another name now.
    """
    from importlib import import_module

    homes: dict[str, str] = {}
    new_places: dict[str, str] = {}
    for home, names in (moved or {}).items():
        for old, _, new in (each.partition("=") for each in names.split()):
            new_places[old] = f"{home}.{new or old}"

    def all_homes() -> dict[str, str]:
        if not homes:
            homes.update(_listed(package))
        return homes

    def get(name: str) -> "Any":
        if name == "__all__":
            return sorted(
                all_homes(), key=lambda each: (not each.isupper(), each[0].islower(), each)
            )
        if name in new_places:
            return _moved(package, name, new_places[name])
        if name.startswith("__") or name not in all_homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name], package), name)
        vars(import_module(package))[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *all_homes()})

    return get, listed


def _listed(package: str) -> "dict[str, str]":
    """Return the names that the package imports for type checkers, and from which modules."""
    import ast
    from importlib import import_module

    module: Any = import_module(package)
    source = module.__loader__.get_source(package)
    if source is None:
        raise ImportError(f"expected the source of `{package}`, which lists its names, found none")
    return {
        alias.name: "." * node.level + (node.module or "")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name and not alias.name.startswith("_")
    }


def _moved(package: str, name: str, new: str) -> "Any":
    """Return an object from its new place, with a warning that names it."""
    from importlib import import_module
    from warnings import warn

    warn(
        f"`{package}.{name}` is `{new}` now; the old name goes in the next version",
        DeprecationWarning,
        stacklevel=3,
    )
    home, _, new_name = new.rpartition(".")
    return getattr(import_module(home), new_name)
