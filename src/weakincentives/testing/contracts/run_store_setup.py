"""How to make a run store, and what the suites of a run store have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ...chat import ChatMessage, TokenUsage, ToolCall
from ...evals import EvalResult, Metric, Sample, Score, Trajectory
from ...evals.store import RunManifest, RunStore, StoredRow

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MANIFEST = RunManifest(run_id="run", created_at=NOW, dataset_name="qa")


class RunStoreSetup:
    """How to make a store."""

    shared = True  # a second object on the same name sees what the first one has stored

    def make(self, name: str) -> RunStore:
        """Return a new store object; in one test, the same name is the same store."""
        raise NotImplementedError(f"define `make(self, name)` in {type(self).__name__}")

    @pytest.fixture
    def store(self) -> Iterator[RunStore]:
        """Yield a store with one run, which has no rows yet."""
        with self.make("runs") as store:
            store.begin(MANIFEST)
            yield store

    def again(self) -> RunStore:
        """Return the store of the test as another process opens it."""
        if not self.shared:
            pytest.skip("nothing is shared with another object of this store")
        return self.make("runs")


def manifest(run_id: str, days: int = 0, **fields: Any) -> RunManifest:
    """Return the manifest of a run that was made so many days after the first one."""
    return replace(MANIFEST, run_id=run_id, created_at=NOW + timedelta(days=days), **fields)


def row(sample_id: str, value: float = 1.0, **fields: Any) -> StoredRow:
    """Return a row of the run; fields that `StoredRow` does not have go to its result."""
    row_fields = {k: fields.pop(k) for k in StoredRow.__slots__ if k in fields}
    result_fields = {"run_id": "run", **fields}
    return StoredRow(result=EvalResult(sample_id, Score(value), **result_fields), **row_fields)


def put(store: RunStore, *rows: StoredRow) -> None:
    """Store rows."""
    for each in rows:
        store.put(each)
    store.flush()


def varied_rows(run_id: str = "run") -> Iterator[StoredRow]:
    """Yield rows that differ in all that is counted, filtered and ordered by."""
    for number in range(24):
        passed, epoch = number % 3 > 0, number % 2 + 1
        called = (ToolCall(str(number), "search" if number % 4 else "open", {"at": number}),)
        parts = (
            Metric("exact", float(passed), 1.0, {"passed": passed}),
            Metric("brief", number / 24, 1.0, {"passed": number > 11}),
        )
        result = EvalResult(
            f"s{number // 2:02}",
            Score(metrics=parts, passed=passed),
            latency_ms=10 * (24 - number),
            sample=Sample(f"s{number // 2:02}", f"How high is mountain {number}?", number),
            trajectory=Trajectory(
                (ChatMessage("assistant", f"answer {number}", called),),
                f"answer {number}",
                TokenUsage(100, number) if number % 5 else None,
                cost=0.01 * number if number % 7 else None,
            ),
            metadata={"topic": "ab"[number % 2], "level": number % 3},
            epoch=epoch,
            run_id=run_id,
            judge_usage=TokenUsage(5) if number % 6 == 0 else None,
            judge_cost=0.001 if number % 6 == 0 else None,
            worker=f"worker {number % 2}",
        )
        if number % 8 == 7:
            result = replace(
                result, score=Score(0.0), error=f"lost {number}", error_source="infrastructure"
            )
        session = None if number % 2 else b'{"number": %d}' % number
        yield StoredRow(result=result, position=number // 2, agent_version="v1", session=session)
