"""The mailboxes of a deployment, all named by one URL: `redis://localhost:6379/0#qa`.

Requests are in `qa`, their dead letters in `qa-dlq`; requests to a main loop in `qa-main`, and its
dead letters in `qa-main-dlq`. Each run has its results in `qa-results-RUN_ID`, so that collecting
one run never takes results of another.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...errors import UsageError

if TYPE_CHECKING:
    from ...runtime.mailbox import QueueMailbox

EXAMPLES = "sqlite:///mail.db#qa on one machine, redis://localhost:6379/0#qa on several"


def add_queue(parser: ArgumentParser) -> None:
    """Add --queue."""
    parser.add_argument("--queue", metavar="URL", help=f"{EXAMPLES} (default $WINK_QUEUE)")


def safe_url(url: str) -> str:
    """Return the URL without user and password, to print and to store."""
    # Up to the last @: an unescaped password may contain any character.
    bare = re.sub(r"//.*@", "//", url)
    return re.sub(r"([?&](?:user(?:name)?|password)=)[^&#]*", r"\1…", bare)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The mailboxes of a team: where they are, and the name that the others derive from."""

    url: str
    name: str

    @property
    def display_url(self) -> str:
        """Its URL without credentials."""
        return safe_url(self.url)

    @property
    def main(self) -> str:
        """The name of the mailbox with requests to a main loop."""
        return f"{self.name}-main"

    def results(self, run_id: str) -> str:
        """Return the name of the mailbox with the results of a run."""
        return f"{self.name}-results-{run_id}"

    def mailbox(self, body_type: Any = None, name: str | None = None) -> QueueMailbox[Any]:
        """Open one of its mailboxes; the requests, without a name."""
        from ...runtime.mailbox import open_mailbox

        return open_mailbox(self.url, body_type, name or self.name)


def deployment(
    args: Namespace, otherwise: str | None = None, *, must_exist: bool = False
) -> Deployment:
    """Return what --queue or $WINK_QUEUE names. With `must_exist` no file is created.

    A stored run continues at `otherwise`, the queue to which it was sent: by now the variable may
    name another queue, but it may also hold the password.
    """
    url_of_environment = os.environ.get("WINK_QUEUE")
    if url_of_environment and otherwise and safe_url(url_of_environment) != otherwise:
        url_of_environment = otherwise
    url = args.queue or url_of_environment or otherwise
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
    from ...runtime.mailbox import open_mailbox

    with open_mailbox(url) as mailbox:
        return Deployment(url, mailbox.name)


def cancel_queued(queue: Deployment, run_id: str) -> int:
    """Cancel a run in the queue, and with its main loops; return how many samples were removed."""
    with queue.mailbox() as requests:
        removed = requests.cancel(run_id)
    with queue.mailbox(name=queue.main) as main:
        main.cancel(run_id)
    return removed


def or_plain_json(kind: Any) -> Any:
    """Return a type that decodes objects as this dataclass, and leaves other JSON as it is."""
    if not hasattr(kind, "__dataclass_fields__"):
        return Any
    return kind | str | int | float | bool | list[Any] | None
