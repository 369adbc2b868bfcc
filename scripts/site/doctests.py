"""Fence the doctests of docstrings, so that the pages of the API show them as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# From `>>>` to the next empty line.
DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *\n| *\Z).*)*", re.MULTILINE)


def fence_doctests(text: str) -> str:
    """Return a docstring with a fence around each doctest."""

    def fenced(match: re.Match[str]) -> str:
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match[0].split("\n")]
        return "\n".join(["", "```pycon", *lines, "```", ""])

    return DOCTEST.sub(fenced, text)


class FenceDoctests(Extension):
    """Fences the doctests of each object that griffe reads."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)
