"""Mailboxes: queued messages that are leased to one receiver at a time and never lost.

`InMemoryMailbox` for one process, `SqliteMailbox` for one machine, `RedisMailbox` and `SQSMailbox`
for many; `open_mailbox` opens any of them by URL.

core/      the protocols, the wire format, and what all mailboxes share
backends/  memory, SQLite, Redis, SQS
open       mailboxes by URL
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports
from .backends.memory import InMemoryMailbox, InMemoryMailboxFactory, MemoryQueue
from .core.lanes import lane_headers
from .core.mailbox import QueueMailbox
from .core.resolvers import CompositeResolver, MailboxFactory, MailboxResolver, RegistryResolver
from .core.types import MAX_VISIBILITY_TIMEOUT, Delivery, Mailbox, Message, OutboundMessage, Queue
from .open import open_mailbox

if TYPE_CHECKING:
    from .backends.redis.mailbox import RedisMailbox, RedisMailboxFactory
    from .backends.redis.store import RedisStore
    from .backends.sqlite.mailbox import SqliteMailbox, SqliteMailboxFactory
    from .backends.sqs.mailbox import SQSMailbox, SQSMailboxFactory

__all__ = [
    "MAX_VISIBILITY_TIMEOUT",
    "CompositeResolver",
    "Delivery",
    "InMemoryMailbox",
    "InMemoryMailboxFactory",
    "Mailbox",
    "MailboxFactory",
    "MailboxResolver",
    "MemoryQueue",
    "Message",
    "OutboundMessage",
    "Queue",
    "QueueMailbox",
    "RedisMailbox",
    "RedisMailboxFactory",
    "RedisStore",
    "RegistryResolver",
    "SQSMailbox",
    "SQSMailboxFactory",
    "SqliteMailbox",
    "SqliteMailboxFactory",
    "lane_headers",
    "open_mailbox",
]

# A back-end is loaded when it is first used.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".backends.redis.mailbox": "RedisMailbox RedisMailboxFactory",
        ".backends.redis.store": "RedisStore",
        ".backends.sqlite.mailbox": "SqliteMailbox SqliteMailboxFactory",
        ".backends.sqs.mailbox": "SQSMailbox SQSMailboxFactory",
    },
)
