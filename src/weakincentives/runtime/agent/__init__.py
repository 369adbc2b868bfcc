"""The main loop, and the adapters that it calls.

provider       the protocol of a provider's adapter
adapter_calls  how any adapter is called, and its usage counted
main_loop      `MainLoop`
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .main_loop import MainLoop, MainLoopConfig, MainLoopRequest, MainLoopResult
    from .provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter

__all__ = [
    "AsyncProviderAdapter",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "PromptResponse",
    "ProviderAdapter",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".main_loop": "MainLoop MainLoopConfig MainLoopRequest MainLoopResult",
        ".provider": "AsyncProviderAdapter PromptResponse ProviderAdapter",
    },
)
