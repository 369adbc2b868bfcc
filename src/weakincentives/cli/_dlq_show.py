"""`wink dlq show`: one dead letter, whole."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._letters import add_letters, found_by, letters, sample_of, where
from ._views import ago, out, say, screen

if TYPE_CHECKING:
    from rich.text import Text

    from ..runtime.dlq import DeadLetter

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("id", metavar="ID", help="which: as much of its id as is unique")
    add_letters(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text to read, or data"
    )


def run(args: Namespace) -> int:
    """Exit code 0."""
    from .. import serde

    (letter,) = found_by([args.id], letters(args))
    if args.format == "json":
        sys.stdout.write(serde.encode(letter).decode() + "\n")
        return 0
    out(screen(), *_lines(letter))
    say("", f"Send it again: wink dlq replay {letter.message_id}{where(args)}")
    return 0


def _lines(letter: DeadLetter[Any]) -> Iterator[Text]:
    from rich.text import Text

    from ..evals._visible import visible
    from ._summary import harmless

    facts = {
        "sample": sample_of(letter),
        "mailbox": letter.source_mailbox,
        "deliveries": str(letter.delivery_count),
        "sent": f"{letter.first_received_at:%Y-%m-%d %H:%M:%S %Z}",
        "set aside": f"{letter.dead_lettered_at:%Y-%m-%d %H:%M:%S %Z}"
        f", {ago(letter.dead_lettered_at)}",
        "error type": letter.last_error_type,
        "request": letter.request_id or "",
        "reply to": letter.reply_to or "",
        "trace": letter.trace_id or "",
    }
    yield Text(harmless(letter.message_id), "bold")
    for name, fact in facts.items():
        if fact:
            yield Text.assemble((f"  {name:<12}", "dim"), harmless(fact))
    yield Text(f"\n{visible(letter.last_error)}", "red")
    yield Text(f"\n{visible(_body(letter))}")


def _body(letter: DeadLetter[Any]) -> str:
    """What was in it: as JSON one can read, or the bytes that nobody could."""
    import json

    if letter.raw is not None:
        return letter.raw.decode("utf-8", "backslashreplace")
    return json.dumps(letter.body, indent=2, ensure_ascii=False)
