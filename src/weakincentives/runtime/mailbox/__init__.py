"""Mailboxes: messages that wait, are leased to one receiver at a time, and are never lost.

`InMemoryMailbox` for one process, `SqliteMailbox` for one machine, `RedisMailbox` and `SQSMailbox`
for many; `open_mailbox` takes any of them by URL.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazily as _lazily
from ._mailbox import QueueMailbox
from ._memory import InMemoryMailbox, InMemoryMailboxFactory, MemoryQueue
from ._open import open_mailbox
from ._resolvers import CompositeResolver, MailboxFactory, MailboxResolver, RegistryResolver
from ._types import MAX_VISIBILITY_TIMEOUT, Delivery, Letter, Mailbox, Message, Queue

if TYPE_CHECKING:
    from ._redis import RedisMailbox, RedisMailboxFactory
    from ._redis_store import RedisStore
    from ._sqlite import SqliteMailbox, SqliteMailboxFactory
    from ._sqs import SQSMailbox, SQSMailboxFactory

__all__ = [
    "MAX_VISIBILITY_TIMEOUT",
    "CompositeResolver",
    "Delivery",
    "InMemoryMailbox",
    "InMemoryMailboxFactory",
    "Letter",
    "Mailbox",
    "MailboxFactory",
    "MailboxResolver",
    "MemoryQueue",
    "Message",
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
    "open_mailbox",
]

# A back-end is loaded by whoever uses it.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "RedisMailbox": "._redis",
        "RedisMailboxFactory": "._redis",
        "RedisStore": "._redis_store",
        "SQSMailbox": "._sqs",
        "SQSMailboxFactory": "._sqs",
        "SqliteMailbox": "._sqlite",
        "SqliteMailboxFactory": "._sqlite",
    },
)
