"""Make untrusted text safe to display: in a terminal, in a table, on a page.

Text of a model, a user or a file may contain escape sequences that move the cursor, and marks that
reverse the reading direction. They are displayed as escapes: `\\x1b`, `\\u202e`. Secrets are
redacted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .. import serde
from ..errors import SerializationError, short_repr
from ..secrets import redact

# Control characters but tab and newline; direction marks; line separators; surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def escape_control_chars(text: str) -> str:
    """Return the redacted text with every unprintable character escaped."""
    return _UNSAFE.sub(_escaped, redact(text).replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return foreign text in one line, with control characters escaped."""
    return escape_control_chars(" ".join(text.split()))


def escape_all(texts: list[str]) -> list[str]:
    """Apply `escape_control_chars` to each text; fast if none of them changes."""
    together = "\n".join(texts)
    if escape_control_chars(together) != together:
        return [escape_control_chars(text) for text in texts]
    # A secret in the escapes of JSON is found only if a text is JSON as a whole.
    return [text if text[:1].isalnum() else escape_control_chars(text) for text in texts]


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def as_text(value: Any) -> str:
    """Return text unchanged, "" for None, and other data as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return serde.encode(value).decode()
    except SerializationError:
        return short_repr(value)


# The first character that counts; programs differ in what they skip in front of it.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\x00-\x1f\"'`‘’“”\u200b-\u200d\u2060\ufeff]*[=+\-@＝＋－＠]"
).match
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z").match


def spreadsheet_cells(cells: Sequence[str | None]) -> list[str]:
    """Return cells that a spreadsheet shows and does not run; None is empty."""
    if not any(cells):
        return [""] * len(cells)
    texts = [cell or "" for cell in cells]
    return [
        escaped if text[:1].isalnum() or not _FORMULA(text) or _NUMBER(text) else f"'{escaped}"
        for text, escaped in zip(texts, escape_all(texts), strict=True)
    ]
