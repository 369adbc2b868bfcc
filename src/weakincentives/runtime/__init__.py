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
    from .main_loop import MainLoop, MainLoopConfig, MainLoopRequest, MainLoopResult
    from .provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter

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

# These need prompts, which whoever only reads sessions need not load.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "AsyncProviderAdapter": ".provider",
        "MainLoop": ".main_loop",
        "MainLoopConfig": ".main_loop",
        "MainLoopRequest": ".main_loop",
        "MainLoopResult": ".main_loop",
        "PromptResponse": ".provider",
        "ProviderAdapter": ".provider",
    },
)
