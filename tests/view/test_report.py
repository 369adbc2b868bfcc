"""`wink eval report`: the page as a file has what the server answers, and works without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.view.accessibility import accessibility_problems, width_on_a_phone
from tests.view.conftest import Open, Serve
from tests.view.files import answers_in, policy_of
from tests.view.runs import ATTACK, attempt, put
from weakincentives import serde
from weakincentives.chat import ChatMessage
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import EvalReport, EvalResult, RunStore, Trajectory, open_store
from weakincentives.evals.model.corrections import Correction
from weakincentives.evals.review import LabelChange, give_label
from weakincentives.evals.stats.intervals import rate_interval
from weakincentives.view import write_page, write_report_page
from weakincentives.view.api import Api

if TYPE_CHECKING:
    from playwright.sync_api import Page

UGLY = f"</script><script>window.injected = 1</script><!--{ATTACK}\u202eabc\u2066\0\x1b[31m\ud800"
RTL = "שלום עולם, זה מבחן " * 20


@pytest.fixture(scope="module")
def store(store_path: Path) -> Iterator[RunStore]:
    with open_store(store_path) as store:
        row = "baseline", "q001", 1
        give_label(store, "second", row, "ann", LabelChange(passed=False))
        yield store


@pytest.fixture(scope="module")
def file(store: RunStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of two runs that are compared."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(store, "second", path, compare="first")
    return path


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that stores results as a run and writes its file."""

    def write(*results: EvalResult[Any]) -> Path:
        with open_store(tmp_path / "ugly.db") as store:
            put(store, "ugly", [*results])
            return write_page(store, "ugly", tmp_path / "ugly.html").path

    return write


def table_at(page: Page, address: str) -> tuple[list[str], str]:
    """Return the samples of the table at an address, and how many there are in words."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("main:not([aria-busy]) wink-table .row")
    samples = page.locator("wink-table .rows [role=rowheader]").all_inner_texts()
    return samples, page.locator(".filters [role=status]").inner_text()


# ── what is in the file ─────────────────────────────────────────────────────────────────────────


def test_the_answers_in_the_file_are_those_of_the_server(store: RunStore, file: Path) -> None:
    api, answers = Api(store), answers_in(file)
    pair = ["first", "second"]
    key = {"run": ["second"], "sample": ["q003"]}
    for name, query in (
        ("run", {"run": ["second"]}),
        ("facets", {"run": ["first"]}),
        ("slices", {"run": ["second"], "by": ["level"]}),
        ("sample", key),
        ("sample", {**key, "epoch": ["1"], "experiment": ["baseline"]}),
        ("compare", {"run": pair}),
        ("divergences", {"run": pair}),
        ("aligned", {"run": pair, "sample": ["q001"]}),
        ("flip", {"run": pair, "sample": ["q001"]}),
    ):
        address = f"/api/{name}?" + "&".join(f"{k}={v}" for k, vs in query.items() for v in vs)
        assert answers[address] == json.loads(serde.encode(getattr(api, name)(query))), address
    api.close()


def test_the_policy_allows_one_script_and_one_style_and_no_request(file: Path) -> None:
    policy, hash = policy_of(file), r"'sha256-[\w+/=]{44}'"
    assert re.fullmatch(hash, policy.pop("script-src"))
    assert re.fullmatch(hash, policy.pop("style-src"))
    assert policy.pop("img-src") == "data:"
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")


def test_a_report_in_memory_has_a_page(tmp_path: Path) -> None:
    results = [attempt(n, n > 1, epoch=epoch) for epoch in (1, 2) for n in range(4)]
    judged = Correction(criterion="exact", judged=rate_interval(3, 6), problem="the judge changed")
    report = EvalReport(
        *(results, "memory", "capitals"),
        quarantined=["q000"],
        corrections=[judged],
        mixed="several versions",
    )
    answers = answers_in(write_report_page(report, tmp_path / "memory.html").path)
    assert str(report).startswith("4/6 passed")
    shown = answers["/api/run?run=memory"]
    assert (shown["headline"], shown["mixed"]) == (str(report), "several versions")
    assert [each["problem"] for each in shown["corrections"]] == ["the judge changed"]
    (first, *_) = answers["/api/table?run=memory&page=0"]
    assert (first["sample"], len(answers["/api/sample?run=memory&sample=q000"]["siblings"])) == (
        "q000",
        2,
    )


def test_the_earlier_place_of_write_page_still_has_it() -> None:
    from weakincentives import evals

    with pytest.deprecated_call():
        assert evals.write_page is write_page  # type: ignore[attr-defined]


def test_a_cut_comparison_has_both_sides_of_its_samples(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.view.page_file.MAX_SAMPLES", 5)
    answers = answers_in(write_page(store, "second", tmp_path / "x.html", "first").path)
    aligned = {key: value for key, value in answers.items() if key.startswith("/api/aligned")}
    assert len(aligned) == 9  # five of each run, of which one is the same
    assert all(len(answer["sides"]) == 2 and all(answer["sides"]) for answer in aligned.values())


def test_a_store_in_a_folder_without_an_index_has_filters(tmp_path: Path) -> None:
    (tmp_path / "runs.db-index").mkdir()  # so it is made elsewhere
    with open_store(tmp_path / "runs.db") as store:
        put(store, "run", [attempt(0, True)])
        file = write_page(store, "run", tmp_path / "run.html").path
    (row,) = answers_in(file)["/api/table?run=run&page=0"]
    assert row["facts"] == ["metadata:level=easy", "tool:open", "tool:search", "label:none"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(
    store: RunStore, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="two to 5 runs"):
        write_page(
            store, "first", tmp_path / "x.html", ["second", "epochs", "wide", "errors", "detailed"]
        )
    with pytest.raises(StoreError, match="expected a file to write to"):
        write_page(store, "first", tmp_path / "none" / "x.html")
    assert list(tmp_path.iterdir()) == []


def test_a_large_run_keeps_samples_with_a_failure_in_any_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.view.page_file.MAX_SAMPLES", 2)
    results = [attempt(n, (n, e) != (3, 2), epoch=e) for n in range(5) for e in (1, 2)]
    with open_store(tmp_path / "runs.db") as store:
        put(store, "large", results)
        page = write_page(store, "large", tmp_path / "large.html")
        assert not write_page(store, "large", tmp_path / "full.html", full=True).note
    assert page.note.startswith(
        "This file has 2 of the 5 samples of the run large: those with a failure"
    )
    answers = answers_in(page.path)
    kept = [(row["sample"], row["epoch"]) for row in answers["/api/table?run=large&page=0"]]
    assert kept == [("q000", 1), ("q000", 2), ("q003", 1), ("q003", 2)]
    assert answers["/api/run?run=large"]["total"] == 10


# ── in a browser ────────────────────────────────────────────────────────────────────────────────


QUERIES = (
    "verdict=fail&order=latency&desc=1",
    "failed=exact&meta=level%3Dhard",
    "tool=open&order=tokens&min_latency=120&max_latency=130",
    "error=agent+%7C+ConnectionError+%7C+agent.py%3A12+in+ask",
    "order=criterion%3Aexact",
    "order=criterion%3Aexact&desc=1",
    "order=verdict&desc=1",
    "order=sample&desc=1&label=none",
    "label=fail",
    "q=country+13",
    "q=%22the+capital%22+NOWH",
    "q=capital+the",
    "q=%22capital+the%22",
    "q=q01",
    "q=%21%21",
    "max_cost=1000",
    "min_cost=0.002",
)


def test_the_file_filters_sorts_and_searches_as_the_server_does(
    opened: Open, address: str, file: Path
) -> None:
    pages = {start: opened(f"{start}#/run/second") for start in (address, file.as_uri())}
    for query in QUERIES:
        live, offline = (
            table_at(page, f"{start}#/run/second?{query}") for start, page in pages.items()
        )
        assert offline == live, query
    assert live[1] == "0 rows"


def test_samples_and_comparisons_are_walked_without_a_server(opened: Open, file: Path) -> None:
    page = opened(file.as_uri())
    page.wait_for_selector("text=Most diverge at step 2: open not called (8 of 8).")
    page.get_by_role("button", name="still failing 4").click()
    page.wait_for_selector("[aria-pressed=true]:has-text('failing')")
    assert page.locator(".matrix tbody tr").count() == 4
    page.locator(".matrix tbody th a").first.click()
    page.wait_for_selector("text=The trajectories do not diverge.")
    page.goto(f"{file.as_uri()}#/run/second?verdict=fail&q=nowhere")
    assert page.get_by_role("link", name="Compare with the run before").count() == 1
    page.locator("wink-table a").nth(1).click()
    page.wait_for_selector("text=2 of 12")
    page.keyboard.press("j")
    page.wait_for_selector("text=3 of 12")
    assert page.locator(".why").inner_text() == "exact: not it"
    page.get_by_role("link", name="Runs").first.click()
    page.wait_for_selector("text=2 runs")
    page.get_by_role("link", name="WINK Evals").click()
    page.wait_for_selector("h1:text('Compare 2 runs')")


def test_every_slice_is_in_the_file(opened: Open, written: Callable[..., Path]) -> None:
    results = [
        replace(attempt(n, n > 1), metadata={"level": n % 2, "topic": f"t{n % 3}"})
        for n in range(6)
    ]
    page = opened(written(*results).as_uri())
    for key, lines in (("level", 2), ("topic", 3)):
        page.get_by_label("Pass rate by").select_option(key)
        page.wait_for_function(f"document.querySelectorAll('.sliced tr').length === {lines}")


def test_hostile_texts_are_shown_and_nothing_runs(opened: Open, written: Any) -> None:
    trajectory = Trajectory([ChatMessage("assistant", UGLY)], UGLY, metadata={"m": UGLY})
    path = written(
        attempt(0, False, sample_id=UGLY[:80], trajectory=trajectory),
        attempt(1, True, sample_id="\ud800"),
    )
    page = opened(path.as_uri())
    page.locator("wink-table a").first.click()
    page.wait_for_selector(".timeline")
    assert page.evaluate("window.injected") is None
    assert page.locator("main img, main iframe, main script").count() == 0
    output = page.locator(".part[aria-label=Output] .text").inner_text()
    assert "</script><script>window.injected = 1</script><!--" in output
    assert "\\u202eabc\\u2066\\u0000\\u001b[31m" in output


def test_long_texts_and_conversations_are_whole_in_the_file(opened: Open, written: Any) -> None:
    messages = [ChatMessage("assistant", f"word{n}") for n in range(450)]
    long = "x" * 1_000_000 + " needle"
    path = written(attempt(0, True, trajectory=Trajectory(messages, long)), attempt(1, True))
    page = opened(path.as_uri() + "#/run/ugly?q=needle")
    page.wait_for_selector("text=1 row")
    page.goto(path.as_uri() + "#/run/ugly?q=word449")
    page.wait_for_selector("text=1 row")
    page.locator("wink-table a").first.click()
    page.get_by_role("button", name="Show the whole text").click()
    page.wait_for_selector("text=Show all 1,000,007 characters")
    for left in ("250", "50"):
        page.get_by_role("button", name=re.compile(f"of {left}$")).click()
    page.wait_for_selector("text=word449")


def test_a_saved_view_has_long_texts_whole(opened: Open, serve: Serve, tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "long", [attempt(0, True, trajectory=Trajectory(output="x" * 200_000))])
    page = opened(f"{serve(tmp_path / 'runs.db')}#/sample/long/q000")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save view").click()
    download.value.save_as(tmp_path / "view.html")
    saved = opened((tmp_path / "view.html").as_uri())
    saved.get_by_role("button", name="Show the whole text").click()
    saved.wait_for_selector("text=Show all 200,000 characters")


def test_a_printed_page_has_no_controls(opened: Open, file: Path) -> None:
    page = opened(f"{file.as_uri()}#/run/second")
    page.emulate_media(media="print")
    assert not page.get_by_label("Search samples").is_visible()
    assert page.locator(".verdict").is_visible()


def test_an_empty_run_and_one_with_every_detail_have_a_page(
    opened: Open, store: RunStore, tmp_path: Path
) -> None:
    for name, text in (("empty", "This run has no rows."), ("detailed", "1 row")):
        page = opened(write_page(store, name, tmp_path / f"{name}.html").path.as_uri())
        page.wait_for_selector(f"text={text}")


@pytest.mark.parametrize("view", ["", "#/run/second", "#/sample/second/q001", "#/"])
def test_the_file_is_accessible_and_fits_a_phone(opened: Open, file: Path, view: str) -> None:
    page = opened(file.as_uri() + view)
    assert accessibility_problems(page) == []
    assert width_on_a_phone(page) <= 390
