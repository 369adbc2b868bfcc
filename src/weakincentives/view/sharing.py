"""A view as one HTML file: the page, its modules, and the answers that it requested.

The page keeps the addresses that it has requested. To share a view, it sends this list;
the server answers each of them again and writes them into the file as data. There the page finds
them in place of a server. Modules become `data:` addresses in an import map, since a browser loads
no module from a file. The policy of the file allows no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from .. import serde

_ENTRY = "app.js"


def static_files() -> dict[str, str]:
    """Return the names and texts of the page's own files."""
    folder = files(__package__) / "static"
    return {
        each.name: each.read_text("utf-8")
        for each in folder.iterdir()
        if each.name.endswith((".js", ".css", ".html", ".svg"))
    }


def share(view: str, answers: Mapping[str, Any], title: str) -> str:
    """Return an HTML document that shows the view (`#/run/...`) from these answers."""
    static = static_files()
    modules = {
        f"wink/{name}": "data:text/javascript;base64," + _base64(_renamed(text, static).encode())
        for name, text in static.items()
        if name.endswith(".js")
    }
    import_map = json.dumps({"imports": modules})
    data = serde.encode({"view": view, "answers": dict(answers)}).decode()
    start = f'import "wink/{_ENTRY}";'
    style = "".join(
        text for name, text in sorted(static.items(), key=_base_first) if ".css" in name
    )
    policy = (
        f"default-src 'none'; script-src {_hash(import_map)} {_hash(start)} data:; "
        f"style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n"
        f'<html lang="en" data-shared><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n"
        f'<script type="importmap">{import_map}</script>\n'
        f'</head><body><div id="app"></div>\n'
        f'<script type="application/json" id="shared">{_in_script(data)}</script>\n'
        f'<script type="module">{start}</script>\n</body></html>\n'
    )


def _base_first(file: tuple[str, str]) -> tuple[bool, str]:
    """Sort `view.css` before the style sheets that build on it."""
    return file[0] != "view.css", file[0]


def _renamed(text: str, static: Mapping[str, str]) -> str:
    """Let modules import one another by the names of the import map."""
    for name in static:
        text = text.replace(f'"./{name}"', f'"wink/{name}"')
    return text


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _hash(text: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def _in_script(data: str) -> str:
    """Return JSON in which nothing can end a script element."""
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return data
