"""What agents run on: the main loop, the events that it leaves, sessions that record them."""

from .dispatcher import (
    ControlDispatcher,
    Dispatcher,
    DispatchResult,
    EventBus,
    InProcessDispatcher,
    InProcessEventBus,
)
from .events import TELEMETRY, PromptExecuted, PromptRendered, TokenUsage, ToolInvoked
from .main_loop import MainLoop, MainLoopConfig, MainLoopRequest, MainLoopResult
from .provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
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

__all__ = [
    "TELEMETRY",
    "AsyncProviderAdapter",
    "ControlDispatcher",
    "DispatchResult",
    "Dispatcher",
    "EventBus",
    "InProcessDispatcher",
    "InProcessEventBus",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "PromptExecuted",
    "PromptRendered",
    "PromptResponse",
    "ProviderAdapter",
    "Reducer",
    "Session",
    "SessionSnapshot",
    "SessionView",
    "SliceAccessor",
    "SliceSnapshot",
    "SliceView",
    "TokenUsage",
    "ToolInvoked",
    "append_all",
    "replace_latest",
    "upsert_by",
]
