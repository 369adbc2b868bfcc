"""Shared by the `wink dlq` commands: read dead letters, and find them by id.

Letters are read as plain data, so the classes of the agent need not be importable here. Their
content comes from anywhere, and is escaped before it is printed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from ... import serde
from ...clock import SYSTEM_CLOCK
from ...errors import SerializationError, UsageError
from ..options.queues import Deployment, add_queue, deployment, safe_url
from .styled_text import print_stderr

if TYPE_CHECKING:
    from ...runtime.worker.dead_letters import DeadLetter

MAX_LETTERS = 1_000  # read at once


def add_letter_options(parser: ArgumentParser) -> None:
    """Add the options that select a queue of dead letters."""
    add_queue(parser)
    parser.add_argument(
        "--main", action="store_true", help="dead letters of requests to a main loop"
    )


def queue_and_name(args: Namespace) -> tuple[Deployment, str]:
    """Return the deployment, and the name of the mailbox that the dead letters come from."""
    queue = deployment(args, must_exist=True)
    return queue, queue.main if args.main else queue.name


def read_letters(args: Namespace) -> list[DeadLetter[Any]]:
    """Return the dead letters, oldest first, and leave them in their mailbox."""
    from ...runtime.worker.dead_letters import DeadLetter, dead_letters_of

    queue, name = queue_and_name(args)
    with queue.mailbox(Any, f"{name}-dlq") as mailbox:
        bodies = dead_letters_of(mailbox, MAX_LETTERS)
    return sorted(
        (body if isinstance(body, DeadLetter) else _to_letter(body) for body in bodies),
        key=lambda letter: (letter.dead_lettered_at, letter.message_id),
    )


def _to_letter(data: Any) -> DeadLetter[Any]:
    from ...runtime.worker.dead_letters import DeadLetter

    try:
        letter: DeadLetter[Any] = serde.convert(data, DeadLetter[Any])
        return letter
    except SerializationError as error:
        now = SYSTEM_CLOCK.now()
        return DeadLetter("?", data, "", 0, f"not a dead letter: {error}", "", now, now)


def find_letters(
    prefixes: Sequence[str], letters: Sequence[DeadLetter[Any]]
) -> list[DeadLetter[Any]]:
    """Return one letter for each id or beginning of one, sample id, or number in the list."""
    chosen = []
    for prefix in prefixes:
        matches = [letter for letter in letters if letter.message_id == prefix]
        matches = matches or [letter for letter in letters if sample_id_of(letter) == prefix]
        if not matches and prefix.isdecimal() and 1 <= int(prefix) <= len(letters):
            matches = [letters[int(prefix) - 1]]
        matches = matches or [letter for letter in letters if letter.message_id.startswith(prefix)]
        if len(matches) != 1:
            ids = ", ".join(letter.message_id for letter in (matches or letters)[:5])
            raise UsageError(
                f"expected the id of one dead letter, got {prefix!r} - "
                + (f"several match: {ids}" if matches else f"there are: {ids or 'none'}")
            )
        chosen += matches
    return chosen


def sample_id_of(letter: DeadLetter[Any]) -> str:
    """Return the id of the sample in the message, or an empty string."""
    body = letter.body
    sample = body.get("sample") if isinstance(body, Mapping) else None
    return str(sample.get("id", "")) if isinstance(sample, Mapping) else ""


def run_id_of(letter: DeadLetter[Any]) -> str:
    """Return the id of the run that the message belongs to, or an empty string."""
    body = letter.body
    return str(body.get("run_id") or "") if isinstance(body, Mapping) else ""


def queue_options(args: Namespace) -> str:
    """Return the options that the next command needs to find the same letters."""
    queue = f" --queue {quote(safe_url(args.queue))}" if args.queue else ""
    return queue + (" --main" if args.main else "")


def print_none(args: Namespace) -> None:
    """Print that there are no dead letters."""
    queue, name = queue_and_name(args)
    print_stderr(f"No dead letters in {name}-dlq ({queue.display_url}).")
