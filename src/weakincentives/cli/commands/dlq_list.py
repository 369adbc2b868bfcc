"""`wink dlq list`: list the dead letters of a queue, oldest first."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ... import serde
from ..console import dead_letter_table
from ..console.styled_text import ago, one_line, print_stderr
from ..console.text_tables import columns, print_stdout, screen
from ..options.runs import add_format

if TYPE_CHECKING:
    from ...runtime.worker.dead_letters import DeadLetter

SHORT_ID = 8  # characters, unless the terminal is wide
WIDE_TERMINAL = 110  # columns


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    dead_letter_table.add_letter_options(parser)
    add_format(parser)


def run(args: Namespace) -> int:
    """Print the dead letters, as text or JSON."""
    letters = dead_letter_table.read_letters(args)
    if args.format == "json":
        sys.stdout.write(serde.encode(letters).decode() + "\n")
    elif letters:
        _print_table(letters)
        first = f"{_unique_prefixes(letters, SHORT_ID)[0]}{dead_letter_table.queue_options(args)}"
        print_stderr("", f"details: wink dlq show {first}", f"retry: wink dlq replay {first}")
    else:
        dead_letter_table.print_none(args)
    return 0


def _print_table(letters: Sequence[DeadLetter[Any]]) -> None:
    to = screen()
    ids = _unique_prefixes(letters, 32 if to.width >= WIDE_TERMINAL else SHORT_ID)
    table = {
        "#": [Text(str(number), "dim") for number in range(1, len(letters) + 1)],
        "id": [Text(one_line(id), "bold") for id in ids],
        "sample": [
            Text(one_line(dead_letter_table.sample_id_of(letter)) or "-") for letter in letters
        ],
        "tries": [Text(str(letter.delivery_count)) for letter in letters],
        "when": [Text(ago(letter.dead_lettered_at)) for letter in letters],
        "error": [Text(one_line(letter.last_error), "red") for letter in letters],
    }
    print_stdout(to, columns(table, to.width, right={"#", "tries"}, shrink=("sample", "error")))


def _unique_prefixes(letters: Sequence[DeadLetter[Any]], length: int) -> list[str]:
    """Return a prefix of each id, long enough that they differ."""
    ids = [letter.message_id for letter in letters]
    while len({id[:length] for id in ids}) < len(set(ids)):
        length += 1
    return [id[:length] for id in ids]
