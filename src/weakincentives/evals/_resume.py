"""What an earlier run left that need not be done again, and why the rest must.

A row carries the mark of the criteria that scored it, so that it is scored anew by those that
changed since, whatever became of the runs in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import anyio

from ..errors import UsageError
from ._attempt import scored
from ._config import stops_early
from ._criterion import Criterion
from ._fingerprint import fingerprint
from ._report import EvalResult
from ._run import Task, sample_digest
from ._score import Score
from ._store import RunManifest, RunStore, StoredRow
from ._store_rows import raw, text
from ._types import EvalContext

__all__ = ["Reuse", "criteria_mark"]


def criteria_mark(criterion: Criterion) -> str:
    """What tells one set of criteria from another: a hash of the whole, and one of each part."""
    parts = [fingerprint([part.name, part]) for part in criterion.parts or (criterion,)]
    return " ".join([fingerprint(criterion), *parts])


class Reuse:
    """Which rows of a stored run stand, seen as the run's tasks come by."""

    def __init__(
        self,
        store: RunStore,
        earlier: RunManifest,
        now: RunManifest,
        mark: str,
        *,
        retry_errors: bool = False,
    ) -> None:
        for what in ("agent", "agent_version", "model"):
            was, is_now = getattr(earlier, what), getattr(now, what)
            if was != is_now:
                raise UsageError(
                    f"expected the agent of run {earlier.run_id} to go on with, got another: its "
                    f"{what.replace('_', ' ')} was {was!r} and is {is_now!r} - start a new run"
                )
        self.kept: dict[tuple[str, int], int] = {}  # sample id and epoch: position
        self.counts: Counter[str] = Counter()
        self._store, self._now = store, now
        self._retry_errors = retry_errors
        self._mark = mark
        self._keys = store.keys(earlier.run_id)
        self._changed = [info.name for info in now.criteria if info not in earlier.criteria]
        self._dataset_changed = earlier.dataset_digest != now.dataset_digest
        self._experiment = str(now.config.get("experiment_name", ""))
        self._passed = self._verdicts(earlier.run_id) if stops_early(now.config) else set()
        self.on_kept: Callable[[Task, bool | None], object] = lambda task, passed: None

    def _verdicts(self, run_id: str) -> set[tuple[str, int]]:
        """What passed, for a rule that may stop the run: sample id and epoch."""
        query = "SELECT sample, epoch FROM rows WHERE run = ? AND experiment = ? AND passed"
        number = self._store._number(run_id)
        found = self._store._database.read(query, (number, raw(self._experiment)))
        return {(text(sample), epoch) for sample, epoch in found}

    def select(self, task: Task) -> Task | None:
        """The task if it must be run, None where its row stands."""
        state = self._keys.get((self._experiment, task.sample.id, task.epoch))
        if state is None:
            self.counts["new"] += 1
            return task
        if state.sample_digest != sample_digest(task.sample):
            self.counts["changed"] += 1
            return replace(task, tries=state.attempt)
        if state.error and self._retry_errors:
            self.counts["errors"] += 1
            if state.error_source != "evaluator":  # or the answer is there, to be scored again
                return replace(task, tries=state.attempt)
        key = task.sample.id, task.epoch
        self.kept[key] = task.position
        stands = self._final(state.criteria, state.error_source)
        self.on_kept(task, key in self._passed if stands else None)
        return None

    def notes(self) -> Iterator[str]:
        """What is reused, what is not, and why; true once all tasks came by."""
        yield f"reuses {_many(len(self.kept), 'result')} of run {self._now.run_id}"
        if self._dataset_changed:
            yield "the dataset changed: samples that are new or differ run again"
        if changed := self.counts["changed"]:
            yield f"{_many(changed, 'sample')} changed since: run again"
        if errors := self.counts["errors"]:
            yield f"{_many(errors, 'error')} tried again"
        if self._changed:
            yield f"evaluators changed ({', '.join(self._changed)}): stored results are scored anew"

    def rows(self, types: dict[str, Any]) -> Iterator[StoredRow]:
        """The rows that stand, at their places in the dataset."""
        for row in self._store.rows(self._now.run_id, **types):
            key = row.result.sample_id, row.result.epoch
            if row.result.experiment_name == self._experiment and key in self.kept:
                yield replace(row, position=self.kept[key])

    def stands(self, row: StoredRow) -> bool:
        """True where today's criteria scored the row, and need not try again."""
        return self._final(row.criteria, row.result.error_source)

    def _final(self, criteria: str, error_source: str | None) -> bool:
        return criteria == self._mark and not (self._retry_errors and error_source == "evaluator")

    async def rescored(
        self, row: StoredRow, criterion: Criterion, scope: EvalContext, seconds: float | None
    ) -> EvalResult[Any]:
        """The row's result, by today's criteria; only those that changed are asked."""
        ask = _difference(row, criterion, self._mark)

        async def ask_in_time(context: EvalContext) -> Score:
            with anyio.move_on_after(seconds):
                return await ask(context)
            raise TimeoutError(f"expected a score in time, got none in {seconds:g} s")

        result = await scored(row.result, row.session, ask_in_time, scope)
        result = replace(result, attempt=row.result.attempt + (row.criteria == self._mark))
        self._store.put(replace(row, result=result, criteria=self._mark))
        return result


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _difference(
    row: StoredRow, criterion: Criterion, mark: str
) -> Callable[[EvalContext], Awaitable[Score]]:
    """Ask only the parts that were not asked before, where the old answers are there."""
    old = _answers(row)
    names = [part.name for part in criterion.parts]
    known = {
        name: old[name, part_mark]
        for name, part_mark in zip(names, mark.split()[1:], strict=False)
        if names.count(name) == 1 and (name, part_mark) in old
    }
    combine = criterion.combine
    if combine is None or not known:
        return criterion.ask_aside

    async def ask(context: EvalContext) -> Score:
        scores = [known.get(part.name) or await part.ask_aside(context) for part in criterion.parts]
        return combine(scores)

    return ask


def _answers(row: StoredRow) -> dict[tuple[str, str], Score]:
    """The stored scores by name and mark; none where they cannot be told apart."""
    result, marks = row.result, row.criteria.split()[1:]
    scores = [result.score] if len(marks) == 1 and result.success else result.scores
    # Marks and scores are in one order, unless one of the criteria gave several scores.
    if len(scores) != len(marks):
        return {}
    return {(score.criterion, mark): score for score, mark in zip(scores, marks, strict=True)}
