"""The documentation site: it builds without warnings or broken links, and works offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.site.build import build
from scripts.site.check import broken_links, outside_requests
from scripts.site.doctests import fence_doctests
from scripts.site.navigation import expand
from scripts.site.stage import site_target, with_site_links
from tests.processes import TIMEOUT

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Build the site once, and return its path and what is wrong with it."""
    return build(tmp_path_factory.mktemp("site"))


# Tests with a browser run next to each other, so that one process builds the site for both tests.
@pytest.mark.usefixtures("browser")
def test_the_site_builds_and_needs_nothing_from_elsewhere(built: tuple[Path, list[str]]) -> None:
    site, problems = built

    assert problems == []
    api = (site / "reference/api/evals.html").read_text("utf-8")
    assert "EvalSuite" in api
    assert "ExpectedT" in api
    assert ">cast<" not in api
    assert "--fail-under" in (site / "reference/commands/eval.html").read_text("utf-8")


def test_the_search_works_in_pages_that_are_opened_as_files(
    built: tuple[Path, list[str]], browser: Browser
) -> None:
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((built[0] / "index.html").as_uri())
    page.get_by_role("button", name="Search").first.click()
    page.get_by_placeholder("Search").press_sequentially("quarantine")
    page.get_by_text("add_quarantine").first.wait_for(timeout=TIMEOUT * 1000)

    assert page.get_by_placeholder("Search").input_value() == "quarantine"
    assert [url for url in requests if not url.startswith("file:")] == []
    page.close()


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1> <a href="b.html">1</a> <a href="#top">2</a> <a href="#nowhere">3</a>'
        '<a href="a.html#gone">4</a> <img src="c.png"> <a href="https://example.org/x">5</a>'
    )

    assert broken_links(tmp_path) == [
        "a.html: no such anchor: #nowhere",
        "a.html: no such anchor: a.html#gone",
        "a.html: no such file: b.html",
        "a.html: no such file: c.png",
    ]


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="stylesheet" href="//example.org/x.css">',
        '<style>@import "https://example.org/x.css"</style>',
        '<img srcset="a.png 1x, https://example.org/b.png 2x">',
    ],
)
def test_a_request_to_another_site_is_found(html: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(html)

    assert len(outside_requests(tmp_path)) == 1


def test_a_link_to_another_site_is_not_a_request(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org/">x</a> <link rel="canonical" href="https://example.org/">'
    )

    assert outside_requests(tmp_path) == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../ci.md#pytest", "../ci.md#pytest"),
        ("../../ARCHITECTURE.md", "../concepts/architecture.md"),
        ("../../examples/math", "../examples/math.md"),
        ("../../examples/math/eval.py#L3", None),
        ("../../src/weakincentives/errors.py", None),
        ("#below", "#below"),
        ("https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_a_link_leads_to_the_page_of_its_target(target: str, expected: str | None) -> None:
    assert site_target(target, "docs/guides/a.md", "guides/a.md") == expected


def test_links_in_code_stay_as_they_are() -> None:
    text = "[a](../b.md)\n```python\nx[0](../src/y)\n```\n[code](../src/y.py)\n"

    assert with_site_links(text, "docs/a.md", "a.md") == (
        "a\n```python\nx[0](../src/y)\n```\ncode\n"
    )


def test_a_pattern_takes_the_pages_that_are_named_nowhere_else() -> None:
    nav = ["index.md", {"Guides": ["b.md", "g/*.md", "none*.md"]}, {"Empty": ["x/*.md"]}]
    pages = ["index.md", "b.md", "g/2.md", "g/1.md"]

    assert expand(nav, pages, str) == ["index.md", {"Guides": ["b.md", "g/1.md", "g/2.md"]}]


@pytest.mark.parametrize("pages", [["index.md"], ["index.md", "b.md", "lost.md"]])
def test_a_page_that_is_missing_or_lost_stops_the_build(pages: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"b\.md|lost\.md"):
        expand(["index.md", "b.md"], pages, str)


def test_a_doctest_is_fenced() -> None:
    assert fence_doctests("Add.\n\n>>> 1 + 1\n2\n\nEnd.") == (
        "Add.\n\n\n```pycon\n>>> 1 + 1\n2\n```\n\n\nEnd."
    )
