"""The command line: find the verb, import its module, run it, and keep tracebacks to ourselves.

1. Before a verb is chosen nothing heavier than argparse is imported, so `wink --help` is instant.
2. A verb is a module `_<verb>.py` with `configure(parser)` and `run(args) -> int`, the exit code.
3. Results go to stdout. What went wrong is one line on stderr, and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["main"]

VERBS = {
    "doctor": "check this installation: versions, extras, keys, conflicts",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `wink` with these arguments (those of the process, if none) and give its exit code."""
    try:
        try:
            return _dispatch(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()  # a reader that left is noticed here, and not at interpreter exit
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if by SIGPIPE: neither success nor a verdict
    except Exception as error:
        if os.environ.get("WINK_DEBUG"):
            raise
        print(f"wink: {_one_line(error)}", file=sys.stderr)
        return 2


def _dispatch(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="wink", description="Measure agents.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(title="commands", metavar="command", dest="verb")
    module = None
    for verb, summary in VERBS.items():
        verb_parser = verbs.add_parser(verb, help=summary, description=summary)
        if argv[:1] == [verb]:
            module = import_module(f"{__package__}._{verb}")
            module.configure(verb_parser)
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"wink {version('weakincentives-evals')}")
        return 0
    if module is None:
        parser.print_help(sys.stderr)
        return 2
    return int(module.run(args))


def _one_line(error: Exception) -> str:
    """A `WinkError` speaks for itself; anything else is a bug, and says how to see more of it."""
    from ..errors import WinkError

    text = " ".join(str(error).split())
    if isinstance(error, WinkError):
        return text
    return f"unexpected {type(error).__name__}: {text} - WINK_DEBUG=1 shows where"
