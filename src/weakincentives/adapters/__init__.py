"""Who answers: adapters for providers' models, and what can be put around them."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
from ..runtime.provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
from ._adapter import ModelAdapter
from ._model import Model, ModelReply, ModelRequest, ModelSettings, ToolSpec
from .scripted import ScriptedAdapter, scripted_model

if TYPE_CHECKING:
    from ._names import adapter_for
    from ._prices import PRICES, Price, price_of
    from .anthropic import AnthropicAdapter
    from .cache import ResponseCache, cached
    from .demo import DemoAdapter
    from .http import HTTPAdapter
    from .limits import Limiter, LimiterState
    from .openai import OpenAIAdapter
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

__getattr__, __dir__ = _lazily(
    __name__,
    {
        **dict.fromkeys(("PRICES", "Price", "price_of"), "._prices"),
        **dict.fromkeys(("ResponseCache", "cached"), ".cache"),
        **dict.fromkeys(("Limiter", "LimiterState"), ".limits"),
        **dict.fromkeys(("Retry", "RetryPolicy", "retrying"), ".retry"),
        **dict.fromkeys(("SharedBudget", "SharedLimiter"), ".shared"),
        "AnthropicAdapter": ".anthropic",
        "DemoAdapter": ".demo",
        "HTTPAdapter": ".http",
        "OpenAIAdapter": ".openai",
        "adapter_for": "._names",
    },
)
