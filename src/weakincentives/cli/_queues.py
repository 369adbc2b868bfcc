"""The mailboxes of a deployment, all named by one URL: `redis://localhost:6379/0#qa`.

Requests are in `qa`, their dead letters in `qa-dlq`; requests to a main loop in `qa-main`, and its
dead letters in `qa-main-dlq`. Each run has its results in `qa-results-RUN_ID`, so that who collects
one never takes another's.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..errors import UsageError

if TYPE_CHECKING:
    from ..runtime.mailbox import QueueMailbox

__all__ = ["Deployment", "add_queue", "deployment", "plainly_or", "safe_url"]

EXAMPLES = "sqlite:///mail.db#qa on one machine, redis://localhost:6379/0#qa on many"


def add_queue(parser: ArgumentParser) -> None:
    """The option that says where the mailboxes are."""
    parser.add_argument("--queue", metavar="URL", help=f"{EXAMPLES} ($WINK_QUEUE)")


def safe_url(url: str) -> str:
    """The URL without user and password, to be shown and stored."""
    # Up to the last @: a password that nobody escaped may hold anything.
    bare = re.sub(r"//.*@", "//", url)
    return re.sub(r"([?&](?:user(?:name)?|password)=)[^&#]*", r"\1…", bare)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where a team's mailboxes are, and the one that all others are named after."""

    url: str
    name: str

    @property
    def shown(self) -> str:
        """Its URL, as people may see it."""
        return safe_url(self.url)

    @property
    def main(self) -> str:
        """The name of the mailbox with requests to a main loop."""
        return f"{self.name}-main"

    def results(self, run_id: str) -> str:
        """The name of the mailbox with the results of a run."""
        return f"{self.name}-results-{run_id}"

    def mailbox(self, body_type: Any = None, name: str | None = None) -> QueueMailbox[Any]:
        """One of its mailboxes."""
        from ..runtime.mailbox import open_mailbox

        return open_mailbox(self.url, body_type, name or self.name)


def deployment(
    args: Namespace, otherwise: str | None = None, *, must_exist: bool = False
) -> Deployment:
    """What --queue or $WINK_QUEUE names. With `must_exist` no new file is made.

    A run that is stored goes on at `otherwise`, where it was sent: the variable may be about
    another queue by now, but it may also hold the password.
    """
    known = os.environ.get("WINK_QUEUE")
    if known and otherwise and safe_url(known) != otherwise:
        known = otherwise
    url = args.queue or known or otherwise
    if not url:
        raise UsageError(f"expected --queue URL, or $WINK_QUEUE, got none - {EXAMPLES}")
    if url.startswith("memory:"):
        raise UsageError(
            f"expected a queue that other processes can reach, got {url!r} - {EXAMPLES}"
        )
    if must_exist and url.startswith("sqlite:"):
        file = Path(unquote(urlsplit(url).path.removeprefix("/")))
        if not file.exists():
            raise UsageError(f"expected a file of mailboxes, found none ({file}) - submit a run")
    from ..runtime.mailbox import open_mailbox

    with open_mailbox(url) as mailbox:
        return Deployment(url, mailbox.name)


def plainly_or(kind: Any) -> Any:
    """That type for an object with fields; whatever else JSON holds stays as it is."""
    if not hasattr(kind, "__dataclass_fields__"):
        return Any
    return kind | str | int | float | bool | list[Any] | None
