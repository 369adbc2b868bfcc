"""A client of boto3, what its errors mean, and batches whose entries have an answer each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxResolutionError,
    MissingExtraError,
)

__all__ = ["call_batch", "is_missing", "sqs_client", "translated"]

_PAUSES = (0.1, 0.4, 1.6)  # seconds before entries that the service failed at are sent again


def sqs_client(region: str | None = None, endpoint: str | None = None) -> Any:
    """A client with the user's own credentials, as boto3 finds them; many threads may share it."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise MissingExtraError("boto3", "sqs", "a mailbox on SQS") from None

    config = Config(
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=5,
        read_timeout=15,
        max_pool_connections=64,
    )
    with translated("a client"):
        # A session of its own: boto3's default one may not be used by two threads at once.
        session = boto3.session.Session()
        return session.client("sqs", region_name=region, endpoint_url=endpoint, config=config)


def call_batch(call: Any, entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The entries that the service refused, by their id. Those it failed at are sent again.

    An answer that says 200 as a whole may still hold failures.
    """
    refused: dict[str, dict[str, Any]] = {}
    left = list(entries)
    for pause in (*_PAUSES, None):
        answer = call(Entries=left)
        done = {entry["Id"] for entry in answer.get("Successful", ())}
        failed = {entry["Id"]: entry for entry in answer.get("Failed", ())}
        refused |= {id: entry for id, entry in failed.items() if entry.get("SenderFault")}
        left = [entry for entry in left if entry["Id"] not in done and entry["Id"] not in refused]
        if not left:
            return refused
        if pause is not None:
            time.sleep(pause)
    reason = ", ".join({str(entry.get("Code")) for entry in failed.values()}) or "no answer"
    raise MailboxConnectionError(
        f"expected SQS to take {len(entries)} entries, got {reason} for {len(left)} of them after "
        f"{len(_PAUSES) + 1} tries - the others are done; try again"
    )


# ── what can go wrong ───────────────────────────────────────────────────────────────────────────

_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure` or `aws sso login`"
_MISSING = ("QueueDoesNotExist", "NonExistentQueue")

# By a word in the error's class or code: what to do, and whether another try may succeed.
_ADVICE = (
    ("NoRegion", "name a region: set AWS_DEFAULT_REGION, or write `?region=` in the URL", False),
    ("Credential", _KEYS, False),
    ("Token", _KEYS, False),
    ("SSO", _KEYS, False),
    ("Signature", _KEYS, False),
    ("AccessDenied", "let this identity use the queue: sqs:SendMessage, ReceiveMessage, "
     "DeleteMessage, ChangeMessageVisibility, GetQueueUrl, GetQueueAttributes", False),
    ("QueueDeletedRecently", "its name is free again 60 seconds after it was deleted", True),
    ("DoesNotExist", "create the queue, or see whether region and account are right", False),
    ("NonExistentQueue", "create the queue, or see whether region and account are right", False),
    ("PurgeQueueInProgress", "the queue was purged less than a minute ago: try again then", True),
    ("OverLimit", "120,000 messages are leased, no more can be: acknowledge some", True),
    ("Throttl", "SQS asks to go slower: try again", True),
    ("TooMany", "SQS asks to go slower: try again", True),
)  # fmt: skip


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Make boto3's errors ours, with what to do."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        code, status = _code(error)
        passing = isinstance(error, ConnectionError | HTTPClientError) or status >= 500
        advice = "see whether SQS can be reached, try again" if passing else "see what SQS says"
        for word, text, again in _ADVICE:
            if word in code:
                advice, passing = text, again
                break
        if is_missing(error):
            kind: type[MailboxError] = MailboxResolutionError
        else:
            kind = MailboxConnectionError if passing else MailboxError
        raise kind(f"expected SQS to answer for {what}, got {code}: {error} - {advice}") from error


def is_missing(error: Exception) -> bool:
    """Whether a client's error says that there is no such queue."""
    return any(word in _code(error)[0] for word in _MISSING)


def _code(error: Exception) -> tuple[str, int]:
    """The error's name and HTTP status; 0 where there was no answer."""
    answer = getattr(error, "response", None)
    if not isinstance(answer, dict):
        return type(error).__name__, 0
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(answer.get("Error", {}).get("Code", type(error).__name__)), int(status)
