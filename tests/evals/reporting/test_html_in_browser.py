"""The page of a run in a real browser: it opens offline, and everything on it works."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.stored_runs import answer, broken, conversation, folder, stored
from weakincentives.evals import EvalResult, Metric, RunStore, Score, Trajectory
from weakincentives.evals.reporting.html import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["folder"]

Open = Callable[..., "Page"]
NAMES = ("exact_match", "brevity_of_the_answer")


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Open]:
    """Write the page of a run and open it; in the end nothing was loaded, nothing complained."""
    said: list[str] = []
    pages: list[Page] = []

    def go(run_id: str, compare: str | None = None, hash: str = "", **how: Any) -> Page:
        with RunStore() as store:
            write_page(store, run_id, folder / "report.html", compare)
        page = browser.new_page(**how)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda r: said.append(r.url) if r.url.startswith("http") else None)
        page.goto((folder / "report.html").as_uri() + hash)
        if page.locator("#samples-table").count():
            page.locator("#samples-table tbody tr").first.wait_for()
        return page

    yield go
    for page in pages:
        page.close()
    assert said == []


def names(page: Page) -> list[str]:
    return page.locator("#samples-table button.opens").all_inner_texts()


def many(n: int) -> list[EvalResult[Any]]:
    return [
        broken(f"s{i:04}", "late")
        if i % 50 == 7
        else answer(f"s{i:04}", "Paris" if i % 3 else "Rome")
        for i in range(n)
    ]


def test_a_sample_opens_to_its_conversation_by_keyboard(opened: Open) -> None:
    result, session = conversation()
    stored("r1", result, session=session)
    page = opened("r1")
    page.locator("button.opens").focus()
    page.keyboard.press("Enter")
    sheet = page.locator(".sheet")
    sheet.wait_for()
    assert page.locator("button.opens").get_attribute("aria-expanded") == "true"
    told = sheet.inner_text()
    for text in ("Capital of France?", "calls search call_1", '{"q":"France"}', "ToolInvoked"):
        assert text in told
    assert "7 tokens (5 in, 2 out), $0.25" in told
    page.keyboard.press("Enter")
    sheet.wait_for(state="hidden")


def test_samples_are_filtered_by_verdict_and_by_text(opened: Open) -> None:
    stored("r1", answer("a"), answer("b", "Rome, of course"), broken("c", "late"))
    page = opened("r1")
    assert names(page) == ["a", "b", "c"]
    for kind, expected in (("fail", ["b"]), ("error", ["c"]), ("pass", ["a"])):
        page.get_by_label("Show").select_option(kind)
        page.get_by_text("1 of 3 samples").wait_for()
        assert names(page) == expected
    page.get_by_label("Show").select_option("")
    page.get_by_label("Search").fill("of COURSE")
    page.get_by_text("1 of 3 samples").wait_for()
    assert names(page) == ["b"]


def test_columns_sort_both_ways_and_say_so(opened: Open) -> None:
    stored(
        "r1",
        *(
            replace(answer(name), latency_ms=ms)
            for name, ms in zip("abc", (20, 5, 90), strict=True)
        ),
    )
    page = opened("r1")
    head = page.locator("th", has=page.get_by_role("button", name="Latency"))
    for order, expected in (("ascending", "bac"), ("descending", "cab"), ("none", "abc")):
        head.get_by_role("button").click()
        page.locator(f'th[aria-sort="{order}"]', has_text="Latency").wait_for()
        assert names(page) == list(expected)


def test_a_thousand_samples_come_by_the_page(opened: Open) -> None:
    stored("r1", *many(1000))
    page = opened("r1")
    assert len(names(page)) == 50
    page.get_by_role("button", name="Next").click()
    page.get_by_text("Page 2 of 20").wait_for()
    assert names(page)[0] == "s0050"


def test_an_error_leads_to_its_first_sample(opened: Open) -> None:
    stored("r1", *many(100), broken("last", "the rare one"))
    page = opened("r1")
    page.get_by_role("link", name="last").click()
    page.locator(".sheet").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "last"
    assert "the rare one" in page.locator(".sheet").inner_text()


def test_flips_open_side_by_side(opened: Open) -> None:
    stored("before", answer("a", "Rome"), answer("b"), answer("c"))
    stored("after", answer("a", "Paris!"), answer("b", "Nice"), answer("c"))
    page = opened("after", compare="before")
    flips = page.locator("#flips-table")
    assert flips.locator("button.opens").all_inner_texts() == ["a", "b"]
    flips.locator("button.opens").first.click()
    flips.locator(".sides").wait_for()
    old, new = flips.locator(".sheet").all_inner_texts()
    assert old.startswith("A: fail")
    assert "Rome" in old
    assert new.startswith("B: pass")
    assert "Paris!" in new


def test_a_flip_shows_criteria_and_reasons_and_what_is_shared_once(opened: Open) -> None:
    stored("before", answer("a", "It is Rome, I think."))
    stored("after", answer("a", "It is Paris, I think."))
    page = opened("after", compare="before")
    page.locator("#flips-table button.opens").click()
    below = page.locator("#flips-table .below")
    below.locator(".sides").wait_for()
    assert below.get_by_role("heading", name="Input").count() == 1
    assert below.locator("del").inner_text() == "Rome"
    assert below.locator("ins").inner_text() == "Paris"
    criteria = below.locator(".shared tbody tr").inner_text()
    assert "contains" in criteria
    assert "expected it to contain 'Paris'" in criteria


def test_flips_by_sample_link_to_both_sides(opened: Open) -> None:
    stored("before", *(answer("a b", "Rome", epoch=epoch) for epoch in (1, 2)))
    stored("after", answer("a b", "Paris"))
    page = opened("after", compare="before")
    page.locator("#flips").get_by_role("link", name="a b").click()
    page.locator(".sides").wait_for()
    old, new = page.locator(".sheet").all_inner_texts()
    assert old.startswith("A: fail")
    assert new.startswith("B: pass")


def test_an_epoch_of_a_sample_has_an_address(opened: Open) -> None:
    stored("r1", *(answer("a+b", text, epoch=e) for e, text in ((1, "Paris"), (2, "Rome"))))
    page = opened("r1")
    page.locator("button.opens").nth(1).click()
    page.locator(".sheet", has_text="epoch 2").wait_for()
    address = page.evaluate("location.hash")
    assert address == "#sample=a%2Bb&epoch=2"
    again = opened("r1", hash=address)
    again.locator(".sheet", has_text="epoch 2").wait_for()
    assert again.locator(".sheet").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_any_screen_in_any_light(opened: Open, scheme: str, width: int) -> None:
    result, session = conversation()
    long = replace(answer("x" * 300, "y" * 5_000), metadata={"z" * 100: "w" * 100})
    stored("before", answer("fr", "Rome"), long)
    stored("after", result, long, broken("e", "v" * 500), session=session)
    page = opened("after", "before", viewport={"width": width, "height": 900}, color_scheme=scheme)
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".sheet").nth(4).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


BROKEN_WORDS = """cells => cells.flatMap(cell => {
  const found = [], walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = new Range();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getClientRects().length > 1) found.push(word[0]);
    }
  }
  return found;
})"""


def test_on_a_phone_no_word_of_a_table_is_broken_and_nothing_runs_out(opened: Open) -> None:
    def run(text: str) -> list[EvalResult[Any]]:
        score = Score(metrics=[Metric(name, float(text == "Paris")) for name in NAMES])
        return [answer(f"q-{n:04}", text, epoch=e, score=score) for n in range(9) for e in (1, 2)]

    stored("20260102-030405-before", *run("Rome"), dataset_name="rivers", model="demo/large")
    stored("20260102-040506-after", *run("Paris"), dataset_name="rivers", model="demo/large")
    phone = {"width": 390, "height": 900}
    page = opened("20260102-040506-after", "20260102-030405-before", viewport=phone)
    assert page.locator("#comparison :is(th, td)").evaluate_all(BROKEN_WORDS) == []
    assert page.locator("#criteria :is(th, td)").evaluate_all(BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_table_has_heads_for_its_columns_and_rows(opened: Open) -> None:
    result, session = conversation()
    stored("before", answer("fr", "Rome"), broken("e"))
    stored("after", result, broken("e"), session=session)
    page = opened("after", "before")
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".events").nth(1).wait_for()
    heads = "all => all.map(t => t.querySelectorAll('thead th[scope=col]').length)"
    assert all(page.locator("table").evaluate_all(heads))
    empty = "all => all.filter(head => !head.textContent.trim()).length"
    assert page.locator("thead th").evaluate_all(empty) == 0


def test_costs_of_a_column_have_the_same_digits(opened: Open) -> None:
    costs = (0.00642, 0.00005, 0.006)
    spent = [Trajectory(output="Paris", cost=cost) for cost in costs]
    stored("r1", *(answer(f"s{n}", trajectory=each) for n, each in enumerate(spent)))
    told = opened("r1").locator("#samples-table td:last-child:visible").all_inner_texts()
    assert told == ["$0.00642", "$0.00005", "$0.00600"]


def test_a_long_id_is_short_until_it_is_opened(opened: Open) -> None:
    stored("r1", answer("x" * 500))
    page = opened("r1")
    button = page.locator("button.opens")
    closed = button.bounding_box()
    button.click()
    page.locator(".sheet").wait_for()
    open_ = button.bounding_box()
    assert closed is not None
    assert open_ is not None
    assert closed["height"] < 100 < open_["height"]


def test_hostile_text_is_shown_and_does_nothing(opened: Open) -> None:
    bad = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u202e\u2028"
    stored("r1", answer(bad, bad), broken("e", bad), dataset_name=bad)
    page = opened("r1")
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".sheet").nth(1).wait_for()
    assert page.locator("img").count() == 0
    assert "owned" not in page.title().split("-")[-1]
    assert bad[:-2] + "\\u202e\\u2028" in page.locator(".sheet").first.inner_text()


def test_an_empty_run_has_a_page(opened: Open) -> None:
    stored("r1")
    page = opened("r1")
    assert page.get_by_text("No sample has a result yet.").is_visible()


def test_everything_has_a_name_and_headings_go_down_by_one(opened: Open) -> None:
    stored("r1", *many(60))
    page = opened("r1")
    page.locator("button.opens").first.click()
    page.locator(".sheet").wait_for()
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    unnamed = "all => all.filter(e => !(e.textContent.trim() || e.labels?.length)).length"
    assert page.locator("button, select, input, a").evaluate_all(unnamed) == 0
    assert page.locator("header, main").count() == 2


def test_printed_it_has_no_controls(opened: Open) -> None:
    stored("r1", *many(60))
    page = opened("r1")
    page.emulate_media(media="print")
    assert not page.get_by_label("Show").is_visible()
    assert page.get_by_role("heading", name="Samples").is_visible()
