"""`wink view` in a real browser: every screen, live updates, keyboard, hostile and huge data."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak import soak_size
from tests.view.accessibility import accessibility_problems, width_on_a_phone
from tests.view.conftest import Open, Serve
from tests.view.runs import ATTACK, attempt, put
from weakincentives.evals import EvalResult, Score, Trajectory, open_store
from weakincentives.evals.store import StoredRow

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOUND = "text=/^1 row(,|$)/"  # "1 row" alone is also a part of "of 1 row read so far"


def ready(page: Page) -> Page:
    page.wait_for_selector("main:not([aria-busy]) h1")
    return page


def samples(page: Page) -> list[str]:
    return page.locator("wink-table .rows [role=rowheader]").all_inner_texts()


def test_runs_are_listed_filtered_and_selected_for_comparison(opened: Open, address: str) -> None:
    page = opened(address)
    assert page.locator(".run .what > a").all_inner_texts()[-2:] == ["details", "wide"]
    first = page.locator(".run", has_text="first")
    assert "90.0%" in first.inner_text()
    assert "complete" in first.inner_text()
    for name in ("second", "first"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("link", name="Compare 2").click()
    page.wait_for_selector("text=B is worse")
    assert page.url.endswith("#/compare?run=first&run=second")
    page.go_back()
    ready(page)
    page.keyboard.press("/")
    page.keyboard.type("branch=main")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 run")
    assert page.locator(".run").count() == 1


def test_the_list_of_runs_never_shows_an_interval_as_a_point(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "large", [EvalResult(str(number), Score(1.0)) for number in range(8_000)])

    ready(page := opened(serve(tmp_path / "runs.db")))

    assert page.locator(".run span.range").inner_text() == "99.95% to 100.00%"


def test_a_sum_that_leaves_out_rows_is_a_bound_in_every_list_and_chart(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    rows = [attempt(number, True) for number in range(4)]
    unknown = [replace(row, trajectory=Trajectory(output="x")) for row in rows]
    with open_store(tmp_path / "runs.db") as store:
        for run_id, results in (
            ("some", [*rows[:2], *unknown[2:]]),
            ("all", rows),
            ("no", unknown),
        ):
            put(store, run_id, results)
    address = serve(tmp_path / "runs.db")

    listed = ready(opened(address)).locator(".run .counts").all_inner_texts()
    compared = ready(opened(f"{address}#/compare?run=some&run=all&run=no"))

    assert "≥ $0.0020 · ≥ 120 tokens" in " ".join(listed)
    assert "$0.0040 · 240 tokens" in " ".join(listed)
    assert "tokens unknown" in " ".join(listed)
    costs = compared.locator("tr", has_text="Cost").first.inner_text()
    assert costs.split("\t") == ["Cost", "≥ $0.0020", "$0.0040", "unknown"]
    assert compared.locator(".scatter text", has_text="A (some costs unknown)").count() == 1


def test_a_run_is_filtered_sorted_and_searched_and_every_view_has_a_url(
    opened: Open, address: str
) -> None:
    page = opened(f"{address}#/run/second")
    assert "27/40 passed, 1 error" in page.locator(".verdict").inner_text()
    page.get_by_role("button", name="fail", exact=True).click()
    page.wait_for_selector("text=12 rows")
    page.locator(".more > summary").click()
    page.locator(".facet", has_text="hard").click()
    page.wait_for_selector("text=8 rows")
    for direction in ("ascending", "descending"):
        page.get_by_role("button", name="Time", exact=True).click()
        page.wait_for_selector(f"[aria-sort={direction}]")
    page.wait_for_selector("wink-table .row:first-child [role=rowheader] a:text-is('q033')")
    assert samples(page)[:3] == ["q033", "q031", "q023"]
    page.get_by_label("Search samples").fill("country 13")
    page.get_by_label("Search samples").press("Enter")
    page.wait_for_selector(FOUND)
    assert samples(page) == ["q013"]
    again = opened(f"{address}#{page.url.partition('#')[2]}")
    again.wait_for_selector(FOUND)
    assert samples(again) == ["q013"]


def test_a_sample_has_the_reason_of_its_failure_and_the_conversation(
    opened: Open, address: str
) -> None:
    page = opened(f"{address}#/run/second?verdict=fail")
    page.locator("wink-table .scroller").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=2 of 12")
    assert page.locator("h1").inner_text() == "q002 ✗ fail"
    assert page.locator(".why").inner_text() == "exact: not it"
    assert page.locator(".scores li").first.inner_text().startswith("✗ fail")
    assert page.locator(".diff del").all_inner_texts() == ["City 2"]
    assert page.locator(".call .tool-name").all_inner_texts() == ["search"]
    page.keyboard.press("j")
    page.wait_for_selector("text=3 of 12")
    page.keyboard.press("k")
    page.wait_for_selector("text=2 of 12")
    page.keyboard.press("?")
    assert "next sample" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.wait_for_selector("text=12 rows")


def test_epochs_are_side_by_side(opened: Open, address: str) -> None:
    page = opened(f"{address}#/sample/epochs/q001")
    marks = page.locator(".side-by-side .mark").all_inner_texts()
    assert marks == ["✓ pass", "✗ fail", "✓ pass"]
    page.get_by_role("link", name="Epoch 2").click()
    page.wait_for_selector("h1:has-text('fail')")


def test_two_trajectories_are_aligned_at_their_first_divergence(opened: Open, address: str) -> None:
    page = opened(f"{address}#/compare?run=first&run=second")
    page.wait_for_selector("text=Most diverge at step 2: open not called (8 of 8).")
    page.get_by_role("button", name="broken 9").click()
    page.wait_for_selector("[aria-pressed=true]:has-text('broken')")
    page.locator(".matrix tbody th a").first.click()
    page.wait_for_selector("text=First divergence at step 2: open not called.")
    assert page.locator(".step.diverges .absent").inner_text() == "not in B"
    assert page.locator(".step.same").count() == 3
    assert page.locator(".diff ins").inner_text() == "Nowhere"


def test_three_runs_and_empty_runs_can_be_compared(opened: Open, address: str) -> None:
    page = opened(f"{address}#/compare?run=first&run=second&run=epochs")
    assert page.locator(".conclusion").count() == 2
    assert page.locator(".compared").first.locator("thead th").count() == 3
    empty = opened(f"{address}#/run/empty")
    assert "interrupted" in empty.locator(".title").inner_text()
    empty.wait_for_selector("text=This run has no rows.")
    errors = opened(f"{address}#/run/errors")
    assert "ConnectionError at agent.py:12" in errors.locator(".errors").first.inner_text()
    for wrong in ("#/run/none", "#/nothing", "#/sample/first/none", "#/compare?run=first"):
        context = errors.context
        other = context.new_page()
        other.goto(address + wrong)
        other.wait_for_selector(".problem")
        other.close()


def test_rows_appear_while_a_run_is_in_progress(opened: Open, serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        put(store, "live", [attempt(0, True)], status="running", planned=3)
        address = serve(path)
        page = opened(address)
        run = opened(f"{address}#/run/live")
        page.wait_for_selector("text=1 of 1")
        for number in (1, 2):
            row = StoredRow(result=replace(attempt(number, False), run_id="live"), position=number)
            store.put(row)
            store.flush()
            page.wait_for_selector(f"text=1 of {number + 1}")
            run.wait_for_selector(f"text={number + 1} rows")
        store.finish("live", "complete")
        page.wait_for_selector(".chip.complete")
        put(store, "next", [attempt(0, True)])
        page.wait_for_selector("text=next")


def slices(page: Page) -> list[str]:
    cells = page.locator(".sliced tr").all_inner_texts()
    return [" ".join(text.split()) for text in cells]


def test_pass_rates_by_slice_follow_a_run_in_progress(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "live", [attempt(0, True)], status="running", planned=3)
        page = opened(f"{serve(store.path)}#/run/live")
        page.wait_for_selector(".sliced tr:has-text('of 1')")
        for number in (2, 4):
            row = StoredRow(result=replace(attempt(number, False), run_id="live"), position=number)
            store.put(row)
        store.flush()
        page.wait_for_selector(".sliced tr:has-text('of 3')")
    assert slices(page) == ["easy 33.3% of 3"]


def test_pass_rates_of_a_part_of_the_rows_say_so(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    def long(number: int) -> EvalResult[Any]:
        text = " ".join(map(str, range(number * 10_000, number * 10_000 + 10_000)))
        return attempt(number, number % 4 > 1, trajectory=Trajectory(output=text))

    with open_store(tmp_path / "runs.db") as store:
        put(store, "long", [long(number) for number in range(600)])
    page = opened(f"{serve(tmp_path / 'runs.db')}#/run/long")
    page.wait_for_selector(".sliced :text('of 200 rows read so far')")
    page.wait_for_selector(".sliced tr:has-text('of 300')")
    assert "so far" not in page.locator(".sliced").inner_text()
    assert slices(page) == ["easy 50.0% of 300", "hard 50.0% of 300"]


def test_hostile_data_is_rendered_as_text(opened: Open, address: str) -> None:
    page = opened(address)
    page.wait_for_selector("text=onerror")
    page.goto(f"{address}#/run/hostile")
    ready(page)
    page.locator(".more > summary").click()
    page.locator("wink-table a").first.click()
    page.wait_for_selector(".timeline")
    page.wait_for_timeout(300)  # time for a script or a request to start
    assert page.locator("img, iframe, object, embed").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0
    assert ATTACK.split("[", maxsplit=1)[0] in page.locator(".part").first.inner_text()


def test_a_saved_view_opens_without_a_server(
    opened: Open, browser: Any, address: str, tmp_path: Path
) -> None:
    page = opened(f"{address}#/sample/second/q001")
    page.wait_for_selector("text=2 of 40")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save view").click()
    file = tmp_path / "view.html"
    download.value.save_as(file)
    saved = opened(file.as_uri())
    assert saved.locator("h1").inner_text() == "q001 ✗ fail"
    assert saved.locator(".call .tool-name").all_inner_texts() == ["search"]
    hostile = opened(f"{address}#/run/hostile")
    hostile.wait_for_selector("wink-table a")
    with hostile.expect_download() as download:
        hostile.get_by_role("button", name="Save view").click()
    download.value.save_as(file)
    assert opened(file.as_uri()).locator("wink-table a").count() == 1


def test_a_saved_view_runs_no_script_but_its_own(
    opened: Open, browser: Any, address: str, tmp_path: Path
) -> None:
    page = opened(f"{address}#/sample/second/q001")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save view").click()
    file = tmp_path / "view.html"
    download.value.save_as(file)
    html = file.read_text("utf-8")
    policy = re.search(r"script-src ([^;]*);", unescape(html))
    assert policy
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", policy[1])
    scripts = "".join(
        f"<script {attributes}>{code}</script>"
        for attributes, code in (
            ("", "window.injected = 1"),
            ("type=module", "window.injected = 2"),
            ("src='data:text/javascript,window.injected=3'", ""),
            ("type=module src='data:text/javascript,window.injected=4'", ""),
            ("type=module", "import 'data:text/javascript,window.injected=5'"),
        )
    )
    scripts += "<img src=x onerror='window.injected=6'><a href='javascript:window.injected=7'>x</a>"
    file.write_text(html.replace('<div id="app">', f'{scripts}<div id="app">'), "utf-8")
    context = browser.new_context()
    saved = context.new_page()
    refused: list[str] = []
    saved.on("console", lambda message: refused.append(message.text))
    saved.goto(file.as_uri())
    saved.wait_for_selector("h1:has-text('q001')")
    saved.get_by_text("x", exact=True).click()
    assert saved.evaluate("window.injected") is None
    assert sum("Content Security Policy" in text for text in refused) >= 7
    saved.evaluate("location.hash = '#/sample/second/q002'")  # the page itself works
    saved.wait_for_selector("text=This part is not in the shared file.")
    context.close()


@pytest.mark.parametrize(
    "view", ["", "#/run/second", "#/sample/second/q001", "#/compare?run=first&run=second"]
)
def test_every_screen_is_accessible_in_light_and_dark_and_fits_a_phone(
    opened: Open, address: str, view: str
) -> None:
    page = opened(address + view)

    assert accessibility_problems(page) == []
    assert width_on_a_phone(page) <= 390


@pytest.mark.soak
def test_a_list_of_many_rows_can_be_scrolled(opened: Open, serve: Serve, tmp_path: Path) -> None:
    path, passed = tmp_path / "runs.db", Score(1.0)
    count = soak_size(5_000, 100_000)
    with open_store(path) as store:
        put(store, "big", [])
        for number in range(count):
            result = EvalResult[Any](f"s{number:06}", passed, number, run_id="big")
            store.put(StoredRow(result=result, position=number))
            if store.behind(5_000):
                store.flush()
        store.finish("big", "complete")
    page = opened(f"{serve(path)}#/run/big?order=latency&desc=1")
    page.wait_for_selector(f"text=s{count - 1:06}")
    page.locator("wink-table .scroller").focus()
    page.keyboard.press("End")
    page.wait_for_selector("text=s000000")
    assert page.locator("wink-table .row").count() < 100
