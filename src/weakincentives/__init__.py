"""WINK: agents, and evals that say how good they are.

The names below are loaded when they are first used, so that the command line starts at once.
"""

from importlib import import_module

from ._lazy import lazily as _lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
    from .errors import WinkError
    from .experiment import BASELINE, CONTROL, Experiment
    from .prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
    from .runtime.main_loop import MainLoop
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

_HOME = {
    "BASELINE": ".experiment",
    "CONTROL": ".experiment",
    "ChatMessage": ".chat",
    "Experiment": ".experiment",
    "MainLoop": ".runtime.main_loop",
    "MarkdownSection": ".prompt",
    "Prompt": ".prompt",
    "PromptTemplate": ".prompt",
    "Session": ".runtime.session",
    "TokenTrace": ".chat",
    "TokenUsage": ".chat",
    "Tool": ".prompt",
    "ToolCall": ".chat",
    "ToolContext": ".prompt",
    "ToolResult": ".prompt",
    "WinkError": ".errors",
}


_get, __dir__ = _lazily(__name__, _HOME)


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        return import_module("importlib.metadata").version("weakincentives-evals")
    return _get(name)
