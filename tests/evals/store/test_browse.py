"""Rows of a run by filter, order and page, and the search index beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.view.runs import attempt, failure, hostile, put
from weakincentives.errors import UsageError
from weakincentives.evals import RunStore, StoredRow
from weakincentives.evals.store.browse import RowFilter, RunBrowser
from weakincentives.evals.store.search_index import match_expression


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "runs.db") as store:
        put(store, "r", [*(attempt(n, n % 4 > 0) for n in range(30)), failure(30)])
        yield store


@pytest.fixture
def browser(store: RunStore) -> Iterator[RunBrowser]:
    with RunBrowser(store) as browser:
        assert browser.update("r", seconds=60) == (31, 31)
        yield browser


def found(browser: RunBrowser, run: str = "r", **filters: object) -> list[str]:
    return [row.sample for row in browser.rows(run, RowFilter(**filters)).rows]  # type: ignore[arg-type]


def test_rows_come_in_pages_with_their_number(browser: RunBrowser) -> None:
    page = browser.rows("r", offset=10, limit=5)
    assert [row.sample for row in page.rows] == [f"q{n:03}" for n in range(10, 15)]
    assert (page.total, page.indexed, page.of) == (31, 31, 31)
    first = browser.rows("r", limit=1).rows[0]
    assert (first.verdict, first.failed, first.output) == ("fail", ("exact",), "Nowhere")
    assert first.input == "What is the capital of country 0?"
    assert first.why == "exact: not it"
    assert first.scores == {"exact": 0.0, "brief": 1.0}


def test_rows_can_be_seen_before_they_are_indexed(store: RunStore) -> None:
    with RunBrowser(store) as browser:
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
    assert found(browser, **filters) == expected


def test_orders(browser: RunBrowser) -> None:
    def order(name: str, descending: bool = False) -> list[str]:
        page = browser.rows("r", order=name, descending=descending, limit=3)
        return [row.sample for row in page.rows]

    assert order("latency", descending=True) == ["q029", "q028", "q027"]
    assert order("verdict", descending=True)[0] == "q030"
    assert order("criterion:exact") == ["q000", "q004", "q008"]
    assert order("criterion:exact", descending=True) == ["q001", "q002", "q003"]
    assert order('criterion:no "such"') == ["q000", "q001", "q002"]
    with pytest.raises(UsageError, match="expected one of position, sample"):
        order("1; DROP TABLE rows")
    assert browser.offset_of("r", ("baseline", "q028", 1), order="latency", descending=True) == 1
    assert browser.offset_of("r", ("baseline", "no", 1)) is None


def test_facets_and_slices(browser: RunBrowser) -> None:
    facets = browser.facets("r")
    assert facets.verdicts == {"pass": 22, "fail": 8, "error": 1}
    assert (facets.failed, facets.tools) == ({"exact": 8}, {"open": 30, "search": 30})
    assert facets.metadata == {"level": {"easy": 15, "hard": 15}}
    (key,) = facets.errors
    assert found(browser, errors=(key,)) == ["q030"]
    assert browser.slices("r", "level") == {"easy": (15, 7, 0), "hard": (15, 15, 0)}
    assert browser.slices("r", "level%") == {}
    assert sum(browser.histogram("r")) == 30


def test_new_changed_and_removed_rows_are_followed(store: RunStore, browser: RunBrowser) -> None:
    store.put(StoredRow(result=replace(attempt(77, True), run_id="r"), position=77))
    store.put(
        StoredRow(result=replace(attempt(0, True), run_id="r"), position=0, sample_digest="new")
    )
    store.flush()
    assert browser.update("r", seconds=60) == (32, 32)
    assert found(browser, text='"country 77"') == ["q077"]
    assert found(browser, text='"City 0"', verdict="pass") == ["q000"]
    assert "q000" not in found(browser, text="Nowhere")

    store.delete("r")
    put(store, "r", [attempt(5, False)])
    assert browser.update("r", seconds=60) == (1, 1)
    assert browser.facets("r").failed == {"exact": 1}
    assert found(browser, text="country") == ["q005"]


def test_the_index_is_only_a_cache(store: RunStore, tmp_path: Path) -> None:
    index = tmp_path / "runs.db-index"
    index.write_bytes(b"this is no database at all" * 100)
    with RunBrowser(store) as browser:
        assert browser.update("r", seconds=60) == (31, 31)
    assert index.stat().st_mode & 0o777 == 0o600 or index.stat().st_size > 0
    with RunBrowser(store) as again:
        assert again.update("r", seconds=60) == (31, 31)
        assert found(again, text="refused") == ["q030"]


def test_a_folder_that_cannot_be_written_is_no_problem(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "runs.db-index").mkdir()
    with RunBrowser(store) as browser:
        assert browser.update("r", seconds=60) == (31, 31)


def test_hostile_texts_are_only_texts(store: RunStore) -> None:
    put(store, "h", [hostile()])
    with RunBrowser(store) as browser:
        browser.update("h", seconds=60)
        facets = browser.facets("h")
        ((key, values),) = facets.metadata.items()
        (value,) = values
        assert len(found(browser, "h", metadata=((key, value),))) == 1
        assert len(found(browser, "h", failed=tuple(facets.failed))) == 1
        assert len(found(browser, "h", text="onerror=alert(1)")) == 1


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
def test_words_become_a_query(text: str, expected: str) -> None:
    assert match_expression(text) == expected


def test_rows_are_chosen_and_left_out_by_their_keys(store: RunStore) -> None:
    odd = ["nul\0id", "lone\ud800", "quote'--", "ordinary"]
    results = [replace(attempt(n, True), sample_id=name) for n, name in enumerate(odd)]
    put(store, "odd", results)
    keys = [("baseline", name, 1) for name in odd]
    with RunBrowser(store) as browser:
        for key in keys:
            assert found(browser, "odd", rows=(key,)) == [key[1]]
            assert key[1] not in found(browser, "odd", without_rows=(key,))
        assert found(browser, "odd", rows=()) == []
        assert found(browser, "odd", rows=(("baseline", "none", 1),)) == []
        assert found(browser, "odd", without_rows=tuple(keys[:3])) == ["ordinary"]
