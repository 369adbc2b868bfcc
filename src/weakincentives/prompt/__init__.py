"""Prompts: sections with placeholders, templates with typed output, tools with typed parameters."""

from __future__ import annotations

from .output import output_schema, parse_output
from .section import MarkdownSection
from .template import Prompt, PromptTemplate, RenderedPrompt
from .tool import Tool, ToolContext, ToolResult

__all__ = [
    "MarkdownSection",
    "Prompt",
    "PromptTemplate",
    "RenderedPrompt",
    "Tool",
    "ToolContext",
    "ToolResult",
    "output_schema",
    "parse_output",
]
