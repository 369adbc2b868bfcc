"""The HTML report of a run in a real browser: it opens offline, and everything on it works."""

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
def open_report(browser: Browser, folder: Path) -> Iterator[Open]:
    """Return a function that opens the report of a run; fail on requests and console messages."""
    unexpected: list[str] = []
    pages: list[Page] = []

    def write_and_open(
        run_id: str, compare: str | None = None, hash: str = "", **options: Any
    ) -> Page:
        with RunStore() as store:
            write_page(store, run_id, folder / "report.html", compare)
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: unexpected.append(message.text))
        page.on("pageerror", lambda error: unexpected.append(str(error)))
        page.on("request", lambda r: unexpected.append(r.url) if r.url.startswith("http") else None)
        page.goto((folder / "report.html").as_uri() + hash)
        if page.locator("#samples-table").count():
            page.locator("#samples-table tbody tr").first.wait_for()
        return page

    yield write_and_open
    for page in pages:
        page.close()
    assert unexpected == []


def listed_samples(page: Page) -> list[str]:
    return page.locator("#samples-table button.opens").all_inner_texts()


def results_with_errors(n: int) -> list[EvalResult[Any]]:
    return [
        broken(f"s{i:04}", "late")
        if i % 50 == 7
        else answer(f"s{i:04}", "Paris" if i % 3 else "Rome")
        for i in range(n)
    ]


def test_a_sample_opens_to_its_conversation_by_keyboard(open_report: Open) -> None:
    result, session = conversation()
    stored("r1", result, session=session)
    page = open_report("r1")
    page.locator("button.opens").focus()
    page.keyboard.press("Enter")
    sheet = page.locator(".sheet")
    sheet.wait_for()
    assert page.locator("button.opens").get_attribute("aria-expanded") == "true"
    text = sheet.inner_text()
    for expected in ("Capital of France?", "calls search call_1", '{"q":"France"}', "ToolInvoked"):
        assert expected in text
    assert "7 tokens (5 in, 2 out), $0.25" in text
    page.keyboard.press("Enter")
    sheet.wait_for(state="hidden")


def test_samples_are_filtered_by_verdict_and_by_text(open_report: Open) -> None:
    stored("r1", answer("a"), answer("b", "Rome, of course"), broken("c", "late"))
    page = open_report("r1")
    assert listed_samples(page) == ["a", "b", "c"]
    for kind, expected in (("fail", ["b"]), ("error", ["c"]), ("pass", ["a"])):
        page.get_by_label("Show").select_option(kind)
        page.get_by_text("1 of 3 samples").wait_for()
        assert listed_samples(page) == expected
    page.get_by_label("Show").select_option("")
    page.get_by_label("Search").fill("of COURSE")
    page.get_by_text("1 of 3 samples").wait_for()
    assert listed_samples(page) == ["b"]


def test_columns_sort_both_ways_and_have_aria_sort(open_report: Open) -> None:
    stored(
        "r1",
        *(
            replace(answer(name), latency_ms=ms)
            for name, ms in zip("abc", (20, 5, 90), strict=True)
        ),
    )
    page = open_report("r1")
    header = page.locator("th", has=page.get_by_role("button", name="Latency"))
    for order, expected in (("ascending", "bac"), ("descending", "cab"), ("none", "abc")):
        header.get_by_role("button").click()
        page.locator(f'th[aria-sort="{order}"]', has_text="Latency").wait_for()
        assert listed_samples(page) == list(expected)


def test_a_thousand_samples_are_split_into_pages(open_report: Open) -> None:
    stored("r1", *results_with_errors(1000))
    page = open_report("r1")
    assert len(listed_samples(page)) == 50
    page.get_by_role("button", name="Next").click()
    page.get_by_text("Page 2 of 20").wait_for()
    assert listed_samples(page)[0] == "s0050"


def test_an_error_links_to_its_first_sample(open_report: Open) -> None:
    stored("r1", *results_with_errors(100), broken("last", "the rare one"))
    page = open_report("r1")
    page.get_by_role("link", name="last").click()
    page.locator(".sheet").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "last"
    assert "the rare one" in page.locator(".sheet").inner_text()


def test_flips_open_side_by_side(open_report: Open) -> None:
    stored("before", answer("a", "Rome"), answer("b"), answer("c"))
    stored("after", answer("a", "Paris!"), answer("b", "Nice"), answer("c"))
    page = open_report("after", compare="before")
    flips = page.locator("#flips-table")
    assert flips.locator("button.opens").all_inner_texts() == ["a", "b"]
    flips.locator("button.opens").first.click()
    flips.locator(".sides").wait_for()
    old, new = flips.locator(".sheet").all_inner_texts()
    assert old.startswith("A: fail")
    assert "Rome" in old
    assert new.startswith("B: pass")
    assert "Paris!" in new


def test_a_flip_shows_criteria_and_reasons_and_the_shared_input_once(open_report: Open) -> None:
    stored("before", answer("a", "It is Rome, I think."))
    stored("after", answer("a", "It is Paris, I think."))
    page = open_report("after", compare="before")
    page.locator("#flips-table button.opens").click()
    details = page.locator("#flips-table .below")
    details.locator(".sides").wait_for()
    assert details.get_by_role("heading", name="Input").count() == 1
    assert details.locator("del").inner_text() == "Rome"
    assert details.locator("ins").inner_text() == "Paris"
    criteria = details.locator(".shared tbody tr").inner_text()
    assert "contains" in criteria
    assert "expected it to contain 'Paris'" in criteria


def test_flips_by_sample_link_to_both_sides(open_report: Open) -> None:
    stored("before", *(answer("a b", "Rome", epoch=epoch) for epoch in (1, 2)))
    stored("after", answer("a b", "Paris"))
    page = open_report("after", compare="before")
    page.locator("#flips").get_by_role("link", name="a b").click()
    page.locator(".sides").wait_for()
    old, new = page.locator(".sheet").all_inner_texts()
    assert old.startswith("A: fail")
    assert new.startswith("B: pass")


def test_an_epoch_of_a_sample_has_its_own_link(open_report: Open) -> None:
    stored("r1", *(answer("a+b", text, epoch=e) for e, text in ((1, "Paris"), (2, "Rome"))))
    page = open_report("r1")
    page.locator("button.opens").nth(1).click()
    page.locator(".sheet", has_text="epoch 2").wait_for()
    fragment = page.evaluate("location.hash")
    assert fragment == "#sample=a%2Bb&epoch=2"
    reopened = open_report("r1", hash=fragment)
    reopened.locator(".sheet", has_text="epoch 2").wait_for()
    assert reopened.locator(".sheet").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_any_screen_in_light_and_dark(open_report: Open, scheme: str, width: int) -> None:
    result, session = conversation()
    long_result = replace(answer("x" * 300, "y" * 5_000), metadata={"z" * 100: "w" * 100})
    stored("before", answer("fr", "Rome"), long_result)
    stored("after", result, long_result, broken("e", "v" * 500), session=session)
    page = open_report(
        "after", "before", viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".sheet").nth(4).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")


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


def test_on_a_phone_no_word_in_a_table_is_broken_and_nothing_overflows(open_report: Open) -> None:
    def results(text: str) -> list[EvalResult[Any]]:
        score = Score(metrics=[Metric(name, float(text == "Paris")) for name in NAMES])
        return [answer(f"q-{n:04}", text, epoch=e, score=score) for n in range(9) for e in (1, 2)]

    stored("20260102-030405-before", *results("Rome"), dataset_name="rivers", model="demo/large")
    stored("20260102-040506-after", *results("Paris"), dataset_name="rivers", model="demo/large")
    phone = {"width": 390, "height": 900}
    page = open_report("20260102-040506-after", "20260102-030405-before", viewport=phone)
    assert page.locator("#comparison :is(th, td)").evaluate_all(BROKEN_WORDS) == []
    assert page.locator("#criteria :is(th, td)").evaluate_all(BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_table_has_column_headers(open_report: Open) -> None:
    result, session = conversation()
    stored("before", answer("fr", "Rome"), broken("e"))
    stored("after", result, broken("e"), session=session)
    page = open_report("after", "before")
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".events").nth(1).wait_for()
    count_headers = "all => all.map(t => t.querySelectorAll('thead th[scope=col]').length)"
    assert all(page.locator("table").evaluate_all(count_headers))
    count_empty = "all => all.filter(head => !head.textContent.trim()).length"
    assert page.locator("thead th").evaluate_all(count_empty) == 0


def test_costs_in_a_column_have_the_same_number_of_digits(open_report: Open) -> None:
    costs = (0.00642, 0.00005, 0.006)
    trajectories = [Trajectory(output="Paris", cost=cost) for cost in costs]
    stored(
        "r1", *(answer(f"s{n}", trajectory=trajectory) for n, trajectory in enumerate(trajectories))
    )
    cells = open_report("r1").locator("#samples-table td:last-child:visible").all_inner_texts()
    assert cells == ["$0.00642", "$0.00005", "$0.00600"]


def test_a_long_id_is_truncated_until_its_sample_is_opened(open_report: Open) -> None:
    stored("r1", answer("x" * 500))
    page = open_report("r1")
    button = page.locator("button.opens")
    closed = button.bounding_box()
    button.click()
    page.locator(".sheet").wait_for()
    open_ = button.bounding_box()
    assert closed is not None
    assert open_ is not None
    assert closed["height"] < 100 < open_["height"]


def test_hostile_text_is_displayed_and_not_executed(open_report: Open) -> None:
    hostile = (
        "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u202e\u2028"
    )
    stored("r1", answer(hostile, hostile), broken("e", hostile), dataset_name=hostile)
    page = open_report("r1")
    for button in page.locator("button.opens").all():
        button.click()
    page.locator(".sheet").nth(1).wait_for()
    assert page.locator("img").count() == 0
    assert "owned" not in page.title().split("-")[-1]
    assert hostile[:-2] + "\\u202e\\u2028" in page.locator(".sheet").first.inner_text()


def test_an_empty_run_has_a_page(open_report: Open) -> None:
    stored("r1")
    page = open_report("r1")
    assert page.get_by_text("No sample has a result yet.").is_visible()


def test_every_control_has_a_name_and_heading_levels_are_not_skipped(open_report: Open) -> None:
    stored("r1", *results_with_errors(60))
    page = open_report("r1")
    page.locator("button.opens").first.click()
    page.locator(".sheet").wait_for()
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    count_unnamed = "all => all.filter(e => !(e.textContent.trim() || e.labels?.length)).length"
    assert page.locator("button, select, input, a").evaluate_all(count_unnamed) == 0
    assert page.locator("header, main").count() == 2


def test_printed_pages_have_no_controls(open_report: Open) -> None:
    stored("r1", *results_with_errors(60))
    page = open_report("r1")
    page.emulate_media(media="print")
    assert not page.get_by_label("Show").is_visible()
    assert page.get_by_role("heading", name="Samples").is_visible()
