"""Lines of text for people. This module is imported by every command, so it does without rich."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ...internal.escaping import one_line
from ...internal.formatting import pluralize

__all__ = ["COLOURS", "ago", "confirm", "one_line", "pluralize", "print_stderr"]

COLOURS = {"pass": "green", "fail": "yellow", "error": "red"}
_AGE_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def print_stderr(*lines: str) -> None:
    """Print lines to stderr, after everything on stdout."""
    sys.stdout.flush()
    for line in lines:
        print(line, file=sys.stderr)


def confirm(question: str) -> bool:
    """Ask on the terminal, unless there is none; return whether the answer is yes."""
    if not sys.stdin.isatty():
        raise UsageError(f"expected --yes, got no terminal to confirm on: {question}")
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return how long ago that was, in one unit: `5m ago`. After two months, return the day."""
    age = (now or SYSTEM_CLOCK.now()) - moment
    if age > timedelta(weeks=8):
        return f"{moment:%Y-%m-%d}"
    seconds = int(age.total_seconds())
    units = (f"{seconds // size}{unit} ago" for unit, size in _AGE_UNITS if seconds >= size)
    return next(units, "now")
