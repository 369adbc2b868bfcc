"""Read what a page that is a file has inside."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from html import unescape
from pathlib import Path
from typing import Any

__all__ = ["answers_in", "policy_of"]


def answers_in(file: Path) -> dict[str, Any]:
    """Return every answer in a file by each of its addresses."""
    packed = dict(re.findall(r'<script type="text/plain" id="([^"]+)">([^<]*)<', file.read_text()))
    parts = {name: json.loads(gzip.decompress(b64decode(text))) for name, text in packed.items()}
    return {
        address: answer
        for number, names in enumerate(parts["index"])
        for addresses, answer in zip(names, parts[f"answers-{number}"], strict=True)
        for address in addresses
    }


def policy_of(file: Path) -> dict[str, str]:
    """Return the parts of the content security policy of a file by name."""
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', file.read_text())
    assert found
    return dict(part.strip().split(" ", 1) for part in unescape(found[1]).split(";"))
