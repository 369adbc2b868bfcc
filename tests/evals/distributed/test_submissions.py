"""Submissions in a run store, and the ledger that counts their results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weakincentives import Experiment
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalLoop,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    Score,
    collect_results,
    exact_match,
    open_store,
    submit_dataset,
)
from weakincentives.evals.distributed import (
    Key,
    StoreLedger,
    Submission,
    ledgers,
    load_submission,
    record_submission,
)
from weakincentives.runtime import InMemoryMailbox
from weakincentives.runtime.mailbox import MemoryQueue, QueueMailbox

DATASET = Dataset([Sample(str(number), number, number) for number in range(3)], name="sums")
TWO = (Experiment("short"), Experiment("long"))
RUN = Submission("mine", DATASET, TWO)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        yield store


def record(store: RunStore, submission: Submission = RUN) -> set[Key]:
    return record_submission(store, submission, queue="qa", config=EvalConfig())


def result(sample: str, *, error: str | None = None, experiment: str = "short") -> EvalResult[Any]:
    return EvalResult(
        sample, Score(float(error is None)), error=error, experiment_name=experiment, run_id="mine"
    )


async def count(ledger: StoreLedger, *results: EvalResult[Any]) -> list[bool]:
    is_new = [ledger.count(result) for result in results]
    await ledger.commit()
    return is_new


def test_a_recorded_submission_is_a_run_that_can_be_loaded(store: RunStore) -> None:
    assert record(store) == set(RUN.keys())

    manifest = store.run("mine").manifest
    assert (manifest.agent, manifest.planned, manifest.criteria) == ("workers of qa", 6, ())
    assert (manifest.dataset_name, manifest.dataset_digest) == ("sums", DATASET.digest)
    assert load_submission(store, "mine") == RUN


@pytest.mark.anyio
async def test_recording_again_returns_the_keys_without_a_result(store: RunStore) -> None:
    record(store)
    await count(StoreLedger(RUN, store), result("0"), result("1", error="boom"))

    assert record(store) == set(RUN.keys()) - {Key("short", "0", 1), Key("short", "1", 1)}


def test_a_run_id_belongs_to_one_submission(store: RunStore) -> None:
    record(store)

    with pytest.raises(UsageError, match="expected the samples and experiments of the run 'mine'"):
        record(store, Submission("mine", DATASET[:2], TWO))


def test_a_local_run_is_not_a_submission(store: RunStore) -> None:
    run_id = EvalSuite(lambda number: number, DATASET, exact_match).run(store=store).run_id

    with pytest.raises(UsageError, match="which was run locally - choose another --run-id"):
        record(store, Submission(run_id, DATASET))
    with pytest.raises(UsageError, match="expected a run that `wink eval submit` began"):
        load_submission(store, run_id)


@pytest.mark.anyio
async def test_the_first_result_of_a_key_stays_unless_it_is_an_error(store: RunStore) -> None:
    record(store)
    ledger = StoreLedger(RUN, store)
    first = await count(ledger, result("0"), result("1", error="boom"), result("2"))
    second = await count(ledger, result("0"), result("1"), result("2", error="late"))

    assert (first, second) == ([True] * 3, [False, True, False])
    assert [row.result.error for row in store.rows("mine")] == [None, None, None]
    assert {key.experiment for key in ledger.missing()} == {"long"}


@pytest.mark.anyio
async def test_errors_that_are_retried_count_as_missing(store: RunStore) -> None:
    record(store)
    await count(StoreLedger(RUN, store), result("0"), result("1", error="boom"))
    ledger = StoreLedger(RUN, store, retry_errors=True)

    assert ledger.retried == {Key("short", "1", 1)} <= ledger.missing()
    assert await count(ledger, result("1", error="boom again")) == [True]
    assert Key("short", "1", 1) not in ledger.missing()


@pytest.mark.anyio
async def test_results_of_another_collector_are_picked_up(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store)
    ledger = StoreLedger(RUN, store)
    await count(StoreLedger(RUN, store), *(result(each.id) for each in DATASET))
    await ledger.refresh()
    assert len(ledger.missing()) == 6  # the refresh interval is not over

    monkeypatch.setattr(ledgers, "REFRESH_INTERVAL", 0.0)
    await ledger.refresh()
    assert len(ledger.missing()) == 3


@pytest.mark.anyio
async def test_a_result_of_a_run_that_was_removed_meanwhile_is_an_error(store: RunStore) -> None:
    record(store)
    ledger = StoreLedger(RUN, store)
    with open_store(store.path) as other:
        other.delete("mine")

    with pytest.raises(StoreError, match=r"expected the run 'mine' in the store.*it was removed"):
        await count(ledger, result("0"))


@pytest.mark.anyio
async def test_a_collection_ends_complete_stopped_or_interrupted(store: RunStore) -> None:
    record(store)
    ledger = StoreLedger(RUN, store)
    await count(ledger, *(result(each.id) for each in DATASET))

    assert ledger.finish(interrupted=True) == 3
    assert (store.run("mine").status, store.run("mine").note) == ("interrupted", "")
    assert ledger.finish(interrupted=False) == 3
    assert store.run("mine").note == "3 of 6 missing: 0, 1, 2"
    await count(ledger, *(result(each.id, experiment="long") for each in DATASET))
    assert (ledger.finish(interrupted=False), store.run("mine").status) == (0, "complete")
    assert (ledger.finish(interrupted=True), store.run("mine").status) == (0, "complete")


def test_a_count_is_collected_in_the_order_of_the_dataset() -> None:
    """As in `collect_results(results, len(dataset))`, in whatever process."""
    ids = ["fr", "de", *map(str, range(12))]
    requests: QueueMailbox[Any] = QueueMailbox(MemoryQueue("requests"))
    results: Any = InMemoryMailbox("results")
    submit_dataset([Sample(id, id, id) for id in ids], requests)
    for _ in range(5):
        submit_dataset(DATASET, InMemoryMailbox("others"))
    EvalLoop(lambda text: text, exact_match, requests, results).run(max_iterations=1)
    for message in reversed(results.receive(max_messages=100)):
        message.acknowledge()
        results.send(message.body)
    report = collect_results(results, len(ids), timeout_seconds=5)

    assert [result.sample_id for result in report.results] == ids


def test_results_of_an_earlier_release_are_collected_in_the_order_of_their_ids() -> None:
    results: Any = InMemoryMailbox("results")
    for id in ("10", "9", "b", "a10", "a9"):
        results.send(EvalResult(id, Score(1.0), run_id="elsewhere"))
    report = collect_results(results, 5, timeout_seconds=5)

    assert [result.sample_id for result in report.results] == ["9", "10", "a9", "a10", "b"]
