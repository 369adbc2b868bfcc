"""The rows of a run store: what is put, what is read, what is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ...errors import StoreError, UsageError
from ...evals import EvalResult
from ...evals.runs.table import RunTable, row_of
from ...evals.store import KeyState, RowKey, StoredRow
from ...evals.store.run_store import RowKind
from .run_store_setup import RunStoreSetup, manifest, put, row, varied_rows

_puts = st.builds(
    row,
    st.sampled_from("ab"),
    st.sampled_from([0.0, 0.25, 1.0]),
    criteria=st.sampled_from("xy"),
    sample_digest=st.sampled_from("12"),
    attempt=st.integers(1, 3),
    error=st.sampled_from([None, "lost"]),
)


@dataclass(frozen=True, slots=True)
class _Error:
    """The error of a result."""

    error: str | None


def _kept(rows: Sequence[StoredRow]) -> dict[str, StoredRow]:
    """Return the rows that stay, by sample, of those that were put one after the other."""
    kept: dict[str, StoredRow] = {}
    for new in rows:
        old = kept.get(new.result.sample_id)
        if (
            old is None
            or (old.criteria, old.sample_digest) != (new.criteria, new.sample_digest)
            or (old.result.error is not None and old.result.attempt < new.result.attempt)
        ):
            kept[new.result.sample_id] = new
    return kept


def _key(result: EvalResult[Any]) -> RowKey:
    return result.experiment_name, result.sample_id, result.epoch


class RowSuite(RunStoreSetup):
    """What is put is read."""

    def test_every_field_of_a_row_is_read_as_it_was_written(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            written = list(varied_rows())
            put(store, *written)

            assert list(store.rows("run")) == written
            assert [store.row("run", *_key(each.result)) for each in written] == written
            assert store.row("run", "baseline", "s00", 3) is None

    # The suite is inherited, so different classes run the same test.
    @settings(
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    )
    @given(rows=st.lists(_puts, max_size=8), batch=st.integers(1, 8))
    def test_the_first_row_of_a_key_stays_but_for_its_exceptions(
        self, rows: list[StoredRow], batch: int
    ) -> None:
        with self.make("laws") as store:
            if "run" in store.run_ids():
                store.delete("run")
            store.begin(manifest("run"))
            for start in range(0, len(rows), batch):
                put(store, *rows[start : start + batch])

            stored = {each.result.sample_id: each for each in store.rows("run")}
            assert stored == _kept(rows)

    def test_a_result_that_arrives_again_changes_nothing(self) -> None:
        lost: dict[str, Any] = {"error": "lost", "error_source": "agent", "attempt": 2}
        first = [row("1", latency_ms=1, **lost), row("2", latency_ms=1)]
        with self.make("runs") as store:
            store.begin(manifest("run"))
            put(store, *first)
            put(store, row("1", latency_ms=9, **lost), row("2", latency_ms=9))

            assert list(store.rows("run")) == first

    @pytest.mark.parametrize(
        "unusual",
        ["ключ", "'\";--", "a" * 100_000, "\ud800", "x\x00y", "%_", "../..", "\U0001f600", " "],
        ids=lambda unusual: ascii(unusual[:8]),
    )
    def test_unusual_ids_are_stored(self, unusual: str) -> None:
        with self.make("runs") as store:
            store.begin(manifest(unusual))
            ids: dict[str, Any] = {
                "experiment_name": unusual,
                "run_id": unusual,
                "criteria": unusual,
            }
            put(store, row(unusual, position=0, **ids), row(unusual + "2", position=1, **ids))
            store.finish(unusual, "stopped", unusual)

            assert [r.result.sample_id for r in store.rows(unusual)] == [unusual, unusual + "2"]
            assert set(store.keys(unusual)) == {(unusual, unusual, 1), (unusual, unusual + "2", 1)}
            assert store.run(unusual).note == unusual
            store.delete(unusual)
            assert store.run_ids() == []

    def test_rows_come_by_position_epoch_and_experiment(self) -> None:
        keys = [(p, e, x) for p in range(20) for e in (1, 2) for x in ("a", "b")]
        with self.make("runs") as store:
            store.begin(manifest("run"))
            for position, epoch, name in keys[::-1]:
                store.put(row(str(position), position=position, epoch=epoch, experiment_name=name))
            store.flush()

            read = [
                (r.position, r.result.epoch, r.result.experiment_name) for r in store.rows("run")
            ]
            assert read == keys

    def test_epochs_experiments_and_runs_have_rows_of_their_own(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            store.begin(manifest("other"))
            put(store, *(row("1", **more) for more in ({}, {"epoch": 2}, {"experiment_name": "b"})))
            put(store, row("1", run_id="other"))

            assert (store.run("run").total, store.run("other").total) == (3, 1)

    @pytest.mark.parametrize("kinds", [("passed",), ("failed",), ("errors",), ("failed", "errors")])
    def test_rows_are_read_by_verdict_and_by_sample(self, kinds: tuple[RowKind, ...]) -> None:
        def kind(each: StoredRow) -> str:
            result = each.result
            return "errors" if result.error else "passed" if result.passed else "failed"

        with self.make("runs") as store:
            store.begin(manifest("run"))
            written = list(varied_rows())
            put(store, *written)

            chosen = [each for each in written if kind(each) in kinds]
            assert list(store.rows("run", *kinds)) == chosen
            samples = {"s01", "s03", "unknown"}
            of_samples = [each for each in chosen if each.result.sample_id in samples]
            assert list(store.rows("run", *kinds, samples=samples)) == of_samples

    def test_a_table_has_the_columns_of_the_results(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            written = list(varied_rows())
            put(store, *written)

            table = store.table("run", ("topic", "level"), verdicts=True)
            expected = [row_of(each.result, ("topic", "level")) for each in written]
            assert table == RunTable(
                (each._replace(agent_version="v1") for each in expected), ("topic", "level")
            )
            assert (table.unreadable, store.unreadable("run")) == (0, set())
            store.check_rows("run")

    def test_figures_are_those_of_the_report(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run", quarantined=("s01",), config={"cluster_by": "topic"}))
            put(store, *varied_rows())
            store.finish("run", "complete")

            report, record = store.report("run"), store.run("run")
            assert store.figures("run") == store.figures(record) == report.figures
            assert store.figures("run", confidence=0.9) == report.figures_at(0.9)
            assert (record.total, record.passed) == (report.figures.total, report.figures.passed)

    def test_parts_of_results_are_read_by_themselves(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            written = list(varied_rows())
            put(store, *written)

            found = dict(store.parts("run", _Error, "errors"))
            errors = {_key(r.result): _Error(r.result.error) for r in written if r.result.error}
            assert found == errors

    def test_a_row_of_an_unknown_run_is_refused(self) -> None:
        with (
            self.make("runs") as store,
            pytest.raises(UsageError, match="expected the id of a run"),
        ):
            store.put(row("1", run_id="never begun"))

    def test_rows_that_another_object_stored_are_read(self) -> None:
        with self.make("runs") as store, self.again() as other:
            store.begin(manifest("run"))
            before = other.data_version(), other.row_state("run"), other.states()["run"]
            put(store, row("1"))

            assert [each.result.sample_id for each in other.rows("run")] == ["1"]
            after = other.data_version(), other.row_state("run"), other.states()["run"]
            assert all(old != new for old, new in zip(before, after, strict=True))

    # ── resuming ────────────────────────────────────────────────────────────────────────────────

    def test_the_state_of_each_key_is_known(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            lost: dict[str, Any] = {"error": "lost", "error_source": "agent", "attempt": 2}
            put(store, row("1", position=4, sample_digest="d", criteria="c", **lost))

            key = ("baseline", "1", 1)
            state = KeyState(
                key=key,
                sample_digest="d",
                criteria="c",
                error=True,
                attempt=2,
                error_source="agent",
                position=4,
            )
            assert store.keys("run") == {key: state}
            assert list(store.stored_keys("run")) == [state]

    def test_a_row_that_is_set_aside_counts_again_once_it_has_a_position(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            put(store, *(row(str(n), position=n, sample_digest=str(n)) for n in range(3)))
            first, second, third = sorted(store.stored_keys("run"), key=lambda each: each.position)
            store.move_rows("run", [(first, 2), (second, None), (third, 0)])

            assert [each.result.sample_id for each in store.rows("run")] == ["2", "0"]
            record = store.run("run")
            assert (record.total, record.not_counted) == (2, 1)
            (aside,) = (each for each in store.stored_keys("run") if not each.counted)
            assert aside == replace(second, counted=False)
            store.move_rows("run", [(aside, 1)])
            assert [each.result.sample_id for each in store.rows("run")] == ["2", "1", "0"]
            assert store.run("run").not_counted == 0

    def test_rows_that_are_set_aside_are_kept_beside_the_run_until_it_is_removed(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run", planned=3))
            put(store, *(row("1", epoch=epoch) for epoch in (1, 2)), row("2", position=1))
            states = store.stored_keys("run")
            store.move_rows("run", [(each, None) for each in states if each.key[1] == "1"])
            with pytest.raises(StoreError, match="expected 3 results"):
                store.finish("run", "complete")

            record = store.run("run")
            assert (record.not_counted, record.not_counted_samples) == (2, 1)
            store.begin(manifest("run", planned=1))
            assert sorted(each.counted for each in store.stored_keys("run")) == [False, False, True]
            store.delete("run")
            store.begin(manifest("run"))
            assert list(store.stored_keys("run")) == []

    def test_a_sample_that_was_set_aside_may_run_again(self) -> None:
        with self.make("runs") as store:
            store.begin(manifest("run"))
            put(store, row("1", 0.25, sample_digest="old"))
            (state,) = store.stored_keys("run")
            store.move_rows("run", [(state, None)])
            put(store, row("1", 0.75, sample_digest="new"))

            assert [each.result.score.value for each in store.rows("run")] == [0.75]
            assert store.run("run").not_counted == 0
