"""Rows of a run by filter, order and page, and the search index next to the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.view.runs import attempt, failure, hostile, put
from weakincentives.errors import UsageError
from weakincentives.evals import RunStore, open_store
from weakincentives.evals.store import StoredRow
from weakincentives.evals.store.browse import RowFilter, RunBrowser
from weakincentives.evals.store.sqlite.search_index import match_expression


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "r", [*(attempt(n, n % 4 > 0) for n in range(30)), failure(30)])
        yield store


@pytest.fixture
def browser(store: RunStore) -> Iterator[RunBrowser]:
    with store.browser() as browser:
        assert browser.update("r", seconds=60) == (31, 31)
        yield browser


def matching_samples(browser: RunBrowser, run: str = "r", **filters: object) -> list[str]:
    return [row.sample for row in browser.rows(run, RowFilter(**filters)).rows]  # type: ignore[arg-type]


def test_rows_come_in_pages_with_the_total(browser: RunBrowser) -> None:
    page = browser.rows("r", offset=10, limit=5)
    assert [row.sample for row in page.rows] == [f"q{n:03}" for n in range(10, 15)]
    assert (page.total, page.indexed, page.of) == (31, 31, 31)
    first = browser.rows("r", limit=1).rows[0]
    assert (first.verdict, first.failed, first.output) == ("fail", ("exact",), "Nowhere")
    assert first.input == "What is the capital of country 0?"
    assert first.why == "exact: not it"
    assert first.scores == {"exact": 0.0, "brief": 1.0}


def test_unknown_tokens_are_not_0(store: RunStore) -> None:
    with store.browser() as browser:
        rows = browser.rows("r", limit=31).rows
        assert {row.tokens for row in rows if row.verdict != "error"} == {60}
        assert [row.tokens for row in rows if row.verdict == "error"] == [None]


def test_an_unknown_cost_is_below_no_maximum(browser: RunBrowser) -> None:
    rows = browser.rows("r", limit=31).rows
    known = [row.sample for row in rows if row.cost is not None]

    assert 0 < len(known) < len(rows)
    assert matching_samples(browser, max_cost=1e9) == known


def test_rows_are_listed_before_they_are_indexed(store: RunStore) -> None:
    with store.browser() as browser:
        page = browser.rows("r")
        assert (page.total, page.indexed, page.rows[0].input) == (31, 0, "")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"verdict": "error"}, ["q030"]),
        (
            {"verdict": "fail", "metadata": (("level", "easy"),)},
            [f"q{n:03}" for n in range(0, 30, 4)],
        ),
        ({"verdict": "fail", "metadata": (("level", "hard"),)}, []),
        ({"failed": ("exact",), "max_latency_ms": 104}, ["q000", "q004"]),
        ({"failed": ("brief",)}, []),
        ({"text": "country 17"}, ["q017"]),
        ({"text": '"result 1 of 12"'}, ["q012"]),
        ({"text": "nowh", "min_latency_ms": 125}, ["q028"]),
        ({"tools": ("open",), "text": '"page 3"'}, ["q003"]),
        ({"tools": ("close",)}, []),
        ({"text": "refused"}, ["q030"]),
        ({"text": 'unbalanced " AND OR ('}, []),
        ({"sample": "q007"}, ["q007"]),
        ({"samples": ("q007", "q009")}, ["q007", "q009"]),
        ({"min_cost": 1.0}, []),
    ],
)
def test_filters(browser: RunBrowser, filters: dict[str, object], expected: list[str]) -> None:
    assert matching_samples(browser, **filters) == expected


def test_orders(browser: RunBrowser) -> None:
    def first_samples(name: str, descending: bool = False) -> list[str]:
        page = browser.rows("r", order=name, descending=descending, limit=3)
        return [row.sample for row in page.rows]

    assert first_samples("latency", descending=True) == ["q029", "q028", "q027"]
    assert first_samples("verdict", descending=True)[0] == "q030"
    assert first_samples("criterion:exact") == ["q000", "q004", "q008"]
    assert first_samples("criterion:exact", descending=True) == ["q001", "q002", "q003"]
    assert first_samples('criterion:no "such"') == ["q000", "q001", "q002"]
    with pytest.raises(UsageError, match="expected one of position, sample"):
        first_samples("1; DROP TABLE rows")
    assert browser.offset_of("r", ("baseline", "q028", 1), order="latency", descending=True) == 1
    assert browser.offset_of("r", ("baseline", "no", 1)) is None


def test_facets_and_slices(browser: RunBrowser) -> None:
    facets = browser.facets("r")
    assert facets.verdicts == {"pass": 22, "fail": 8, "error": 1}
    assert (facets.failed, facets.tools) == ({"exact": 8}, {"open": 30, "search": 30})
    assert facets.metadata == {"level": {"easy": 15, "hard": 15}}
    (key,) = facets.errors
    assert matching_samples(browser, errors=(key,)) == ["q030"]
    slices = browser.slices("r", "level")
    assert [(name, each.total, each.passed) for name, each in slices.items()] == [
        ("easy", 15, 7),
        ("hard", 15, 15),
        ("(none)", 1, 0),
    ]
    assert [*browser.slices("r", "level%")] == ["(none)"]


def test_the_index_follows_new_changed_and_removed_rows(
    store: RunStore, browser: RunBrowser
) -> None:
    store.put(StoredRow(result=replace(attempt(77, True), run_id="r"), position=77))
    store.put(
        StoredRow(result=replace(attempt(0, True), run_id="r"), position=0, sample_digest="new")
    )
    store.flush()
    assert browser.update("r", seconds=60) == (32, 32)
    assert matching_samples(browser, text='"country 77"') == ["q077"]
    assert matching_samples(browser, text='"City 0"', verdict="pass") == ["q000"]
    assert "q000" not in matching_samples(browser, text="Nowhere")

    store.delete("r")
    put(store, "r", [attempt(5, False)])
    assert browser.update("r", seconds=60) == (1, 1)
    assert browser.facets("r").failed == {"exact": 1}
    assert matching_samples(browser, text="country") == ["q005"]


def test_the_index_is_only_a_cache(store: RunStore, tmp_path: Path) -> None:
    index = tmp_path / "runs.db-index"
    index.write_bytes(b"this is no database at all" * 100)
    with store.browser() as browser:
        assert browser.update("r", seconds=60) == (31, 31)
    assert index.stat().st_mode & 0o777 == 0o600 or index.stat().st_size > 0
    with store.browser() as reopened:
        assert reopened.update("r", seconds=60) == (31, 31)
        assert matching_samples(reopened, text="refused") == ["q030"]


def test_an_index_that_cannot_be_written_is_no_problem(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "runs.db-index").mkdir()
    with store.browser() as browser:
        assert browser.update("r", seconds=60) == (31, 31)


def test_hostile_texts_are_treated_as_text(store: RunStore) -> None:
    put(store, "h", [hostile()])
    with store.browser() as browser:
        browser.update("h", seconds=60)
        facets = browser.facets("h")
        ((key, values),) = facets.metadata.items()
        (value,) = values
        assert len(matching_samples(browser, "h", metadata=((key, value),))) == 1
        assert len(matching_samples(browser, "h", failed=tuple(facets.failed))) == 1
        assert len(matching_samples(browser, "h", text="onerror=alert(1)")) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  ", ""),
        ("one", '"one" *'),
        ("one two", '"one" "two" *'),
        ("one ", '"one"'),
        ('"port 80"', '"port 80"'),
        ('a"b', '"a" "b" *'),
    ],
)
def test_words_become_a_full_text_query(text: str, expected: str) -> None:
    assert match_expression(text) == expected


def test_rows_are_included_and_excluded_by_their_keys(store: RunStore) -> None:
    unusual_ids = ["nul\0id", "lone\ud800", "quote'--", "ordinary"]
    results = [replace(attempt(n, True), sample_id=name) for n, name in enumerate(unusual_ids)]
    put(store, "odd", results)
    keys = [("baseline", name, 1) for name in unusual_ids]
    with store.browser() as browser:
        for key in keys:
            assert matching_samples(browser, "odd", rows=(key,)) == [key[1]]
            assert key[1] not in matching_samples(browser, "odd", without_rows=(key,))
        assert matching_samples(browser, "odd", rows=()) == []
        assert matching_samples(browser, "odd", rows=(("baseline", "none", 1),)) == []
        assert matching_samples(browser, "odd", without_rows=tuple(keys[:3])) == ["ordinary"]
