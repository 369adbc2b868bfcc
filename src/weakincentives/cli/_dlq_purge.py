"""`wink dlq purge`: remove the dead letters of a queue, for ever."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ._letters import add_letters, how_many, queue_of, say_none
from ._views import say

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_letters(parser)


def run(args: Namespace) -> int:
    """Exit code 0 where they are gone, 1 where somebody thought better of it."""
    from ..errors import UsageError

    queue, name = queue_of(args)
    with queue.mailbox(name=f"{name}-dlq") as mailbox:
        count = mailbox.approximate_count()
        if not count:
            say_none(args)
            return 0
        if not args.yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"expected --yes to remove {how_many(count)} for ever, got nobody to ask"
                )
            print(f"Remove {how_many(count)} of {name} for ever? [y/N] ", end="", file=sys.stderr)
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                say("Nothing was removed.")
                return 1
        say(f"{how_many(mailbox.purge())} removed from {name}-dlq ({queue.shown}).")
    return 0
