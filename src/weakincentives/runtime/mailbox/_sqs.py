"""A mailbox on Amazon SQS, or what speaks like it, for many machines and no server of your own.

What SQS promises less than the others:
1. It is a standard queue: a message may come twice, out of order, or once more after it was
   acknowledged, and an id that is sent twice is there twice. Whoever counts, counts by id.
2. An old handle is good for SQS. So this process keeps the end of every lease, by its own steady
   clock from before the call, and refuses a handle after that; a call that is under way when the
   lease ends may still go through.
3. Leases and waits are whole seconds, rounded up. All extensions of a delivery together end 12
   hours after it was received, and unread messages go after 14 days.
4. `approximate_count` may be a minute late, and so may `max_size`; `purge` takes up to a minute.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxResolutionError,
    SerializationError,
    UsageError,
    shown,
)
from ._mailbox import QueueMailbox
from ._resolvers import CompositeResolver, MailboxResolver
from ._sqs_body import BodyStore, claimed, entry, is_claim, letter, parts
from ._sqs_client import call_batch, is_missing, sqs_client, translated
from ._types import MAX_VISIBILITY_TIMEOUT, Delivery, Letter

__all__ = ["SQSMailbox", "SQSMailboxFactory", "SQSQueue"]

T = TypeVar("T")

MOST_BYTES = 1_048_576  # of one message, and of one batch; 262,144 on older queues
STORE_TRIES = 4  # deliveries of a long body before one goes without it
LONGEST_POLL = 2  # seconds after which a wait looks whether it was woken
KEPT = 14 * 24 * 3600  # seconds, the most that SQS allows

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SYSTEM = ["ApproximateReceiveCount", "SentTimestamp"]
_COUNTS = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]


class _Lease(NamedTuple):
    url: str
    received: float  # by the steady clock, as is `until`
    until: float


_leases: dict[str, _Lease] = {}  # of this process by handle, which SQS makes unique


class SQSQueue:
    """Letters on SQS, in batches of ten."""

    waits = True
    batch = 10
    uncounts = False

    def __init__(
        self,
        name: str,
        client: Any,
        *,
        create: bool = True,
        store: BodyStore | None = None,
        max_bytes: int = MOST_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        is_url = isinstance(name, str) and name.startswith(("https://", "http://"))
        self.name = name.rstrip("/").rpartition("/")[2] if is_url else name
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(
                "expected a name of up to 80 letters, digits, `-` and `_` for a mailbox on SQS, "
                f"or the URL of a standard queue, got {shown(name)}"
            )
        self.client = client
        self.create = create
        self.store = store
        self.max_bytes = max_bytes
        self._url = name if is_url else None
        self.clock = clock
        self._woken = self._heard = 0  # how often it was woken, and how much of that ended a wait
        self._bell = threading.Condition()

    def find(self) -> str:
        """The queue's URL; the queue is made where there is none."""
        if self._url is None:
            with translated(f"the mailbox {self.name!r}"):
                try:
                    answer = self.client.get_queue_url(QueueName=self.name)
                except Exception as error:
                    if not self.create or not is_missing(error):
                        raise
                    kept = {"MessageRetentionPeriod": str(KEPT)}
                    answer = self.client.create_queue(QueueName=self.name, Attributes=kept)
            self._url = str(answer["QueueUrl"])
        return self._url

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        if max_size is not None and (here := self.count()) + len(letters) > max_size:
            raise MailboxFullError(
                f"expected room for {len(letters)} more in the mailbox {self.name!r}, "
                f"got about {here} of {max_size} - receive some, or raise `max_size`"
            )
        # All are looked at before the first is sent.
        made = [entry(each, i, self.max_bytes, self.store) for i, each in enumerate(letters)]
        for part in parts(made, self.max_bytes):
            for number, failure in self._batch("send_message_batch", part).items():
                raise MailboxError(
                    f"expected SQS to take a message for the mailbox {self.name!r}, got "
                    f"{failure.get('Code')}: {failure.get('Message')} "
                    f"(id {letters[int(number)].id!r}) - see what SQS says"
                )

    # ── receiving ───────────────────────────────────────────────────────────────────────────────

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        heard = self._heard
        # A lease may begin when the poll does, so a short one leaves no time for a long poll.
        poll = min(int(wait), LONGEST_POLL, int(lease) // 4) if self._woken == heard else 0
        found = self._receive(count, lease, poll)
        if found or wait <= 0:
            return found
        with self._bell:
            if poll == 0:
                self._bell.wait_for(lambda: self._woken != heard, min(wait, 0.5))
            if self._woken != heard:
                self._heard = self._woken
                return []
        return self._receive(count, lease, 0) if poll == 0 else []

    def _receive(self, count: int, lease: float, poll: int) -> list[Delivery]:
        start = self.clock.monotonic()
        answer = self._ask(
            "receive_message",
            MaxNumberOfMessages=min(count, self.batch),
            VisibilityTimeout=math.ceil(lease),
            WaitTimeSeconds=poll,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=_SYSTEM,
        )
        messages = answer.get("Messages", [])
        until = start + math.ceil(lease)
        for message in messages:
            _leases[message["ReceiptHandle"]] = _Lease(self.find(), start, until)
        _forget_ended(start)
        found: list[Delivery] = []
        for message in messages:
            try:
                found.append(self._delivery(message))
            except MailboxConnectionError:  # the store's; another try may do better
                with suppress(MailboxError):
                    self.release([message["ReceiptHandle"]], 1)
                if message is messages[-1] and not found:
                    raise
        return found

    def _delivery(self, message: dict[str, Any]) -> Delivery:
        id, content, reply_to = letter(message)
        told = message["Attributes"]
        times = int(told["ApproximateReceiveCount"])
        try:
            content = claimed(content, self.store)
        except MailboxConnectionError:
            if times < STORE_TRIES:  # else it is delivered as it is, or nobody would ever see it
                raise
        sent = int(told["SentTimestamp"]) / 1000
        return Delivery(id, content, message["ReceiptHandle"], times, sent, reply_to)

    # ── ends of a delivery ──────────────────────────────────────────────────────────────────────

    def remove(self, handles: Sequence[str]) -> list[bool]:
        done = self._by_handle("delete_message_batch", handles, lambda lease, now: {})
        return _ended(handles, done)

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        def later(lease: _Lease, now: float) -> dict[str, int]:
            return {"VisibilityTimeout": min(math.ceil(delay), _most(lease, now))}

        done = self._by_handle("change_message_visibility_batch", handles, later)
        return _ended(handles, done)

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        ends: dict[_Lease, float] = {}

        def longer(lease: _Lease, now: float) -> dict[str, int] | None:
            timeout = min(math.ceil(seconds), _most(lease, now))
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
        """Send each whose lease lasts, with its change; nothing where that is None."""
        now = self.clock.monotonic()
        done = dict.fromkeys(handles, False)
        entries: list[dict[str, Any]] = []
        sent: list[str] = []
        for handle in done:
            lease = _leases.get(handle)
            if lease is None or lease.until <= now:
                continue
            done[handle] = True
            if (values := change(lease, now)) is not None:
                entries.append({"Id": str(len(sent)), "ReceiptHandle": handle, **values})
                sent.append(handle)
        for number in self._batch(call, entries) if entries else ():
            done[sent[int(number)]] = False
        return [done[handle] for handle in handles]

    # ── the whole ───────────────────────────────────────────────────────────────────────────────

    def count(self) -> int:
        told = self._ask("get_queue_attributes", AttributeNames=_COUNTS)["Attributes"]
        return sum(int(told.get(name, 0)) for name in _COUNTS)

    def purge(self) -> int:
        here = self.count()
        self._ask("purge_queue")
        for handle in [key for key, lease in _leases.copy().items() if lease.url == self._url]:
            _leases.pop(handle, None)
        return here

    def delete(self) -> None:
        """Remove the queue itself, with all that is in it."""
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


def _most(lease: _Lease, now: float) -> int:
    """Seconds from now to 12 hours after the message was received."""
    return max(0, int(lease.received + MAX_VISIBILITY_TIMEOUT - now))


def _ended(handles: Sequence[str], done: list[bool]) -> list[bool]:
    for handle, held in zip(handles, done, strict=True):
        if held:
            _leases.pop(handle, None)
    return done


def _forget_ended(now: float) -> None:
    """Leases that nobody ended are forgotten some time after they did."""
    if len(_leases) > 10_000:
        for handle, lease in _leases.copy().items():
            if lease.until <= now:
                _leases.pop(handle, None)


class SQSMailbox(QueueMailbox[T]):
    """Messages on Amazon SQS, in a standard queue that is made where it is missing.

        requests = SQSMailbox("requests", boto3.client("sqs", region_name="eu-west-1"))

    `name` may also be a queue's URL. Bodies longer than `max_bytes` go to `store`, such as a
    `RedisStore`; whoever receives needs the same one. They stay there until the store lets them go.
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
        max_bytes: int = MOST_BYTES,
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
            queue,
            body_type=body_type,
            max_size=max_size,
            reply_resolver=reply_resolver,
        )
        self._ephemeral = False
        if create:
            queue.find()  # so that whoever gets its name can reply there

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> SQSMailbox[Any]:
        queue = self.queue
        made: SQSMailbox[Any] = SQSMailbox(
            *(name, queue.client, body_type, None, queue.store),
            create=queue.create or ephemeral,
            max_bytes=queue.max_bytes,
            clock=queue.clock,
        )
        made._ephemeral = ephemeral
        return made

    def close(self) -> None:
        if self._ephemeral and not self.closed:
            with suppress(MailboxError):  # where this identity may not, the queue is left
                self.queue.delete()
        super().close()

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        if is_claim(content):
            raise SerializationError(
                "expected the body in the mailbox's `store`, since it was too long for SQS, got "
                f"{'no store' if self.queue.store is None else 'none there, or not as it was'} - "
                "give the mailbox the store that the sender has"
            )
        return super()._read(content)

    def _own_resolver(self) -> MailboxResolver:
        queue = self.queue
        factory = SQSMailboxFactory(queue.client, store=queue.store, max_bytes=queue.max_bytes)
        return CompositeResolver(factory=factory)


class SQSMailboxFactory:
    """Makes mailboxes on one client, to reply to: an address is the name of a queue there.

    A message makes no queue, so `create` is False: whoever wants replies has made one.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        body_type: Any = None,
        store: BodyStore | None = None,
        create: bool = False,
        max_bytes: int = MOST_BYTES,
    ) -> None:
        self._client = client if client is not None else sqs_client()
        self._options: dict[str, Any] = {
            "body_type": body_type,
            "store": store,
            "create": create,
            "max_bytes": max_bytes,
        }

    def create(self, identifier: str) -> SQSMailbox[Any]:
        """The mailbox of this name; a URL in a message is not followed."""
        if "/" in identifier:
            raise MailboxResolutionError(
                f"expected the name of a queue to reply to, got {shown(identifier)}", identifier
            )
        try:
            return SQSMailbox(identifier, self._client, **self._options)
        except UsageError as error:  # an address in a message is data, not misuse
            raise MailboxResolutionError(str(error), identifier) from None
