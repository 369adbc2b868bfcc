"""`RunStore`: where runs are kept. This is what a store promises, whatever it is made of.

Theory of operation
-------------------
A run is its manifest, its status, and its rows. The key of a row is (experiment, sample, epoch),
and the first row of a key wins, so a result that arrives twice changes nothing; `put` lists the
exceptions. `evals.store.sqlite` keeps runs in a file. `weakincentives.testing.RunStoreContract` is
what every store must pass; `BaseRunStore` has what each does in the same way.

Writing. `put` and `offer` queue a row in memory and return; the store commits the queue soon.
`behind` asks callers to `flush`, so that memory, and what a crash can lose, stay bounded. After a
failed commit nothing is lost: the queue is kept, the next `put` raises, and `flush` tries again.
Rows of a run that was removed, or that another process took over, can never be committed: they
leave the queue, and every further call for that run raises.

Completeness. `finish` compares the stored rows with what was settled or planned, as another process
would find them: a run is only "complete" if they are all there.

Ownership. A process that runs a run claims it. A second process is refused; the run of a dead one
can be taken over. Every commit of an owner checks that it still is one.

Rules of this file:
1. What `begin`, `flush`, `finish`, `add`, `delete`, and the records of people have returned from
   survives `kill -9`.
2. Readers see what is committed, never a part of it.
3. Memory follows the page that is read, not the run.
4. A row that cannot be read comes back as an error in its place. None is left out.
5. `run_id` is a whole id. `run`, `rows`, `report`, `figures` and `tag`, which people use, take what
   `find_run` takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar
from uuid import UUID

from ...errors import UsageError
from ...runtime.session import Session, SessionSnapshot, SessionView
from ..model.decision import Decision
from ..model.versions import WorkerVersion
from ..runs.figures import Figures
from ..runs.report import EvalReport
from ..runs.table import RunTable
from .browse import RunBrowser
from .deaths import Deaths, InFlightFile
from .manifest import RunManifest
from .run_record import RunRecord, StopReason
from .stored_row import KeyState, RowKey, StoredRow

T = TypeVar("T")

RowKind = Literal["passed", "failed", "errors"]


class RunClaim(Protocol):
    """A run that belongs to this process until `release`."""

    def release(self) -> None:
        """Release the run. Releasing twice is fine."""

    def track(self, slots: int) -> InFlightFile | None:
        """Return where to note the samples in flight, at most `slots`, until the release.

        None if nothing that is noted would survive this process.
        """


PeopleKind = Literal[
    "label_draws", "human_labels", "calibrations", "judge_tests", "failure_categories"
]


class PeopleRecords(Protocol):
    """What people say: records that are only ever added, or removed with their run."""

    def add(self, kind: PeopleKind, records: Iterable[Any]) -> None:
        """Add records, all or none; they survive a loss of power, since they are people's work."""

    def read(self, kind: PeopleKind, cls: type[T], **columns: str) -> list[T]:
        """Return the records with this `run_id` (or `suite`) and `criterion`, in order.

        Raise a `StoreError` if one of them is missing or was changed.
        """

    def exist(self, kind: PeopleKind) -> bool:
        """Return whether any record of this kind was ever added, and not removed."""

    def state(self) -> Hashable:
        """Return a value that differs once a record was added, changed or removed."""

    def repair(self) -> list[str]:
        """Drop the records that cannot be read, and say what is lost."""


class RunStore(Protocol):
    """Where runs are kept. Threads and processes may use one at the same time."""

    people: PeopleRecords

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            if cls is RunStore:  # until this was a protocol, `RunStore(path)` opened a store
                raise UsageError(
                    "expected `open_store(path)` of `weakincentives.evals`, got `RunStore(path)` - "
                    "`RunStore` is what any store promises"
                )
            return super().__new__(cls)

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or address of the store, for messages."""

    @abstractmethod
    def close(self) -> None:
        """Commit the queued rows and close the store. Closing twice is fine."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...

    # ── a run ───────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def claim(self, run_id: str, *, new: bool = False) -> RunClaim:
        """Claim a run for this process alone, until the claim is released.

        Raise a `UsageError` if another process or task runs it or, with `new`, if it is stored. If
        its process is on another machine, watch for up to 30 seconds whether that one is alive.
        """

    @abstractmethod
    def begin(self, manifest: RunManifest, claim: RunClaim | None = None) -> None:
        """Store the manifest of a run; a run that is stored already is continued.

        The run belongs to the owner of the `claim`; without one it has no owner.
        """

    @abstractmethod
    def finish(
        self,
        run_id: str,
        status: str,
        note: str = "",
        stop_reason: StopReason = "",
        *,
        settled: int = 0,
        decision: Decision | None = None,
        dataset_digest: str | None = None,
    ) -> None:
        """Flush, then store how a run ended: one of `STATUSES`.

        If fewer rows are stored than results were `settled` or, for a "complete" run, than were
        planned, the run is "interrupted", and a `StoreError` is raised. One is also raised if
        another process would not find the rows. `decision` is what the rule that stopped the run
        had found, `dataset_digest` the content hash of its dataset.
        """

    @abstractmethod
    def add(self, runs: Iterable[tuple[RunManifest, Iterable[StoredRow], str]]) -> None:
        """Store runs that ended elsewhere, each with its rows and a note: all of them, or nothing.

        A run without a note is "complete" and needs as many rows as were planned; with a note,
        which says what is missing, it is "interrupted". Raise a `UsageError` if two rows of a run
        have one key, or if one of the runs is stored already.
        """

    @abstractmethod
    def change_manifest(
        self, run_id: str, change: Callable[[RunManifest], RunManifest]
    ) -> RunManifest:
        """Store the manifest that `change` makes of the stored one, and return it."""

    def tag(
        self, run_id: str, tags: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> RunManifest:
        """Set tags of the run of this name and `remove` others by key; return its manifest."""

    def add_workers(self, run_id: str, versions: Iterable[WorkerVersion]) -> None:
        """Add the versions of workers to the manifest of a submitted run."""

    @abstractmethod
    def delete(self, run_id: str) -> bool:
        """Remove a run with its rows and labels; raise a `UsageError` while a process runs it.

        Return whether no text of it is left in the store. If not, another process was reading, and
        the next one that opens the store removes what is left.
        """

    # ── rows in ─────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def put(self, row: StoredRow) -> None:
        """Queue a row; it is written within 100 ms, or by the next `flush`.

        A row of 64 KB or more is stored when this returns; in async code, use `offer`.
        The first row of a key stays, with four exceptions: a row replaces one that was scored by
        other `criteria`, one with another `sample_digest`, an error with a lower `attempt`, and one
        that fails its checksum. After a failed write this raises a `StoreError`; the queue is kept,
        and `flush` tries again. It also raises one once rows of the run were refused, because the
        run was removed or another process took it over.
        """

    def offer(self, row: StoredRow) -> bool:
        """Queue a row and return True; return False if it is large, to be `put` in a thread."""

    def behind(self, max_rows: int) -> bool:
        """Return whether to `flush`: `max_rows` rows, too many bytes, or a row for too long."""

    @abstractmethod
    def flush(self, run_id: str | None = None) -> None:
        """Commit the queued rows before returning.

        Raise a `StoreError` if rows were refused (of the run, if one is given), because their run
        was removed or another process took it over.
        """

    # ── runs out ────────────────────────────────────────────────────────────────────────────────

    def find_run(self, name: str) -> str:
        """Return the id of a run by its name: its id, or the beginning of it if no other has that.

        "latest" is the newest run, "latest~1" the one before it; "suite:NAME" and "tag:KEY=VALUE"
        are the newest of that suite and with that tag, "suite:NAME~1" the one before it.
        """

    def run_ids(self, start: str = "", *, limit: int | None = None, skip: int = 0) -> list[str]:
        """Return the ids that begin with `start`, those of the newest runs first."""

    def manifests(self, limit: int | None = None) -> Iterator[RunManifest]:
        """Yield the manifests of the runs, newest first."""

    @abstractmethod
    def runs(
        self, limit: int | None = None, *, ids: Collection[str] | None = None
    ) -> list[RunRecord]:
        """Return the runs, or those with these ids, newest first."""

    def run(self, run_id: str) -> RunRecord:
        """Return the run of this name (see `find_run`)."""

    def states(self) -> Mapping[str, Hashable]:
        """Return for each run, newest first, a value that differs once its record may have."""

    @abstractmethod
    def row_state(self, run_id: str) -> Hashable:
        """Return a value that differs once a row of the run has changed; it is cheap."""

    @abstractmethod
    def data_version(self) -> int:
        """Return a number that changes whenever somebody else has written to the store."""

    def report(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> EvalReport[Any]:
        """Return the report of the run of this name, in dataset order."""

    def figures(self, run: str | RunRecord, *, confidence: float = 0.95) -> Figures:
        """Return the figures of a run, with intervals of this confidence."""

    # ── rows out ────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def rows(
        self,
        run_id: str,
        *kinds: RowKind,
        samples: Collection[str] | None = None,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> Iterator[StoredRow]:
        """Yield the rows of the run of this name by position, epoch and experiment.

        Only those of these `kinds`, and of these `samples`, if any are given. Without types, inputs
        and outputs come back as plain data. A row that cannot be read comes back as an error in its
        place, with the reason in `StoredRow.problem`.
        """

    def row(self, run_id: str, experiment: str, sample_id: str, epoch: int) -> StoredRow | None:
        """Return the row of a key, with the ids as they are stored; None if there is none."""

    def table(self, run_id: str, keys: Iterable[str] = (), *, verdicts: bool = False) -> RunTable:
        """Return the rows of a run by column, with these keys of their metadata.

        With `verdicts`, also whether each criterion passed. A row whose columns are damaged is an
        error of infrastructure.
        """

    def parts(
        self, run_id: str, cls: type[T], *kinds: RowKind
    ) -> Iterator[tuple[RowKey, T | None]]:
        """Yield the fields of `cls` of each stored result; None for one that cannot be read."""

    def unreadable(self, run_id: str) -> set[RowKey]:
        """Return the keys of rows that cannot be read; every long value is read for that."""

    def check_rows(self, run_id: str) -> None:
        """Raise a `StoreError` if the rows of a run are not all there, as they were written."""

    def browser(self) -> RunBrowser:
        """Return what filters, orders and searches the rows of runs, page by page."""

    # ── resuming ────────────────────────────────────────────────────────────────────────────────

    def keys(self, run_id: str) -> dict[RowKey, KeyState]:
        """Return the state of each row of a run that counts, by its key."""

    @abstractmethod
    def stored_keys(self, run_id: str) -> Sequence[KeyState]:
        """Return the rows of a run that can be read: those that count, and those set aside."""

    @abstractmethod
    def move_rows(self, run_id: str, places: Iterable[tuple[KeyState, int | None]]) -> None:
        """Give each row its position in the dataset as it is now; with None, set it aside.

        A row that is set aside is not part of the run, and counts again once it has a position.
        """

    def drop_damaged(self, run_id: str) -> None:
        """Delete the rows whose own columns changed: their key may not be that of a sample."""

    def deaths(self, run_id: str) -> Mapping[tuple[bytes, int], Deaths]:
        """Return how often a process died while it ran a sample, by `noted_id` and epoch."""

    def in_flight_file(self, run_id: str) -> Path | None:
        """Return the file in which the samples in flight of a run are noted, if there is one."""

    # ── a session store and an outcome store, as `EvalLoop` and `MainLoop` take them ─────────────

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        """Save a snapshot of a session in place of the last one, for another process to `load`."""

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """Return the session that was saved under an id."""

    def find(self, key: str) -> bytes | None:
        """Return the value that this or another process stored under a key; None if none did."""

    @abstractmethod
    def find_all(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return the values of those keys that have one which can be read."""

    @abstractmethod
    def keep(self, key: str, value: bytes) -> bytes:
        """Store a value unless the key has one; return the value that stays."""

    @abstractmethod
    def replace(self, key: str, value: bytes) -> None:
        """Store a value in place of the one that the key has."""
