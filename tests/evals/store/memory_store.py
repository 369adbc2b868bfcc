"""A run store in memory: the smallest that keeps the contract, and no other code knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from weakincentives.errors import StoreError, UsageError
from weakincentives.evals.runs.figures import run_figures
from weakincentives.evals.store import BaseRunStore, KeyState, RunRecord, StoredRow
from weakincentives.evals.store.run_record import STATUSES, scope_of
from weakincentives.evals.store.run_store import PeopleRecords, RunClaim


class Data:
    """What stores of one name share."""

    def __init__(self) -> None:
        self.runs: dict[str, RunRecord] = {}
        self.rows: dict[str, dict[Any, StoredRow]] = {}
        self.aside: dict[str, dict[Any, StoredRow]] = {}
        self.people: list[tuple[str, Any]] = []
        self.values: dict[Any, bytes] = {}
        self.owned: set[str] = set()
        self.version = 0


class _Claim(RunClaim):
    def __init__(self, data: Data, run_id: str) -> None:
        self.data, self.run_id = data, run_id
        data.owned.add(run_id)

    def release(self) -> None:
        self.data.owned.discard(self.run_id)

    def track(self, slots: int) -> None:
        return None


class _People(PeopleRecords):
    def __init__(self, data: Data) -> None:
        self.data = data

    def add(self, kind: Any, records: Iterable[Any]) -> None:
        self.data.people += [(kind, each) for each in records]

    def read(self, kind: Any, cls: Any, **columns: str) -> list[Any]:
        wanted = columns.items()
        of_kind = (each for name, each in self.data.people if name == kind)
        return [each for each in of_kind if all(getattr(each, k) == v for k, v in wanted)]

    def exist(self, kind: Any) -> bool:
        return any(name == kind for name, _ in self.data.people)

    def state(self) -> int:
        return len(self.data.people)

    def repair(self) -> list[str]:
        return []


class MemoryRunStore(BaseRunStore):
    """Runs in dictionaries, for one thread."""

    def __init__(self, data: Data) -> None:
        self.data, self.people, self.open = data, _People(data), True

    location = "memory"

    def close(self) -> None:
        self.open = False

    def claim(self, run_id: str, *, new: bool = False) -> _Claim:
        if run_id in self.data.owned:
            raise UsageError(f"expected a free run, got {run_id!r}, which belongs to another")
        if new and run_id in self.data.runs:
            raise UsageError(f"expected the id of a new run, got {run_id!r}")
        return _Claim(self.data, run_id)

    def begin(self, manifest: Any, claim: Any = None) -> None:
        self._change(manifest.run_id, RunRecord(manifest=manifest, status="running"))
        self.data.rows.setdefault(manifest.run_id, {})
        self.data.aside.setdefault(manifest.run_id, {})

    def _change(self, run_id: str, record: RunRecord) -> None:
        self.data.runs[run_id] = record
        self.data.version += 1

    def put(self, row: StoredRow) -> None:
        self.flush(), self._known(run_id := row.result.run_id)
        old = self.data.rows[run_id].get(row.key)
        if (
            old is None
            or (old.criteria, old.sample_digest) != (row.criteria, row.sample_digest)
            or (old.result.error and old.result.attempt < row.result.attempt)
        ):
            self.data.rows[run_id][row.key] = row
            self.data.version += 1

    def flush(self, run_id: str | None = None) -> None:
        if not self.open:
            raise UsageError("expected an open run store, got a closed one")

    def finish(self, run_id: str, status: str, note: str = "", stop_reason: Any = "", *,
               settled: int = 0, **facts: Any) -> None:  # fmt: skip
        if status not in STATUSES:
            raise UsageError(f"expected one of {', '.join(STATUSES)}, got {status!r}")
        manifest, stored = self.data.runs[run_id].manifest, len(self.data.rows[run_id])
        known = {name: fact for name, fact in facts.items() if fact is not None}
        expected = max(settled, manifest.planned or 0 if status == "complete" else 0)
        if stored < expected:
            status, note = "interrupted", f"{stored:,} of {expected:,} results are stored"
        end = {"note": note, "stop_reason": stop_reason, "finished_at": datetime.now(UTC)}
        self._change(run_id, RunRecord(manifest=replace(manifest, **known), status=status, **end))
        if stored < expected:
            raise StoreError(f"expected {expected} results of the run {run_id!r}, got {stored}")

    def add(self, runs: Any) -> None:
        runs = [(manifest, list(rows), note) for manifest, rows, note in runs]
        for manifest, rows, note in runs:
            if manifest.run_id in self.data.runs or len({row.key for row in rows}) < len(rows):
                raise UsageError(f"expected a new run with each key once, got {manifest.run_id!r}")
            if not note and len(rows) < (manifest.planned or 0):
                raise StoreError(f"expected {manifest.planned} results of {manifest.run_id!r}")
        for manifest, rows, note in runs:
            self.begin(manifest)
            for row in rows:
                self.put(row)
            self.finish(manifest.run_id, "interrupted" if note else "complete", note)

    def change_manifest(self, run_id: str, change: Any) -> Any:
        record = self.data.runs[run_id]
        self._change(run_id, replace(record, manifest=change(record.manifest)))
        return self.data.runs[run_id].manifest

    def delete(self, run_id: str) -> bool:
        if run_id in self.data.owned:
            raise UsageError(f"{run_id!r} is running - only then can it be removed")
        for kept in (self.data.runs, self.data.rows, self.data.aside):
            del kept[run_id]
        gone = ("human_labels", "label_draws", "judge_tests")
        self.data.people[:] = [
            (k, each) for k, each in self.data.people if k not in gone or each.run_id != run_id
        ]
        return True

    def runs(self, limit: int | None = None, *, ids: Any = None) -> list[RunRecord]:
        self.flush()
        found = [*self.data.runs.values()][::-1]  # of equal times, the last one first
        found.sort(key=lambda each: each.manifest.created_at, reverse=True)
        chosen = (
            each.manifest.run_id for each in found if ids is None or each.manifest.run_id in ids
        )
        return [self._record(run_id) for run_id in islice(chosen, limit)]

    def _record(self, run_id: str) -> RunRecord:
        record, rows = self.data.runs[run_id], self.data.rows[run_id]
        scope = scope_of(record)
        found = run_figures(self.table(run_id, scope.keys), scope)
        aside = Counter(epoch for *_, epoch in self.data.aside[run_id].keys() - rows.keys())
        return replace(
            record, total=found.total, passed=found.passed, errors=found.error_count,
            quarantined=found.quarantined, quarantined_rows=found.quarantined_rows,
            not_counted=aside.total(), not_counted_samples=aside[1],
        )  # fmt: skip

    def row_state(self, run_id: str) -> int:
        return self.data.version

    def data_version(self) -> int:
        return self.data.version

    def rows(self, run_id: str, *kinds: str, samples: Any = None, **types: Any) -> Any:
        name = run_id if run_id in self.data.rows else self.find_run(run_id)
        rows = self.data.rows[name].values()
        for row in sorted(rows, key=lambda row: (row.position, row.result.epoch, row.key)):
            result = row.result
            kind = "errors" if result.error else "passed" if result.passed else "failed"
            if kind in (kinds or kind) and result.sample_id in (samples or [result.sample_id]):
                yield row

    def stored_keys(self, run_id: str) -> list[KeyState]:
        return [
            KeyState(key=row.key, sample_digest=row.sample_digest, criteria=row.criteria,
                     error=row.result.error is not None, attempt=row.result.attempt,
                     error_source=row.result.error_source, position=row.position, counted=counted)
            for counted, rows in ((True, self.data.rows), (False, self.data.aside))
            for row in rows[run_id].values()
        ]  # fmt: skip

    def move_rows(self, run_id: str, places: Iterable[tuple[KeyState, int | None]]) -> None:
        for state, position in places:
            rows = (self.data.rows if state.counted else self.data.aside)[run_id]
            row = rows.pop(state.key)
            to = self.data.aside if position is None else self.data.rows
            to[run_id][state.key] = replace(
                row, position=row.position if position is None else position
            )

    def find_all(self, keys: Any) -> dict[str, bytes]:
        return {key: self.data.values[key] for key in keys if key in self.data.values}

    def keep(self, key: str, value: bytes) -> bytes:
        return self.data.values.setdefault(key, value)

    def replace(self, key: str, value: bytes) -> None:
        self.data.values[key] = value

    def _known(self, run_id: str) -> str:
        if run_id not in self.data.runs:
            raise self.unknown_run(run_id)
        return run_id
