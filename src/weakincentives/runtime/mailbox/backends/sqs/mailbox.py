"""A mailbox on Amazon SQS or a compatible service, for many machines without your own server.

SQS guarantees less than the other back-ends:
1. It is a standard queue: a message may be delivered twice, out of order, or again after it was
   acknowledged, and an id that is sent twice is queued twice. Count by id.
2. SQS accepts old handles. So this process records the end of every lease, by its monotonic clock
   from before the call, and refuses a handle after that; a call that is in progress when the lease
   ends may still succeed.
3. Leases and waits are whole seconds, rounded up. A delivery can be extended up to 12 hours after
   it was received, and messages expire after 14 days.
4. `approximate_count` may be a minute late, and so may `max_size`; `purge` takes up to a minute.
5. There are no priorities. Groups share the queue fairly: each is a `MessageGroupId`, see "fair
   queues" in the SQS guide. Of a cancelled group nothing can be removed, so messages of it are
   delivered and removed by the workers, which find the cancelled groups in the queue's tags.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from .....clock import SYSTEM_CLOCK, Clock
from .....errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxResolutionError,
    SerializationError,
    UsageError,
    short_repr,
)
from .....internal.typevars import BodyT, ReplyT
from .....secrets import logger_for
from ...core.lanes import CANCELLED_SECONDS
from ...core.mailbox import QueueMailbox
from ...core.resolvers import CompositeResolver, MailboxResolver
from ...core.types import MAX_VISIBILITY_TIMEOUT, Delivery, OutboundMessage
from .body import (
    BodyStore,
    digest_of,
    is_claim,
    received_message,
    resolve_claim,
    split,
    to_entry,
    without_group,
)
from .client import call_batch, is_missing, sqs_client, translated

logger = logger_for(__name__)

T = TypeVar("T")

MAX_BYTES = 1_048_576  # per message, and per batch; 262,144 on older queues
MAX_STORE_ATTEMPTS = 4  # deliveries of a long body before it is delivered without
MAX_POLL_SECONDS = 2  # then a wait checks whether it was woken
RETENTION_SECONDS = 14 * 24 * 3600  # the maximum of SQS
MAX_CANCELLED = 40  # groups that are remembered: a queue has at most 50 tags
TAGS_SECONDS = 2.0  # between two queries for the tags

_CANCELLED_TAG = "wink-cancelled-"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SYSTEM = ["ApproximateReceiveCount", "SentTimestamp"]
_COUNTS = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]


class _Lease(NamedTuple):
    url: str
    received: float  # by the monotonic clock, like `until`
    until: float


_leases: dict[str, _Lease] = {}  # this process's leases by handle, which SQS makes unique


class SQSQueue:
    """Messages on SQS, in batches of ten."""

    blocking = True
    batch = 10
    can_uncount_delivery = False
    has_lanes = False

    def __init__(
        self,
        name: str,
        client: Any,
        *,
        create: bool = True,
        store: BodyStore | None = None,
        max_bytes: int = MAX_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        is_url = isinstance(name, str) and name.startswith(("https://", "http://"))
        self.name = name.rstrip("/").rpartition("/")[2] if is_url else name
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(
                "expected a name of up to 80 letters, digits, `-` and `_` for a mailbox on SQS, "
                f"or the URL of a standard queue, got {short_repr(name)}"
            )
        self.client = client
        self.create = create
        self.store = store
        self.max_bytes = max_bytes
        self._url = name if is_url else None
        self.clock = clock
        self._woken = self._handled_wakes = 0  # calls of `wake`, and how many of them ended a wait
        self._bell = threading.Condition()
        self._tags: dict[str, str] = {}
        self._tags_until = -math.inf  # then they are read again

    def find(self) -> str:
        """Return the queue's URL; create the queue if there is none."""
        if self._url is None:
            with translated(f"the mailbox {self.name!r}"):
                try:
                    response = self.client.get_queue_url(QueueName=self.name)
                except Exception as error:
                    if not self.create or not is_missing(error):
                        raise
                    retention = {"MessageRetentionPeriod": str(RETENTION_SECONDS)}
                    response = self.client.create_queue(QueueName=self.name, Attributes=retention)
            self._url = str(response["QueueUrl"])
        return self._url

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        if max_size is not None and (count := self.count()) + len(messages) > max_size:
            raise MailboxFullError(
                f"expected room for {len(messages)} more in the mailbox {self.name!r}, "
                f"got about {count} of {max_size} - receive some, or raise `max_size`"
            )
        # All are checked before the first is sent.
        entries = [to_entry(each, i, self.max_bytes, self.store) for i, each in enumerate(messages)]
        for batch in split(entries, self.max_bytes):
            refused = self._batch("send_message_batch", batch)
            if any("Parameter" in str(failure.get("Code")) for failure in refused.values()):
                # A compatible service may not know the groups of fair queues.
                again = [without_group(each) for each in batch if each["Id"] in refused]
                refused = self._batch("send_message_batch", again)
            for number, failure in refused.items():
                raise MailboxError(
                    f"expected SQS to take a message for the mailbox {self.name!r}, got "
                    f"{failure.get('Code')}: {failure.get('Message')} "
                    f"(id {messages[int(number)].id!r}) - see SQS's message"
                )

    # ── receiving ───────────────────────────────────────────────────────────────────────────────

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        handled = self._handled_wakes
        # A lease may start when the poll starts, so a short lease leaves no time for a long poll.
        poll = min(int(wait), MAX_POLL_SECONDS, int(lease) // 4) if self._woken == handled else 0
        received = self._receive(count, lease, poll)
        if received or wait <= 0:
            return received
        with self._bell:
            if poll == 0:
                self._bell.wait_for(lambda: self._woken != handled, min(wait, 0.5))
            if self._woken != handled:
                self._handled_wakes = self._woken
                return []
        return self._receive(count, lease, 0) if poll == 0 else []

    def _receive(self, count: int, lease: float, poll: int) -> list[Delivery]:
        start = self.clock.monotonic()
        response = self._ask(
            "receive_message",
            MaxNumberOfMessages=min(count, self.batch),
            VisibilityTimeout=math.ceil(lease),
            WaitTimeSeconds=poll,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=_SYSTEM,
        )
        messages = response.get("Messages", [])
        until = start + math.ceil(lease)
        for message in messages:
            _leases[message["ReceiptHandle"]] = _Lease(self.find(), start, until)
        _forget_ended(start)
        deliveries: list[Delivery] = []
        for message in messages:
            try:
                deliveries.append(self._delivery(message))
            except MailboxConnectionError:  # the store failed; a retry may succeed
                with suppress(MailboxError):
                    self.release([message["ReceiptHandle"]], 1)
                if message is messages[-1] and not deliveries:
                    raise
        return deliveries

    def _delivery(self, message: dict[str, Any]) -> Delivery:
        id, content, reply_to, *_ = received_message(message)
        attributes = message["Attributes"]
        times = int(attributes["ApproximateReceiveCount"])
        try:
            content = resolve_claim(content, self.store)
        except MailboxConnectionError:
            if times < MAX_STORE_ATTEMPTS:  # then the claim itself is delivered, to be seen
                raise
        sent = int(attributes["SentTimestamp"]) / 1000
        return Delivery(id, content, message["ReceiptHandle"], times, sent, reply_to)

    # ── finalizing ─────────────────────────────────────────────────────────────────────────────

    def remove(self, handles: Sequence[str]) -> list[bool]:
        done = self._by_handle("delete_message_batch", handles, lambda lease, now: {})
        return _forget(handles, done)

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        def later(lease: _Lease, now: float) -> dict[str, int]:
            return {"VisibilityTimeout": min(math.ceil(delay), _max_timeout(lease, now))}

        done = self._by_handle("change_message_visibility_batch", handles, later)
        return _forget(handles, done)

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        ends: dict[_Lease, float] = {}

        def longer(lease: _Lease, now: float) -> dict[str, int] | None:
            timeout = min(math.ceil(seconds), _max_timeout(lease, now))
            ends[lease] = max(lease.until, now + timeout)
            return {"VisibilityTimeout": timeout} if now + timeout > lease.until else None

        done = self._by_handle("change_message_visibility_batch", handles, longer)
        for handle, held in zip(handles, done, strict=True):
            if held and (lease := _leases.get(handle)) in ends:
                _leases[handle] = lease._replace(until=ends[lease])
        return done

    def _by_handle(
        self,
        call: str,
        handles: Sequence[str],
        change: Callable[[_Lease, float], dict[str, int] | None],
    ) -> list[bool]:
        """Send each handle whose lease is valid, with its change; skip it if that is None."""
        now = self.clock.monotonic()
        done = dict.fromkeys(handles, False)
        entries: list[dict[str, Any]] = []
        for handle in done:
            lease = _leases.get(handle)
            if lease is None or lease.until <= now:
                continue
            done[handle] = True
            if (values := change(lease, now)) is not None:
                entries.append({"Id": str(len(entries)), "ReceiptHandle": handle, **values})
        for number in self._batch(call, entries) if entries else ():
            done[entries[int(number)]["ReceiptHandle"]] = False
        return [done[handle] for handle in handles]

    # ── the queue as a whole ───────────────────────────────────────────────────────────────────

    def count(self) -> int:
        attributes = self._ask("get_queue_attributes", AttributeNames=_COUNTS)["Attributes"]
        return sum(int(attributes.get(name, 0)) for name in _COUNTS)

    def purge(self) -> int:
        count = self.count()
        self._ask("purge_queue")
        for handle in [key for key, lease in _leases.copy().items() if lease.url == self._url]:
            _leases.pop(handle, None)
        return count

    def cancel(self, group: str) -> int:
        tags = self._read_tags()
        now = self.clock.now().timestamp()
        ours = {name: until for name, until in tags.items() if name.startswith(_CANCELLED_TAG)}
        oldest_first = sorted(ours, key=lambda name: int(ours[name]))
        ended = [name for name in ours if int(ours[name]) < now]
        if extra := {*ended, *oldest_first[: max(0, len(ours) + 1 - MAX_CANCELLED)]}:
            self._ask("untag_queue", TagKeys=sorted(extra))
        name = _CANCELLED_TAG + digest_of(group)
        self._ask("tag_queue", Tags={name: str(int(now) + CANCELLED_SECONDS)})
        self._tags_until = -math.inf
        return 0

    def cancelled(self, groups: Collection[str]) -> set[str]:
        if self.clock.monotonic() >= self._tags_until:
            try:
                self._tags = self._read_tags()
            except MailboxConnectionError:
                raise
            except MailboxError as error:  # this identity may not read them, or there are none
                logger.warning("workers cannot see which runs are cancelled: %s", error)
                self._tags, self._tags_until = {}, math.inf
            else:
                self._tags_until = self.clock.monotonic() + TAGS_SECONDS
        return {group for group in groups if _CANCELLED_TAG + digest_of(group) in self._tags}

    def _read_tags(self) -> dict[str, str]:
        return dict(self._ask("list_queue_tags").get("Tags", {}))

    def delete(self) -> None:
        """Delete the queue with all its messages."""
        self._ask("delete_queue")

    def wake(self) -> None:
        with self._bell:
            self._woken += 1
            self._bell.notify_all()

    def close(self) -> None:
        self.wake()

    def _ask(self, call: str, **values: Any) -> Any:
        url = self.find()
        with translated(f"the mailbox {self.name!r}"):
            return getattr(self.client, call)(QueueUrl=url, **values)

    def _batch(self, call: str, entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return call_batch(lambda **values: self._ask(call, **values), entries)


def _max_timeout(lease: _Lease, now: float) -> int:
    """Return the seconds from now to 12 hours after the message was received."""
    return max(0, int(lease.received + MAX_VISIBILITY_TIMEOUT - now))


def _forget(handles: Sequence[str], done: list[bool]) -> list[bool]:
    for handle, held in zip(handles, done, strict=True):
        if held:
            _leases.pop(handle, None)
    return done


def _forget_ended(now: float) -> None:
    """Forget ended leases, if there are many."""
    if len(_leases) > 10_000:
        for handle, lease in _leases.copy().items():
            if lease.until <= now:
                _leases.pop(handle, None)


class SQSMailbox(QueueMailbox[T, ReplyT]):
    """Messages on Amazon SQS, in a standard queue that is created if it is missing.

        requests = SQSMailbox("requests", boto3.client("sqs", region_name="eu-west-1"))

    `name` may also be a queue's URL. Bodies longer than `max_bytes` are kept in `store`, such as a
    `RedisStore`; receivers need the same one. They stay there until they expire.
    """

    queue: SQSQueue

    def __init__(
        self,
        name: str,
        client: Any = None,
        body_type: Any = None,
        reply_resolver: MailboxResolver | None = None,
        store: BodyStore | None = None,
        *,
        create: bool = True,
        max_bytes: int = MAX_BYTES,
        max_size: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        queue = SQSQueue(
            name,
            client if client is not None else sqs_client(),
            create=create,
            store=store,
            max_bytes=max_bytes,
            clock=clock,
        )
        super().__init__(
            queue, body_type=body_type, max_size=max_size, reply_resolver=reply_resolver
        )
        if create:
            queue.find()  # create it before others reply to its name

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> SQSMailbox[Any]:
        queue = self.queue
        mailbox: SQSMailbox[Any] = SQSMailbox(
            *(name, queue.client, body_type, None, queue.store),
            create=queue.create or ephemeral,
            max_bytes=queue.max_bytes,
            clock=queue.clock,
        )
        mailbox._ephemeral = ephemeral
        return mailbox

    def _discard(self) -> None:
        self.queue.delete()

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        if is_claim(content):
            raise SerializationError(
                "expected the body in the mailbox's `store`, since it was too long for SQS, got "
                f"{'no store' if self.queue.store is None else 'none there, or a damaged one'} - "
                "give the mailbox the store that the sender has"
            )
        return super()._read(content)

    def _own_resolver(self) -> MailboxResolver:
        queue = self.queue
        factory = SQSMailboxFactory(queue.client, store=queue.store, max_bytes=queue.max_bytes)
        return CompositeResolver(factory=factory)


class SQSMailboxFactory(Generic[BodyT]):
    """Creates mailboxes for replies on one client: an address is the name of a queue.

    An address in a message must not create a queue, so `create` is False by default.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        body_type: Any = None,
        store: BodyStore | None = None,
        create: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._client = client if client is not None else sqs_client()
        self._options: dict[str, Any] = {
            "body_type": body_type,
            "store": store,
            "create": create,
            "max_bytes": max_bytes,
        }

    def create(self, identifier: str) -> SQSMailbox[Any]:
        """Return the mailbox of this name; a URL in a message is not followed."""
        if "/" in identifier:
            raise MailboxResolutionError(
                f"expected the name of a queue to reply to, got {short_repr(identifier)}",
                identifier,
            )
        return SQSMailbox(identifier, self._client, **self._options)
