"""`wink dlq purge`: delete all dead letters of a queue."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ..console import dead_letters
from ..console.text import print_stderr

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    dead_letters.add_letter_options(parser)


def run(args: Namespace) -> int:
    """Delete them; return 0, or 1 if the user declined."""
    from ...errors import UsageError

    queue, name = dead_letters.queue_and_name(args)
    with queue.mailbox(name=f"{name}-dlq") as mailbox:
        count = mailbox.approximate_count()
        letters = dead_letters.count_text(count)
        if not count:
            dead_letters.print_none(args)
            return 0
        if not args.yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"expected --yes to delete {letters}, got no terminal to confirm on"
                )
            print(f"Delete {letters} of {name}? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                print_stderr("Nothing was deleted.")
                return 1
        deleted = dead_letters.count_text(mailbox.purge())
        print_stderr(f"{deleted} deleted from {name}-dlq ({queue.display_url}).")
    return 0
