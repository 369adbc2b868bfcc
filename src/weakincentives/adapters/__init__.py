"""Adapters: models of any provider behind one interface, and wrappers around them.

adapter        `ModelAdapter`: prompts in, responses out      model     one model call as data
openai, anthropic (on sdk)                                    http      any server, without an SDK
demo, scripted simulated and scripted models                  prices    cost of tokens
demo_reading   how the demo model reads a prompt              http_pool, http_stream  connections
answer_limits  of an SDK's client: size, redirects
model_names    `provider/model` to adapter
provider_retry, limits, shared, cache   wrappers: `adapter.around(retrying())`
tool_loop      the conversation: ask, call tools, ask again   wire      Chat Completions bodies
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.agent.provider import (
        AsyncProviderAdapter as AsyncProviderAdapter,
        PromptResponse as PromptResponse,
        ProviderAdapter as ProviderAdapter,
    )
    from .adapter import ModelAdapter as ModelAdapter
    from .anthropic import AnthropicAdapter as AnthropicAdapter
    from .cache import ResponseCache as ResponseCache, cached as cached
    from .demo import DemoAdapter as DemoAdapter
    from .http import HTTPAdapter as HTTPAdapter
    from .limits import Limiter as Limiter, LimiterState as LimiterState
    from .model import (
        Model as Model,
        ModelReply as ModelReply,
        ModelRequest as ModelRequest,
        ModelSettings as ModelSettings,
        ToolSpec as ToolSpec,
    )
    from .model_names import adapter_for as adapter_for
    from .openai import OpenAIAdapter as OpenAIAdapter
    from .prices import PRICES as PRICES, Price as Price, price_of as price_of
    from .provider_retry import Retry as Retry, RetryPolicy as RetryPolicy, retrying as retrying
    from .scripted import ScriptedAdapter as ScriptedAdapter, scripted_model as scripted_model
    from .shared import SharedBudget as SharedBudget, SharedLimiter as SharedLimiter
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
