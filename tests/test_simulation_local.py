"""The simulation of local runs and their disk, and mutations that prove that it finds bugs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from chaos.sim_local import simulate_local
from chaos.sim_local_faults import DAMAGES, LocalPlan
from chaos.sim_run import run_local_seeds
from tests.soak import soak_size
from weakincentives import serde
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals.engine.resume import ResumePlan
from weakincentives.evals.store.sqlite import database, ownership, reading, rows, sqlite_store
from weakincentives.evals.store.sqlite.encoding import decompress
from weakincentives.evals.store.sqlite.people import SqlitePeopleRecords
from weakincentives.evals.store.sqlite.sqlite_store import SqliteRunStore

# The other tests cover the same code, and measuring it here would double the time.
pytestmark = pytest.mark.no_cover

SEEDS = soak_size(20, 2000)
APART: dict[str, Any] = {"processes": 2, "machines": 2, "locks": "none"}
CALM = LocalPlan(samples=10, begin_seconds=60.0)
SLOW_BEGIN = LocalPlan(samples=5, begin_seconds=300.0)
SKEWED = LocalPlan(samples=20, concurrency=1, seconds=5.0, skew=-600.0, **APART)
STALLS = LocalPlan({"pause": 20.0}, samples=30, concurrency=2, seconds=5.0, trouble=300.0, **APART)
FULL = LocalPlan({"disk full": 5.0, "disk error": 0.02}, samples=20, concurrency=2)
REPEATS = LocalPlan({"row repeated": 0.5}, samples=10)
POWER = LocalPlan({"power loss": 10.0}, samples=10, concurrency=1)
DEADLY = LocalPlan({"kills": 0.2}, samples=10, recovery=1000.0)
IMPORTS = LocalPlan({"crash after commit": 0.05}, samples=5, imports=3)
LABELS = LocalPlan(samples=20, concurrency=1, seconds=3.0, reviewers=3)
KILLED = LocalPlan({"kill": 10.0}, samples=20, concurrency=1, seconds=3.0, recovery=300.0, **APART)


def damaged(how: str) -> LocalPlan:
    return LocalPlan({"large": 0.2}, samples=40, concurrency=1, seconds=2.0, damage=how)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: pytest would keep the messages of thousands of faults."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.soak
def test_a_local_run_loses_and_changes_nothing_with_any_seed() -> None:
    totals = run_local_seeds(1, SEEDS)

    assert totals.bad == {}, f"\n{totals}"
    assert len(totals.faults) >= 12  # most kinds


def test_without_faults_every_sample_is_executed_once_and_there_is_no_error() -> None:
    outcome = simulate_local(7, plan=CALM, trace=True)

    assert outcome.audit.verdict.good, outcome.audit.verdict
    assert set(outcome.executions.values()) == {1}
    assert not any("Error" in line for line in outcome.trace)


@pytest.mark.parametrize("plan", [DEADLY, IMPORTS, LABELS], ids=["deadly", "imports", "labels"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_samples_that_kill_imports_and_labels_lose_nothing(plan: LocalPlan, seed: int) -> None:
    verdict = simulate_local(seed, plan=plan).audit.verdict

    assert verdict.good, verdict


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("seed", [1, 2])
def test_damage_is_reported_or_changes_nothing(how: str, seed: int) -> None:
    outcome = simulate_local(seed, plan=damaged(how))

    assert outcome.faults[how] == 1
    assert outcome.audit.verdict.good, outcome.audit.verdict


def test_a_seed_of_a_local_run_always_gives_the_same_trace() -> None:
    first, second = (simulate_local(9, trace=True, plan=STALLS).trace for _ in range(2))

    assert first == second
    assert len(first) > 40


# ── mutations ───────────────────────────────────────────────────────────────────────────────────


def a_missing_row_is_a_lost_claim(patch: pytest.MonkeyPatch) -> None:
    """As in 3.0: the heartbeat begins with the claim, and the row only with the run."""
    beat = ownership.SqliteRunClaim._write_heartbeat

    def check(self: Any, cursor: Any) -> None:
        if getattr(self, "is_lost", False):
            raise StoreError("lost")
        try:
            beat(self, cursor)
        except StoreError:
            self.is_lost = True
            raise

    patch.setattr(ownership.SqliteRunClaim, "_write_heartbeat", check)


def clocks_are_compared(patch: pytest.MonkeyPatch) -> None:
    take = ownership.SqliteRunClaim._take_unless_owned

    def compare(self: Any, dead: Any = None) -> Any:
        seen = take(self, dead)
        if seen is not None and abs(self._now() - seen[1]) > 30e6:
            return take(self, seen)
        return seen

    patch.setattr(ownership.SqliteRunClaim, "_take_unless_owned", compare)


def a_run_of_another_owner_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership.SqliteRunClaim, "check", lambda self, cursor: None)


def a_dead_owner_keeps_its_run(patch: pytest.MonkeyPatch) -> None:
    take = ownership.SqliteRunClaim._take_unless_owned

    def refuse(self: Any, dead: Any = None) -> Any:
        if dead is not None:
            raise UsageError("expected a run that no process is running")
        return take(self)

    patch.setattr(ownership.SqliteRunClaim, "_take_unless_owned", refuse)


def a_lock_is_taken_for_granted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership.SqliteRunClaim, "_locks_out", lambda self, owner: True)


def rows_that_cannot_be_written_are_dropped(patch: pytest.MonkeyPatch) -> None:
    def drop(*args: Any, **more: Any) -> None:
        with suppress(StoreError):
            rows.write_rows(*args, **more)

    patch.setattr(sqlite_store, "write_rows", drop)


def the_end_of_a_run_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqliteRunStore, "_check_anew", lambda self, run_id, stored, finished: None)


def a_removed_file_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database.Database, "_check_in_place", lambda self: None)
    the_end_of_a_run_is_not_counted(patch)


def the_last_row_of_a_key_wins(patch: pytest.MonkeyPatch) -> None:
    overwrites = {
        count: (upsert.partition(" WHERE ")[0], insert)
        for count, (upsert, insert) in rows._STATEMENTS.items()
    }
    patch.setattr(rows, "_STATEMENTS", overwrites)


def checksums_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database, "intact", lambda *columns: True)
    patch.setattr(database, "has_body", lambda *columns: True)
    patch.setattr(reading, "check_row", lambda *columns: None)


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    transaction = database.Database.transaction

    @contextmanager
    def unsynced(self: Any, *, synced: bool = False) -> Iterator[Any]:
        with transaction(self, synced=False) as cursor:
            yield cursor

    patch.setattr(database.Database, "transaction", unsynced)


def deaths_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "count_deaths", lambda *values: None)


def a_suspect_runs_with_others(patch: pytest.MonkeyPatch) -> None:
    run_after = ResumePlan._after_deaths

    def in_company(self: Any, task: Any) -> Any:
        after = run_after(self, task)
        return after if after.error else replace(after, deaths=0)

    patch.setattr(ResumePlan, "_after_deaths", in_company)


def an_import_stores_run_by_run(patch: pytest.MonkeyPatch) -> None:
    def add(self: Any, runs: Any) -> None:
        for manifest, results, _ in runs:
            self.begin(manifest)
            for row in results:
                sqlite_store.Writer.offer(self._writer, row)
            SqliteRunStore.flush(self, manifest.run_id)

    patch.setattr(SqliteRunStore, "add", add)


def duplicates_are_imported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sqlite_store,
        "unique_columns",
        lambda run_id, results: [rows.to_columns(row)._replace(run_id=run_id) for row in results],
    )


def checksums_of_labels_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read(self: Any, table: str, kind: Any, **columns: str) -> list[Any]:
        found = self._database.read(f"SELECT body FROM {table} WHERE run_id = ?", (b"run",))
        with suppress(Exception):
            return [serde.decode(decompress(body), kind) for (body,) in found]
        return []

    patch.setattr(SqlitePeopleRecords, "read", read)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], LocalPlan] = {
    a_missing_row_is_a_lost_claim: SLOW_BEGIN,
    clocks_are_compared: SKEWED,
    a_run_of_another_owner_is_written: STALLS,
    a_dead_owner_keeps_its_run: KILLED,
    a_lock_is_taken_for_granted: SKEWED,
    rows_that_cannot_be_written_are_dropped: FULL,
    the_end_of_a_run_is_not_counted: damaged("log cut"),
    a_removed_file_goes_unnoticed: damaged("file removed"),
    the_last_row_of_a_key_wins: REPEATS,
    checksums_are_not_compared: CALM,
    nothing_is_synced: POWER,
    deaths_are_not_counted: DEADLY,
    a_suspect_runs_with_others: DEADLY,
    an_import_stores_run_by_run: IMPORTS,
    duplicates_are_imported: IMPORTS,
    checksums_of_labels_are_not_compared: LABELS,
}


@pytest.mark.parametrize("mutate", MUTANTS, ids=[mutate.__name__ for mutate in MUTANTS])
def test_a_bug_of_the_store_is_caught_within_a_hundred_seeds(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert first_failure(MUTANTS[mutate]) <= 100


def first_failure(plan: LocalPlan) -> int:
    """Return the first seed that fails; if none does, one more than there are."""
    return next(
        (seed for seed in range(1, 101) if not simulate_local(seed, plan=plan).audit.verdict.good),
        101,
    )
