"""Check the built pages: every link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {  # attributes whose address a browser loads by itself
    **dict.fromkeys(("script", "img", "iframe", "source", "embed", "video", "audio"), "src"),
    "link": "href",
    "object": "data",
}
PASSIVE_LINKS = {"canonical", "next", "prev", "alternate"}  # a browser does not load these
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class _Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = IN_STYLES.findall(text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes.get("id", ""), attributes.get("name", "")}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag == "link" and set(attributes.get("rel", "").split()) & PASSIVE_LINKS:
            return
        elif tag in LOADING and attributes.get(LOADING[tag]):
            self.loads.append(attributes[LOADING[tag]])
        self.loads += [part.split()[0] for part in attributes.get("srcset", "").split(",") if part]


@cache
def _parse(text: str) -> _Page:
    """Parse a page once, for both checks."""
    return _Page(text)


def is_outside(address: str) -> bool:
    """Return whether an address leads to another site."""
    return bool(urlsplit(address).netloc)


def broken_links(site: Path) -> list[str]:
    """Return each link, picture, script and style of the pages that leads to nothing."""
    pages = {path: _parse(path.read_text("utf-8")) for path in site.rglob("*.html")}
    problems = []
    for path, page in pages.items():
        for address in {*page.links, *page.loads}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists():
                problems.append(f"{path.relative_to(site)}: no such file: {address}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                problems.append(f"{path.relative_to(site)}: no such anchor: {address}")
    return sorted(problems)


def outside_requests(site: Path) -> list[str]:
    """Return what the pages and their styles would load from other machines."""
    problems = []
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text("utf-8")
        loads = _parse(text).loads if path.suffix == ".html" else IN_STYLES.findall(text)
        problems += [f"{path.relative_to(site)}: {url}" for url in loads if is_outside(url)]
    return sorted(problems)
