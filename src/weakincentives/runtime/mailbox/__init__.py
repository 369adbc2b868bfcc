"""Mailboxes: queued messages that are leased to one receiver at a time and never lost.

`InMemoryMailbox` for one process, `SqliteMailbox` for one machine, `RedisMailbox` and `SQSMailbox`
for many; `open_mailbox` opens any of them by URL.

core/      the protocols, the wire format, and what all mailboxes share
backends/  memory, SQLite, Redis, SQS
open       mailboxes by URL
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .backends.memory import (
        InMemoryMailbox as InMemoryMailbox,
        InMemoryMailboxFactory as InMemoryMailboxFactory,
        MemoryQueue as MemoryQueue,
    )
    from .backends.redis.mailbox import (
        RedisMailbox as RedisMailbox,
        RedisMailboxFactory as RedisMailboxFactory,
    )
    from .backends.redis.store import RedisStore as RedisStore
    from .backends.sqlite.mailbox import (
        SqliteMailbox as SqliteMailbox,
        SqliteMailboxFactory as SqliteMailboxFactory,
    )
    from .backends.sqs.mailbox import (
        SQSMailbox as SQSMailbox,
        SQSMailboxFactory as SQSMailboxFactory,
    )
    from .core.lanes import lane_headers as lane_headers
    from .core.mailbox import QueueMailbox as QueueMailbox
    from .core.resolvers import (
        CompositeResolver as CompositeResolver,
        MailboxFactory as MailboxFactory,
        MailboxResolver as MailboxResolver,
        RegistryResolver as RegistryResolver,
    )
    from .core.types import (
        MAX_VISIBILITY_TIMEOUT as MAX_VISIBILITY_TIMEOUT,
        Delivery as Delivery,
        Mailbox as Mailbox,
        Message as Message,
        OutboundMessage as OutboundMessage,
        Queue as Queue,
    )
    from .open import open_mailbox as open_mailbox
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
