"""A view as one HTML file: the page, its modules, and the answers that it requested.

The page keeps the addresses that it has requested. To share a view, it sends this list;
the server answers each of them again and writes them into the file as data. There the page finds
them in place of a server. A browser loads no module from a file, so all of them become one script.
The policy of the file allows that script by its hash, no other, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from .. import serde

_ENTRY = "app.js"
_IMPORT = re.compile(r'^import (?:\{(?P<names>[^}]*)\} from )?"\./(?P<file>[\w.]+)";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.M)


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
    data = serde.encode({"view": view, "answers": dict(answers)}).decode()
    script = bundle(static, _ENTRY)
    style = "".join(
        text for name, text in sorted(static.items(), key=_base_first) if ".css" in name
    )
    policy = (
        f"default-src 'none'; script-src {hash_of(script)}; "
        f"style-src {hash_of(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n"
        f'<html lang="en" data-shared><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n"
        f'</head><body><div id="app"></div>\n'
        f'<script type="application/json" id="shared">{_in_script(data)}</script>\n'
        f'<script type="module">{script}</script>\n</body></html>\n'
    )


def _base_first(file: tuple[str, str]) -> tuple[bool, str]:
    """Sort `view.css` before the style sheets that build on it."""
    return file[0] != "view.css", file[0]


def bundle(files: Mapping[str, str], entry: str) -> str:
    """Return one script that does what a module does: each that it imports is a function in it."""
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        parts[name] = ""  # its place is after those that it imports
        text, imported = files[name], []
        for match in _IMPORT.finditer(text):
            add(match["file"])
            if match["names"]:
                imported.append(f'const {{{match["names"]}}} = modules["{match["file"]}"];\n')
        exported = ", ".join(_EXPORT.findall(text))
        body = _EXPORT.sub("", _IMPORT.sub("", text))
        del parts[name]
        parts[name] = (
            f'modules["{name}"] = (() => {{\n{"".join(imported)}{body}\nreturn {{ {exported} }};\n'
            "})();\n"
        )

    add(entry)
    return "const modules = {};\n" + "".join(parts.values())


def hash_of(text: str) -> str:
    """Return the source of a policy that allows this inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _in_script(data: str) -> str:
    """Return JSON in which nothing can end a script element."""
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return data
