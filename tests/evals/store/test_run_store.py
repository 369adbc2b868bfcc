"""The run store returns what was stored: one row per key, in dataset order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests import strategies as ours
from tests.engine import TIMEOUT
from weakincentives.chat import TokenUsage
from weakincentives.errors import SnapshotError, StoreError, UsageError
from weakincentives.evals import EvalConfig, EvalResult, Metric, Sample, Score, Trajectory
from weakincentives.evals.model.versions import CriterionInfo
from weakincentives.evals.store import RunStore, open_store
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.run_record import RunRecord
from weakincentives.evals.store.stored_row import KeyState, StoredRow
from weakincentives.runtime import Session, SessionSnapshot

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MANIFEST = RunManifest(run_id="run", created_at=NOW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "new" / "runs.db") as opened:
        opened.begin(MANIFEST)
        yield opened


def row(sample_id: str, value: float = 1.0, **fields: Any) -> StoredRow:
    """Return a row of the run; fields that `StoredRow` does not have go to its result."""
    row_fields = {k: fields.pop(k) for k in StoredRow.__slots__ if k in fields}
    result_fields = {"run_id": "run", **fields}
    return StoredRow(result=EvalResult(sample_id, Score(value), **result_fields), **row_fields)


def ids_and_values(store: RunStore, run_id: str = "run") -> list[tuple[str, float]]:
    """Return sample ids and values in the order of `store.rows`."""
    store.flush()
    return [(r.result.sample_id, r.result.score.value) for r in store.rows(run_id)]


# ── round trips ─────────────────────────────────────────────────────────────────────────────────

stored_rows = st.builds(
    StoredRow,
    result=ours.results.map(lambda result: replace(result, run_id="run")),
    position=st.integers(0, 2**63 - 1),
    sample_digest=ours.texts,
    criteria=ours.texts,
    agent_version=ours.texts,
    session=st.none() | st.binary(max_size=600),
)
manifests = st.builds(
    RunManifest,
    run_id=ours.texts.filter(bool),
    created_at=ours.dates,
    dataset_name=ours.texts,
    dataset_digest=st.none() | ours.texts,
    planned=st.none() | ours.counts,
    agent=ours.texts,
    agent_version=ours.texts,
    model=st.none() | ours.texts,
    criteria=st.lists(st.builds(CriterionInfo, name=ours.texts, version=ours.texts)).map(tuple),
    config=ours.metadata,
    tags=st.dictionaries(ours.texts, ours.texts, max_size=2),
    git_commit=st.none() | ours.texts,
    packages=st.dictionaries(ours.texts, ours.texts, max_size=2),
    command=st.lists(ours.texts, max_size=2).map(tuple),
    parent=st.none() | ours.texts,
)
one_store_for_all_examples = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@one_store_for_all_examples
@given(written=stored_rows)
def test_every_field_of_a_row_is_stored(store: RunStore, written: StoredRow) -> None:
    store.begin(MANIFEST)
    store.put(written)
    store.flush()

    assert list(store.rows("run")) == [written]
    result = written.result
    key = result.experiment_name, result.sample_id, result.epoch
    assert store.keys("run") == {
        key: KeyState(
            key=key,
            position=written.position,
            sample_digest=written.sample_digest,
            criteria=written.criteria,
            error=result.error is not None,
            attempt=result.attempt,
            error_source=result.error_source,
        )
    }
    store.delete("run")


@one_store_for_all_examples
@given(manifest=manifests)
def test_every_field_of_a_manifest_is_stored(store: RunStore, manifest: RunManifest) -> None:
    store.begin(manifest)

    assert store.run(manifest.run_id) == RunRecord(manifest=manifest, status="running")
    store.delete(manifest.run_id)


def test_the_reader_passes_the_types_of_outputs_and_samples(store: RunStore) -> None:
    sample = Sample("1", Question("?"), Question("!"))
    store.put(row("1", sample=sample, trajectory=Trajectory(output=Question("!"))))
    store.flush()

    (plain,) = store.rows("run")
    types = {"input_type": Question, "output_type": Question, "expected_type": Question}
    (typed,) = store.rows("run", **types)
    assert plain.result.output == {"text": "!"}
    assert (typed.result.sample, typed.result.output) == (sample, Question("!"))
    with pytest.raises(StoreError, match=r"sample '1' to fit the given types.*give the types"):
        list(store.rows("run", output_type=int))


@dataclass(frozen=True)
class Question:
    text: str


def test_values_without_a_json_form_are_left_out_and_logged(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    usage = TokenUsage(3, 4)
    store.put(
        row("nan", trajectory=Trajectory(output=float("nan"), usage=usage), metadata={"a": 1})
    )
    store.put(
        row("object", sample=Sample("object", object()), trajectory=Trajectory(output="kept"))
    )
    store.put(row("fine"))
    with caplog.at_level(logging.WARNING):
        store.flush()

    by_id = {r.result.sample_id: r.result for r in store.rows("run")}
    assert len(by_id) == store.run("run").passed == 3
    assert by_id["nan"].trajectory == Trajectory(usage=usage)
    assert by_id["nan"].metadata["a"] == 1
    assert "finite" in by_id["nan"].metadata["not_stored"]
    assert (by_id["object"].sample, by_id["object"].output) == (None, "kept")
    assert "`object`" in by_id["object"].metadata["not_stored"]
    assert by_id["fine"].metadata == {}
    assert "sample 'nan'" in caplog.text


def test_metadata_that_cannot_be_written_does_not_lose_the_metric_or_the_verdict(
    store: RunStore,
) -> None:
    score = Score(0.75, True, "good", [Metric("m", 1.0, 0.0, {"x": object(), "y": 1})], "c")
    store.put(StoredRow(result=EvalResult("1", score, run_id="run")))
    store.flush()

    (stored,) = store.rows("run")
    assert stored.result.score == Score(
        0.75, True, "good", [Metric("m", 1.0, 0.0, {"y": 1})], criterion="c"
    )
    assert "score.metrics[0].metadata['x']" in stored.result.metadata["not_stored"]


# ── one row per key ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("first", "second", "replaced"),
    [
        ({}, {}, False),
        ({}, {"attempt": 2}, False),
        ({"error": "x"}, {}, False),
        ({"error": "x"}, {"attempt": 2}, True),
        ({"error": "x", "attempt": 2}, {"attempt": 1}, False),
        ({"error": "x"}, {"error": "y", "attempt": 2}, True),
        ({"criteria": "a"}, {"criteria": "b"}, True),
        ({"criteria": "a"}, {"criteria": "b", "error": "x"}, True),
        ({"criteria": "a"}, {"criteria": "a"}, False),
    ],
)
@pytest.mark.parametrize("flush_between", [True, False])
def test_the_first_row_of_a_key_stays_with_two_exceptions(
    store: RunStore, first: Any, second: Any, replaced: bool, flush_between: bool
) -> None:
    store.put(row("1", 0.25, position=1, session=b"old", **first))
    if flush_between:
        store.flush()
    new = row("1", 0.75, position=2, **second)
    store.put(new)
    store.flush()

    (stored,) = store.rows("run")
    assert (stored == new) is replaced
    assert store.run("run").total == 1
    assert store._database.read("SELECT count(*) FROM bodies") == [(1,)]


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def test_counts_agree_with_the_report(store: RunStore) -> None:
    done = Trajectory[Any](usage=TokenUsage(3, 4), cost=0.5)
    store.put(row("1", 1.0, trajectory=done))
    store.put(row("2", 0.25, trajectory=done))
    store.put(row("3", 0.0, error="x", error_source="agent"))
    store.finish("run", "complete")

    record, report = store.run("run"), store.report("run")
    assert (record.total, record.passed, record.errors) == (3, 1, 1)
    figures = store.figures("run")
    assert figures == report.figures
    assert (figures.mean_score, figures.tokens, figures.cost) == (0.625, 14, 1.0)
    assert figures.without_tokens == 1
    assert record.finished_at is not None
    assert abs(record.finished_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_report_has_the_id_dataset_and_config_of_its_run(store: RunStore) -> None:
    config = {"max_concurrent": 3, "timeout_per_sample_ms": 5, "max_retries": 1}
    changes = {"dataset_name": "qa", "config": {**config, "stop_on_error": True}}
    store.begin(replace(MANIFEST, **changes))
    report = store.report("latest")

    assert (report.run_id, report.dataset_name, report.results) == ("run", "qa", ())
    assert report.config == EvalConfig(3, timeout=0.005, max_retries=1, stop_on_error=True)


def test_deleting_a_run_deletes_its_rows(store: RunStore) -> None:
    store.begin(RunManifest(run_id="other", created_at=NOW))
    for run_id in ("run", "other"):
        store.put(row("1", run_id=run_id))
    store.flush()
    store.delete("run")

    assert [record.total for record in store.runs()] == [1]
    assert store._database.read("SELECT count(*) FROM bodies") == [(1,)]
    with pytest.raises(UsageError, match="the newest: other"):
        store.put(row("2"))


# ── threads, closing, misuse ────────────────────────────────────────────────────────────────────


def test_a_row_is_committed_soon_without_a_flush(store: RunStore) -> None:
    store.put(row("1"))
    with open_store(store.path) as other:
        deadline = time.monotonic() + TIMEOUT
        while (not other.run("run").total or store.pending) and time.monotonic() < deadline:
            time.sleep(0.01)

        assert (other.run("run").total, store.pending) == (1, 0)


def test_threads_can_put_rows_concurrently(store: RunStore) -> None:
    def put_rows(first: int) -> None:
        for index in range(first, first + 300):
            store.put(row(str(index), position=index))

    threads = [threading.Thread(target=put_rows, args=(n * 200,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [int(sample_id) for sample_id, _ in ids_and_values(store)] == list(range(900))


def test_a_closed_store_raises_usage_errors(store: RunStore) -> None:
    store.put(row("1"))
    rows = store.rows("run")
    store.close()
    store.close()

    for use in (lambda: store.put(row("2")), store.flush, store.runs, lambda: next(rows)):
        with pytest.raises(UsageError, match="closed"):
            use()
    with open_store(store.path) as reopened:
        assert ids_and_values(reopened) == [("1", 1.0)]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda store: RunManifest(run_id="", created_at=NOW),
        lambda store: RunManifest(run_id="x", created_at=NOW.replace(tzinfo=None)),
        lambda store: store.begin(replace(MANIFEST, config={"x": object()})),
        lambda store: store.finish("run", "done"),
        lambda store: StoredRow(result="1"),
        lambda store: row("1", position=2**63),
        lambda store: row("1", epoch=-1),
        lambda store: store.put(row("1", run_id="never begun")),
        lambda store: store.save("1", "text"),
    ],
)
def test_misuse_is_refused_at_once(store: RunStore, misuse: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        misuse(store)


def test_sessions_are_stored_by_id(store: RunStore) -> None:
    session = Session(tags={"a": "\ud800"})
    session[Question].append(Question("?"))
    store.save(session.session_id, session)
    store.save("view", session.view())
    store.save("bytes", session.snapshot())
    session[Question].append(Question("!"))

    for session_id in (session.session_id, str(session.session_id), "view", "bytes"):
        assert store.load(session_id)[Question].all() == (Question("?"),)
    store.save("view", session)
    assert isinstance(store.load("view"), SessionSnapshot)
    assert len(store.load("view")[Question]) == 2
    with pytest.raises(StoreError, match=r"found none.*save it first"):
        store.load(uuid4())
    with pytest.raises(SnapshotError):
        store.save("bad", b"{}")
