"""What agents run on: the main loop, the events that it leaves, sessions that record them."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
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
    from .dlq import Backoff, DeadLetter, DLQConsumer, DLQPolicy
    from .health import HealthServer
    from .leases import Heartbeat, LeaseExtender, LeaseExtenderConfig
    from .lifecycle import LoopGroup, Runnable, ShutdownCoordinator
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
    from .main_loop import MainLoop, MainLoopConfig, MainLoopRequest, MainLoopResult
    from .provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
    from .watchdog import Watchdog

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

# These need prompts or event loops, which whoever only reads sessions need not load.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "AsyncProviderAdapter": ".provider",
        **dict.fromkeys(
            (
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
            ),
            ".mailbox",
        ),
        **dict.fromkeys(("Heartbeat", "LeaseExtender", "LeaseExtenderConfig"), ".leases"),
        **dict.fromkeys(("Backoff", "DLQConsumer", "DLQPolicy", "DeadLetter"), ".dlq"),
        **dict.fromkeys(("LoopGroup", "Runnable", "ShutdownCoordinator"), ".lifecycle"),
        **dict.fromkeys(("HealthServer",), ".health"),
        **dict.fromkeys(("Watchdog",), ".watchdog"),
        "MainLoop": ".main_loop",
        "MainLoopConfig": ".main_loop",
        "MainLoopRequest": ".main_loop",
        "MainLoopResult": ".main_loop",
        "PromptResponse": ".provider",
        "ProviderAdapter": ".provider",
    },
)
