"""What a run store keeps beside runs (labels, sessions, values), and how rows are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from ...errors import StoreError, UsageError
from ...evals.runs.figures import slice_figures
from ...evals.runs.scope import EVERY_ROW
from ...evals.store import RunStore, StoredRow
from ...evals.store.browse import ORDERS, RowFilter
from ...evals.store.human_labels import HumanLabel
from ...evals.store.row_browser import RowBrowser
from ...evals.store.run_store import PeopleKind
from ...runtime.session import Session
from .run_store_setup import NOW, RunStoreSetup, manifest, put, varied_rows


def label(run_id: str = "run", criterion: str = "exact", **fields: Any) -> HumanLabel:
    """Return a label of the first sample."""
    given: datetime = fields.pop("created_at", NOW)
    return HumanLabel(
        run_id=run_id,
        experiment="baseline",
        sample_id="s00",
        epoch=1,
        content="c",
        criterion=criterion,
        passed=True,
        created_at=given,
        **fields,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of any kind, with all that one is found by."""

    run_id: str
    criterion: str = "exact"
    content: str = "c"
    key: str = "k"


class PeopleSuite(RunStoreSetup):
    """Records of people, sessions and values stay as they were given."""

    def test_records_are_read_in_order_by_run_and_criterion(self, store: RunStore) -> None:
        given = [label(note=str(n)) for n in range(3)]
        assert not store.people.exist("human_labels")
        before = store.people.state()
        store.people.add("human_labels", given)
        store.people.add("human_labels", [label("other"), label(criterion="brief")])

        read = store.people.read
        assert read("human_labels", HumanLabel, run_id="run", criterion="exact") == given
        assert len(read("human_labels", HumanLabel, criterion="exact")) == 4
        assert len(read("human_labels", HumanLabel)) == 5
        assert read("calibrations", HumanLabel) == []
        assert store.people.exist("human_labels")
        assert not store.people.exist("label_draws")
        assert store.people.state() != before
        assert store.people.repair() == []

    def test_the_labels_of_a_run_are_removed_with_it(self, store: RunStore) -> None:
        kinds: tuple[PeopleKind, ...] = ("human_labels", "label_draws", "judge_tests")
        for kind in kinds:
            store.people.add(kind, [_Record("run"), _Record("other")])
        store.people.add("calibrations", [label()])
        store.delete("run")

        for kind in kinds:
            assert store.people.read(kind, _Record) == [_Record("other")]
        assert len(store.people.read("calibrations", HumanLabel)) == 1

    def test_a_session_is_stored_by_its_id(self, store: RunStore) -> None:
        session = Session(tags={"a": "1"})
        store.save(session.session_id, session)
        store.save("bytes", session.snapshot())

        assert dict(store.load(session.session_id).tags) == dict(store.load("bytes").tags)
        with pytest.raises(StoreError, match=r"found none.*save it first"):
            store.load("unknown")

    def test_the_first_value_of_a_key_stays_until_it_is_replaced(self, store: RunStore) -> None:
        assert store.find("key") is None
        assert store.keep("key", b"first") == store.keep("key", b"second") == b"first"
        store.replace("key", b"third")
        store.replace("new", b"fourth")

        assert store.find("key") == b"third"
        found = store.find_all(["key", "new", "unknown"])
        assert found == {"key": b"third", "new": b"fourth"}

    # ── looking at rows ─────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("filter", "matches"),
        [
            (RowFilter(verdict="pass"), lambda r: r.passed and not r.error),
            (RowFilter(verdict="error"), lambda r: r.error),
            (RowFilter(failed=("brief",)), lambda r: not (r.passed or r.error) and _number(r) < 12),
            (RowFilter(tools=("open",)), lambda r: _number(r) % 4 == 0),
            (RowFilter(workers=("worker 1",)), lambda r: r.worker == "worker 1"),
            (RowFilter(metadata=(("topic", "a"),)), lambda r: r.metadata["topic"] == "a"),
            (RowFilter(sample="s03"), lambda r: r.sample_id == "s03"),
            (RowFilter(samples=("s03", "s04")), lambda r: r.sample_id in ("s03", "s04")),
            (RowFilter(rows=(("baseline", "s03", 2),)), lambda r: _number(r) == 7),
            (RowFilter(text="moun high"), lambda r: False),
            (RowFilter(text="mountain 17"), lambda r: _number(r) == 17),
            (RowFilter(min_latency_ms=100, max_latency_ms=150), lambda r: 9 <= _number(r) <= 14),
            (RowFilter(max_cost=0.05), lambda r: _number(r) < 6 and _number(r) % 7),
            (RowFilter(min_cost=0.15), lambda r: (r.cost or 0) + (r.judge_cost or 0) >= 0.15),
        ],
    )
    def test_rows_are_found_by_filters(
        self, store: RunStore, filter: RowFilter, matches: Callable[[Any], bool]
    ) -> None:
        written = self._written(store)
        expected = [
            (each.result.sample_id, each.result.epoch) for each in written if matches(each.result)
        ]
        browser = store.browser()
        browser.update("run", seconds=60)
        page = browser.rows("run", filter)
        assert [(each.sample, each.epoch) for each in page.rows] == expected
        assert (page.total, page.indexed, page.of) == (len(expected), 24, 24)
        for place, (sample, epoch) in enumerate(expected):
            assert browser.offset_of("run", ("baseline", sample, epoch), filter) == place
        browser.close()

    @pytest.mark.parametrize("order", [*ORDERS, "criterion:brief"])
    @pytest.mark.parametrize("descending", [False, True])
    def test_rows_are_ordered_by_every_column(
        self, store: RunStore, order: str, descending: bool
    ) -> None:
        self._written(store)
        browser = store.browser()
        browser.update("run", seconds=60)
        rows = browser.rows("run", order=order, descending=descending).rows
        assert len(rows) == 24
        for place, each in enumerate(rows):
            key = each.experiment, each.sample, each.epoch
            assert browser.offset_of("run", key, order=order, descending=descending) == place
        pages = [browser.rows("run", order=order, descending=descending, offset=at, limit=10).rows
                 for at in (0, 10, 20)]  # fmt: skip
        assert [each for page in pages for each in page] == [*rows]
        expected = RowBrowser(store).rows("run", order=order, descending=descending)
        assert rows == expected.rows
        if order == "latency":  # a store may have no browser of its own
            values = [each.latency_ms or 0 for each in rows]
            assert values == sorted(values, reverse=descending)
        browser.close()

    def test_facets_and_slices_are_those_of_the_table(self, store: RunStore) -> None:
        self._written(store)
        browser = store.browser()
        browser.update("run", seconds=60)
        table = store.table("run", ("topic",))
        facets = browser.facets("run")
        errors = sum(table.errors)
        assert facets.verdicts["error"] == errors
        assert facets.metadata["topic"] == {"a": 12, "b": 12}
        assert facets.tools == {"search": 18, "open": 6}
        assert browser.slices("run", "topic") == slice_figures(table, EVERY_ROW, "topic")
        assert browser.columns("run") == (("exact", "brief"), True)
        assert "tool:open" in browser.facts("run")["baseline", "s00", 1]
        browser.close()

    def test_an_unknown_order_is_refused(self, store: RunStore) -> None:
        browser = store.browser()
        with pytest.raises(UsageError, match="expected one of position"):
            browser.rows("run", order="size")
        browser.close()

    def _written(self, store: RunStore) -> list[StoredRow]:
        store.begin(manifest("run"))
        written = list(varied_rows())
        put(store, *written)
        return written


def _number(result: Any) -> int:
    return int(result.output.rpartition(" ")[2])
