"""What is settled is stored, or there is an error: a run that is reported whole is in the file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.errors import StoreError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    evaluate,
    exact_match,
    stream,
)
from weakincentives.evals.store import RunStore, open_store
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.stored_row import StoredRow

WINK = Path(sys.executable).with_name("wink")
DATASET = Dataset([Sample(str(number), number, "ok") for number in range(40)], name="numbers")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "store" / "runs.db") as opened:
        yield opened


def manifest(run_id: str = "run", planned: int | None = None) -> RunManifest:
    return RunManifest(run_id=run_id, created_at=datetime.now(UTC), planned=planned)


def row(sample_id: str, run_id: str = "run") -> StoredRow:
    return StoredRow(result=EvalResult(sample_id, Score(1.0), run_id=run_id))


# ── claims ──────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_a_run_that_needs_longer_than_a_heartbeat_to_begin_are_stored(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.HEARTBEAT_SECONDS", 0.001)
    statements: list[str] = []
    store._database._connection.set_trace_callback(statements.append)
    claim = store.claim("run", new=True)
    until(lambda: any("SET heartbeat" in each for each in statements))
    store.begin(manifest(), claim)
    store.put(row("1"))
    store.finish("run", "complete", settled=1)
    claim.release()

    assert store.run("run").total == 1


def test_rows_of_a_run_that_another_process_removed_are_an_error(store: RunStore) -> None:
    store.begin(manifest())
    with open_store(store.path) as other:
        other.delete("run")
    store.put(row("1"))
    removed = "expected the run 'run' in the store, found none - it was removed while"
    with pytest.raises(StoreError, match=removed):
        store.flush()
    with pytest.raises(StoreError, match=removed):
        store.put(row("2"))
    with pytest.raises(StoreError, match=removed):
        store.finish("run", "complete")


def test_closing_is_an_error_if_refused_rows_were_not_reported(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")
    store.begin(manifest())
    with open_store(store.path) as other:
        other.delete("run")
    store.put(row("1"))

    with pytest.raises(StoreError, match="expected the run 'run' in the store"):
        store.close()


def test_a_large_row_of_a_removed_run_is_an_error_at_once(store: RunStore) -> None:
    store.begin(manifest())
    with open_store(store.path) as other:
        other.delete("run")
    large = EvalResult("1", Score(1.0), metadata={"text": "x" * 100_000}, run_id="run")

    with pytest.raises(StoreError, match="it was removed"):
        store.put(StoredRow(result=large))


def test_a_run_that_was_removed_does_not_affect_others_in_the_same_store(store: RunStore) -> None:
    for run_id in ("run", "other"):
        store.begin(manifest(run_id))
    with open_store(store.path) as other:
        other.delete("run")
    for number in range(5):
        store.put(row(str(number)))
        store.put(row(str(number), "other"))
    store.flush("other")
    store.finish("other", "complete", settled=5)

    assert store.run("other").total == 5
    with pytest.raises(StoreError, match="'run'"):
        store.flush("run")
    store.flush()  # it has been reported


def test_a_removed_run_that_is_begun_again_accepts_rows(store: RunStore) -> None:
    store.begin(manifest())
    with open_store(store.path) as other:
        other.delete("run")
    store.put(row("1"))
    with pytest.raises(StoreError):
        store.flush()
    store.begin(manifest())
    store.put(row("1"))
    store.finish("run", "complete", settled=1)

    assert store.run("run").total == 1


def test_queued_rows_are_deleted_with_their_run(store: RunStore) -> None:
    store.begin(manifest())
    store.put(row("1"))
    store.delete("run")
    store.flush()

    assert store._database.read("SELECT count(*) FROM bodies") == [(0,)]


# ── complete ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("planned", "settled", "status"),
    [(3, 0, "complete"), (None, 3, "stopped"), (1, 3, "complete")],
)
def test_a_run_with_fewer_rows_than_planned_or_settled_is_interrupted(
    store: RunStore, planned: int | None, settled: int, status: str
) -> None:
    store.begin(manifest(planned=planned))
    store.put(row("1"))
    store.put(row("2"))
    with pytest.raises(StoreError, match="expected 3 results of the run 'run' in the store, got 2"):
        store.finish("run", status, settled=settled)

    record = store.run("run")
    assert (record.status, record.note) == ("interrupted", "2 of 3 results are stored")


# ── the file ────────────────────────────────────────────────────────────────────────────────────


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def remove_file(path: Path) -> None:
    path.unlink()


def replace_by_another_store(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    open_store(path).close()


def replace_by_a_copy(path: Path) -> None:
    """Replace the file by one with all rows so far, as a restored backup is."""
    source, target = sqlite3.connect(path), sqlite3.connect(path.with_name("copy"))
    source.backup(target)
    source.close()
    target.close()
    path.with_name("copy").replace(path)


def truncate_log(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def replace_folder_by_a_file(path: Path) -> None:
    path.parent.rename(f"{path.parent} moved")
    path.parent.touch()


FAULTS = [remove_folder, remove_file, replace_by_another_store, replace_by_a_copy, truncate_log]


def faulty_agent(path: Path, fault: Callable[[Path], None], at: int) -> Callable[[int], str]:
    def agent(number: int) -> str:
        if number == at:
            fault(path)
        return "ok"

    return agent


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [20, 39])
def test_a_store_that_is_removed_replaced_or_cut_while_running_is_an_error(
    tmp_path: Path, fault: Callable[[Path], None], at: int
) -> None:
    path = tmp_path / "store" / "runs.db"
    suite = EvalSuite(faulty_agent(path, fault, at), DATASET, exact_match)

    with pytest.raises(StoreError):
        suite.run(store=path, progress=False)


@pytest.mark.anyio
@pytest.mark.parametrize("fault", [remove_folder, replace_folder_by_a_file])
async def test_evaluate_and_stream_raise_if_the_store_was_removed(
    tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    async def run(way: Any, path: Path) -> None:
        agent = faulty_agent(path, fault, 20)
        with open_store(path) as store:
            done = way(DATASET, EvalConfig(), exact_match, agent=agent, store=store)
            if way is evaluate:
                await done
            else:
                [result async for result in done]

    for way in (evaluate, stream):
        with pytest.raises(StoreError, match="its file was removed or replaced"):
            await run(way, tmp_path / way.__name__ / "runs.db")


SUITE = """
import shutil
from pathlib import Path
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

def agent(number: int) -> str:
    if number == 20:
        {fault}
    return "ok"

suite = EvalSuite(agent, Dataset([Sample(str(n), n, "ok") for n in range(40)]), exact_match)
"""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ('shutil.rmtree(".wink")', "its file was removed or replaced"),
        ('[each.unlink() for each in Path(".wink").iterdir()]', "its file was removed or replaced"),
        ('Path(".wink/runs.db-wal").open("r+b").truncate(0)', ""),
    ],
)
def test_wink_eval_run_fails_if_the_store_disappears_or_breaks_while_it_runs(
    tmp_path: Path, fault: str, message: str
) -> None:
    (tmp_path / "numbers_eval.py").write_text(SUITE.format(fault=fault))
    done = subprocess.run(
        [WINK, "eval", "run", "numbers_eval.py"],
        cwd=tmp_path,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert done.returncode == 2
    assert message in done.stderr
    assert "wink: expected" in done.stderr
    assert "Traceback" not in done.stderr


# ── the dataset's digest ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epochs": 3},
        {"max_samples": 7},
        {"max_concurrent": 1, "stop_on_error": True},
        {"stop_at_width": 0.3, "seed": 1},
    ],
)
def test_the_digest_of_the_dataset_is_stored_when_the_run_ends(
    store: RunStore, options: dict[str, Any]
) -> None:
    seen: list[str | None] = []

    def agent(number: int) -> str:
        with open_store(store.path) as other:
            seen.append(other.run("run").manifest.dataset_digest)
        if number == 30 and "stop_on_error" in options:
            raise ValueError
        return "ok"

    config = EvalConfig(**options)
    EvalSuite(agent, DATASET, exact_match, config=config).run(
        store=store, run_id="run", progress=False
    )

    assert set(seen) == {None}  # nobody waits for it before the first sample
    assert store.run("run").manifest.dataset_digest == DATASET.digest


def test_an_interrupted_and_a_resumed_run_have_the_digest_too(
    store: RunStore, tmp_path: Path
) -> None:
    def agent(number: int) -> str:
        if number == 5 and not (tmp_path / "go").exists():
            raise KeyboardInterrupt
        return "ok"

    suite = EvalSuite(agent, DATASET, exact_match)
    with pytest.raises(KeyboardInterrupt):
        suite.run(store=store, run_id="run", progress=False)
    assert store.run("run").manifest.dataset_digest == DATASET.digest
    (tmp_path / "go").touch()
    suite.run(store=store, resume="run", progress=False)

    record = store.run("run")
    assert (record.manifest.dataset_digest, record.total) == (DATASET.digest, 40)
