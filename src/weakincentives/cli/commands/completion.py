"""`wink completion`: print the completion script of a shell, or the ids of runs for it."""

from __future__ import annotations

import sqlite3
from argparse import ArgumentParser, Namespace
from contextlib import closing
from importlib import import_module
from pathlib import Path

from ...errors import UsageError
from ..options.runs import add_store, store_path

MAX_RUNS = 100  # ids to choose from
HELP = """\
to load it in this shell:
  source <(wink completion bash)
  source <(wink completion zsh)
  wink completion fish | source
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = HELP
    add = parser.add_argument
    add("shell", nargs="?", choices=("bash", "zsh", "fish"), help="shell to print the script for")
    add("--runs", action="store_true", help="print the names of runs: ids, and latest")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0."""
    if args.runs:
        for run_id in ("latest", "latest~1", *_newest_run_ids(store_path(args))):
            print(run_id)
        return 0
    if args.shell is None:
        raise UsageError("expected bash, zsh or fish, got none - or --runs for the ids of runs")
    from ..shell_completion import groups, script_for

    parsers = {}
    for group, commands in groups().items():
        for path in ((*group, name) for name in commands):
            if path not in groups():
                parsers[path] = ArgumentParser(prog="wink")
                import_module(f"{__package__}.{'_'.join(path)}").configure(parsers[path])
    print(script_for(args.shell, parsers), end="")
    return 0


def _newest_run_ids(path: Path) -> list[str]:
    """Return the ids of the newest runs; none if the file is missing or locked.

    Done here and not by the store, whose import takes three times as long as all of this: a shell
    waits for it on every Tab.
    """
    query = f"SELECT run_id FROM runs ORDER BY created DESC, id DESC LIMIT {MAX_RUNS}"
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            return [bytes(run_id).decode() for (run_id,) in connection.execute(query)]
    except (sqlite3.Error, TypeError, UnicodeDecodeError):
        return []
