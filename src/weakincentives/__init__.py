"""WINK: build LLM agents, and evaluate them.

The names below are loaded when they are first used, so that the command line starts at once.
"""

from .internal.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .chat import (
        ChatMessage as ChatMessage,
        TokenTrace as TokenTrace,
        TokenUsage as TokenUsage,
        ToolCall as ToolCall,
    )
    from .errors import WinkError as WinkError
    from .experiment import BASELINE as BASELINE, CONTROL as CONTROL, Experiment as Experiment
    from .prompt import (
        MarkdownSection as MarkdownSection,
        Prompt as Prompt,
        PromptTemplate as PromptTemplate,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolResult as ToolResult,
    )
    from .runtime.agent.main_loop import MainLoop as MainLoop
    from .runtime.session import Session as Session
else:
    from .internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
