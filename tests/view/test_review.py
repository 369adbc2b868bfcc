"""The Review screen in a real browser: keyboard, blind mode, two reviewers, hostile data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.view.accessibility import accessibility_problems, width_on_a_phone
from tests.view.conftest import Open, Serve
from tests.view.runs import ATTACK, attempt, hostile, put
from tests.view.test_server import request
from weakincentives.cli import main
from weakincentives.evals import open_store
from weakincentives.evals.review import (
    LabelChange,
    create_category,
    give_label,
    review_agreement,
    review_queue,
)
from weakincentives.evals.store import CriterionInfo
from weakincentives.evals.store.human_labels import labels_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

JUDGE = CriterionInfo(name="exact", version="v1", judge={"model": "demo/judge"})


def store_reviews(path: Path) -> None:
    """Store a run of 60 outputs of which every tenth fails, a hostile one, and an empty one."""
    with open_store(path) as store:
        put(store, "capitals", [attempt(n, n % 10 != 3) for n in range(60)], criteria=(JUDGE,))
        put(store, "ugly", [hostile()], dataset_name=ATTACK, criteria=(JUDGE,), minutes=5)
        put(store, "empty", [], minutes=6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store_reviews(tmp_path / "runs.db")
    return tmp_path / "runs.db"


def browser_state(address: str, name: str) -> Any:
    """Return the state of a browser in which the reviewer has entered this name."""
    stored = [{"name": "wink-reviewer", "value": name}]
    return {"origins": [{"origin": address.partition("/?")[0], "localStorage": stored}]}


def review(opened: Open, address: str, view: str, name: str = "ann", **options: Any) -> Page:
    """Open a review as the reviewer with this name."""
    state = browser_state(address, name)
    return opened(f"{address}#/review/{view}", storage_state=state, **options)


def wait_until_saved(page: Page, done: int) -> None:
    page.wait_for_selector(f".review-progress .count:text-is('{done} labelled')")


def test_a_review_of_thirty_outputs_by_keyboard_ends_in_a_calibrated_judge(
    opened: Open, serve: Serve, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(f"{serve(path)}#/review/capitals?n=30")
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 of 30")
    for number in range(30):
        page.wait_for_selector(f".review-progress strong:text-is('{number + 1} of 30')")
        sample_id = page.locator(".review-title").inner_text()
        page.wait_for_function(
            "name => document.querySelector('.part pre')?.innerText.includes(name)",
            arg=f"country {int(sample_id[1:])}",
        )
        page.keyboard.press("f" if int(sample_id[1:]) % 5 == 3 else "p")
        wait_until_saved(page, number + 1)
        if number < 29:
            page.wait_for_function(
                "old => document.querySelector('.review-title').innerText !== old", arg=sample_id
            )
    page.wait_for_selector("text=wink judge calibrate --run capitals")

    assert main(["judge", "calibrate", "--run", "capitals", "--store", str(path)]) == 0
    out = capsys.readouterr().out
    assert "15 labels" in out  # only the randomly drawn half counts
    corrected = re.search(r"corrected  ([0-9.]+)%", out)
    assert corrected
    assert 60 < float(corrected[1]) < 90  # people pass 80 %, the judge 90 %


def test_keys_label_note_skip_undo_move_and_help(opened: Open, serve: Serve, path: Path) -> None:
    page = review(opened, serve(path), "capitals?n=10&order=dataset")
    page.wait_for_selector("text=1 of 10")
    page.keyboard.press("n")
    page.keyboard.type("guesses without opening the page")
    page.keyboard.press("Enter")
    page.keyboard.press("f")
    wait_until_saved(page, 1)
    page.keyboard.press("s")
    page.wait_for_selector("text=3 of 10")
    page.keyboard.press("p")
    wait_until_saved(page, 2)
    page.keyboard.press("k")
    page.wait_for_selector(".verdict-button.pass[aria-pressed=true]")
    page.keyboard.press("u")
    wait_until_saved(page, 1)
    page.wait_for_selector("text=q002: undone")
    page.keyboard.press("?")
    assert "fail, in that category" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.reload()  # everything is in the store
    page.wait_for_selector("text=1 labelled")
    with open_store(path) as store:
        labels = {label.sample_id: label for label in labels_of(store, "capitals", "exact")}
    assert (labels["q000"].passed, labels["q000"].note) == (
        False,
        "guesses without opening the page",
    )
    assert labels["q001"].skipped
    assert "q002" not in labels


def test_a_blind_review_does_not_receive_the_judges_verdict(
    opened: Open, serve: Serve, path: Path
) -> None:
    address = serve(path)
    page = review(opened, address, "capitals?n=10")
    page.wait_for_selector(".review-judge .mark")
    with page.expect_response(re.compile("review_item.*blind=1")) as item:
        page.keyboard.press("b")
    data = item.value.json()
    assert {"judge", "verdict", "scores", "reason"}.isdisjoint(data)
    page.wait_for_selector("text=Blind: judge hidden")
    assert page.locator(".review-judge").count() == 0
    assert page.get_by_text("In the queue").count() == 0
    page.keyboard.press("p")
    wait_until_saved(page, 1)
    with open_store(path) as store:
        assert [label.blind for label in labels_of(store, "capitals", "exact")] == [True]


def test_two_reviewers_work_at_the_same_time_and_settle_differences(
    opened: Open, serve: Serve, path: Path
) -> None:
    address = serve(path)
    ann = review(opened, address, "capitals?n=6&order=dataset", "ann")
    bob = review(opened, address, "capitals?n=6&order=dataset", "bob")
    for number, (hers, his) in enumerate(["pp", "pf", "fp", "ff", "pp", "fp"]):
        ann.keyboard.press(hers)
        bob.keyboard.press(his)
        wait_until_saved(ann, number + 1)
        wait_until_saved(bob, number + 1)
    ann.wait_for_selector("text=bob: 6")  # within the next poll
    with open_store(path) as store:
        agreement = review_agreement(store, "capitals")
    assert (agreement.labels, agreement.shared, agreement.open) == ({"ann": 6, "bob": 6}, 6, 3)
    ann.get_by_role("link", name="Reviewers").click()
    ann.wait_for_selector("text=Disagreements, 3 to settle")
    assert "50.0%" in ann.locator("[aria-label=Agreement]").inner_text()
    ann.keyboard.press("p")
    ann.wait_for_selector("text=Disagreements, 2 to settle")
    ann.get_by_role("button", name="Settle q005: fail").click()
    ann.wait_for_selector("text=Disagreements, 1 to settle")
    ann.keyboard.press("u")
    ann.wait_for_selector("text=Disagreements, 2 to settle")
    with open_store(path) as store:
        assert review_agreement(store, "capitals").open == 2


def test_notes_are_sorted_into_categories_that_are_renamed_and_merged(
    opened: Open, serve: Serve, path: Path
) -> None:
    with open_store(path) as store:
        for number, item in enumerate(review_queue(store, "capitals", n=6).items):
            give_label(
                store, "capitals", item.row, "ann", LabelChange(passed=False, note=f"note {number}")
            )
    page = review(opened, serve(path), "capitals/categories", "bob")
    page.wait_for_selector("text=Notes to sort, 6")
    for name in ("Dates", "Names"):
        page.keyboard.press("c")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"[aria-label='Name of {name}']")
        page.keyboard.press("Escape")
    for remaining in (5, 4, 3):
        page.keyboard.press("1")
        page.wait_for_selector(f"text=Notes to sort, {remaining}")
    page.keyboard.press("u")
    page.wait_for_selector("text=Notes to sort, 4")
    page.keyboard.press("j")
    page.keyboard.press("2")
    page.wait_for_selector("text=Notes to sort, 3")
    assert page.locator(".category-head .number").all_inner_texts() == ["2", "1"]
    assert (
        page.locator(".curve").get_attribute("aria-label") == "categories after each note: 1, 1, 2"
    )
    page.get_by_label("Name of Names").fill("People")
    page.get_by_label("Name of Names").press("Enter")
    page.wait_for_selector("[aria-label='Name of People']")
    page.get_by_label("Merge Dates into").select_option(label="People")
    page.wait_for_selector("text=Categories, 1")
    assert page.locator(".category-head .number").all_inner_texts() == ["3"]


def test_labels_are_in_a_column_in_a_filter_and_on_the_sample(
    opened: Open, serve: Serve, path: Path
) -> None:
    with open_store(path) as store:
        category = create_category(store, "capitals", "Dates")
        for number in (3, 13, 24):
            change = LabelChange(passed=number == 24, note="wrong year", category=category)
            give_label(store, "capitals", ("baseline", f"q{number:03}", 1), "ann", change)
    address = serve(path)
    page = opened(f"{address}#/run/capitals")
    page.locator(".more > summary").click()
    page.locator(".facet", has_text="category: Dates").wait_for()
    page.locator("fieldset", has_text="Label of people").locator(".facet", has_text="fail").click()
    page.wait_for_selector("text=2 rows")
    assert page.locator("wink-table [role=rowheader]").all_inner_texts() == ["q003", "q013"]
    assert page.get_by_text("✗ fail · Dates").count() == 2
    page.locator("wink-table a").first.click()
    page.wait_for_selector(".sample-labels")
    assert "wrong year" in page.locator(".sample-labels").inner_text()
    page.get_by_role("link", name="Review").click()
    page.wait_for_selector("text=Enter your name to start")
    page.keyboard.type("bob")
    page.keyboard.press("Enter")
    page.wait_for_selector(".review-title:text-is('q003')")  # the sample on the previous page
    again = opened(f"{address}#/run/capitals?label=none")
    again.wait_for_selector("text=57 rows")


def test_hostile_labels_are_rendered_as_text_and_exports_are_files(
    opened: Open, serve: Serve, path: Path, tmp_path: Path
) -> None:
    with open_store(path) as store:
        category = create_category(store, ATTACK, ATTACK[:80])
        (item,) = review_queue(store, "ugly").items
        for name, passed in ((ATTACK[:60], True), ("bob", False)):
            change = LabelChange(passed=passed, note=ATTACK, category=category)
            give_label(store, "ugly", item.row, name, change)
    address = serve(path)
    for view in ("ugly", "ugly/categories", "ugly/reviewers"):
        page = review(opened, address, view, ATTACK[:60])
        page.wait_for_selector("text=onerror", state="attached")
        page.wait_for_timeout(200)  # time for a script or a request to start
        assert page.locator("img, iframe, object, embed").count() == 0
    page.get_by_role("link", name="Queue").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().startswith("key,run,id,epoch")
    empty = review(opened, address, "empty")
    empty.wait_for_selector("text=This run has no output to review.")


def test_a_label_that_cannot_be_stored_is_reported(
    browser: Browser, serve: Serve, path: Path
) -> None:
    address = serve(path)
    context = browser.new_context(
        storage_state=browser_state(address, "x" * 61)
    )  # a name that is too long
    page = context.new_page()
    page.goto(f"{address}#/review/capitals?n=5")
    page.wait_for_selector("text=1 of 5")
    page.keyboard.press("p")
    page.wait_for_selector("text=Not stored: expected the name of a reviewer")
    context.close()


def test_only_the_page_itself_may_write(serve: Serve, path: Path) -> None:
    address = serve(path)
    body = '{"run": "capitals", "reviewer": "eve", "sample": "q000", "passed": true}'
    for name in ("review_queue", "review_label", "review_undo", "review_category"):
        for headers in ({}, {"Origin": "http://evil.example", "X_Wink": "1"}):
            assert request(address, f"/api/{name}", "POST", body, **headers)[0] == 403
        assert request(address, f"/api/{name}")[0] == 405
    with open_store(path) as store:
        assert labels_of(store, "capitals", "exact") == []


@pytest.mark.parametrize("view", ["capitals?n=8", "capitals/categories", "capitals/reviewers"])
def test_the_review_is_accessible_and_fits_a_phone(
    opened: Open, serve: Serve, path: Path, view: str
) -> None:
    with open_store(path) as store:
        category = create_category(store, "capitals", "A long name of a category, to see it wrap")
        for number, item in enumerate(review_queue(store, "capitals", n=8).items[:5]):
            for name in ("ann", "bob"):
                change = LabelChange(
                    passed=name == "ann" and number > 2,
                    note="note",
                    category=category if number % 2 else None,
                )
                give_label(store, "capitals", item.row, name, change)
    page = review(opened, serve(path), view)
    ready = ".review-title, .note-card, .disagreement"

    assert accessibility_problems(page, ready) == []
    assert width_on_a_phone(page, ready) <= 390
