"""What agents run on: events, the bus that carries them, and sessions that record them."""

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

__all__ = [
    "TELEMETRY",
    "ControlDispatcher",
    "DispatchResult",
    "Dispatcher",
    "EventBus",
    "InProcessDispatcher",
    "InProcessEventBus",
    "PromptExecuted",
    "PromptRendered",
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
