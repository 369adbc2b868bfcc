"""`wink doctor`: check versions, extras, API keys and conflicting packages.

The extras and their packages are read from our own metadata; only their purposes are listed here.
"""

from __future__ import annotations

import json
import os
import platform
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

from ...errors import UsageError
from ..options.runs import add_format

OURS = "weakincentives-evals"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LANGSMITH_API_KEY")
PURPOSE = {
    "anthropic": "Anthropic models",
    "dev": "development of WINK",
    "docs": "the documentation site",
    "http": "models over HTTP",
    "langsmith": "LangSmith runs",
    "math": "math answers",
    "openai": "OpenAI models",
    "otel": "OpenTelemetry",
    "parquet": "Parquet files",
    "redis": "Redis mailboxes",
    "rl": "RL training",
    "schema": "JSON schemas",
    "sqs": "SQS mailboxes",
    "stats": "resampling",
    "trio": "evals under trio",
    "trl": "TRL training",
    "verifiers": "verifiers' environments",
    "view": "the page of wink view",
    "yaml": "YAML datasets",
    "zstd": ".zst files",
}
CONFLICT = f"""\
The distribution `weakincentives` is installed here too. Both own the import name \
`weakincentives`, so they cannot share an environment. Use separate venvs, or run:
  pip uninstall weakincentives
  pip install --force-reinstall --no-deps {OURS}"""
# As our build writes them: `redis[hiredis]>=6; extra == 'redis'`.
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[.*?\])?(>=(?P<floor>[\d.]+))?.*?(extra == '(?P<extra>[\w-]+)')?$"
)


@dataclass(frozen=True, slots=True)
class Package:
    """One requirement: the installed version (None: missing) and the minimum."""

    name: str
    version: str | None
    at_least: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra, and the command that installs it."""

    name: str
    installed: bool
    purpose: str
    install: str
    packages: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of all checks; the installation is sound if `problems` is empty."""

    wink: str
    core: tuple[Package, ...]
    extras: tuple[Extra, ...]
    keys: dict[str, str]
    problems: tuple[str, ...]


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_format(parser)


def run(args: Namespace) -> int:
    """Return exit code 2 if there is a problem, otherwise 0; extras are optional."""
    findings = _examine()
    print(json.dumps(asdict(findings), indent=2) if args.format == "json" else _text(findings))
    return 2 if findings.problems else 0


def _examine() -> Findings:
    wink = _version(OURS)
    if wink is None:
        raise UsageError(f"expected the distribution `{OURS}`, got none - run: pip install {OURS}")
    about = metadata.metadata(OURS)
    python = _package("python", platform.python_version(), about["Requires-Python"].strip(">="))
    core = (python, *_required(extra=None))
    return Findings(
        wink=wink,
        core=core,
        extras=tuple(_extra(name) for name in sorted(about.get_all("Provides-Extra", []))),
        # Never the key itself.
        keys={key: "set" if os.environ.get(key) else "not set" for key in KEYS},
        problems=tuple(_problems(core)),
    )


def _problems(core: Iterable[Package]) -> Iterator[str]:
    for package in core:
        if not package.ok:
            yield (
                f"Expected {package.name} {package.at_least} or newer, got "
                f"{package.version or 'none'}. Install it in a fresh venv: pip install {OURS}"
            )
    if _version("weakincentives"):
        yield CONFLICT


def _extra(name: str) -> Extra:
    packages = tuple(_required(extra=name))
    return Extra(
        name=name,
        installed=all(package.ok for package in packages),
        purpose=PURPOSE.get(name, ""),
        install=f"pip install '{OURS}[{name}]'",
        packages=packages,
    )


def _required(extra: str | None) -> Iterator[Package]:
    """Yield the packages of one of our extras; those of the core for None."""
    for line in metadata.requires(OURS) or ():
        match = REQUIREMENT.match(line)
        if match and match["extra"] == extra:
            yield _package(match["name"], _version(match["name"]), match["floor"] or "0")


def _package(name: str, version: str | None, at_least: str) -> Package:
    ok = version is not None and _numbers(version) >= _numbers(at_least)
    return Package(name, version, at_least, ok)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _text(findings: Findings) -> str:
    # Imported here, so that --format json works in an installation without rich.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)

    def section(title: str, rows: Iterable[tuple[bool, *tuple[str, ...]]]) -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        for ok, *cells in rows:
            mark = Text("ok", "green") if ok else Text("--", "yellow")
            table.add_row(mark, *(Text(cell, "" if ok else "dim") for cell in cells))
        console.print(Text(title, "bold"), table, "")

    # Captured, because rich would answer a closed pipe with exit code 1: a failed gate.
    with console.capture() as captured:
        core = ((p.ok, p.name, p.version or "missing") for p in findings.core)
        section("Core", [(True, "wink", findings.wink), *core])
        section("Extras", ((e.installed, e.name, e.purpose, _detail(e)) for e in findings.extras))
        section("Keys", ((state == "set", key, state) for key, state in findings.keys.items()))
        for problem in findings.problems:
            console.print(Text(problem, "red"))
        if not findings.problems:
            console.print("No problems found. A missing extra (--) matters only if you need it.")
    return captured.get().rstrip()


def _detail(extra: Extra) -> str:
    if not extra.installed:
        return extra.install
    if len(extra.packages) > 3:
        return f"{len(extra.packages)} packages"
    return ", ".join(f"{package.name} {package.version}" for package in extra.packages)
