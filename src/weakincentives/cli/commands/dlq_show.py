"""`wink dlq show`: print one dead letter in full."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ... import serde
from ...internal.escaping import escape_control_chars
from ..console import dead_letter_table
from ..console.styled_text import ago, one_line, print_stderr
from ..console.text_tables import print_stdout, screen
from ..options.runs import add_format

if TYPE_CHECKING:
    from ...runtime.worker.dead_letters import DeadLetter


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("id", metavar="ID",
        help="id or a unique beginning of it, sample id, or number in `wink dlq list`")  # fmt: skip
    dead_letter_table.add_letter_options(parser)
    add_format(parser)


def run(args: Namespace) -> int:
    """Print the dead letter, as text or JSON."""
    (letter,) = dead_letter_table.find_letters([args.id], dead_letter_table.read_letters(args))
    if args.format == "json":
        sys.stdout.write(serde.encode(letter).decode() + "\n")
        return 0
    print_stdout(screen(), *_lines(letter))
    options = dead_letter_table.queue_options(args)
    print_stderr("", f"retry: wink dlq replay {letter.message_id}{options}")
    return 0


def _lines(letter: DeadLetter[Any]) -> Iterator[Text]:
    facts = {
        "sample": dead_letter_table.sample_id_of(letter),
        "mailbox": letter.source_mailbox,
        "deliveries": str(letter.delivery_count),
        "sent": f"{letter.first_received_at:%Y-%m-%d %H:%M:%S %Z}",
        "dead since": f"{letter.dead_lettered_at:%Y-%m-%d %H:%M:%S %Z}"
        f", {ago(letter.dead_lettered_at)}",
        "error type": letter.last_error_type,
        "request": letter.request_id or "",
        "reply to": letter.reply_to or "",
        "trace": letter.trace_id or "",
    }
    yield Text(one_line(letter.message_id), "bold")
    for name, fact in facts.items():
        if fact:
            yield Text.assemble((f"  {name:<12}", "dim"), one_line(fact))
    yield Text(f"\n{escape_control_chars(letter.last_error)}", "red")
    yield Text(f"\n{escape_control_chars(_body(letter))}")


def _body(letter: DeadLetter[Any]) -> str:
    """Return the body as indented JSON, or the bytes if they could not be decoded."""
    if letter.raw is not None:
        return letter.raw.decode("utf-8", "backslashreplace")
    return json.dumps(letter.body, indent=2, ensure_ascii=False)
