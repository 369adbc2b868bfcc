"""Text from anywhere, made safe to show: in a terminal, in a table, on a page.

What a model, a user or a file wrote may hold escape sequences that move the cursor, and marks that
turn the reading direction round. Here they become what they are: `\\x1b`, `\\u202e`. A secret is
not shown.
"""

from __future__ import annotations

import re
from typing import Any

from .. import serde
from ..errors import SerializationError, shown
from ..secrets import scrub

__all__ = ["as_text", "visible"]

# Controls but tab and newline; marks of direction; line separators; halves of characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def visible(text: str) -> str:
    """The text with every character that is not one to read in its escaped form."""
    return _UNSAFE.sub(_escaped, scrub(text).replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def as_text(value: Any) -> str:
    """Text as it is; nothing for None; other data as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return serde.encode(value).decode()
    except SerializationError:
        return shown(value)
