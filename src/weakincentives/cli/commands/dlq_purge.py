"""`wink dlq purge`: delete all dead letters of a queue."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..console import dead_letter_table
from ..console.styled_text import confirm, pluralize, print_stderr


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    dead_letter_table.add_letter_options(parser)


def run(args: Namespace) -> int:
    """Delete them; return 0, or 1 if the user declined."""
    queue, name = dead_letter_table.queue_and_name(args)
    with queue.mailbox(name=f"{name}-dlq") as mailbox:
        count = mailbox.approximate_count()
        if not count:
            dead_letter_table.print_none(args)
            return 0
        if not (args.yes or confirm(f"Delete {pluralize(count, 'dead letter')} of {name}?")):
            print_stderr("Nothing was deleted.")
            return 1
        deleted = pluralize(mailbox.purge(), "dead letter")
        print_stderr(f"{deleted} deleted from {name}-dlq ({queue.display_url}).")
    return 0
