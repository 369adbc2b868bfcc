"""Load what a command line names: objects, suites, datasets.

1. A name is looked up in `[tool.wink.prompts]`, `[tool.wink.agents]` or `[tool.wink.evaluators]`
   of the nearest pyproject.toml. Anything with a `:` is `module:object` or `path.py:object`.
2. The current folder is importable, as it is for `python -m`.
3. An error in a user's file is reported with file and line, and without a traceback.
"""

from __future__ import annotations

import sys
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, cast
from warnings import filterwarnings

from .. import evals, serde
from ..errors import DatasetError, SerializationError, UsageError, short_repr
from ..evals import Dataset, EvalSuite, judges
from ..evals.built_ins import BUILT_INS, evaluator_named
from ..internal.names import did_you_mean
from .options.dataset_columns import columns_of

EVAL_FILES = ("*_eval.py", "eval_*.py")  # in a folder
OUR_CODE = str(Path(__file__).parent.parent)


def load_reference(text: str, kind: str) -> Any:
    """Return the object that a name, `module:object` or `path.py:object` refers to.

    `kind` is "prompt", "agent", "evaluator" or "judge". Built-in evaluators are known by name.
    """
    names, folder = _project_names(f"{kind}s")
    if text in names:
        return _load(names[text], folder, f"`[tool.wink.{kind}s] {text}`")
    if ":" in text:
        return _load(text, Path.cwd(), f"--{kind}")
    known = set(names)
    if kind in ("evaluator", "judge"):
        if text in BUILT_INS:
            return evaluator_named(text)
        if (name := text.partition("(")[0]) in {*dir(evals), *dir(judges)}:
            raise UsageError(
                f"expected an evaluator for --{kind}, got {short_repr(text)} - call it in a "
                f"file, `mine = {name}(...)`, and name the result: FILE.py:mine"
            )
        known |= BUILT_INS.keys()
    if text.endswith(".py"):
        raise UsageError(
            f"expected `path.py:object` for --{kind}, got {short_repr(text)} - name the "
            f"{kind} in the file: {text}:NAME"
        )
    raise UsageError(
        f"expected `module:object`, `path.py:object` or a name for --{kind}, got "
        f"{short_repr(text)} - "
        + _suggestion(text, known, f"define names in `[tool.wink.{kind}s]` of pyproject.toml")
    )


def load_suites(targets: Sequence[str]) -> dict[str, EvalSuite[Any, Any, Any]]:
    """Return suites by their references: of `FILE.py`, the one of `FILE.py:name`, of a folder.

    The evals of a folder are its files `*_eval.py` and `eval_*.py`, at any depth; those
    without a suite are skipped.
    """
    suites: dict[str, EvalSuite[Any, Any, Any]] = {}
    for target in targets:
        suites |= _folder_suites(target) if Path(target).is_dir() else _file_suites(target)
    return suites


def _folder_suites(folder: str) -> dict[str, EvalSuite[Any, Any, Any]]:
    files = sorted({file for pattern in EVAL_FILES for file in Path(folder).rglob(pattern)})
    files = [file for file in files if not _is_installed(file.relative_to(folder))]
    suites = {
        reference: suite for file in files for reference, suite in _suites_in(str(file)).items()
    }
    if not suites:
        found = f"of {len(files)} files none has" if files else "found no such file with"
        raise UsageError(
            f"expected suites in files {' or '.join(EVAL_FILES)} of the folder, {found} an "
            f"`EvalSuite` ({folder})"
        )
    return suites


def _is_installed(file: Path) -> bool:
    """Return whether a file is hidden, or belongs to an installed package."""
    return "site-packages" in file.parts or any(part.startswith(".") for part in file.parts)


def _suites_in(file: str) -> dict[str, EvalSuite[Any, Any, Any]]:
    module = _module(file, Path.cwd())
    names = {value: name for name, value in vars(module).items() if isinstance(value, EvalSuite)}
    return {f"{file}:{name}": suite for suite, name in names.items()}


def _file_suites(text: str) -> dict[str, EvalSuite[Any, Any, Any]]:
    file, _, wanted = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    if not file.endswith(".py"):
        raise UsageError(
            f"expected `FILE.py`, `FILE.py:name` or a folder to run, got {short_repr(text)} - "
            "use --agent for a function, --prompt for a prompt"
        )
    if wanted:
        suite = _load(text, Path.cwd(), "the eval to run")
        if not isinstance(suite, EvalSuite):
            raise UsageError(
                f"expected an `EvalSuite` as {text}, got {short_repr(suite)} - to run an agent or "
                f"a prompt on its own: --agent {text} (or --prompt) with --dataset FILE"
            )
        return {text: suite}
    suites = _suites_in(file)
    if not suites:
        raise UsageError(
            f"expected an `EvalSuite` at the top level of the file, found none ({file}) - "
            "write `suite = EvalSuite(...)`, or run one of its functions: --agent"
        )
    return suites


def load_dataset(args: Namespace, output_type: Any = None) -> Dataset[Any, Any]:
    """Load --dataset; if the output type is a dataclass, decode expected values as that type."""
    if args.dataset is None:
        raise UsageError("expected --dataset FILE, got none")
    path, dataset = args.dataset, Dataset.load(args.dataset, Any, Any, **columns_of(args))
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
            f"expected `module:object` or `path.py:object` for {what}, got {short_repr(reference)}"
        )
    module = _module(place, folder)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        public = {known for known in vars(module) if not known.startswith("_")}
        raise UsageError(
            f"expected `{name}` in {place} for {what}, found none - "
            + _suggestion(name, public, "check the spelling")
        ) from None


def _module(place: str, folder: Path) -> ModuleType:
    """Import the module of that name, or the file."""
    if not sys.warnoptions:  # Python would show them only for a file that it runs itself
        filterwarnings("default", "`weakincentives", DeprecationWarning)
    _importable(folder)
    _importable(Path.cwd())
    if not place.endswith(".py"):
        try:
            with _import_errors(f"the module {place}"):
                return import_module(place)
        except UsageError as error:
            if _is_absent(place, error.__cause__):
                raise UsageError(_no_module(place, folder)) from None
            raise
    file = (folder / place).resolve()
    if not file.is_file():
        files = {path.relative_to(folder).as_posix() for path in folder.glob("*.py")}
        files |= {path.relative_to(folder).as_posix() for path in folder.glob("*/*.py")}
        raise UsageError(
            f"expected a file, found none ({place}) - "
            + _suggestion(place, files, f"the folder is {folder}", like=0.75)
        )
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last: a file next to it must not shadow a package
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    # Under its own name, if that is free, other processes can import it too.
    name, number = file.stem, 1
    while known is not None:
        number += 1
        name = f"wink_eval_{file.stem}_{number}"
        known = sys.modules.get(name)
        if getattr(known, "__file__", None) == str(file):
            return cast(ModuleType, known)
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018  # it ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    with _import_errors(place):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]  # as a failed `import` does
            raise
    return module


def _is_absent(place: str, error: BaseException | None) -> bool:
    """Return True if the module itself is missing, rather than one that it imports."""
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    return absent is not None and f"{place}.".startswith(f"{absent}.")


def _no_module(place: str, folder: Path) -> str:
    known = {file.stem for file in folder.glob("*.py")}
    hint = _suggestion(place, known, "name a file by its path: path/to/file.py:object")
    if (folder / f"{place}.py").is_file():
        hint = f"a file ends in .py: {place}.py"
    return f"expected the module {place}, found none here or among the installed packages - {hint}"


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _import_errors(what: str) -> Iterator[None]:
    """Raise every error of an import as a UsageError, with file and line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(
            f"expected to import {what}, got {type(error).__name__}: {message}{_where(error)}"
        ) from error


def _where(error: BaseException) -> str:
    """Return the last line of user code that an error passed through."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in extract_tb(error.__traceback__)
        if not frame.filename.startswith((OUR_CODE, "<frozen"))
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _project_names(table: str) -> tuple[dict[str, str], Path]:
    """Return `[tool.wink.<table>]` of the nearest pyproject.toml, and the folder of that file."""
    current = Path.cwd()
    for folder in (current, *current.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            names: Any = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"expected TOML, got: {error} ({file})") from None
        for key in ("tool", "wink", table):
            names = names.get(key, {}) if isinstance(names, dict) else None
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise UsageError(
                f'expected lines such as qa = "package.module:object" in `[tool.wink.{table}]`, '
                f"got {short_repr(names)} ({file})"
            )
        return names, folder
    return {}, current


def _suggestion(name: str, known: set[str], otherwise: str, like: float = 0.6) -> str:
    if hint := did_you_mean(name, known, like=like):
        return hint
    listed = ", ".join(sorted(known)[:8])
    return f"known: {listed}; {otherwise}" if listed else otherwise
