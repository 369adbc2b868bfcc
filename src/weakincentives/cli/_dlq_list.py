"""`wink dlq list`: the messages that nobody could work on, oldest first."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._letters import add_letters, letters, sample_of, say_none, where
from ._views import ago, columns, out, say, screen

if TYPE_CHECKING:
    from ..runtime.dlq import DeadLetter

__all__ = ["configure", "run"]

SHORT, WIDE = 8, 110  # letters of an id; columns from which on there is room for all of it


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    add_letters(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text to read, or data"
    )


def run(args: Namespace) -> int:
    """Exit code 0, also where there are none."""
    from .. import serde

    found = letters(args)
    if args.format == "json":
        sys.stdout.write(serde.encode(found).decode() + "\n")
    elif found:
        _show(found)
        command = f"{_ids(found, SHORT)[0]}{where(args)}"
        say("", f"One of them: wink dlq show {command}", f"Send again: wink dlq replay {command}")
    else:
        say_none(args)
    return 0


def _show(found: Sequence[DeadLetter[Any]]) -> None:
    from rich.text import Text

    from ._summary import harmless

    to = screen()
    ids = _ids(found, 32 if to.width >= WIDE else SHORT)
    table = {
        "id": [Text(harmless(each), "bold") for each in ids],
        "sample": [Text(harmless(sample_of(letter)) or "-") for letter in found],
        "tries": [Text(str(letter.delivery_count)) for letter in found],
        "when": [Text(ago(letter.dead_lettered_at)) for letter in found],
        "error": [Text(harmless(letter.last_error), "red") for letter in found],
    }
    out(to, columns(table, to.width, right={"tries"}, shrink=("sample", "error")))


def _ids(found: Sequence[DeadLetter[Any]], least: int) -> list[str]:
    """As much of each id as tells it from the others."""
    ids = [letter.message_id for letter in found]
    length = least
    while len({each[:length] for each in ids}) < len(set(ids)):
        length += 1
    return [each[:length] for each in ids]
