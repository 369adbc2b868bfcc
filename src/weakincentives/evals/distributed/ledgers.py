"""Ledgers count results by key: in memory for a report, or in a run store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ...clock import SYSTEM_CLOCK
from ...internal.threads import in_thread
from ...secrets import logger_for
from ..engine.engine import sample_digest
from ..model.report import EvalReport, EvalResult
from ..store import KeyState, StoredRow
from .submission import Key, Submission, dataset_order

if TYPE_CHECKING:
    from ..store import RunStore

logger = logger_for(__name__)

UNKNOWN_KEY = Key("", "", 0)  # of a missing result, if only their number is known
MAX_LISTED = 5  # missing samples that a note names
REFRESH_INTERVAL = 10.0  # seconds between two queries for what other collectors have stored


class Ledger(Protocol):
    """Counts the results of a run, each key once.

    `count` returns False if the key keeps the result that it has. `commit` makes counted results
    durable, before they are acknowledged. `refresh` notices results that other collectors counted.
    The keys in `retried` ended in an error and are resubmitted first.
    """

    @property
    def retried(self) -> Collection[Key]: ...
    def missing(self) -> Collection[Key]: ...
    def complete(self) -> bool: ...
    def count(self, result: EvalResult[Any]) -> bool: ...
    async def commit(self) -> None: ...
    async def refresh(self) -> None: ...


@dataclass(slots=True)
class MemoryLedger:
    """Counts results in memory: the first result of each key stays.

    Without a submission the keys are unknown, and `expected` results complete it. `on_result` gets
    each new result before it is acknowledged.
    """

    submission: Submission | None = None
    expected: int = 0
    on_result: Callable[[EvalResult[Any]], object] | None = None
    results: dict[Any, EvalResult[Any]] = field(default_factory=dict)
    retried: tuple[Key, ...] = ()

    def add(self, result: EvalResult[Any]) -> bool:
        """Add a result; return False if its key has one already."""
        key = Key.of(result) if self.submission is not None else (result.run_id, Key.of(result))
        if key in self.results:
            return False
        self.results[key] = result
        return True

    def count(self, result: EvalResult[Any]) -> bool:
        """Add a result, and pass it to `on_result` if it is the first of its key."""
        is_new = self.add(result)
        if is_new and self.on_result is not None:
            self.on_result(result)
        return is_new

    async def commit(self) -> None:
        """Do nothing: `on_result` has stored what it wants to keep."""

    async def refresh(self) -> None:
        """Do nothing: there are no other collectors."""

    def complete(self) -> bool:
        """Return whether there are as many results as expected."""
        return len(self.results) >= self.expected

    def missing(self) -> tuple[Key, ...]:
        """Return the keys without a result, in the order of the report."""
        keys = () if self.submission is None else self.submission.keys()
        return tuple(key for key in keys if key not in self.results)

    def report(self, timeout: str, quarantined: Sequence[str] = ()) -> EvalReport[Any]:
        """Return the results in dataset order, with a note of what is missing after `timeout`.

        The samples in `quarantined` do not count.
        """
        run_id = name = stopped = ""
        order: Iterable[Any] = dataset_order(self.results) if self.submission is None else ()
        if self.submission is not None:
            run_id, name = self.submission.run_id, self.submission.dataset.name
            order = filter(self.results.get, self.submission.keys())
        missing, count = self.missing(), self.expected - len(self.results)
        if count > 0:
            stopped = f"{count} of {self.expected} missing after {timeout}{_listed(missing)}"
            logger.warning("the results are not complete: %s", stopped)
            missing = missing or (UNKNOWN_KEY,) * count
        results = [self.results[key] for key in order]
        known = {result.sample_id for result in results}
        return EvalReport(
            results,
            run_id,
            name,
            stopped=stopped,
            missing=missing,
            quarantined=[sample for sample in quarantined if sample in known],
        )


class StoreLedger:
    """Counts results in a run store.

    A result replaces an error under its key, for example after a dead letter was replayed.
    With `retry_errors`, stored errors count as missing.
    """

    def __init__(
        self,
        submission: Submission,
        store: RunStore,
        *,
        on_result: Callable[[EvalResult[Any]], object] = lambda result: None,
        retry_errors: bool = False,
    ) -> None:
        self._submission, self._store = submission, store
        self._on_result = on_result
        self._positions = {sample.id: at for at, sample in enumerate(submission.dataset)}
        self._stored: dict[Key, KeyState] = {}
        self._missing = set(submission.keys())
        self._uncommitted: list[EvalResult[Any]] = []
        self._read_store()
        errors = {key for key, state in self._stored.items() if state.error}
        self.retried = frozenset(errors if retry_errors else ())
        self._missing |= self.retried

    def missing(self) -> set[Key]:
        """Return the keys without a result, and those whose error is retried."""
        return self._missing

    def complete(self) -> bool:
        """Return whether no result is missing."""
        return not self._missing

    def without_row(self) -> list[Key]:
        """Return the keys that have no row at all, in dataset order."""
        keys = self._submission.keys()
        return [key for key in keys if key not in self._stored]

    def count(self, result: EvalResult[Any]) -> bool:
        """Queue a result for the store; return False if its key keeps the row that it has."""
        key = Key.of(result)
        if (state := self._stored.get(key)) is not None:
            if key not in self._missing and not (state.error and result.error is None):
                return False
            result = replace(result, attempt=state.attempt + max(1, result.attempt))
        position = self._positions[result.sample_id]
        sample = self._submission.dataset[position]
        digest = sample_digest(sample)
        result = replace(result, sample=sample)
        self._store.put(StoredRow(result=result, position=position, sample_digest=digest))
        self._stored[key] = KeyState(
            sample_digest=digest,
            criteria="",
            error=result.error is not None,
            attempt=result.attempt,
            error_source=result.error_source,
        )
        self._missing.discard(key)
        self._uncommitted.append(result)
        return True

    async def commit(self) -> None:
        """Write the counted results, then pass them to `on_result`."""
        await in_thread(self._store.flush)
        for result in self._uncommitted:
            self._on_result(result)
        self._uncommitted.clear()

    async def refresh(self) -> None:
        """Notice, every few seconds, what other collectors of the same run have stored."""
        if SYSTEM_CLOCK.monotonic() - self._read_at >= REFRESH_INTERVAL:
            await in_thread(self._read_store)

    def _read_store(self) -> None:
        self._read_at = SYSTEM_CLOCK.monotonic()
        states = self._store.keys(self._submission.run_id)
        for key in self.without_row():
            if (state := states.get(key.redacted())) is not None:
                self._stored[key] = state
                self._missing.discard(key)

    def finish(self, *, interrupted: bool) -> int:
        """Store how the collection ended, and return how many keys have no row."""
        run_id, missing = self._submission.run_id, self.without_row()
        note = ""
        if missing and not interrupted:
            note = f"{len(missing)} of {len(self._submission)} missing{_listed(missing)}"
        status = "interrupted" if interrupted else "stopped" if missing else "complete"
        if self._store.run(run_id).status != "complete":  # a complete run stays complete
            self._store.finish(run_id, status, note)
        return len(missing)


def _listed(missing: Sequence[Key]) -> str:
    """Return `: a, b, ...`, or nothing if the keys are unknown."""
    ids = dict.fromkeys(key.redacted().sample_id for key in missing[:MAX_LISTED])
    more = ", ..." if len(missing) > MAX_LISTED else ""
    return f": {', '.join(ids)}{more}" if ids else ""
