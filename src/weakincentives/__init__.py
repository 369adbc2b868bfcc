"""WINK: build LLM agents, and evaluate them.

The names below are loaded when they are first used, so that the command line starts at once.
"""

from .internal.lazy import lazy_exports as _lazy_exports
from .internal.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
    from .errors import WinkError
    from .experiment import BASELINE, CONTROL, Experiment
    from .prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
    from .runtime.agent.main_loop import MainLoop
    from .runtime.session import Session

__all__ = [
    "BASELINE",
    "CONTROL",
    "ChatMessage",
    "Experiment",
    "MainLoop",
    "MarkdownSection",
    "Prompt",
    "PromptTemplate",
    "Session",
    "TokenTrace",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "WinkError",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".chat": "ChatMessage TokenTrace TokenUsage ToolCall",
        ".errors": "WinkError",
        ".experiment": "BASELINE CONTROL Experiment",
        ".prompt": "MarkdownSection Prompt PromptTemplate Tool ToolContext ToolResult",
        ".runtime.agent.main_loop": "MainLoop",
        ".runtime.session": "Session",
    },
)
