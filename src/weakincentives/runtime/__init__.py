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

# A type that was sent or stored is known once it is imported.
from .events import (
    TELEMETRY as TELEMETRY,
    PromptExecuted as PromptExecuted,
    PromptRendered as PromptRendered,
    TokenUsage as TokenUsage,
    ToolInvoked as ToolInvoked,
)

if TYPE_CHECKING:
    from ..errors import (
        MailboxConnectionError as MailboxConnectionError,
        ReplyNotAvailableError as ReplyNotAvailableError,
    )
    from .agent.main_loop import (
        MainLoop as MainLoop,
        MainLoopConfig as MainLoopConfig,
        MainLoopRequest as MainLoopRequest,
        MainLoopResult as MainLoopResult,
    )
    from .agent.provider import (
        AsyncProviderAdapter as AsyncProviderAdapter,
        PromptResponse as PromptResponse,
        ProviderAdapter as ProviderAdapter,
    )
    from .dispatcher import (
        ControlDispatcher as ControlDispatcher,
        Dispatcher as Dispatcher,
        DispatchResult as DispatchResult,
        EventBus as EventBus,
        InProcessDispatcher as InProcessDispatcher,
        InProcessEventBus as InProcessEventBus,
    )
    from .mailbox import (
        CompositeResolver as CompositeResolver,
        InMemoryMailbox as InMemoryMailbox,
        InMemoryMailboxFactory as InMemoryMailboxFactory,
        Mailbox as Mailbox,
        MailboxFactory as MailboxFactory,
        MailboxResolver as MailboxResolver,
        Message as Message,
        RedisMailbox as RedisMailbox,
        RedisMailboxFactory as RedisMailboxFactory,
        RedisStore as RedisStore,
        RegistryResolver as RegistryResolver,
        SqliteMailbox as SqliteMailbox,
        SqliteMailboxFactory as SqliteMailboxFactory,
        SQSMailbox as SQSMailbox,
        SQSMailboxFactory as SQSMailboxFactory,
        open_mailbox as open_mailbox,
    )
    from .process import (
        HealthServer as HealthServer,
        LoopGroup as LoopGroup,
        Runnable as Runnable,
        ShutdownCoordinator as ShutdownCoordinator,
        Watchdog as Watchdog,
    )
    from .session import (
        Reducer as Reducer,
        Session as Session,
        SessionSnapshot as SessionSnapshot,
        SessionView as SessionView,
        SliceAccessor as SliceAccessor,
        SliceSnapshot as SliceSnapshot,
        SliceView as SliceView,
        append_all as append_all,
        replace_latest as replace_latest,
        upsert_by as upsert_by,
    )
    from .worker.dead_letters import (
        Backoff as Backoff,
        DeadLetter as DeadLetter,
        DLQPolicy as DLQPolicy,
    )
    from .worker.dlq_consumer import DLQConsumer as DLQConsumer
    from .worker.heartbeat import Heartbeat as Heartbeat
    from .worker.leases import (
        LeaseExtender as LeaseExtender,
        LeaseExtenderConfig as LeaseExtenderConfig,
    )
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
