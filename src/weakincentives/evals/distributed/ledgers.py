"""Ledgers count results by key: in memory for a report, or in a run store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ...clock import SYSTEM_CLOCK
from ...internal.threads import in_thread
from ...secrets import logger_for
from ..engine.engine import sample_digest
from ..model.result import EvalResult
from ..model.versions import WorkerVersion, add_version, mixed_versions_line
from ..runs.report import EvalReport
from ..store import KeyState, StoredRow
from .submission import Key, Submission

if TYPE_CHECKING:
    from ..store import RunStore

logger = logger_for(__name__)

_DIGITS = re.compile(r"([0-9]{1,18})")
UNKNOWN_KEY = Key("", "", 0)  # of a missing result, if only their number is known
MAX_LISTED = 5  # missing samples that a note names
REFRESH_INTERVAL = 10.0  # seconds between two queries for what other collectors have stored


class ResultLedger(Protocol):
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

    def report(
        self, timeout: str, quarantined: Sequence[str] = (), *, reason: str = ""
    ) -> EvalReport[Any]:
        """Return the results in dataset order, with a note of what is missing after `timeout`.

        The samples in `quarantined` do not count. `reason` says why results are missing.
        """
        run_id = name = stopped = ""
        if self.submission is None:
            results = sorted(self.results.values(), key=_order)
        else:
            run_id, name = self.submission.run_id, self.submission.dataset.name
            found = map(self.results.get, self.submission.keys())
            results = [result for result in found if result is not None]
        missing, count = self.missing(), self.expected - len(self.results)
        if count > 0:
            after = "" if reason else f" after {timeout}"
            stopped = f"{count} of {self.expected} missing{after}{_listed(missing)}"
            stopped += f" - {reason}" if reason else ""
            logger.warning("the results are not complete: %s", stopped)
            missing = missing or (UNKNOWN_KEY,) * count
        expect = "" if self.submission is None else self.submission.expect
        known = {result.sample_id for result in results}
        return EvalReport(
            results,
            run_id,
            name,
            stopped=stopped,
            missing=missing,
            quarantined=[sample for sample in quarantined if sample in known],
            mixed=_mixed(results, expect),
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
        self._versions = store.run(submission.run_id).manifest.workers
        self._new_versions: list[WorkerVersion] = []
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
        version = result.made_by or WorkerVersion()
        self._note(version)
        # Its columns have what made the row, and the manifest its description.
        result = replace(result, sample=sample, made_by=None, request_number=0)
        criteria = version.criteria_fingerprint
        self._store.put(
            StoredRow(
                result=result,
                position=position,
                sample_digest=digest,
                criteria=criteria,
                agent_version=version.agent_version,
            )
        )
        self._stored[key] = KeyState(
            key=key.redacted(),
            sample_digest=digest,
            criteria=criteria,
            error=result.error is not None,
            attempt=result.attempt,
            error_source=result.error_source,
        )
        self._missing.discard(key)
        self._uncommitted.append(result)
        return True

    def _note(self, version: WorkerVersion) -> None:
        """Keep a version of workers for the manifest, if it is new."""
        if version == WorkerVersion():  # a worker of an earlier release
            return
        known, self._versions = self._versions, add_version(self._versions, version)
        if self._versions is not known:
            self._new_versions.append(version)

    async def commit(self) -> None:
        """Write the counted results, then pass them to `on_result`."""
        if versions := tuple(self._new_versions):
            await in_thread(self._store.add_workers, self._submission.run_id, versions)
            self._new_versions.clear()
        await in_thread(self._store.flush, self._submission.run_id)
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

    def finish(self, *, interrupted: bool, cancelled: bool = False, reason: str = "") -> int:
        """Store how the collection ended, and return how many keys have no row.

        `reason` says why results are missing, if that is known.
        """
        run_id, missing = self._submission.run_id, self.without_row()
        if self._versions:  # another collector may have begun with a manifest without them
            self._store.add_workers(run_id, self._versions)
        note, total, before = "", len(self._submission), self._store.run(run_id).status
        if missing and (cancelled or before == "cancelled"):
            status, note = "cancelled", f"{total - len(missing):,} of {total:,} are stored"
        elif missing and not interrupted:
            status, note = "stopped", f"{len(missing)} of {total} missing{_listed(missing)}"
            note += f" - {reason}" if reason else ""
        else:
            status = "interrupted" if interrupted else "complete"
        if before != "complete":  # a complete run stays complete
            self._store.finish(run_id, status, note)
        return len(missing)


def _order(result: EvalResult[Any]) -> tuple[Any, ...]:
    """Return what sorts results by their requests, those of a worker that says which first.

    Others come in the order of their ids, with numbers in them as numbers: `a10` after `a9`.
    """
    key, number = Key.of(result), result.request_number
    parts = _DIGITS.split(key.sample_id)
    natural = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return result.run_id, not number, number, key.experiment, natural, key


def _mixed(results: Iterable[EvalResult[Any]], expect: str) -> str:
    """Return which versions the results mix, as `RunRecord.mixed` does for stored rows."""
    agents, criteria = Counter[str](), Counter[str]()
    workers: tuple[WorkerVersion, ...] = ()
    for result in results:
        version = result.made_by or WorkerVersion()
        if version.agent_version or result.error_source != "infrastructure":
            agents[version.agent_version] += 1
            criteria[version.criteria_fingerprint] += 1
            workers = add_version(workers, version)
    return mixed_versions_line(agents, criteria, workers, expect=expect)


def _listed(missing: Sequence[Key]) -> str:
    """Return `: a, b, ...`, or nothing if the keys are unknown."""
    ids = dict.fromkeys(key.redacted().sample_id for key in missing[:MAX_LISTED])
    more = ", ..." if len(missing) > MAX_LISTED else ""
    return f": {', '.join(ids)}{more}" if ids else ""
