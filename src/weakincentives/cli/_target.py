"""From the words of a command to objects: references, suites, datasets.

1. A name is looked up in `[tool.wink.prompts]`, `[tool.wink.agents]` or `[tool.wink.evaluators]`
   of the nearest pyproject.toml. Anything with a `:` is `module:object` or `path.py:object`.
2. The current folder is importable, as it is for `python -m`.
3. What goes wrong in a user's file is told with its place, and without a traceback.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import DatasetError, SerializationError, UsageError, shown

if TYPE_CHECKING:
    from ..evals import Dataset, EvalSuite

__all__ = ["load_dataset", "load_reference", "load_suites"]

OURS = str(Path(__file__).parent.parent)


def load_reference(text: str, kind: str) -> Any:
    """What a name, `module:object` or `path.py:object` stands for.

    `kind` is "prompt", "agent" or "evaluator". Our own evaluators go by their bare names.
    """
    names, folder = _project_names(f"{kind}s")
    if text in names:
        return _load(names[text], folder, f"`[tool.wink.{kind}s] {text}`")
    if ":" in text:
        return _load(text, Path.cwd(), f"--{kind}")
    known = set(names)
    if kind == "evaluator":
        from .. import evals

        if text in evals.__all__ and isinstance(ours := getattr(evals, text), evals.Criterion):
            return ours
        if (name := text.partition("(")[0]) in evals.__all__:
            raise UsageError(
                f"expected an evaluator for --evaluator, got {shown(text)} - call it in a file, "
                f"`mine = {name}(...)`, and name what it gives: FILE.py:mine"
            )
        known |= {n for n in evals.__all__ if isinstance(getattr(evals, n), evals.Criterion)}
    raise UsageError(
        f"expected `module:object`, `path.py:object` or a name for --{kind}, got {shown(text)} - "
        + _near(text, known, f"names go into `[tool.wink.{kind}s]` of pyproject.toml")
    )


def load_suites(text: str) -> dict[str, EvalSuite[Any, Any, Any]]:
    """The suites of `FILE.py`, or the one of `FILE.py:name`, by the word that names each."""
    from ..evals import EvalSuite

    file, _, wanted = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    if not file.endswith(".py"):
        raise UsageError(
            f"expected `FILE.py` or `FILE.py:name` to run, got {shown(text)} - "
            "a function runs with --agent, a prompt with --prompt"
        )
    if wanted:
        suite = _load(text, Path.cwd(), "the eval to run")
        if not isinstance(suite, EvalSuite):
            raise UsageError(f"expected an `EvalSuite` as {text}, got {shown(suite)}")
        return {text: suite}
    module = _module(file, Path.cwd())
    found = {value: name for name, value in vars(module).items() if isinstance(value, EvalSuite)}
    if not found:
        raise UsageError(
            f"expected an `EvalSuite` at the top level of the file, found none ({file}) - "
            "write `suite = EvalSuite(...)`, or run a function of it: --agent"
        )
    return {f"{file}:{name}": suite for suite, name in found.items()}


def load_dataset(path: str, output_type: Any = None) -> Dataset[Any, Any]:
    """The samples of a file; with an output type of fields, what is expected has that type."""
    from .. import serde
    from ..evals import Dataset

    dataset = Dataset.load(path, Any, Any)
    if not hasattr(output_type, "__dataclass_fields__"):
        return dataset
    samples = []
    for sample in dataset:
        if isinstance(sample.expected, Mapping):
            try:
                expected = serde.convert(dict(sample.expected), output_type)
            except SerializationError as error:
                raise DatasetError(
                    f"expected a `{output_type.__name__}` for `expected` of sample "
                    f"{sample.id!r}: {error}",
                    file=path,
                ) from None
            sample = replace(sample, expected=expected)
        samples.append(sample)
    return Dataset(samples, dataset.name, dataset.version)


def _load(reference: str, folder: Path, what: str) -> Any:
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise UsageError(
            f"expected `module:object` or `path.py:object` for {what}, got {shown(reference)}"
        )
    module = _module(place, folder)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        there = {each for each in vars(module) if not each.startswith("_")}
        raise UsageError(
            f"expected `{name}` in {place} for {what}, found none - "
            + _near(name, there, "look for a typo")
        ) from None


def _module(place: str, folder: Path) -> ModuleType:
    """The module of that name, or the one in that file."""
    _importable(folder)
    _importable(Path.cwd())
    if not place.endswith(".py"):
        try:
            with _told(f"the module {place}"):
                return import_module(place)
        except UsageError as error:
            if _is_absent(place, error.__cause__):
                raise UsageError(_no_module(place, folder)) from None
            raise
    file = (folder / place).resolve()
    if not file.is_file():
        raise UsageError(f"expected a file, found none ({place})")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last: a file beside it must not hide a package
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    # By its own name, if that is free, another process can import it too.
    name = file.stem if known is None else f"wink_eval_{file.stem}"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018  # it ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    with _told(place):
        spec.loader.exec_module(module)
    return module


def _is_absent(place: str, error: BaseException | None) -> bool:
    """True where the module itself is not there, and not one that it imports."""
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    return absent is not None and f"{place}.".startswith(f"{absent}.")


def _no_module(place: str, folder: Path) -> str:
    known = {file.stem for file in folder.glob("*.py")}
    hint = _near(place, known, "a file goes by its path: path/to/file.py:object")
    if (folder / f"{place}.py").is_file():
        hint = f"a file ends in .py: {place}.py"
    return f"expected the module {place}, found none here or among the installed ones - {hint}"


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Whatever stops the import, in one line, with its place."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(
            f"expected to import {what}, got {type(error).__name__}: {said}{_where(error)}"
        ) from error


def _where(error: BaseException) -> str:
    """The last line of somebody's own code that an error passed through."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    theirs = [
        frame
        for frame in extract_tb(error.__traceback__)
        if not frame.filename.startswith((OURS, "<frozen"))
    ]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _project_names(table: str) -> tuple[dict[str, str], Path]:
    """`[tool.wink.<table>]` of the nearest pyproject.toml, and the folder of that file."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            found = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"expected TOML, got: {error} ({file})") from None
        names: Any = found
        for key in ("tool", "wink", table):
            names = names.get(key, {}) if isinstance(names, dict) else None
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise UsageError(
                f'expected lines such as qa = "package.module:object" in `[tool.wink.{table}]`, '
                f"got {shown(names)} ({file})"
            )
        return names, folder
    return {}, here


def _near(name: str, known: set[str], otherwise: str) -> str:
    near = get_close_matches(name, sorted(known), 3)
    if near:
        return f"near it: {', '.join(near)}"
    listed = ", ".join(sorted(known)[:8])
    return f"known: {listed}; {otherwise}" if listed else otherwise
