"""Adapters: models of any provider behind one interface, and wrappers around them.

adapter        `ModelAdapter`: prompts in, responses out      model     one model call as data
openai, anthropic (on sdk)                                    http      any server, without an SDK
demo, scripted simulated and scripted models                  names     `provider/model` to adapter
retry, limits, shared, cache   wrappers: `adapter.around(retrying())`   prices  cost of tokens
tool_loop      the conversation: ask, call tools, ask again   wire      Chat Completions bodies
"""

from typing import TYPE_CHECKING

from ..internal.lazy import lazy_exports as _lazy_exports
from ..runtime.agent.provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
from .adapter import ModelAdapter
from .model import Model, ModelReply, ModelRequest, ModelSettings, ToolSpec
from .scripted import ScriptedAdapter, scripted_model

if TYPE_CHECKING:
    from .anthropic import AnthropicAdapter
    from .cache import ResponseCache, cached
    from .demo import DemoAdapter
    from .http import HTTPAdapter
    from .limits import Limiter, LimiterState
    from .names import adapter_for
    from .openai import OpenAIAdapter
    from .prices import PRICES, Price, price_of
    from .retry import Retry, RetryPolicy, retrying
    from .shared import SharedBudget, SharedLimiter

__all__ = [
    "PRICES",
    "AnthropicAdapter",
    "AsyncProviderAdapter",
    "DemoAdapter",
    "HTTPAdapter",
    "Limiter",
    "LimiterState",
    "Model",
    "ModelAdapter",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "OpenAIAdapter",
    "Price",
    "PromptResponse",
    "ProviderAdapter",
    "ResponseCache",
    "Retry",
    "RetryPolicy",
    "ScriptedAdapter",
    "SharedBudget",
    "SharedLimiter",
    "ToolSpec",
    "adapter_for",
    "cached",
    "price_of",
    "retrying",
    "scripted_model",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".anthropic": "AnthropicAdapter",
        ".cache": "ResponseCache cached",
        ".demo": "DemoAdapter",
        ".http": "HTTPAdapter",
        ".limits": "Limiter LimiterState",
        ".names": "adapter_for",
        ".openai": "OpenAIAdapter",
        ".prices": "PRICES Price price_of",
        ".retry": "Retry RetryPolicy retrying",
        ".shared": "SharedBudget SharedLimiter",
    },
)
