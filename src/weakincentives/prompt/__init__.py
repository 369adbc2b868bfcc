"""Prompts: sections with placeholders, templates with typed output, tools with typed parameters."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .output import output_schema as output_schema, parse_output as parse_output
    from .section import MarkdownSection as MarkdownSection
    from .template import (
        Prompt as Prompt,
        PromptTemplate as PromptTemplate,
        RenderedPrompt as RenderedPrompt,
    )
    from .tool import Tool as Tool, ToolContext as ToolContext, ToolResult as ToolResult
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
