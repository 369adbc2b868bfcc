"""The boto3 client: its errors, and batches whose entries fail one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .....errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxResolutionError,
    MissingExtraError,
)

_PAUSES = (0.1, 0.4, 1.6)  # seconds before failed entries are retried


def sqs_client(region: str | None = None, endpoint: str | None = None) -> Any:
    """Return a client with the credentials that boto3 finds; it is thread-safe."""
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
        # A new session: boto3's default session is not thread-safe.
        session = boto3.session.Session()
        return session.client("sqs", region_name=region, endpoint_url=endpoint, config=config)


def call_batch(call: Any, entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Send a batch, retry failed entries, and return those that the service refused, by id.

    A response with status 200 may still contain failures.
    """
    refused: dict[str, dict[str, Any]] = {}
    left = list(entries)
    for pause in (*_PAUSES, None):
        response = call(Entries=left)
        done = {entry["Id"] for entry in response.get("Successful", ())}
        failed = {entry["Id"]: entry for entry in response.get("Failed", ())}
        refused |= {id: entry for id, entry in failed.items() if entry.get("SenderFault")}
        left = [entry for entry in left if entry["Id"] not in done and entry["Id"] not in refused]
        if not left:
            return refused
        if pause is not None:
            time.sleep(pause)
    reason = ", ".join({str(entry.get("Code")) for entry in failed.values()}) or "no response"
    raise MailboxConnectionError(
        f"expected SQS to take {len(entries)} entries, got {reason} for {len(left)} of them after "
        f"{len(_PAUSES) + 1} attempts - the others are done; try again"
    )


# ── errors ──────────────────────────────────────────────────────────────────────────────────────

_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure` or `aws sso login`"
_MISSING = ("QueueDoesNotExist", "NonExistentQueue")

# By a word in the error's class or code: what to do, and whether a retry may succeed.
_ADVICE = (
    ("NoRegion", "name a region: set AWS_DEFAULT_REGION, or write `?region=` in the URL", False),
    ("Credential", _KEYS, False),
    ("Token", _KEYS, False),
    ("SSO", _KEYS, False),
    ("Signature", _KEYS, False),
    ("AccessDenied", "let this identity use the queue: sqs:SendMessage, ReceiveMessage, "
     "DeleteMessage, ChangeMessageVisibility, GetQueueUrl, GetQueueAttributes, ListQueueTags, and "
     "to cancel runs TagQueue and UntagQueue", False),
    ("QueueDeletedRecently", "its name is free again 60 seconds after it was deleted", True),
    ("DoesNotExist", "create the queue, or check region and account", False),
    ("NonExistentQueue", "create the queue, or check region and account", False),
    ("PurgeQueueInProgress", "the queue was purged less than a minute ago: try again then", True),
    ("OverLimit", "120,000 messages are leased, the maximum: acknowledge some", True),
    ("Throttl", "SQS throttles this client: wait, then try again", True),
    ("TooMany", "SQS throttles this client: wait, then try again", True),
)  # fmt: skip


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Translate boto3's errors into ours, with what to do."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        code, status = _code(error)
        transient = isinstance(error, ConnectionError | HTTPClientError) or status >= 500
        advice = "check that SQS is reachable, then try again" if transient else "see SQS's message"
        for word, text, retryable in _ADVICE:
            if word in code:
                advice, transient = text, retryable
                break
        if is_missing(error):
            kind: type[MailboxError] = MailboxResolutionError
        else:
            kind = MailboxConnectionError if transient else MailboxError
        raise kind(
            f"expected SQS to answer for {subject}, got {code}: {error} - {advice}"
        ) from error


def is_missing(error: Exception) -> bool:
    """Return whether the error says that there is no such queue."""
    return any(word in _code(error)[0] for word in _MISSING)


def _code(error: Exception) -> tuple[str, int]:
    """Return the error's code and HTTP status; 0 if there was no response."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return type(error).__name__, 0
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", type(error).__name__)), int(status)
