"""Adapt a user's own mailbox class, so that workers can use it.

It needs `send(body)` to be sent to, and `receive()` to be received from, which returns messages
with a `body`. A message is finalized by its `acknowledge()` and `nack(visibility_timeout=...)`, or
by methods of the mailbox that take the message.

Everything else is optional, and used if it is there: the keyword arguments of our own mailboxes,
`name`, `closed`, `close`, `sibling`, `purge`, `approximate_count`, `has_lanes`, `cancel(group)` and
`cancelled(groups)`; of a message, `id`, `delivery_count`, `reply_to`, `headers` and
`extend_visibility`.

Rules of this file:
1. A missing method is reported at construction, by name.
2. Every error of a method becomes a `MailboxConnectionError`: workers retry, and do not end.
3. Methods are called in threads, with short waits, so that a worker can be stopped.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ....errors import MailboxConnectionError, MailboxError, UsageError, short_repr
from ....internal.ids import new_uuid
from ....secrets import logger_for
from ..core.envelope import body_of
from ..core.mailbox import QueueMailbox
from ..core.resolvers import MailboxResolver, RegistryResolver
from ..core.types import Delivery, Mailbox, OutboundMessage
from .memory import InMemoryMailbox

logger = logger_for(__name__)

WAIT_SECONDS = 1.0  # per `receive`; a worker that is stopped waits for it
POLL_SECONDS = 0.2  # between two calls of a `receive` that does not wait by itself


def sending_mailbox(target: Any, what: str, *needed: str) -> Any:
    """Return a mailbox to send to: `target`, or one that adapts a user's own class."""
    return _adapted(target, what, ("send", *needed), ("send_all", "closed"))


def receiving_mailbox(target: Any, what: str) -> Any:
    """Return a mailbox to receive from: `target`, or one that adapts it."""
    used = "receive_async acknowledge_all release_all extend_all run_blocking wake queue closed"
    return _adapted(target, what, ("receive",), used.split())


def _adapted(target: Any, what: str, needed: Sequence[str], used: Sequence[str]) -> Any:
    """Check that `target` has what is needed; adapt it unless it has all that we use."""
    if isinstance(target, QueueMailbox):
        return target
    missing = [name for name in needed if not callable(getattr(target, name, None))]
    if missing or isinstance(target, type):
        raise UsageError(
            f"expected a mailbox for `{what}`, got {short_repr(target)}"
            + (f" without {' and '.join(f'`{name}`' for name in missing)}" if missing else "")
            + " - pass an object such as InMemoryMailbox(name)"
        )
    for name in needed:
        if inspect.iscoroutinefunction(getattr(target, name)):
            raise UsageError(
                f"expected synchronous methods of the mailbox for `{what}`, which run in threads, "
                f"got the async `{type(target).__qualname__}.{name}`"
            )
    return target if all(hasattr(target, name) for name in used) else AdaptedMailbox(target)


class AdaptedMailbox(QueueMailbox[Any]):
    """A mailbox that wraps a user's own. If that has no `sibling`, dead letters stay in memory."""

    queue: _UserQueue

    def __init__(self, target: Any) -> None:
        super().__init__(_UserQueue(target))
        self._target = target
        self._siblings: dict[str, QueueMailbox[Any]] = {}

    @property
    def closed(self) -> bool:
        """True after `close`, of this object or of the user's."""
        return self._closed or bool(getattr(self._target, "closed", False))

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> QueueMailbox[Any]:
        """Return the user's sibling of that name; without one, a mailbox in memory."""
        if name not in self._siblings:
            make = getattr(self._target, "sibling", None)
            if make is None:
                logger.warning(
                    "%r is kept in memory: `%s` has no `sibling` - pass a `DLQPolicy`",
                    name,
                    type(self._target).__qualname__,
                )
                self._siblings[name] = InMemoryMailbox(name)
            else:
                self._siblings[name] = receiving_mailbox(make(name), "sibling")
        return self._siblings[name]

    def _write(self, body: Any, headers: Mapping[str, str] | None) -> Any:
        return body_of(body), dict(headers or {})

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        body, headers = content
        return body, headers

    def _address(self, reply_to: Mailbox[Any] | str | None) -> Any:
        if isinstance(reply_to, AdaptedMailbox):
            return reply_to._target  # what the user's own code knows
        return reply_to

    def _resolve(self, address: Any) -> Mailbox[Any] | None:
        if address is None or isinstance(address, str):
            return super()._resolve(address)
        mailbox: Mailbox[Any] = sending_mailbox(address, "reply_to")
        return mailbox

    def _own_resolver(self) -> MailboxResolver:
        return RegistryResolver({})


class _UserQueue:
    """The operations of a queue, by the methods of a user's mailbox and of its messages."""

    blocking = True
    batch = 10
    can_uncount_delivery = False

    def __init__(self, target: Any) -> None:
        self.name = str(getattr(target, "name", None) or type(target).__qualname__)
        self.has_lanes = bool(getattr(target, "has_lanes", False))
        self._target = target
        self._leased: dict[str, Any] = {}  # the user's messages, by our handle
        self._woken = threading.Event()
        self._send_keywords = _keywords(getattr(target, "send", None))
        self._receive_keywords = _keywords(getattr(target, "receive", None))

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        for message in messages:
            body, headers = message.content
            options = {"id": message.id, "headers": headers, "reply_to": message.reply_to}
            given = {name: options[name] for name in options if name in self._send_keywords}
            if message.reply_to is not None and "reply_to" not in given:
                raise UsageError(
                    f"expected a mailbox whose `send` takes `reply_to`, got {self.name!r} - "
                    "give the workers a `results` mailbox instead"
                )
            self._call(self._target.send, body, **given)

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        end = time.monotonic() + wait
        while not self._woken.is_set():
            left = max(0.0, end - time.monotonic())
            options = {
                "max_messages": count,
                "visibility_timeout": lease,
                "wait_time_seconds": min(left, WAIT_SECONDS),
            }
            given = {name: options[name] for name in options if name in self._receive_keywords}
            messages = list(self._call(self._target.receive, **given) or ())
            if messages or left <= 0:
                return [self._delivery(message) for message in messages]
            if "wait_time_seconds" not in given:
                self._woken.wait(min(left, POLL_SECONDS))
        self._woken.clear()
        return []

    def _delivery(self, message: Any) -> Delivery:
        handle = new_uuid().hex
        self._leased[handle] = message
        content = message.body, getattr(message, "headers", None) or {}
        count = getattr(message, "delivery_count", 1)
        id = str(getattr(message, "id", None) or handle)
        return Delivery(id, content, handle, count, time.time(), getattr(message, "reply_to", None))

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return [self._finalize(handle, "acknowledge") for handle in handles]

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        return [self._finalize(handle, "nack", visibility_timeout=delay) for handle in handles]

    def _finalize(self, handle: str, name: str, **options: float) -> bool:
        if (message := self._leased.get(handle)) is None:
            return False
        method = self._method(message, name)
        keywords = _keywords(method)
        self._call(method, **{key: value for key, value in options.items() if key in keywords})
        del self._leased[handle]
        return True

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        for handle in handles:
            extend = getattr(self._leased.get(handle), "extend_visibility", None)
            if extend is not None:
                self._call(extend, seconds)
        return [handle in self._leased for handle in handles]

    def _method(self, message: Any, name: str) -> Callable[..., Any]:
        """Return a method of the message, or the mailbox's own that takes the message."""
        if callable(own := getattr(message, name, None)):
            return own  # type: ignore[no-any-return]
        if callable(shared := getattr(self._target, name, None)):
            return partial(shared, message)
        raise UsageError(
            f"expected `{name}` of a message of {self.name!r}, or of the mailbox itself, got "
            f"{short_repr(message)}"
        )

    def count(self) -> int:
        return int(self._optional("approximate_count"))

    def purge(self) -> int:
        return int(self._optional("purge"))

    def cancel(self, group: str) -> int:
        return int(self._optional("cancel", group) or 0)

    def cancelled(self, groups: Collection[str]) -> set[str]:
        known = callable(getattr(self._target, "cancelled", None))
        return set(self._optional("cancelled", groups)) if known else set()

    def _optional(self, name: str, *args: Any) -> Any:
        method = getattr(self._target, name, None)
        if method is None:
            raise MailboxError(f"expected a mailbox with `{name}`, got {self.name!r} without it")
        return self._call(method, *args)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        if callable(close := getattr(self._target, "close", None)):
            self._call(close)

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except MailboxError:
            raise
        except Exception as error:
            raise MailboxConnectionError(
                f"expected {self.name!r} to work, got {type(error).__name__}: {error}"
            ) from error


def _keywords(method: Any) -> set[str]:
    """Return which of our keyword arguments a method takes."""
    ours = "id headers reply_to max_messages visibility_timeout wait_time_seconds"
    known = set(ours.split())
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # such as a Mock, or a function written in C
        return known
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return known
    return known & set(parameters)
