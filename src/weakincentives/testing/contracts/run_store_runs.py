"""The runs of a run store: how they begin, end, are named and removed, and who owns them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ...errors import StoreError, UsageError
from ...evals.model.decision import Decision
from ...evals.model.versions import WorkerVersion
from ...evals.store import RunStore
from .run_store_setup import MANIFEST, NOW, RunStoreSetup, manifest, put, row, varied_rows


class RunSuite(RunStoreSetup):
    """Runs begin, end, and are found."""

    # ── the end of a run ────────────────────────────────────────────────────────────────────────

    def test_a_run_is_running_until_it_is_finished(self, store: RunStore) -> None:
        assert store.run("run").manifest == MANIFEST
        assert (store.run("run").status, store.run("run").finished_at) == ("running", None)
        put(store, row("1"), row("2", 0.0), row("3", 0.0, error="x", error_source="agent"))
        store.finish("run", "complete", "all done")

        record = store.run("run")
        assert (record.status, record.note) == ("complete", "all done")
        assert (record.total, record.passed, record.errors) == (3, 1, 1)
        assert record.finished_at is not None

    def test_finish_stores_what_was_queued(self, store: RunStore) -> None:
        for number in range(50):
            store.put(row(str(number), position=number))
        store.finish("run", "complete", settled=50)

        assert store.run("run").total == 50

    @pytest.mark.parametrize(("planned", "settled"), [(3, 0), (None, 3)])
    def test_a_run_without_all_its_rows_is_interrupted(
        self, store: RunStore, planned: int | None, settled: int
    ) -> None:
        store.begin(manifest("short", planned=planned))
        put(store, row("1", run_id="short"), row("2", run_id="short"))
        with pytest.raises(StoreError, match=r"expected 3 results of the run 'short'.*got 2"):
            store.finish("short", "complete", settled=settled)

        record = store.run("short")
        assert (record.status, record.note) == ("interrupted", "2 of 3 results are stored")

    def test_the_end_of_a_run_has_its_decision_and_its_dataset(self, store: RunStore) -> None:
        decision = Decision(rule="population", low=0.1, high=0.9, samples=4, size=10)
        store.finish("run", "stopped", "decided", "rule", decision=decision, dataset_digest="d")

        record = store.run("run")
        assert (record.status, record.stop_reason) == ("stopped", "rule")
        assert (record.manifest.decision, record.manifest.dataset_digest) == (decision, "d")

    def test_another_end_is_refused(self, store: RunStore) -> None:
        with pytest.raises(UsageError, match="expected one of complete"):
            store.finish("run", "done")

    def test_a_run_that_is_begun_again_goes_on(self, store: RunStore) -> None:
        put(store, row("1"))
        store.finish("run", "interrupted", "^C")
        store.begin(replace(MANIFEST, model="m"))

        record = store.run("run")
        assert (record.manifest.model, record.status, record.note) == ("m", "running", "")
        assert (record.finished_at, record.total) == (None, 1)

    # ── runs that ended elsewhere ───────────────────────────────────────────────────────────────

    def test_runs_are_added_together_or_not_at_all(self, store: RunStore) -> None:
        whole = manifest("whole", planned=1), [row("1", run_id="whole")], ""
        cut = manifest("cut", planned=2), [row("1", run_id="cut")], "one is missing"
        store.add([whole, cut])
        assert [store.run(name).status for name in ("whole", "cut")] == ["complete", "interrupted"]

        twice = [row("1", run_id="twice"), row("1", 0.0, run_id="twice")]
        for bad in (whole, (manifest("twice"), twice, ""), (manifest("short", planned=2), [], "")):
            with pytest.raises((UsageError, StoreError)):
                store.add([(manifest("new"), [row("1", run_id="new")], ""), bad])
            assert set(store.run_ids()) == {"run", "whole", "cut"}

    # ── names ───────────────────────────────────────────────────────────────────────────────────

    def test_runs_are_found_by_their_names(self, store: RunStore) -> None:
        store.begin(manifest("ab", 1, suite="first", tags={"branch": "main"}))
        store.begin(manifest("abc1", 2, suite="first"))
        store.begin(manifest("abc2", 3, suite="second"))

        names = {
            "run": "run",
            "ab": "ab",
            "abc1": "abc1",
            "r": "run",
            "latest": "abc2",
            "latest~3": "run",
            "suite:first": "abc1",
            "suite:first~1": "ab",
            "suite:qa": "run",
            "tag:branch=main": "ab",
        }
        assert {name: store.find_run(name) for name in names} == names
        assert store.run_ids() == ["abc2", "abc1", "ab", "run"]
        assert store.run_ids("abc", limit=1) == ["abc2"]
        assert [each.run_id for each in store.manifests(2)] == ["abc2", "abc1"]
        assert [each.manifest.run_id for each in store.runs(ids=["ab", "abc2"])] == ["abc2", "ab"]

    def test_a_name_is_the_beginning_of_an_id_as_it_is_written(self, store: RunStore) -> None:
        for run_id in ("Ab", "a_b", "x%y"):
            store.begin(manifest(run_id))

        found = {start: store.run_ids(start) for start in ("A", "a", "x%", "b", "un", "_", "%")}
        assert {start: ids for start, ids in found.items() if ids} == {
            "A": ["Ab"],
            "a": ["a_b"],
            "x%": ["x%y"],
        }

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("abc", "the beginning of several: abc1, abc2"),
            ("abd2", "near it: .*abc2"),
            ("latest~9", "expected the id of a run"),
            ("suite:none", "there are: suite:qa"),
            ("tag:none=1", "no run has a tag"),
        ],
    )
    def test_a_name_that_no_run_has_is_refused(
        self, store: RunStore, name: str, message: str
    ) -> None:
        store.begin(manifest("abc1", 1))
        store.begin(manifest("abc2", 2))
        with pytest.raises(UsageError, match=message):
            store.run(name)

    def test_a_manifest_can_be_changed(self, store: RunStore) -> None:
        version = WorkerVersion(agent="a", agent_version="1")
        store.finish("run", "stopped", "decided", "rule")
        ended = store.run("run")
        store.tag("run", {"a": "1", "b": "2", "c": "3"})
        assert store.tag("ru", {"a": "3"}, remove=["b"]).tags == {"a": "3", "c": "3"}
        store.add_workers("run", [version, version])

        record = store.run("run")
        assert record.manifest.workers == (version,)
        assert replace(record, manifest=ended.manifest, agent_versions={}) == ended

    # ── removing ────────────────────────────────────────────────────────────────────────────────

    def test_a_removed_run_leaves_nothing(self, store: RunStore) -> None:
        store.begin(manifest("other", 1))
        put(store, row("1"), row("1", run_id="other"))
        assert store.delete("run")

        assert store.run_ids() == ["other"]
        assert store.run("other").total == 1
        with pytest.raises(UsageError, match="the newest: other"):
            store.put(row("2"))

    def test_rows_of_a_run_that_was_removed_are_refused(self, store: RunStore) -> None:
        store.begin(manifest("other", 1))
        put(store, row("1"))
        with self.again() as elsewhere:
            elsewhere.delete("run")
        with pytest.raises((StoreError, UsageError), match="'run'"):
            put(store, row("2"))

        put(store, row("2", run_id="other"))
        assert store.run("other").total == 1

    # ── ownership ───────────────────────────────────────────────────────────────────────────────

    def test_a_run_has_one_owner(self, store: RunStore) -> None:
        claim = store.claim("owned", new=True)
        store.begin(manifest("owned"), claim)
        with self.again() as other, pytest.raises(UsageError, match="which belongs to"):
            other.claim("owned")
        put(store, row("1", run_id="owned"))
        store.finish("owned", "complete", settled=1)
        claim.release()
        claim.release()

        store.claim("owned").release()
        with pytest.raises(UsageError, match="expected the id of a new run"):
            store.claim("owned", new=True)

    def test_a_run_that_a_process_runs_is_not_removed(self, store: RunStore) -> None:
        claim = store.claim("run")
        with pytest.raises(UsageError, match="only then can it be removed"):
            store.delete("run")
        claim.release()
        assert store.delete("run")

    # ── closing ─────────────────────────────────────────────────────────────────────────────────

    def test_closing_stores_what_was_queued_and_refuses_more(self, store: RunStore) -> None:
        other = self.again()
        store.put(row("1"))
        store.close()
        store.close()

        assert [each.result.sample_id for each in other.rows("run")] == ["1"]
        other.close()
        for use in (lambda: store.put(row("2")), store.flush, store.runs):
            with pytest.raises(UsageError, match="closed"):
                use()

    def test_a_listing_of_runs_agrees_with_each_run(self, store: RunStore) -> None:
        store.begin(manifest("varied", 1, quarantined=("s01",)))
        put(store, *varied_rows("varied"))
        store.finish("varied", "complete")

        listed = store.runs()
        assert listed == [store.run(each.manifest.run_id) for each in listed]
        assert [*store.states()] == ["varied", "run"]
        assert listed[0].manifest.created_at - NOW == timedelta(days=1)
