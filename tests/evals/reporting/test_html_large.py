"""The HTML report of a large run in a real browser: it is complete, and search finds everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak import soak_size
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import EvalResult, Metric, RunStore, Sample, Score, Trajectory
from weakincentives.evals.model import ErrorDetails
from weakincentives.evals.reporting.html import WrittenPage, document, write_page
from weakincentives.evals.store import RunManifest, StoredRow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
CRITERIA = ("correct", "grounded", "brief", "polite")
TOPICS = ("billing", "returns", "shipping", "accounts")
COUNT = 2_000


def prose(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


@cache
def result_at(index: int, run_id: str) -> EvalResult[Any]:
    """Return a result of about 3 KB with a conversation that has words of no other sample."""
    rng = random.Random(f"{run_id} {index}")
    same = random.Random(index)  # the same texts in both runs
    sample_id = f"faq-{index:05}"
    metadata = {"topic": TOPICS[index % 4], "level": index % 5, "source": f"document {index}"}
    sample = Sample(sample_id, f"What about {prose(same, 60)}?", prose(same, 30), metadata)
    common = {"sample": sample, "metadata": metadata, "run_id": run_id}
    if index % 40 == 7:
        details = ErrorDetails("ConnectionError", "rag.py:41 in retrieve", "Traceback:\n  rag.py")
        error = f"refused trace{index}x"
        failure = {"error": error, "error_source": "agent", "error_details": details}
        return EvalResult(sample_id, Score(0.0, False), rng.randrange(900), **common, **failure)
    output = f"{prose(same, 40)} {prose(rng, 12)} output{index}x {prose(same, 30)}"
    call = ToolCall(f"call_{index}", "search", {"query": f"{prose(rng, 4)} call{index}x"})
    tool_output = f'{{"documents": ["{prose(rng, 70)}", "tool{index}x"], "score": 0.75}}'
    messages = (
        ChatMessage("system", "Answer from the documents."),
        ChatMessage("user", sample.input),
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", tool_output, tool_call_id=call.id),
        ChatMessage("assistant", output),
    )
    metrics = [
        Metric(name, value, 1.0, {"passed": value >= 0.5, "reason": f"{prose(rng, 9)} why{index}x"})
        for name in CRITERIA
        for value in (round(min(1.0, rng.random() + 0.4), 2),)
    ]
    score = Score(metrics=metrics, passed=all(metric.value >= 0.5 for metric in metrics))
    usage = TokenUsage(rng.randrange(200, 900), rng.randrange(20, 90))
    trajectory = Trajectory(messages, output, usage, cost=usage.total_tokens * 2e-6)
    return EvalResult(sample_id, score, rng.randrange(90, 4_000), **common, trajectory=trajectory)


def short_result(index: int, run_id: str) -> EvalResult[Any]:
    output = f"{prose(random.Random(index), 150)} output{index}x"
    messages = (ChatMessage("assistant", f"tool{index}x"),)
    trajectory = Trajectory(messages, output)
    score = Score(index % 3 / 2)
    return EvalResult(f"faq-{index:05}", score, trajectory=trajectory, run_id=run_id)


def write_run(
    store: RunStore,
    run_id: str,
    count: int,
    result: Callable[[int, str], EvalResult[Any]] = result_at,
) -> None:
    about = {"model": f"demo/{run_id}", "dataset_name": "faq", "planned": count}
    store.begin(RunManifest(run_id=run_id, created_at=datetime.now(UTC), **about))
    for index in range(count):
        store.put(StoredRow(result=result(index, run_id), position=index))
        if store.behind(2_000):
            store.flush()
    store.finish(run_id, "complete")


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> WrittenPage:
    """Write a page that compares two runs of 2,000 samples."""
    folder = tmp_path_factory.mktemp("large")
    with RunStore(folder / "runs.db") as store:
        for run_id in ("small", "big"):
            write_run(store, run_id, COUNT)
        return write_page(store, "big", folder / "page.html", compare="small")


@pytest.fixture
def unexpected() -> Iterator[list[str]]:
    """Yield a list for network requests and console messages; fail if it is not empty."""
    messages: list[str] = []
    yield messages
    assert messages == []


def open_page(browser: Browser, path: Path, unexpected: list[str], fragment: str = "") -> Page:
    page = browser.new_page()
    page.set_default_timeout(120_000)  # milliseconds, for a busy machine
    page.on("console", lambda message: unexpected.append(message.text))
    page.on("pageerror", lambda error: unexpected.append(str(error)))
    page.on("request", lambda r: unexpected.append(r.url) if r.url.startswith("http") else None)
    page.goto(path.as_uri() + fragment)
    page.locator("#samples-table tbody tr").first.wait_for()
    return page


def ids(page: Page) -> list[str]:
    return page.locator("#samples-table button.opens").all_inner_texts()


def search(page: Page, words: str, count: str) -> None:
    page.locator("#samples-table").get_by_label("Search").fill(words)
    page.locator("#samples-table .count", has_text=count).wait_for()


RECORD_STATUS = """() => {
  const status = document.querySelector("#samples-table .count");
  window.statuses = [];
  new MutationObserver(() => window.statuses.push(status.textContent))
    .observe(status, { childList: true, characterData: true, subtree: true });
}"""
EVERYTHING = """async () => {
  const found = [];
  for (let row = 0; row < data.id.length; row++) {
    found.push((await details(row)).textContent);
  }
  return found;
}"""


def test_all_texts_and_transcripts_of_2000_samples_are_in_the_page(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected)
    texts = dict(zip(page.evaluate("data.id"), page.evaluate(EVERYTHING), strict=True))
    for index in range(COUNT):
        result = result_at(index, "big")
        text = texts[result.sample_id]
        words = ("trace",) if result.error else ("output", "call", "tool", "why")
        assert result.sample is not None
        assert result.sample.input in text
        assert result.sample.expected in text
        assert [word for word in words if f"{word}{index}x" not in text] == []
    assert (large_page.left_out, large_page.rows, large_page.note) == (0, COUNT, "")
    page.close()


def test_the_page_states_its_size(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected)
    size = large_page.path.stat().st_size
    assert abs(large_page.size - size) < 500
    assert f"This file has {size / 1e6:.1f} MB." in page.locator("footer").inner_text()
    page.close()


def test_search_covers_metadata_reasons_and_transcripts(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected)
    search(page, "SOURCE", "2,000 samples")
    for words in ("tool1234x", "why1234x", "call1234x", "document 1234", "output1234x"):
        search(page, words, "1 of 2,000 samples")
        assert ids(page) == ["faq-01234"]
    search(page, "trace1207x", "1 of 2,000 samples")
    assert ids(page) == ["faq-01207"]
    search(page, "no such word", "0 of 2,000 samples")
    page.close()


def test_the_first_fifty_flips_have_both_sides(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected)
    flips = page.locator("#flips-table")
    assert flips.locator("button.opens").count() == 50
    flips.locator("button.opens").first.click()
    # Real clicks on all of them would take four seconds.
    flips.locator("button.opens").evaluate_all("buttons => buttons.slice(1).map(b => b.click())")
    flips.locator(".sides").nth(49).wait_for()
    sheets = flips.locator(".sheet").all_inner_texts()
    assert [text[:2] for text in sheets] == ["A:", "B:"] * 50
    for position, sample_id in enumerate(flips.locator("button.opens").all_inner_texts()):
        number = int(sample_id.removeprefix("faq-"))
        sides = zip(("small", "big"), sheets[2 * position : 2 * position + 2], strict=True)
        for run_id, text in sides:
            result = result_at(number, run_id)
            assert (result.output or result.error) in text
    below = flips.locator(".below").first
    assert below.get_by_text("What about", exact=False).first.is_visible()
    assert below.get_by_role("heading", name="Input").count() == 1
    assert below.locator("del").count() > 0
    assert below.locator("ins").count() > 0
    assert "Criteria that flipped" in below.inner_text()
    page.close()


def test_links_open_a_sample_and_restore_the_filters(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected, "#sample=faq-01234")
    page.locator("#samples-table .below", has_text="output1234x").first.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "faq-01234"
    page.locator("#samples-table").get_by_label("Show").select_option("fail")
    page.locator("#samples-table").get_by_label("Metadata").select_option("topic=returns")
    page.locator("#samples-table").get_by_label("Criterion failed").select_option("brief")
    fragment = page.evaluate("location.hash")
    expected = [
        result.sample_id
        for result in (result_at(index, "big") for index in range(1, COUNT, 4))
        if any(score.criterion == "brief" and not score.passed for score in result.scores)
    ]
    assert page.locator("#samples-table .count").inner_text() == f"{len(expected)} of 2,000 samples"
    other = open_page(browser, large_page.path, unexpected, fragment.split("&sample")[0])
    assert ids(other) == expected[:50]
    assert other.locator("#samples-table").get_by_label("Metadata").input_value() == "topic=returns"
    page.close()
    other.close()


def test_each_criterion_has_a_column_with_value_and_verdict(
    browser: Browser, large_page: WrittenPage, unexpected: list[str]
) -> None:
    page = open_page(browser, large_page.path, unexpected)
    table = page.locator("#samples-table table.samples")
    headers = [header.strip() for header in table.locator("thead th").all_inner_texts()]
    first = table.locator("tbody tr").first.locator(":scope > *").all_inner_texts()
    cells = dict(zip(headers, first, strict=True))
    for score in result_at(0, "big").scores:
        verdict = "passed" if score.passed else "failed"
        assert cells[score.criterion].split() == [f"{score.value:g}", verdict]
    table.get_by_role("button", name="brief").click()
    table.locator('th[aria-sort="ascending"]', has_text="brief").wait_for()
    lowest = min(s.value for index in range(COUNT) for s in result_at(index, "big").scores[2:3])
    column = headers.index("brief")
    cell = table.locator("tbody tr").first.locator(":scope > *").nth(column)
    assert cell.inner_text().split()[0] == f"{lowest:g}"
    page.close()


@pytest.mark.soak
def test_a_full_page_has_the_texts_that_a_single_file_leaves_out_and_needs_no_server(
    browser: Browser, tmp_path: Path, unexpected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = soak_size(10_000, 25_000)
    monkeypatch.setattr(document, "MAX_SAMPLES", 4 * count // 5)  # 20,000 of 25,000
    with RunStore(tmp_path / "runs.db") as store:
        write_run(store, "big", count, short_result)
        single_file = write_page(store, "big", tmp_path / "page.html")
        full = write_page(store, "big", tmp_path / "page", full=True)

    assert single_file.left_out > count // 2
    assert full.left_out == 0
    page = open_page(browser, full.path, unexpected, "#sample=faq-09321")
    page.locator("#samples-table .below", has_text="tool9321x").wait_for()
    page.evaluate(RECORD_STATUS)
    search(page, f"output{count - 1}x", f"1 of {count:,} samples")
    assert ids(page) == [f"faq-{count - 1:05}"]
    assert f"Searching… 0 of {count:,} texts, 0 found" in page.evaluate("statuses")
    page.close()

    page = open_page(browser, single_file.path, unexpected)
    assert "--full" in page.locator("#samples .note").inner_text()
    search(page, "no such word", "are not in this page and were not searched")
    page.close()
