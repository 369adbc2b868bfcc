"""The invariants of a local run, checked by SQL of its own while the run goes on.

After each commit a new connection reads the run, so the history of every row is known: which
process added it, who owned the run by then, and that it never changed or went away. What the store
said was stored is looked up at once. After damage, only one thing holds: whatever looks whole is
right.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import Dataset, EvalReport, EvalResult, Score, open_store
from weakincentives.evals.runs.table import row_of
from weakincentives.evals.store.human_labels import HumanLabel, entries_of

from .sim_check import Verdict
from .sim_disk import connect, flip, table_pages, used_byte
from .sim_loop import Process
from .sim_world import RUN

if TYPE_CHECKING:
    from .sim_local import LocalWorld

__all__ = ["Audit", "answer", "verdict_of"]

MAX_DEATHS = 3  # while a sample runs, until it is an error
MAX_OTHER_DEATHS = 3  # of them, by other faults
STALE_SECONDS = 30.0  # without a heartbeat, after which a run may be taken over
JUST_NOW = 60.0  # seconds after which the end of a process explains nothing any more
IMPORTED = 7  # results of an imported run
CRITERION = "right"  # that people label by
FLIPS = 5  # of bits in the rows, and in the labels if there are any, at the end of a simulation
HEADER = 5  # bytes in front of a stored value: its kind and a checksum

Key = tuple[str, int]


def answer(question: str) -> str:
    """Return what the agent must answer, so that every row can be checked."""
    digest = hashlib.sha256(question.encode()).hexdigest()[:16]
    if question.startswith("large "):
        return digest + Random(question).randbytes(40_000).hex()
    return digest


@dataclass(frozen=True, slots=True)
class Row:
    """A stored row, as its columns say."""

    attempt: int
    passed: bool
    error: bool
    value: float
    body: int
    header: bytes  # of the stored result, which its checksum is in


@dataclass(frozen=True, slots=True)
class State:
    """The run as it is stored: nothing, if there is no such run."""

    status: str = ""
    owner: bytes | None = None
    rows: Any = None

    @property
    def keys(self) -> set[Key]:
        """Return the keys of the rows."""
        return set(self.rows or {})


def imported(random: Random, duplicates: bool) -> EvalReport[Any]:
    """Return a report to import, perhaps with two results of one sample and epoch."""
    results = [EvalResult(str(number), Score(1.0)) for number in range(IMPORTED)]
    if duplicates:
        results.insert(random.randrange(IMPORTED), EvalResult("0", Score(0.0)))
        results = results[: IMPORTED + 1]
    return EvalReport(results, "imported")


class Audit:
    """What was stored when and by whom, and what is wrong with it."""

    def __init__(self, world: LocalWorld) -> None:
        self.verdict = Verdict()
        self.failures = 0  # tries that ended in an error, after the last fault
        self._world = world
        self._planned = world.plan.samples * world.plan.epochs
        self.active: set[Process] = set()
        self._ended_at: dict[Process, float] = {}
        self._committed_at: dict[Process, float] = {}
        self._owners: dict[bytes, Process] = {}
        self._last_owner: bytes | None = None
        self._at_finish: dict[Process, Any] = {}
        self._state = State()
        self._promised = State()  # survives a loss of power
        self._imported: set[str] = set()
        self._labels: list[HumanLabel] = []  # that the store said it has
        self._labels_in_doubt: set[str] = set()
        self._history: set[tuple[Key, Row]] = set()  # all that were ever committed
        self.over = False

    def note(self, what: str) -> None:
        """Record a violation."""
        self._world.violations.append(what)
        self._world.log(None, f"VIOLATION: {what}")

    def forget(self) -> None:
        """Begin anew: the file was removed, or is not known any more."""
        self._state = self._promised = State()
        self._imported.clear()
        self._labels.clear()

    def allowed(self, question: str) -> set[tuple[bool, bool]]:
        """Return what may be said of a sample, after what happened to it."""
        verdicts = verdict_of(question)
        deaths, epochs = self._world.deaths, range(1, self._world.plan.epochs + 1)
        if any(deaths[question, epoch] >= MAX_DEATHS for epoch in epochs):
            verdicts.add((False, True))
        return verdicts

    # ── imports and labels ────────────────────────────────────────────────────────────────────────

    def imported(self, process: Process, run_ids: list[str], *, refused: bool) -> None:
        """Note runs that the store said were imported."""
        if refused:
            self.note(f"{process.name} imported two results of one key")
        self._imported.update(run_ids)
        self._check_imports()

    def _check_imports(self) -> None:
        """Check that what was imported is there, and that nothing is there in part."""
        if self._world.damage:
            return
        query = (
            "SELECT CAST(run_id AS TEXT), CAST(status AS TEXT), "
            "(SELECT count(*) FROM rows WHERE run = runs.id) FROM runs WHERE run_id <> ?"
        )
        with closing(connect(self._world.disk.path)) as reader:
            if not reader.execute("SELECT 1 FROM sqlite_master WHERE name = 'tallies'").fetchall():
                return  # the file is being created
            runs = reader.execute(query, (RUN.encode(),)).fetchall()
        for run_id, status, count in runs:
            if (status, count) != ("complete", IMPORTED):
                self.note(f"{run_id} was imported in part: {status}, {count} rows")
        if missing := self._imported - {run_id for run_id, *_ in runs}:
            self.note(f"imported runs went away: {sorted(missing)}")

    def new_label(self) -> HumanLabel:
        """Return a label of some output of the run, which may or may not be stored by now."""
        random, world = self._world.random, self._world
        uid = f"{random.getrandbits(64):x}"
        self._labels_in_doubt.add(uid)
        return HumanLabel(
            run_id=RUN,
            experiment="baseline",
            sample_id=str(random.randrange(world.plan.samples)),
            epoch=1,
            content="",
            criterion=CRITERION,
            passed=random.random() < 0.5,
            created_at=world.now(),
            uid=uid,
        )

    def labelled(self, labels: list[HumanLabel]) -> None:
        """Note labels that the store said it has."""
        self._labels += labels

    def _check_labels(self, path: Path) -> None:
        """Check that the store reads all labels unchanged, or says that some are damaged."""
        damage = self._world.damage
        # A log that is not whole ends where it breaks, and what was lost with it cannot be known.
        if damage and not self._world.disk.flipped_in_file:
            return
        self._read_labels(path, is_damaged=bool(damage))
        if damage or not self._labels:
            return
        whole, random = path.read_bytes(), self._world.random
        pages = [*table_pages(path, "human_labels"), *table_pages(path, "record_tallies")]
        for _ in range(FLIPS):
            flip(path, used_byte(path, random.choice(pages), random), random)
            self._read_labels(path, is_damaged=True)
            path.write_bytes(whole)

    def _read_labels(self, path: Path, *, is_damaged: bool) -> None:
        try:
            with open_store(path) as store:
                found = {label.uid: label for label in entries_of(store, RUN, CRITERION)}
        except StoreError as error:
            if not is_damaged:
                self.note(f"the labels cannot be read: {error}")
            return
        lost = [label.uid for label in self._labels if found.get(label.uid) != label]
        if lost or not found.keys() <= self._labels_in_doubt:
            self.verdict.lost += len(lost)
            self.note(f"{len(lost)} of {len(self._labels)} labels were lost or changed silently")

    # ── processes ─────────────────────────────────────────────────────────────────────────────────

    def begins(self, process: Process) -> None:
        """Note that a process begins to run the suite."""
        self.active.add(process)

    def ends(self, process: Process) -> None:
        """Note that it has ended or died."""
        self.active.discard(process)
        self._ended_at[process] = self._world.loop.now

    def reported_error(self, process: Process, error: BaseException) -> None:
        """Check that an error that a user was told of has a reason."""
        world = self._world
        if world.healed and isinstance(error, StoreError):
            self.failures += 1
        if world.damage or (process.troubled and isinstance(error, StoreError)):
            return
        since = world.loop.now - JUST_NOW
        recent = {each for each, at in self._ended_at.items() if at > since and each != process}
        others = (self.active - {process}) | recent
        if isinstance(error, UsageError) and others and "a run that no process" in str(error):
            return
        if isinstance(error, UsageError) and self._owners and "of a new run" in str(error):
            return  # another one began it after this one had not found it
        self.note(f"{process.name} was told without a reason: {type(error).__name__} {error}")

    # ── commits ───────────────────────────────────────────────────────────────────────────────────

    def after_commit(self, process: Process) -> None:
        """Check what a commit has changed."""
        world = self._world
        if world.damage or self.over:
            return
        before, now = self._state, self._read()
        if now is None:
            return
        self._state = now
        self._check_owner(process, before, now)
        self._history.update((now.rows or {}).items())
        if world.plan.imports:
            self._check_imports()
        added = now.keys - before.keys
        changed = self._check_rows(before, now)
        self._committed_at[process] = world.loop.now
        if (added or changed) and self._owners.get(self._last_owner or b"") is not process:
            self.note(f"{process.name} stored rows of a run that it does not own")
        if now.status == "complete" and len(now.keys) != self._planned:
            self.note(f"complete with {len(now.keys)} of {self._planned} rows")

    def _check_rows(self, before: State, now: State) -> set[Key]:
        changed = {key for key in before.keys & now.keys if before.rows[key] != now.rows[key]}
        for key in changed:
            old, new = before.rows[key], now.rows[key]
            if not (old.error and new.attempt > old.attempt and self._world.plan.retry_errors):
                self.verdict.changed += 1
                self.note(f"the row {key} was changed from {old} to {new}")
        self._check_missing(before.keys - now.keys)
        return changed

    def _check_missing(self, missing: set[Key]) -> None:
        self.verdict.lost += len(missing)
        if missing:
            self.note(f"{len(missing)} rows went away: {sorted(missing)[:3]}")

    def _check_owner(self, process: Process, before: State, now: State) -> None:
        """Check that a run changes its owner only if the one before is dead or seems to be."""
        world, owner = self._world, now.owner
        if owner is None or owner == self._last_owner:
            return
        self._owners.setdefault(owner, process)
        earlier = self._owners.get(self._last_owner or b"")
        self._last_owner = owner
        if earlier is None or before.owner is None or earlier.dead or earlier not in self.active:
            return
        silent = world.loop.now - self._committed_at[earlier]
        locked = world.plan.locks == "shared" or earlier.machine == process.machine
        if world.plan.locks != "none" and locked:
            self.note(f"{process.name} took the run from {earlier.name}, which held its lock")
        elif silent < STALE_SECONDS - 0.01:
            self.note(f"{earlier.name} lost its run {silent:.1f} s after its last heartbeat")
        elif not earlier.troubled:
            self.note(f"{earlier.name} lost its run although it was healthy")

    # ── deaths ────────────────────────────────────────────────────────────────────────────────────

    def after_death(self, process: Process) -> None:
        """Check that a process which died left everything that it had committed."""
        self.ends(process)
        if not (self._world.damage or self.over):
            now = self._read()
            if now is not None and (now.rows or {}) != (self._state.rows or {}):
                self._check_missing(self._state.keys - now.keys)
                self.note(f"the death of {process.name} changed what is stored")

    def after_power_loss(self) -> None:
        """Check that what was synced is there, and of the rest nothing that never was."""
        if self._world.damage:
            return
        before, now = self._state, self._read()
        if now is None:
            return
        rows = now.rows or {}
        if not self._history.issuperset(rows.items()):
            self.note("the loss of power changed a row")
        self._check_missing(self._promised.keys - now.keys)
        self._check_imports()
        if self._promised.status == "complete" == before.status != now.status:
            self.note("the loss of power undid the end of the run")
        if self._promised.status and not now.status:
            self.note("the loss of power undid the beginning of the run")
        self._state = self._promised = now
        self._last_owner = now.owner

    # ── what the store said ───────────────────────────────────────────────────────────────────────

    def promised_rows(self, process: Process, rows: list[Any]) -> None:
        """Check rows that the store said were written."""
        if self._world.damage or not rows:
            return
        now = self._read()
        missing = {(row.result.sample_id, row.result.epoch) for row in rows}
        missing -= now.keys if now is not None else set()
        if missing:
            self.verdict.lost += len(missing)
            self.note(f"{process.name} was told that {sorted(missing)[:3]} are stored")

    def begun(self) -> None:
        """Note that the store said that the run has begun."""
        if not self._world.damage:
            self._promised = self._read() or self._promised

    def finished(self, process: Process, status: str, settled: int) -> None:
        """Check the file at the moment at which the store said that the run has ended."""
        now = self._read()
        self._at_finish[process] = None if now is None else now.rows
        self._promised = now or State()
        stored = count_rows(self._world.disk.path)
        if stored >= (self._planned if status == "complete" else settled):
            return
        # A changed byte is noticed by whoever reads it, as is a long value whose end is missing.
        if self._world.damage != "bit flipped" or not _reports_damage(self._world.disk.path):
            self.verdict.lost += 1
            self.note(f"{process.name} was told {status!r}, and {stored} rows are stored")

    def reported(self, process: Process, report: EvalReport[Any], dataset: Dataset[Any]) -> None:
        """Check the report that a user gets: against the truth, and against the file."""
        keys = [(s.id, epoch) for s in dataset for epoch in range(1, self._world.plan.epochs + 1)]
        if [(result.sample_id, result.epoch) for result in report.results] != keys:
            self.verdict.wrong += 1
            self.note(f"{process.name} got a report of {report.total} of {self._planned} results")
        rows = None if self._world.damage else self._at_finish.get(process)
        for result in report.results:
            verdict = result.passed, result.error is not None
            question = dataset[int(result.sample_id)].input
            if verdict not in self.allowed(question):
                self.verdict.wrong += 1
                self.note(f"{process.name} got {verdict} of {question!r}")
            row = None if rows is None else rows.get((result.sample_id, result.epoch))
            if row is not None and verdict != (row.passed, row.error):
                self.verdict.wrong += 1
                self.note(f"{process.name} got {verdict} of {question!r}, stored as {row}")

    def at_the_end(self, dataset: Dataset[Any]) -> None:
        """Check every stored value, and that the store itself reads what there is."""
        world, copy = self._world, self._world.disk.folder / "end"
        _copy(world.disk.path, copy)
        self._check_labels(copy)
        self._check_deaths()
        found = _read_by_store(copy)
        if isinstance(found, Contradiction):
            self.verdict.wrong += 1
            self.note(f"the store gives other figures: {found}")
        elif not world.damage and isinstance(found, list):
            self._check_flips(copy, found)
        self.verdict.notes = world.violations
        if world.violations or (world.damage and isinstance(found, str)):
            return
        truth = {str(n): self.allowed(sample.input) for n, sample in enumerate(dataset)}
        if isinstance(found, str) or any(row[2:] not in truth[row[0]] for row in found):
            self.verdict.wrong += 1
            self.note(f"the store reads {found if isinstance(found, str) else 'other verdicts'}")
        if world.damage:
            return
        stored = _bodies(copy)
        if isinstance(found, list) and [row[:2] for row in found] != [row[:2] for row in stored]:
            self.note(f"the store reads {len(found)} rows, and {len(stored)} are stored")
        for sample_id, _, result in stored:
            question = dataset[int(sample_id)].input
            if "error" not in result and result["trajectory"]["output"] != answer(question):
                self.verdict.wrong += 1
                self.note(f"the stored output of {question!r} is wrong")

    def _check_flips(self, path: Path, found: list[Any]) -> None:
        """Check that the store reads rows unchanged after a bit flipped, or says that it did."""
        whole, random = path.read_bytes(), self._world.random
        pages = table_pages(path, "rows")
        for _ in range(FLIPS):
            flip(path, used_byte(path, random.choice(pages), random), random)
            seen = _read_by_store(path)
            if isinstance(seen, Contradiction) or (isinstance(seen, list) and seen != found):
                self.verdict.wrong += 1
                self.note(f"a flipped bit changed a row silently: {seen}")
            path.write_bytes(whole)

    def _check_deaths(self) -> None:
        """Check that no sample could end many processes."""
        lost = {"power loss"} & self._world.faults.keys() or self._world.plan.damage
        for (question, _), times in self._world.deaths.items():
            limit = MAX_DEATHS + (2 if lost else 0)
            if question.startswith("kills ") and times > limit + MAX_OTHER_DEATHS:
                self.note(f"{question!r} ended {times} processes")

    def _read(self) -> State | None:
        """Read the run; None if that fails, which is a violation unless the file is damaged."""
        try:
            return read_state(self._world.disk.path)
        except sqlite3.Error as error:
            if not self._world.damage:
                self.note(f"the file cannot be read: {error}")
            return None


def verdict_of(question: str) -> set[tuple[bool, bool]]:
    """Return what may be said of a sample: whether it passed, and whether it is an error."""
    passed, failed, error = (True, False), (False, False), (False, True)
    verdicts = {"kills": {error}, "wrong": {failed}, "raises": {error}, "flaky": {passed, error}}
    return verdicts.get(question.partition(" ")[0], {passed})


def read_state(path: Path) -> State:
    """Read the run by a new connection."""
    if not path.exists():
        return State()
    with closing(connect(path)) as reader:
        reader.text_factory = bytes
        try:
            runs = reader.execute(
                "SELECT id, status, owner FROM runs WHERE run_id = ?", (RUN.encode(),)
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # the file is being created
                return State()
            raise
        if not runs:
            return State()
        ((run, status, owner),) = runs
        rows = reader.execute(
            "SELECT CAST(sample AS BLOB), epoch, attempt, passed, error, value, bodies.id, "
            "substr(result, 1, 5) FROM rows JOIN bodies ON bodies.id = body WHERE run = ?",
            (run,),
        )
        found = {
            (sample.decode("utf-8", "replace"), epoch): Row(
                attempt, bool(passed), bool(error), value, body, header
            )
            for sample, epoch, attempt, passed, error, value, body, header in rows
        }
        return State(status.decode("utf-8", "replace"), owner, found)


def count_rows(path: Path) -> int:
    """Return how many rows of the run a new connection finds, 0 if it finds damage."""
    query = (
        "SELECT count(bodies.id) FROM runs JOIN rows ON run = runs.id "
        "JOIN bodies ON bodies.id = body WHERE run_id = ?"
    )
    with closing(connect(path)) as reader, suppress(sqlite3.Error):
        return int(reader.execute(query, (RUN.encode(),)).fetchone()[0])
    return 0


def _copy(path: Path, target: Path) -> None:
    """Copy the file and its log, as a machine that starts again finds them."""
    for suffix in ("", "-wal"):
        if (file := Path(f"{path}{suffix}")).exists():
            shutil.copyfile(file, f"{target}{suffix}")


def _bodies(path: Path) -> list[tuple[str, int, Any]]:
    """Return sample, epoch and result of each row, decoded here."""
    with closing(connect(path)) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = reader.execute(
            "SELECT CAST(sample AS TEXT), epoch, result FROM rows JOIN bodies ON bodies.id = body "
            "WHERE run = (SELECT id FROM runs WHERE run_id = ?) ORDER BY position, epoch",
            (RUN.encode(),),
        ).fetchall()
    return [(sample, epoch, json.loads(_unpacked(result))) for sample, epoch, result in rows]


def _unpacked(stored: bytes) -> bytes:
    data = stored[HEADER:]
    return zlib.decompress(data) if stored[:1] == b"z" else data


class Contradiction(str):
    """Figures of a run that differ, although nothing is said to be damaged."""


def _read_by_store(path: Path) -> list[tuple[str, int, bool, bool]] | str:
    """Return sample, epoch and verdict of each row as the store reads them, or its complaint."""
    try:
        with open_store(path) as store:
            record, rows = store.run(RUN), list(store.rows(RUN))
            report, figures, table = store.report(RUN), store.figures(RUN), store.table(RUN)
    except (StoreError, UsageError) as error:
        return str(error)
    if problem := next((row.problem for row in rows if row.problem), ""):
        return problem
    if record.status != "complete":
        return f"status {record.status}: {record.note}"
    counts = len(rows), sum(row.result.passed for row in rows)
    if counts != (record.total, record.passed) or figures != report.figures:
        return Contradiction(f"{counts} rows, {record}, {figures}, {report.figures}")
    columns = [row._replace(digest="", agent_version="", verdicts=None) for row in table]
    if columns != [row_of(result)._replace(verdicts=None) for result in report.results]:
        return Contradiction(f"columns {columns}, results {report.results}")
    return [(r.sample_id, r.epoch, r.passed, r.error is not None) for r in report.results]


def _reports_damage(path: Path) -> bool:
    """Return whether the store says that the file is damaged, not only that a run is missing."""
    try:
        with open_store(path) as store:
            if store.run(RUN).status == "damaged":
                return True
            return any(row.problem for row in store.rows(RUN))
    except StoreError:
        return True
    except UsageError:
        return False
