"""Who answers: adapters for providers' models, and what can be put around them."""

from ..runtime.provider import AsyncProviderAdapter, PromptResponse, ProviderAdapter
from ._adapter import ModelAdapter
from ._model import Model, ModelReply, ModelRequest, ModelSettings, ToolSpec
from .scripted import ScriptedAdapter, scripted_model

__all__ = [
    "AsyncProviderAdapter",
    "Model",
    "ModelAdapter",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "PromptResponse",
    "ProviderAdapter",
    "ScriptedAdapter",
    "ToolSpec",
    "scripted_model",
]
