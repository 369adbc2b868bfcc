"""The main loop, and the adapters that it calls.

provider       the protocol of a provider's adapter
adapter_calls  how any adapter is called, and its usage counted
main_loop      `MainLoop`
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .main_loop import (
        MainLoop as MainLoop,
        MainLoopConfig as MainLoopConfig,
        MainLoopRequest as MainLoopRequest,
        MainLoopResult as MainLoopResult,
    )
    from .provider import (
        AsyncProviderAdapter as AsyncProviderAdapter,
        PromptResponse as PromptResponse,
        ProviderAdapter as ProviderAdapter,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
