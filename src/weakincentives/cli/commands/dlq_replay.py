"""`wink dlq replay`: send dead letters back to the mailboxes that they came from."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from shlex import quote
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..console import dead_letter_table
from ..console.styled_text import one_line, pluralize, print_stderr

if TYPE_CHECKING:
    from ...runtime.worker.dead_letters import DeadLetter


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids, or unique beginnings of them")
    parser.add_argument("--all", action="store_true", help="replay all dead letters")
    dead_letter_table.add_letter_options(parser)


def run(args: Namespace) -> int:
    """Replay them; return 0 if all were sent, 1 if some could not be."""
    from ...evals import EvalRequest
    from ...runtime.agent.main_loop import MainLoopRequest
    from ...runtime.worker.dead_letters import DeadLetter, replay

    if bool(args.ids) == args.all:
        raise UsageError(
            "expected the ids of dead letters, or --all, got "
            + ("both" if args.all else "neither - `wink dlq list` lists them")
        )
    chosen = dead_letter_table.read_letters(args)
    if not args.all:
        chosen = dead_letter_table.find_letters(args.ids, chosen)
    ids = {letter.message_id for letter in chosen}
    queue, name = dead_letter_table.queue_and_name(args)
    generic: Any = DeadLetter
    kind = generic[MainLoopRequest[Any] if args.main else EvalRequest[Any, Any]]
    sent = 0
    with queue.mailbox(kind, f"{name}-dlq") as dead:
        for source in dict.fromkeys(_source(letter, name) for letter in chosen):
            with queue.mailbox(name=source) as target:
                count = replay(
                    dead,
                    target,
                    where=lambda letter, source=source: (  # type: ignore[misc]
                        letter.message_id in ids and _source(letter, name) == source
                    ),
                )
            replayed = pluralize(count, "dead letter")
            print_stderr(f"{replayed} replayed to {one_line(source)} ({queue.display_url}).")
            sent += count
    for run_id in (
        dict.fromkeys(filter(None, map(dead_letter_table.run_id_of, chosen))) if sent else ()
    ):
        print_stderr(f"collect: wink eval collect {quote(one_line(run_id))} --retry-errors")
    if left := len(ids) - sent:
        letters = pluralize(left, "dead letter")
        print_stderr(f"{letters} not replayed: in use elsewhere, or of an unknown type.")
    return int(left > 0)


def _source(letter: DeadLetter[Any], name: str) -> str:
    """Return the mailbox that a letter came from: the requests, or the results of a run."""
    source = letter.source_mailbox
    return source if source.startswith(f"{name}-results-") else name
