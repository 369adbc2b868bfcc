"""The code blocks of the five specifications, by document and number, ready to run.

Python 3.11 cannot read the syntax of PEP 695, so `class Sample[InputT, ExpectedT]:` becomes
`class Sample(Generic[InputT, ExpectedT]):` and `def load[I, E](` becomes `def load(`. The import of
the top-level package `evals`, which our design rules out, becomes that of `weakincentives.evals`.
Nothing else is changed.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["BLOCKS", "Key", "as_function", "namespace", "run", "source"]

Key = tuple[str, int]
FOLDER = Path(__file__).parent / "documents"


def _blocks() -> dict[Key, tuple[str, str]]:
    """Return language and text of every block."""
    blocks: dict[Key, tuple[str, str]] = {}
    for path in sorted(FOLDER.glob("*.md")):
        parts = re.findall(
            r"^## (\d+)\n\n```(\w+)\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S
        )
        blocks |= {(path.stem, int(number)): (kind, text) for number, kind, text in parts}
    return blocks


BLOCKS = _blocks()

_STANDARD_MODULES = "dataclasses typing collections.abc datetime pathlib uuid"
_OUR_MODULES = (
    "weakincentives weakincentives.adapters weakincentives.adapters.openai weakincentives.evals "
    "weakincentives.evals.evaluators weakincentives.evals.judges weakincentives.evals.model "
    "weakincentives.evals.loaders weakincentives.runtime weakincentives.runtime.events "
    "weakincentives.rollouts weakincentives.rl"
)


@cache
def _all_names() -> dict[str, Any]:
    """Return all public names that the specifications use without an import, and ours."""
    import json
    import time
    from importlib import import_module

    from weakincentives import serde

    names: dict[str, Any] = {}
    for module in (_STANDARD_MODULES + " " + _OUR_MODULES).split():
        imported = import_module(module)
        public = getattr(imported, "__all__", None) or [
            n for n in dir(imported) if not n.startswith("_")
        ]
        names |= {name: getattr(imported, name) for name in public}
    from typing import TypeVar

    names |= {name: TypeVar(name) for name in ("InputT", "OutputT", "ExpectedT", *"TIOE")}  # type: ignore[misc]
    names |= {"json": json, "time": time}
    names["parse"] = lambda kind, value: serde.convert(value, kind)
    return names


_numbers = count(1)


def namespace(**extra: Any) -> dict[str, Any]:
    """Return the names of a new module: those that a block may use, and the extra ones."""
    module = ModuleType(f"seed_{next(_numbers)}")
    sys.modules[module.__name__] = module  # where types look up their annotations
    names = vars(module)
    names |= {**_all_names(), **extra}
    return names


def source(key: Key) -> str:
    """Return a block as Python 3.11 can read it."""
    text = BLOCKS[key][1]
    text = re.sub(
        r"^(\s*)class (\w+)\[([^\]]+)\]\(Protocol\):",
        r"\1class \2(Protocol[\3]):",
        text,
        flags=re.M,
    )
    text = re.sub(r"^(\s*)class (\w+)\[([^\]]+)\]:", r"\1class \2(Generic[\3]):", text, flags=re.M)
    text = re.sub(r"^(\s*(?:async )?def \w+)\[[^\]]+\]\(", r"\1(", text, flags=re.M)
    return re.sub(
        r"^from evals(\.\w+)? import", r"from weakincentives.evals\1 import", text, flags=re.M
    )


def run(
    key: Key, names: dict[str, Any] | None = None, *replacements: tuple[str, str]
) -> dict[str, Any]:
    """Run a block; return its names. `replacements` adapt e.g. addresses to those of a test."""
    names = namespace() if names is None else names
    text = source(key)
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    # Annotations are not evaluated, as on Python 3.14: a method may mention its own class.
    code = compile("from __future__ import annotations\n" + text, f"{key[0]}#{key[1]}", "exec")
    exec(code, names)
    return names


def as_function(notation: str) -> str:
    """Return `Score(value: float)` of the condensed specification as a function's definition."""
    name, parameters = re.fullmatch(
        r"(\w+)(?:\[[^\]]*\])?\((.*)\)", notation.strip(), re.S
    ).groups()  # type: ignore[union-attr]
    return f"def {name}({parameters}): ..."
