"""The mailboxes of `weakincentives.runtime.mailbox`, also by this name."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily

if TYPE_CHECKING:
    from ..runtime.mailbox import (
        CompositeResolver,
        InMemoryMailbox,
        InMemoryMailboxFactory,
        Mailbox,
        MailboxFactory,
        MailboxResolver,
        Message,
        RedisMailbox,
        RedisMailboxFactory,
        RedisStore,
        RegistryResolver,
        SqliteMailbox,
        SqliteMailboxFactory,
        SQSMailbox,
        SQSMailboxFactory,
        open_mailbox,
    )

__all__ = [
    "CompositeResolver",
    "InMemoryMailbox",
    "InMemoryMailboxFactory",
    "Mailbox",
    "MailboxFactory",
    "MailboxResolver",
    "Message",
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

__getattr__, __dir__ = _lazily(__name__, dict.fromkeys(__all__, "weakincentives.runtime.mailbox"))
