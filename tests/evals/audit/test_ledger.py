"""The ledger of samples: the outcomes of each sample over all runs of a suite."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from weakincentives.errors import UsageError
from weakincentives.evals import EvalResult, RunStore, Score, open_store
from weakincentives.evals.audit import LedgerEntry, read_ledger
from weakincentives.evals.store import RunManifest, StoredRow

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


def put(
    store: RunStore,
    number: int,
    verdicts: Mapping[str, str],
    *,
    version: str = "v1",
    digest: str = "d",
    agent: str = "bot",
    parent: str | None = None,
) -> str:
    """Store a run; a verdict has `+`, `-` or `!` (agent), `?` (infrastructure) for each epoch."""
    run_id = f"run-{number}"
    manifest = RunManifest(
        run_id=run_id,
        created_at=START + timedelta(hours=number),
        dataset_name="faq",
        agent=agent,
        agent_version=version,
        parent=parent,
    )
    store.begin(manifest)
    for position, (sample, marks) in enumerate(verdicts.items()):
        for epoch, mark in enumerate(marks, 1):
            source = {"!": "agent", "?": "infrastructure"}.get(mark)
            result = EvalResult(
                sample,
                Score(float(mark == "+")),
                epoch=epoch,
                run_id=run_id,
                error="failed" if source else None,
                error_source=source,  # type: ignore[arg-type]
            )
            row = StoredRow(
                result=result, position=position, sample_digest=digest, agent_version=version
            )
            store.put(row)
    store.finish(run_id, "complete")
    return run_id


def entry(store: RunStore, sample: str = "a", min_runs: int = 3) -> LedgerEntry:
    ledger = read_ledger(store, "faq", min_runs=min_runs)
    return next(entry for entry in ledger.entries if entry.sample == sample)


def test_a_sample_with_both_outcomes_for_one_version_is_flaky(store: RunStore) -> None:
    put(store, 1, {"a": "+", "b": "+", "c": "+-"})
    put(store, 2, {"a": "-", "b": "+", "c": "++"})
    put(store, 3, {"a": "-", "b": "-", "c": "++"}, version="v2")

    assert (entry(store).statuses, entry(store).flaky_versions) == (("flaky",), ("v1",))
    assert entry(store, "b").statuses == ("broken",)  # the outcome changed with the code
    assert entry(store, "c").statuses == ("flaky",)


def test_a_sample_that_never_passed_is_dead_and_one_that_never_failed_is_saturated(
    store: RunStore,
) -> None:
    for number in range(3):
        assert number == 0 or entry(store).statuses == ()
        put(store, number, {"a": "-", "b": "+", "c": "!"})

    assert [entry(store, name).statuses for name in "abc"] == [
        ("dead",),
        ("saturated",),
        ("dead",),
    ]
    assert read_ledger(store, "faq").counts == {
        "flaky": 0,
        "broken": 0,
        "dead": 2,
        "saturated": 1,
    }
    assert entry(store, min_runs=4).statuses == ()


def test_a_broken_sample_names_the_run_in_which_it_broke(store: RunStore) -> None:
    put(store, 1, {"a": "+"})
    good = put(store, 2, {"a": "++"})
    bad = put(store, 3, {"a": "--"}, version="v2")
    put(store, 4, {"a": "-"}, version="v3")

    broken = entry(store)

    assert (broken.statuses, broken.broken_since, broken.passed_before) == (("broken",), bad, good)
    put(store, 5, {"a": "+"}, version="v4")
    assert entry(store).statuses == ()


def test_other_agents_do_not_break_a_sample(store: RunStore) -> None:
    put(store, 1, {"a": "+"}, agent="strong")
    put(store, 2, {"a": "-"}, agent="weak")
    put(store, 3, {"a": "-"}, agent="weak", version="v2")

    assert entry(store).statuses == ()


def test_infrastructure_errors_are_not_outcomes(store: RunStore) -> None:
    put(store, 1, {"a": "+"})
    put(store, 2, {"a": "?"})

    ledger_entry = entry(store, min_runs=1)

    assert (ledger_entry.statuses, ledger_entry.runs, ledger_entry.errors) == (("saturated",), 1, 1)


def test_changed_samples_and_rescored_runs_do_not_count(store: RunStore) -> None:
    put(store, 1, {"a": "+"})
    put(store, 2, {"a": "-"}, digest="edited")
    put(store, 3, {"a": "+"}, digest="edited", parent="run-2")

    ledger_entry = entry(store, min_runs=1)

    assert (ledger_entry.statuses, ledger_entry.passed, ledger_entry.failed) == (("dead",), 0, 1)


def test_an_unknown_suite_is_refused_with_the_known_ones(store: RunStore) -> None:
    put(store, 1, {"a": "+"})

    with pytest.raises(UsageError, match="got 'faqs' - there are: faq"):
        read_ledger(store, "faqs")


@pytest.mark.slow
def test_reading_many_runs_is_fast_and_uses_little_memory(store: RunStore) -> None:
    samples = {f"s{n}": "+" for n in range(1_000)}
    for number in range(20):
        put(store, number, samples, version=f"v{number % 4}")
    start = time.process_time()
    tracemalloc.start()

    ledger = read_ledger(store, "faq")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ledger.counts["saturated"] == 1_000
    assert peak < 10_000_000  # the same for 20 runs and for 100
    assert time.process_time() - start < 10  # includes tracemalloc; a hundred runs take about 2 s
