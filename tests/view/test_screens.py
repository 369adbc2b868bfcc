"""The content of each screen of `wink view`, and its forms, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak import soak_size
from tests.view.conftest import Open, Serve
from tests.view.runs import attempt, put
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.evals import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Page


def texts(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def test_a_sample_has_times_retries_state_and_judges(opened: Open, address: str) -> None:
    page = opened(f"{address}#/sample/detailed/q001")
    facts = page.locator(".facts").inner_text()
    assert "worker worker-host:42" in facts
    assert "model 1.5 s · tools 250 ms" in facts
    timeline = page.get_by_role("region", name="Timeline")
    summary = "1 model call · 2 tool calls · 1 failed"
    assert summary in timeline.inner_text()
    assert "40 in, 2 out" in timeline.inner_text()
    assert timeline.locator("line.tick").count() >= 4
    assert timeline.locator("rect.model").count() == 1
    assert timeline.locator("rect.failed").count() == 1
    assert "500 ms · 2 tries" in page.locator(".call", has_text="search").first.inner_text()
    judges = page.get_by_role("region", name="Judges")
    assert "not usable" in texts(page, ".judge summary")[0]
    judges.locator("summary").nth(1).click()
    assert "You are a judge." in judges.inner_text()
    assert '"rating": "good"' in judges.inner_text()
    page.get_by_text("Plan").first.click()
    assert "then answer" in page.get_by_role("region", name="Session").inner_text()


def test_markdown_is_rendered_and_the_raw_text_is_one_click_away(
    opened: Open, address: str
) -> None:
    page = opened(f"{address}#/sample/detailed/q001")
    output = page.get_by_role("region", name="Output")
    assert output.locator("strong").inner_text() == "unused"
    assert output.locator("td").all_inner_texts() == ["EU", "14"]
    output.get_by_role("button", name="raw").click()
    assert output.locator("pre").inner_text().startswith("# Refunds")


def test_forty_criteria_fit_and_sort(opened: Open, address: str) -> None:
    page = opened(f"{address}#/run/wide")
    assert page.locator("wink-table [role=columnheader]").count() > 40
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="criterion number 10", exact=True).click()
    page.wait_for_selector("[aria-sort=ascending]")
    page.wait_for_selector("wink-table .row:first-child .heat.failed")
    assert texts(page, "wink-table .row:first-child [role=rowheader]") == ["q000"]


def test_cost_and_latency_limits_are_filters(opened: Open, address: str) -> None:
    page = opened(f"{address}#/run/first")
    page.locator(".more > summary").click()
    page.get_by_label("to, ms").fill("104")
    page.get_by_label("to, ms").press("Enter")
    page.wait_for_selector("text=5 rows")
    page.get_by_role("button", name="max latency: 104 ×").click()
    page.wait_for_selector("text=40 rows")
    page.goto(f"{address}#/run/first?min_cost=0.5")
    page.wait_for_selector("text=Nothing matches these filters.")


def test_slices_have_a_rate_with_its_interval(opened: Open, address: str) -> None:
    page = opened(f"{address}#/run/second")
    page.wait_for_selector(".sliced tbody tr")
    rows = dict(text.split("\t", 1) for text in texts(page, ".sliced tbody tr"))
    assert "80.0%" in rows["easy"]
    assert page.locator(".sliced .interval").count() == len(rows) == 3
    assert "(none)" in rows


def test_tags_changed_on_one_page_are_updated_on_others(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        put(store, "tagged", [attempt(0, True)], tags={"branch": "main"})
        address = serve(path)
        other = opened(address)
        page = opened(f"{address}#/run/tagged")
        page.get_by_role("button", name="+ tag").click()
        page.get_by_label("New tag").fill("nonsense")
        page.get_by_label("New tag").press("Enter")
        page.wait_for_selector("text=expected key=value")
        page.get_by_label("New tag").fill("owner = <b>me</b>")
        page.get_by_label("New tag").press("Enter")
        other.wait_for_selector("text=owner=<b>me</b>")
        page.get_by_role("button", name="Remove the tag branch").click()
        other.wait_for_selector("text=branch=main", state="detached")
        assert store.run("tagged").manifest.tags == {"owner": "<b>me</b>"}


def test_a_comparison_has_a_column_for_each_run(opened: Open, address: str) -> None:
    page = opened(f"{address}#/compare?run=first&run=second&run=epochs")
    assert texts(page, ".compared thead .id")[:3] == ["first", "second", "epochs"]
    assert page.locator(".scatter circle").count() == 3
    page.get_by_role("button", name="still failing").click()
    page.wait_for_selector("[aria-pressed=true]:has-text('still failing')")
    page.goto(f"{address}#/compare?run=first&run=second&kind=broken")
    page.wait_for_selector(".matrix td.broken")
    row = page.locator(".matrix tbody tr").first
    assert [cell.split("\n")[0] for cell in row.locator("td").all_inner_texts()] == [
        "✓ pass",
        "✗ fail broken",
    ]


def test_a_run_links_to_a_comparison_with_the_previous_run(opened: Open, address: str) -> None:
    page = opened(f"{address}#/run/second")
    page.get_by_role("link", name="Compare with the run before").click()
    page.wait_for_selector("text=B is worse")
    assert page.url.endswith("#/compare?run=first&run=second")


@pytest.mark.soak
def long_transcript(folder: Path, count: int) -> Path:
    """Store a run of one sample with this many messages and two more; return the store's path."""
    turn = [
        ChatMessage("assistant", "", [ToolCall("1", "search", {"q": "x" * 200})]),
        ChatMessage("tool", "found " * 50, (), "1"),
    ]
    messages = [ChatMessage("user", "Begin."), *turn * (count // 2), ChatMessage("user", "Stop.")]
    long = attempt(1, True)
    assert long.trajectory is not None
    with open_store(folder / "runs.db") as store:
        trajectory = replace(long.trajectory, messages=messages)
        put(store, "long", [replace(long, trajectory=trajectory)])
    return folder / "runs.db"


def test_a_long_transcript_is_loaded_in_parts(opened: Open, serve: Serve, tmp_path: Path) -> None:
    path = long_transcript(tmp_path, soak_size(700, 2_000))
    page = opened(f"{serve(path)}#/sample/long/q001")
    more = page.get_by_role("button", name="Show 200 more messages")
    while more.count():
        loaded = page.locator(".message").count()
        more.press("Enter")  # a click may miss a button that moves while messages are laid out
        page.locator(".message").nth(loaded).wait_for(state="attached")
    page.get_by_role("button", name="more message").press("Enter")
    page.get_by_text("Stop.").scroll_into_view_if_needed()
    # The browser neither lays out nor paints messages outside the viewport.
    style = "getComputedStyle(document.querySelector('.message')).contentVisibility"
    assert page.evaluate(style) == "auto"


def test_messages_are_loaded_once_and_a_failure_is_reported(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    page = opened(f"{serve(long_transcript(tmp_path, 398))}#/sample/long/q001")
    more = page.get_by_role("button", name="Show 200 more messages")

    unreachable = "() => { real = fetch; fetch = () => Promise.reject(Error('no server')) }"
    page.evaluate(unreachable)
    more.press("Enter")
    page.get_by_role("alert").get_by_text("no server").wait_for()
    page.evaluate("() => { fetch = real }")
    more.evaluate("button => { button.click(); button.click() }")

    page.get_by_text("Stop.").wait_for(state="attached")
    assert page.locator(".message").count() == 1 + 199 + 1
    assert page.get_by_role("alert").count() == 0


def test_a_saved_list_and_comparison_open_without_a_server(
    opened: Open, address: str, tmp_path: Path
) -> None:
    views: dict[str, Any] = {"": ".run", "#/compare?run=first&run=second": ".matrix tbody tr"}
    for number, (view, selector) in enumerate(views.items()):
        page = opened(address + view)
        page.wait_for_selector(selector)
        page.wait_for_load_state("domcontentloaded")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save view").click()
        file = tmp_path / f"{number}.html"
        download.value.save_as(file)
        saved = opened(file.as_uri())
        assert saved.locator(selector).count() == page.locator(selector).count()
    saved.locator(".matrix tbody th a").first.click()
    saved.wait_for_selector("text=First divergence at step 2: open not called.")


def test_a_saved_run_has_its_samples(opened: Open, address: str, tmp_path: Path) -> None:
    page = opened(f"{address}#/run/second?verdict=fail")
    page.wait_for_selector("text=12 rows")
    page.wait_for_selector(".sliced tbody tr")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save view").click()
    download.value.save_as(tmp_path / "run.html")
    saved = opened((tmp_path / "run.html").as_uri())
    assert saved.get_by_role("button", name="+ tag").count() == 0
    saved.locator("wink-table a").first.click()
    saved.wait_for_selector("h1:has-text('q001')")
    assert saved.locator(".call .tool-name").all_inner_texts() == ["search"]
