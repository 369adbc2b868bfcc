"""`wink dlq replay`: dead letters back to work, each to where it came from."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ._letters import add_letters, found_by, how_many, letters, queue_of, run_of
from ._views import say

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="which: as much as is unique")
    parser.add_argument("--all", action="store_true", help="all of them")
    add_letters(parser)


def run(args: Namespace) -> int:
    """Exit code 0 where all that were meant are sent, 1 where some could not be read here."""
    from shlex import quote

    from ..errors import UsageError
    from ..evals import EvalRequest
    from ..runtime.dlq import DeadLetter, replay
    from ..runtime.main_loop import MainLoopRequest
    from ._summary import harmless

    if bool(args.ids) == args.all:
        raise UsageError(
            "expected the ids of dead letters, or --all, got "
            + ("both" if args.all else "neither - `wink dlq list` names them")
        )
    among = letters(args)
    chosen = among if args.all else found_by(args.ids, among)
    wanted = {letter.message_id for letter in chosen}
    queue, name = queue_of(args)
    letter: Any = DeadLetter
    kind = letter[MainLoopRequest[Any] if args.main else EvalRequest[Any, Any]]
    with queue.mailbox(kind, f"{name}-dlq") as dead, queue.mailbox(name=name) as target:
        sent = replay(dead, target, where=lambda letter: letter.message_id in wanted)
    say(f"{how_many(sent)} sent again to {name} ({queue.shown}).")
    for run_id in dict.fromkeys(filter(None, map(run_of, chosen))) if sent else ():
        say(f"Bring the results in: wink eval collect {quote(harmless(run_id))} --retry-errors")
    if left := len(wanted) - sent:
        say(f"{how_many(left)} stayed: somebody else has them, or their type is unknown here.")
    return int(left > 0)
