"""A page as one HTML file: the page, its modules, and the answers that it requests, by address.

The answers are in the file as data: JSON, gzipped and in base64, many in a part, so that nothing in
them can end a script, and opening one unpacks one part. `static/offline.js` finds them there in
place of a server. A browser loads no module from a file, so all modules become one script. The
policy of the file allows that script by its hash, no other, and no request at all.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from .. import serde
from ..internal.escaping import escape_control_chars

# The addresses of an answer of the API, and the answer.
Answer = tuple[Sequence[str], Any]
_ENTRY = "app.js"
_PART_BYTES = 400_000  # of JSON, about; opening a sample unpacks one part
_LEVEL = 4  # of gzip: 9 takes four times as long, for 6 % less
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


class PageFile:
    """Makes the file of a page, part by part; `size` is that of what is made so far, in bytes."""

    def __init__(self) -> None:
        self.size = 0

    def parts(
        self, view: str, title: str, answers: Iterable[Answer], note: Callable[[], str] = str
    ) -> Iterator[bytes]:
        """Yield the parts of a file that opens with a view (`#/run/...`).

        `note` is called after the last answer: what the file leaves out, in words.
        """
        for part in self._parts(view, title, answers, note):
            self.size += len(part)
            yield part

    def _parts(
        self, view: str, title: str, answers: Iterable[Answer], note: Callable[[], str]
    ) -> Iterator[bytes]:
        static = static_files()
        script = bundle(static, _ENTRY)
        style = "".join(
            text for name, text in sorted(static.items(), key=_base_first) if ".css" in name
        )
        policy = (
            f"default-src 'none'; script-src {hash_of(script)}; "
            f"style-src {hash_of(style)}; img-src data:; base-uri 'none'; form-action 'none'"
        )
        yield (
            "<!doctype html>\n"
            f'<html lang="en" data-view="{escape(view)}"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="referrer" content="no-referrer">\n'
            f'<title>{_attribute(title)}</title>\n<link rel="icon" href="data:,">\n'
            f"<style>{style}</style>\n</head><body>\n"
            "<noscript>This page needs JavaScript.</noscript>\n"
        ).encode("utf-8", "replace")
        index: list[list[Sequence[str]]] = []
        for addresses, part in _packed(answers):
            yield _data(f"answers-{len(index)}", part)
            index.append(addresses)
        yield _data("index", serde.encode(index))
        if left_out := note():
            yield f'<p class="notice" id="note">{_attribute(left_out)}</p>\n'.encode()
        yield f'<div id="app"></div>\n<script type="module">{script}</script>\n'.encode()
        yield b"</body></html>\n"


def _packed(answers: Iterable[Answer]) -> Iterator[tuple[list[Sequence[str]], bytes]]:
    """Yield arrays of answers as JSON, with the addresses of each."""
    addresses: list[Sequence[str]] = []
    texts: list[bytes] = []
    size = 0
    for names, answer in answers:
        addresses.append(names)
        texts.append(serde.encode(answer))
        size += len(texts[-1])
        if size >= _PART_BYTES:
            yield addresses, b"[%b]" % b",".join(texts)
            addresses, texts, size = [], [], 0
    if texts:
        yield addresses, b"[%b]" % b",".join(texts)


def _data(name: str, text: bytes) -> bytes:
    packed = b64encode(gzip.compress(text, _LEVEL, mtime=0))
    return b'<script type="text/plain" id="%b">%b</script>\n' % (name.encode(), packed)


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
    return f"'sha256-{b64encode(digest).decode()}'"


def _attribute(text: str) -> str:
    """Return a text for markup; characters that cannot be seen become their code."""
    return escape(escape_control_chars(text))
