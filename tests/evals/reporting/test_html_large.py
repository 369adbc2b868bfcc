"""The page of a large run in a real browser: nothing is left out, and search finds everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import (
    ErrorDetails,
    EvalResult,
    Metric,
    RunManifest,
    RunStore,
    Sample,
    Score,
    StoredRow,
    Trajectory,
)
from weakincentives.evals.reporting.html import WrittenPage, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
CRITERIA = ("correct", "grounded", "brief", "polite")
TOPICS = ("billing", "returns", "shipping", "accounts")
COUNT = 2_000


def prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def result_of(at: int, run_id: str) -> EvalResult[Any]:
    """A sample of about 3 KB with a conversation; a word of it is in no other sample."""
    chance = random.Random(f"{run_id} {at}")
    same = random.Random(at)
    sample_id = f"faq-{at:05}"
    metadata = {"topic": TOPICS[at % 4], "level": at % 5, "source": f"document {at}"}
    sample = Sample(sample_id, f"What about {prose(same, 60)}?", prose(same, 30), metadata)
    common = {"sample": sample, "metadata": metadata, "run_id": run_id}
    if at % 40 == 7:
        details = ErrorDetails("ConnectionError", "rag.py:41 in retrieve", "Traceback:\n  rag.py")
        error = f"refused trace{at}x"
        more = {"error": error, "error_source": "agent", "error_details": details}
        return EvalResult(sample_id, Score(0.0, False), chance.randrange(900), **common, **more)
    output = f"{prose(same, 40)} {prose(chance, 12)} output{at}x {prose(same, 30)}"
    call = ToolCall(f"call_{at}", "search", {"query": f"{prose(chance, 4)} call{at}x"})
    found = f'{{"documents": ["{prose(chance, 70)}", "tool{at}x"], "score": 0.75}}'
    messages = (
        ChatMessage("system", "Answer from the documents."),
        ChatMessage("user", sample.input),
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", found, tool_call_id=call.id),
        ChatMessage("assistant", output),
    )
    metrics = [
        Metric(name, value, 1.0, {"passed": value >= 0.5, "reason": f"{prose(chance, 9)} why{at}x"})
        for name in CRITERIA
        for value in (round(min(1.0, chance.random() + 0.4), 2),)
    ]
    score = Score(metrics=metrics, passed=all(metric.value >= 0.5 for metric in metrics))
    usage = TokenUsage(chance.randrange(200, 900), chance.randrange(20, 90))
    trajectory = Trajectory(messages, output, usage, cost=usage.total_tokens * 2e-6)
    return EvalResult(
        sample_id, score, chance.randrange(90, 4_000), **common, trajectory=trajectory
    )


def short_result(at: int, run_id: str) -> EvalResult[Any]:
    output = f"{prose(random.Random(at), 150)} output{at}x"
    messages = (ChatMessage("assistant", f"tool{at}x"),)
    trajectory = Trajectory(messages, output)
    score = Score(at % 3 / 2)
    return EvalResult(f"faq-{at:05}", score, trajectory=trajectory, run_id=run_id)


def write_run(
    store: RunStore,
    run_id: str,
    count: int,
    result: Callable[[int, str], EvalResult[Any]] = result_of,
) -> None:
    about = {"model": f"demo/{run_id}", "dataset_name": "faq", "planned": count}
    store.begin(RunManifest(run_id=run_id, created_at=datetime.now(UTC), **about))
    for at in range(count):
        store.put(StoredRow(result=result(at, run_id), position=at))
        if store.behind(2_000):
            store.flush()
    store.finish(run_id, "complete")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> WrittenPage:
    """The page of two runs of 2,000 samples."""
    folder = tmp_path_factory.mktemp("large")
    with RunStore(folder / "runs.db") as store:
        for run_id in ("small", "big"):
            write_run(store, run_id, COUNT)
        return write_page(store, "big", folder / "page.html", compare="small")


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What a page loaded over a network, and what it complained about: nothing."""
    found: list[str] = []
    yield found
    assert found == []


def opened(browser: Browser, path: Path, complaints: list[str], address: str = "") -> Page:
    page = browser.new_page()
    page.set_default_timeout(120_000)  # milliseconds, for a busy machine
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    page.goto(path.as_uri() + address)
    page.locator("#samples-table tbody tr").first.wait_for()
    return page


def ids(page: Page) -> list[str]:
    return page.locator("#samples-table button.opens").all_inner_texts()


def find(page: Page, words: str, count: str) -> None:
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


def test_all_texts_and_transcripts_of_2000_samples_are_there(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints)
    texts = dict(zip(page.evaluate("data.id"), page.evaluate(EVERYTHING), strict=True))
    for at in range(COUNT):
        result = result_of(at, "big")
        text = texts[result.sample_id]
        words = ("trace",) if result.error else ("output", "call", "tool", "why")
        assert result.sample is not None
        assert result.sample.input in text
        assert result.sample.expected in text
        assert [word for word in words if f"{word}{at}x" not in text] == []
    assert (large.left_out, large.rows, large.note) == (0, COUNT, "")
    page.close()


def test_the_page_says_its_size(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints)
    size = large.path.stat().st_size
    assert abs(large.size - size) < 500
    assert f"This file has {size / 1e6:.1f} MB." in page.locator("footer").inner_text()
    page.close()


def test_search_covers_metadata_reasons_and_transcripts(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints)
    find(page, "SOURCE", "2,000 samples")
    for words in ("tool1234x", "why1234x", "call1234x", "document 1234", "output1234x"):
        find(page, words, "1 of 2,000 samples")
        assert ids(page) == ["faq-01234"]
    find(page, "trace1207x", "1 of 2,000 samples")
    assert ids(page) == ["faq-01207"]
    find(page, "no such word", "0 of 2,000 samples")
    page.close()


def test_the_first_fifty_flips_have_both_sides(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints)
    flips = page.locator("#flips-table")
    assert flips.locator("button.opens").count() == 50
    for button in flips.locator("button.opens").all():
        button.click()
    flips.locator(".sides").nth(49).wait_for()
    sheets = flips.locator(".sheet").all_inner_texts()
    assert [text[:2] for text in sheets] == ["A:", "B:"] * 50
    for at, sample_id in enumerate(flips.locator("button.opens").all_inner_texts()):
        number = int(sample_id.removeprefix("faq-"))
        sides = zip(("small", "big"), sheets[2 * at : 2 * at + 2], strict=True)
        for run_id, text in sides:
            result = result_of(number, run_id)
            assert (result.output or result.error) in text
    below = flips.locator(".below").first
    assert below.get_by_text("What about", exact=False).first.is_visible()
    assert below.get_by_role("heading", name="Input").count() == 1
    assert below.locator("del").count() > 0
    assert below.locator("ins").count() > 0
    assert "Criteria that flipped" in below.inner_text()
    page.close()


def test_a_link_opens_a_sample_and_another_one_has_the_filters(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints, "#sample=faq-01234")
    page.locator("#samples-table .below", has_text="output1234x").first.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "faq-01234"
    page.locator("#samples-table").get_by_label("Show").select_option("fail")
    page.locator("#samples-table").get_by_label("Metadata").select_option("topic=returns")
    page.locator("#samples-table").get_by_label("Criterion failed").select_option("brief")
    address = page.evaluate("location.hash")
    expected = [
        result.sample_id
        for result in (result_of(at, "big") for at in range(1, COUNT, 4))
        if any(score.criterion == "brief" and not score.passed for score in result.scores)
    ]
    assert page.locator("#samples-table .count").inner_text() == f"{len(expected)} of 2,000 samples"
    other = opened(browser, large.path, complaints, address.split("&sample")[0])
    assert ids(other) == expected[:50]
    assert other.locator("#samples-table").get_by_label("Metadata").input_value() == "topic=returns"
    page.close()
    other.close()


def test_each_criterion_has_a_column_with_value_and_mark(
    browser: Browser, large: WrittenPage, complaints: list[str]
) -> None:
    page = opened(browser, large.path, complaints)
    table = page.locator("#samples-table table.samples")
    heads = [head.strip() for head in table.locator("thead th").all_inner_texts()]
    first = table.locator("tbody tr").first.locator(":scope > *").all_inner_texts()
    cells = dict(zip(heads, first, strict=True))
    for score in result_of(0, "big").scores:
        mark = "passed" if score.passed else "failed"
        assert cells[score.criterion].split() == [f"{score.value:g}", mark]
    table.get_by_role("button", name="brief").click()
    table.locator('th[aria-sort="ascending"]', has_text="brief").wait_for()
    lowest = min(s.value for at in range(COUNT) for s in result_of(at, "big").scores[2:3])
    column = heads.index("brief")
    cell = table.locator("tbody tr").first.locator(":scope > *").nth(column)
    assert cell.inner_text().split()[0] == f"{lowest:g}"
    page.close()


def test_a_folder_has_25000_samples_and_needs_no_server(
    browser: Browser, tmp_path: Path, complaints: list[str]
) -> None:
    count = 25_000
    with RunStore(tmp_path / "runs.db") as store:
        write_run(store, "big", count, short_result)
        alone = write_page(store, "big", tmp_path / "page.html")
        written = write_page(store, "big", tmp_path / "page", full=True)

    assert alone.left_out > 10_000
    assert written.left_out == 0
    page = opened(browser, written.path, complaints, "#sample=faq-24321")
    page.locator("#samples-table .below", has_text="tool24321x").wait_for()
    page.evaluate(RECORD_STATUS)
    find(page, "output24999x", "1 of 25,000 samples")
    assert ids(page) == ["faq-24999"]
    assert "Searching… 0 of 25,000 texts, 0 found" in page.evaluate("statuses")
    page.close()

    page = opened(browser, alone.path, complaints)
    assert "--full" in page.locator("#samples .note").inner_text()
    find(page, "no such word", "are not in this page and were not searched")
    page.close()
