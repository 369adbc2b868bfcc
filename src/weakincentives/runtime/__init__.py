"""The runtime of agents and workers.

events      the telemetry of an agent run
dispatcher  the bus that routes events to sessions
session/    the typed state that one run records
agent/      the main loop, and the protocol of adapters
mailbox/    queues of messages: in memory, SQLite, Redis, SQS
worker/     the loop on a mailbox: leases, retries, dead letters
process/    several loops in one process: signals, health, watchdog
tracing     spans for tracers
metering    tokens and cost of model calls, such as those of judges
"""

from typing import TYPE_CHECKING

from ..errors import MailboxConnectionError, ReplyNotAvailableError
from ..internal.lazy import lazy_exports as _lazy_exports
from .dispatcher import (
    ControlDispatcher,
    Dispatcher,
    DispatchResult,
    EventBus,
    InProcessDispatcher,
    InProcessEventBus,
)
from .events import TELEMETRY, PromptExecuted, PromptRendered, TokenUsage, ToolInvoked
from .session import (
    Reducer,
    Session,
    SessionSnapshot,
    SessionView,
    SliceAccessor,
    SliceSnapshot,
    SliceView,
    append_all,
    replace_latest,
    upsert_by,
)

if TYPE_CHECKING:
    from .agent.main_loop import MainLoop, MainLoopConfig, MainLoopRequest, MainLoopResult
    from .agent.provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
    from .mailbox import (
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
    from .process import HealthServer, LoopGroup, Runnable, ShutdownCoordinator, Watchdog
    from .worker.dead_letters import Backoff, DeadLetter, DLQPolicy
    from .worker.dlq_consumer import DLQConsumer
    from .worker.heartbeat import Heartbeat
    from .worker.leases import LeaseExtender, LeaseExtenderConfig

__all__ = [
    "TELEMETRY",
    "AsyncProviderAdapter",
    "Backoff",
    "CompositeResolver",
    "ControlDispatcher",
    "DLQConsumer",
    "DLQPolicy",
    "DeadLetter",
    "DispatchResult",
    "Dispatcher",
    "EventBus",
    "HealthServer",
    "Heartbeat",
    "InMemoryMailbox",
    "InMemoryMailboxFactory",
    "InProcessDispatcher",
    "InProcessEventBus",
    "LeaseExtender",
    "LeaseExtenderConfig",
    "LoopGroup",
    "Mailbox",
    "MailboxConnectionError",
    "MailboxFactory",
    "MailboxResolver",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "Message",
    "PromptExecuted",
    "PromptRendered",
    "PromptResponse",
    "ProviderAdapter",
    "RedisMailbox",
    "RedisMailboxFactory",
    "RedisStore",
    "Reducer",
    "RegistryResolver",
    "ReplyNotAvailableError",
    "Runnable",
    "SQSMailbox",
    "SQSMailboxFactory",
    "Session",
    "SessionSnapshot",
    "SessionView",
    "ShutdownCoordinator",
    "SliceAccessor",
    "SliceSnapshot",
    "SliceView",
    "SqliteMailbox",
    "SqliteMailboxFactory",
    "TokenUsage",
    "ToolInvoked",
    "Watchdog",
    "append_all",
    "open_mailbox",
    "replace_latest",
    "upsert_by",
]

# These need prompts or event loops, which code that only reads sessions should not load.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".agent.main_loop": "MainLoop MainLoopConfig MainLoopRequest MainLoopResult",
        ".agent.provider": "AsyncProviderAdapter PromptResponse ProviderAdapter",
        ".mailbox": "CompositeResolver InMemoryMailbox InMemoryMailboxFactory Mailbox "
        "MailboxFactory MailboxResolver Message RedisMailbox RedisMailboxFactory RedisStore "
        "RegistryResolver SQSMailbox SQSMailboxFactory SqliteMailbox SqliteMailboxFactory "
        "open_mailbox",
        ".process": "HealthServer LoopGroup Runnable ShutdownCoordinator Watchdog",
        ".worker.dead_letters": "Backoff DLQPolicy DeadLetter",
        ".worker.dlq_consumer": "DLQConsumer",
        ".worker.heartbeat": "Heartbeat",
        ".worker.leases": "LeaseExtender LeaseExtenderConfig",
    },
)
