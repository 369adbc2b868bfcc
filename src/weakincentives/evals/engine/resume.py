"""Resume a run: which of its stored rows still count, and which samples must run again.

Each row stores a fingerprint of the criteria that scored it, so that changed criteria are detected
per row, whatever happened in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ...internal.formatting import pluralize
from .._types import Dataset, EvalConfig, stops_early
from ..model.redacted_ids import redact_id
from ..model.versions import changed_parts
from ..store.deaths import Deaths, noted_id
from ..store.manifest import EarlierAgent, RunManifest
from ..store.run_record import not_counted_line
from ..store.run_store import RunStore
from ..store.stored_row import KeyState, RowKey, StoredRow
from .engine import Reused, sample_digest
from .tasks import Task, tasks_of


class ResumePlan:
    """Decides for each task of a resumed run whether its stored row still counts."""

    def __init__(
        self,
        store: RunStore,
        earlier: RunManifest,
        now: RunManifest,
        fingerprint: str,
        *,
        retry_errors: bool = False,
        versions_before: Callable[[], Collection[str]] = tuple,
        force: bool = False,
    ) -> None:
        """Check that the agent is the same; with `force`, continue the run with a changed one.

        `versions_before` returns the versions and names that earlier releases computed of it.
        """
        self.earlier_agents = earlier.earlier_agents
        self._agent_change = _agent_change(earlier, now, versions_before)
        if self._agent_change and not force:
            raise UsageError(
                f"expected the agent of run {earlier.run_id} to resume it, got another: "
                f"{self._agent_change} - start a new run, or continue with the changed agent: "
                "--force (in Python, force=True)"
            )
        if self._agent_change:
            changed = changed_parts(earlier.agent_parts, now.agent_parts) or self._agent_change
            before = EarlierAgent(version=earlier.agent_version, changed=changed)
            self.earlier_agents = (*earlier.earlier_agents, before)
        # Sample ids and epochs: of rows that are reused, and of those that this run has stored.
        self.reused: set[tuple[str, int]] = set()
        self._ran: set[tuple[str, int]] = set()
        self.counts: Counter[str] = Counter()
        self._store, self._now = store, now
        self._retry_errors = retry_errors
        self._fingerprint = fingerprint
        self._experiment = redact_id(str(now.config.get("experiment_name", "")))
        unread = store.unreadable(earlier.run_id)
        self._stored: dict[RowKey, list[KeyState]] = {}
        for row in store.stored_keys(earlier.run_id):
            self._stored.setdefault(row.key, []).append(row)
        self.counts["unreadable"] = len(unread)
        self._unreadable = unread
        self._deaths = store.deaths(earlier.run_id)
        # The position of each task, and its row if that still counts.
        self._positions: dict[RowKey, tuple[int, KeyState | None]] = {}
        self._all_placed = False
        self._changed = [info.name for info in now.criteria if info not in earlier.criteria]
        self._digest_before = earlier.dataset_digest
        self._passed = set(self._passed_keys()) if stops_early(now.config) else set()

    def _passed_keys(self) -> Iterator[tuple[str, int]]:
        table = self._store.table(self._now.run_id)
        for at, experiment in enumerate(table.experiments):
            if table.passed[at] and experiment == self._experiment:
                yield table.samples[at], table.epochs[at]

    # ── positions ───────────────────────────────────────────────────────────────────────────────

    def place_all(self, samples: Any, config: EvalConfig) -> None:
        """Give the rows their positions before the run, if the whole dataset is in memory."""
        if isinstance(samples, (Dataset, list, tuple)):
            for _ in tasks_of(samples, config, self._note_position):
                pass  # none is admitted
            self._settle_positions(whole=True)

    def place_rest(self, whole: bool) -> None:
        """Place the rows after the run; if the `whole` source was seen, set the others aside."""
        self._store.flush(self._now.run_id)
        if not self._all_placed:
            self._settle_positions(whole=whole)

    def _note_position(self, task: Task) -> None:
        key = self._experiment, redact_id(task.sample.id), task.epoch
        rows = self._stored.get(key)
        digest = sample_digest(task.sample) if rows else ""
        lost = key in self._unreadable  # the row that counts; one that was set aside may be fine
        same = (row for row in rows or () if row.sample_digest == digest)
        usable = next((row for row in same if not (lost and row.counted)), None)
        self._positions[key] = task.position, usable

    def _settle_positions(self, *, whole: bool) -> None:
        moves: list[tuple[KeyState, int | None]] = []
        for key, rows in self._stored.items():
            if key[1:] in self._ran and key[0] == self._experiment:
                continue  # this run has stored a new row
            position, usable = self._positions.get(key, (None, None))
            for row in rows:
                if row is usable:
                    moves.append((row, position))
                elif row.counted and (whole or position is not None):
                    moves.append((row, None))
        if whole and self._unreadable:
            self._store.drop_damaged(self._now.run_id)
        self._store.move_rows(self._now.run_id, moves)
        self._all_placed = whole

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────

    def note_run(self, task: Task) -> None:
        """Remember that this run has stored a new row for the task."""
        self._ran.add((redact_id(task.sample.id), task.epoch))

    def select(self, task: Task) -> Task | Reused:
        """Return the task if it must run, numbered after its earlier tries."""
        key = self._experiment, redact_id(task.sample.id), task.epoch
        if not self._all_placed:
            self._note_position(task)
        _, row = self._positions[key]
        if row is None:
            earlier = self._stored.get(key)
            if key not in self._unreadable:
                self.counts["changed" if earlier else "new"] += 1
            return self._after_deaths(replace(task, tries=earlier[0].attempt) if earlier else task)
        if row.error and self._retry_errors:
            self.counts["errors"] += 1
            if row.error_source != "evaluator":  # else there is an output, which is scored again
                return self._after_deaths(replace(task, tries=row.attempt))
        self.reused.add(key[1:])
        final = self._is_final(row.criteria, row.error_source)
        return Reused(key[1:] in self._passed if final else None)

    def _after_deaths(self, task: Task) -> Task:
        """Return the task, to be run alone or given up if it was in flight at deaths."""
        deaths = self._deaths.get((noted_id(task.sample.id), task.epoch))
        if deaths is None:
            return task
        gives_up = deaths.too_many and not self._retry_errors
        self.counts["given up" if gives_up else "alone"] += 1
        return replace(
            task,
            tries=max(task.tries, deaths.count),
            deaths=deaths.count,
            error=str(deaths) if gives_up else "",
        )

    def notes(self, dataset_digest: str | None) -> Iterator[str]:
        """Yield what is reused, what is not, and why; to be called after the last task."""
        yield f"reuses {pluralize(len(self.reused), 'result')} of run {self._now.run_id}"
        if self._agent_change:
            yield f"another agent ({self._agent_change}): stored results are kept"
        if self._digest_before not in (None, dataset_digest):
            yield "the dataset changed: samples that are new or differ run again"
        for counted, noun, text in (
            ("changed", "sample", "changed since: run again"),
            ("unreadable", "stored row", "cannot be read: run again"),
            ("errors", "error", "retried"),
            ("alone", "sample", "in flight when a process ended: run alone, last"),
            ("given up", "sample", "given up: the process ended while they ran"),
        ):
            if count := self.counts[counted]:
                yield f"{pluralize(count, noun)} {text}"
        if self._changed:
            yield f"evaluators changed ({', '.join(self._changed)}): stored results are rescored"
        if line := not_counted_line(self._store.run(self._now.run_id)):
            yield line

    def rows(self, types: dict[str, Any]) -> Iterator[StoredRow]:
        """Yield the rows that count and that this run has not stored itself."""
        for row in self._store.rows(self._now.run_id, **types):
            if (row.result.sample_id, row.result.epoch) not in self._ran:
                yield row

    def is_current(self, row: StoredRow) -> bool:
        """Return whether the current criteria scored the row, so that it need not be rescored."""
        return self._is_final(row.criteria, row.result.error_source)

    def deaths_of(self, row: StoredRow) -> Deaths | None:
        """Return how often the process died while it scored this row again; None if never."""
        key = noted_id(row.result.sample_id), -row.result.epoch
        deaths = self._deaths.get(key)
        if deaths is not None and self._retry_errors:
            return replace(deaths, alone=0)  # it gets one more chance
        return deaths

    def _is_final(self, criteria: str, error_source: str | None) -> bool:
        retried = self._retry_errors and error_source == "evaluator"
        return criteria == self._fingerprint and not retried


def _agent_change(
    earlier: RunManifest, now: RunManifest, versions_before: Callable[[], Collection[str]]
) -> str:
    """Return how the agent differs from that of the run; empty if it does not."""
    for what in ("agent", "model", "agent_version"):
        was, is_now = getattr(earlier, what), getattr(now, what)
        may_be_older = what == "agent" or not earlier.agent_parts
        if was == is_now or (was and may_be_older and was in versions_before()):
            continue
        changed = changed_parts(earlier.agent_parts, now.agent_parts)
        difference = f"its {what.replace('_', ' ')} was {was!r} and is {is_now!r}"
        return f"{changed} changed; {difference}" if changed else difference
    return ""
