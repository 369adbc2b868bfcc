"""What the `wink dlq` verbs share: which letters there are, and how they are named.

Letters are read as plain data, so that who looks need not have the classes of the agent. What is
in them comes from anywhere, and is made visible before it is shown.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SerializationError, UsageError
from ._queues import add_queue, deployment
from ._views import say

if TYPE_CHECKING:
    from ..runtime.dlq import DeadLetter
    from ._queues import Deployment

__all__ = [
    "add_letters",
    "found_by",
    "how_many",
    "letters",
    "queue_of",
    "run_of",
    "sample_of",
    "say_none",
    "where",
]

MOST = 1_000  # letters that one look takes


def add_letters(parser: ArgumentParser) -> None:
    """The options that say which dead letters."""
    add_queue(parser)
    parser.add_argument("--main", action="store_true", help="those of requests to a main loop")


def queue_of(args: Namespace) -> tuple[Deployment, str]:
    """The deployment, and the name of the mailbox whose dead letters are meant."""
    queue = deployment(args, must_exist=True)
    return queue, queue.main if args.main else queue.name


def letters(args: Namespace) -> list[DeadLetter[Any]]:
    """The dead letters, oldest first; they stay where they are."""
    from ..runtime.dlq import DeadLetter, dead_letters_of

    queue, name = queue_of(args)
    with queue.mailbox(Any, f"{name}-dlq") as mailbox:
        found = dead_letters_of(mailbox, MOST)
    return sorted(
        (each if isinstance(each, DeadLetter) else _letter(each) for each in found),
        key=lambda letter: (letter.dead_lettered_at, letter.message_id),
    )


def _letter(data: Any) -> DeadLetter[Any]:
    from .. import serde
    from ..clock import SYSTEM_CLOCK
    from ..runtime.dlq import DeadLetter

    try:
        letter: DeadLetter[Any] = serde.convert(data, DeadLetter[Any])
        return letter
    except SerializationError as error:
        now = SYSTEM_CLOCK.now()
        return DeadLetter("?", data, "", 0, f"no dead letter: {error}", "", now, now)


def found_by(given: Sequence[str], among: Sequence[DeadLetter[Any]]) -> list[DeadLetter[Any]]:
    """The letters whose ids begin so, each word naming one."""
    chosen = []
    for word in given:
        near = [letter for letter in among if letter.message_id == word]
        near = near or [letter for letter in among if letter.message_id.startswith(word)]
        if len(near) != 1:
            some = ", ".join(letter.message_id for letter in (near or among)[:5])
            raise UsageError(
                f"expected the id of one dead letter, got {word!r} - "
                + (f"several begin so: {some}" if near else f"there are: {some or 'none'}")
            )
        chosen += near
    return chosen


def sample_of(letter: DeadLetter[Any]) -> str:
    """The id of the sample that the message was about, where it was about one."""
    body = letter.body
    sample = body.get("sample") if isinstance(body, Mapping) else None
    return str(sample.get("id", "")) if isinstance(sample, Mapping) else ""


def run_of(letter: DeadLetter[Any]) -> str:
    """The run that waits for the result of the message."""
    body = letter.body
    return str(body.get("run_id") or "") if isinstance(body, Mapping) else ""


def how_many(count: int) -> str:
    """`1 dead letter`, `3 dead letters`."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def where(args: Namespace) -> str:
    """What a next command must say, to find the same letters."""
    from shlex import quote

    from ._queues import safe_url

    queue = f" --queue {quote(safe_url(args.queue))}" if args.queue else ""
    return queue + (" --main" if args.main else "")


def say_none(args: Namespace) -> None:
    """There are no dead letters, which is how it should be."""
    queue, name = queue_of(args)
    say(f"No dead letters in {name}-dlq ({queue.shown}).")
