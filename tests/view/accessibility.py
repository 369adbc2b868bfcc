"""Checks for every screen: accessible in light and dark mode, and no wider than a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["accessibility_problems", "width_on_a_phone"]

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
READY = "main:not([aria-busy]) h1"
OPTIONS = {
    "runOnly": ["wcag2a", "wcag2aa", "best-practice"],
    "resultTypes": ["violations"],  # a list of everything that is right takes longer
}


def accessibility_problems(page: Page, ready: str = READY) -> list[Any]:
    """Return the serious problems that axe finds in the page, in light and in dark."""
    from axe_playwright_python.sync_playwright import Axe

    problems = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(ready)
        page.wait_for_timeout(200)  # until transitions have ended
        assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        checked = Axe().run(page, options=OPTIONS)
        problems += [
            (scheme, each["id"], [node["target"] for node in each["nodes"]][:3])
            for each in checked.response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    return problems


def width_on_a_phone(page: Page, ready: str = READY) -> int:
    """Return how wide the page is, in light or in dark, if it is loaded on a phone."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.reload()
    widths: list[int] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(ready)
        widths.append(page.evaluate("document.documentElement.scrollWidth"))
    return max(widths)
