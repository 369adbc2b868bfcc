"""The versions behind the results of a queue: what they carry, and what a pinned run refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from tests.engine import TIMEOUT
from tests.processes import running_loops
from tests.runtime.mailbox import sqs_server
from tests.seeds.in_memory_cluster import DATASET as QUESTIONS, Cluster
from weakincentives import serde
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalLoop,
    EvalReport,
    EvalRequest,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    Score,
    collect_results,
    contains,
    exact_match,
    open_store,
    submit_dataset,
)
from weakincentives.evals.distributed import StoreLedger, Submission, record_submission
from weakincentives.evals.engine.rescoring import rescore
from weakincentives.evals.model.versions import WorkerVersion, add_version
from weakincentives.evals.store import CriterionInfo
from weakincentives.runtime.mailbox import InMemoryMailbox, SQSMailbox

DATASET = Dataset([Sample(str(number), number, str(number + 1)) for number in range(6)])
ONE = WorkerVersion(
    agent_version="a1",
    criteria_version="c1",
    criteria_fingerprint="f1",
    agent="answer",
    agent_parts={"helper.py": "1"},
    criteria=(CriterionInfo(name="exact_match"),),
    git_commit="abc",
)
TWO = replace(ONE, agent_version="a2", agent_parts={"helper.py": "2"})


def adds_one(number: int) -> str:
    return str(number + 1)


def adds_two(number: int) -> str:
    return str(number + 2)


class Mailboxes:
    def __init__(self) -> None:
        self.requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
        self.results: InMemoryMailbox[Any] = InMemoryMailbox("results")

    def loop(self, agent: Any = adds_one, evaluator: Any = exact_match) -> EvalLoop[Any, Any, Any]:
        return EvalLoop(agent, evaluator, self.requests, self.results)

    def collect(self, submission: Submission, **options: Any) -> EvalReport[Any]:
        options = {"timeout_seconds": TIMEOUT, **options}
        return collect_results(self.results, submission, **options)


@pytest.fixture
def mailboxes() -> Mailboxes:
    return Mailboxes()


# ── what a result carries ───────────────────────────────────────────────────────────────────────


def test_every_result_has_the_version_and_the_first_its_description(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    loop = mailboxes.loop()
    loop.run(max_iterations=1)
    made_by = [result.made_by for result in mailboxes.collect(submission).results]

    assert {str(version) for version in made_by} == {str(loop.version)}
    described = [version for version in made_by if version is not None and version.agent]
    assert [(one.agent, one.evaluators) for one in described] == [("adds_one", "exact_match")]


def test_a_report_says_which_versions_it_mixes(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    three = mailboxes.requests.receive(max_messages=3)
    mailboxes.loop().run(max_iterations=1)
    for message in three:
        message.nack()
    mailboxes.loop(adds_two, contains).run(max_iterations=1)
    report = mailboxes.collect(submission)

    assert "mixes 2 versions of the agent: 3 rows by " in str(report)
    assert "mixes 2 versions of the evaluators: 3 rows by contains, 3 rows by exact_match" in str(
        report
    )


def test_a_suite_and_a_worker_with_its_parts_have_one_version(mailboxes: Mailboxes) -> None:
    version = EvalSuite(adds_one, DATASET, exact_match).version

    assert mailboxes.loop().version == version
    assert mailboxes.loop(adds_two).version.agent_version != version.agent_version
    assert mailboxes.loop(evaluator=contains).version.criteria_version != version.criteria_version


def test_a_remote_main_loop_says_its_version_if_it_has_one() -> None:
    cluster = Cluster()
    main_loop = cluster.main_loop()
    main_loop.agent_version = "v7"
    submission = cluster.submit(QUESTIONS[:2])
    with running_loops(main_loop, cluster.eval_loop()):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert {result.made_by and result.made_by.agent_version for result in report.results} == {"v7"}


def test_the_version_of_a_remote_main_loop_is_otherwise_unknown() -> None:
    cluster = Cluster()
    submission = cluster.submit(QUESTIONS[:1])
    with running_loops(cluster.main_loop(), eval_loop := cluster.eval_loop()):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert str(eval_loop.version).startswith("unknown:")
    assert report.mixed == ""


def test_requests_and_results_of_earlier_and_later_releases_are_read() -> None:
    request, result = EvalRequest(Sample("1", 1)), EvalResult("1", Score(1.0))
    for value, name in ((request, "expect"), (result, "made_by")):
        data = serde.plain(value)
        del data[name], data["request_number"]
        assert serde.convert(data, type(value)) == value
        assert serde.convert({**data, "of_a_later_one": 1}, type(value)) == value


# ── pinned ──────────────────────────────────────────────────────────────────────────────────────


def test_a_pinned_request_waits_for_its_version_and_loses_no_delivery(
    mailboxes: Mailboxes,
) -> None:
    right, wrong = mailboxes.loop(), mailboxes.loop(adds_two)
    submission = submit_dataset(DATASET[:2], mailboxes.requests, expect=right.version)
    for _ in range(2):
        wrong.run(max_iterations=1)
    with running_loops(right):
        report = mailboxes.collect(submission)

    assert (report.passed, wrong.metrics().get("dead_total", 0)) == (2, 0)
    assert [result.attempt for result in report.results] == [1, 1]


def test_the_agent_alone_can_be_pinned(mailboxes: Mailboxes) -> None:
    loop = mailboxes.loop()
    expect = loop.version.agent_version
    submission = submit_dataset(DATASET[:1], mailboxes.requests, expect=expect)
    loop.run(max_iterations=1)

    assert mailboxes.collect(submission).passed == 1


def test_a_collection_ends_with_the_reason_if_all_workers_refuse(
    mailboxes: Mailboxes, caplog: pytest.LogCaptureFixture
) -> None:
    submission = submit_dataset(
        DATASET[:2], mailboxes.requests, expect=mailboxes.loop(adds_two).version
    )
    mailboxes.loop().run(max_iterations=1)
    report = mailboxes.collect(submission, resubmit_after=0.0)

    assert re.match("2 of 2 missing: 0, 1 - no worker has the expected version", report.stopped)
    assert caplog.text.count("stay in the queue, for a worker of the version") == 1


def test_a_refusal_of_another_run_does_not_end_a_collection_by_number(mailboxes: Mailboxes) -> None:
    right = mailboxes.loop()
    submit_dataset(DATASET[:1], mailboxes.requests, expect=mailboxes.loop(adds_two).version)
    right.run(max_iterations=1)
    report = collect_results(mailboxes.results, 1, timeout_seconds=0.2, resubmit_after=0.0)

    assert report.stopped == "1 of 1 missing after 0.2 s"


def test_a_worker_that_accepts_keeps_the_collection_waiting(mailboxes: Mailboxes) -> None:
    right, wrong = mailboxes.loop(), mailboxes.loop(adds_two)
    submission = submit_dataset(DATASET[:1], mailboxes.requests, expect=right.version)
    wrong.run(max_iterations=1)
    with running_loops(right):
        report = mailboxes.collect(submission, resubmit_after=TIMEOUT)

    assert (report.passed, report.stopped) == (1, "")


@pytest.mark.parametrize("version", ["a:b:c", ":b", "a b"])
def test_a_version_that_cannot_be_one_is_refused(mailboxes: Mailboxes, version: str) -> None:
    with pytest.raises(UsageError, match="expected a version as a worker prints it"):
        submit_dataset(DATASET, mailboxes.requests, expect=version)


def test_a_refused_request_loses_no_delivery_where_every_delivery_counts() -> None:
    """On SQS a copy takes its place, so that refusals never lead to a dead letter."""
    server = sqs_server.running()
    server.reset()
    requests: SQSMailbox[Any] = SQSMailbox(f"versions-{uuid4().hex[:8]}", server.client)
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    right: EvalLoop[Any, Any, Any] = EvalLoop(adds_one, exact_match, requests, results)
    wrong: EvalLoop[Any, Any, Any] = EvalLoop(adds_two, exact_match, requests, results)
    submission = submit_dataset(DATASET[:1], requests, expect=right.version)
    while wrong.metrics().get("refused_total", 0) < 2:
        wrong.run(max_iterations=1, wait_time_seconds=1)
    with running_loops(right):
        report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert (report.passed, report.results[0].attempt) == (1, 1)


# ── in a run store ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store(tmp_path: Any) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        yield store


async def collected(store: RunStore, *results: EvalResult[Any], expect: str = "") -> Any:
    submission = Submission("mine", DATASET, expect=expect)
    record_submission(store, submission, queue="qa", config=EvalConfig())
    ledger = StoreLedger(submission, store)
    for result in results:
        ledger.count(result)
    await ledger.commit()
    return store.run("mine")


def result(number: int, made_by: WorkerVersion | None = None, **fields: Any) -> EvalResult[Any]:
    return EvalResult(str(number), Score(1.0), run_id="mine", made_by=made_by, **fields)


@pytest.mark.anyio
async def test_the_manifest_learns_agent_evaluators_and_commit(store: RunStore) -> None:
    record = await collected(store, result(0, ONE.hashes()), result(1, ONE))
    manifest = record.manifest

    assert (manifest.agent, manifest.agent_version, manifest.git_commit) == ("answer", "a1", "abc")
    assert [info.name for info in manifest.criteria] == ["exact_match"]
    assert (record.agent_versions, record.mixed) == ({"a1": 2}, "")
    assert [row.agent_version for row in store.rows("mine")] == ["a1", "a1"]
    assert [row.result.made_by for row in store.rows("mine")] == [None, None]


@pytest.mark.anyio
async def test_rows_of_workers_without_a_version_are_unknown(store: RunStore) -> None:
    record = await collected(store, result(0), result(1))
    assert (record.agent_versions, record.mixed) == ({"": 2}, "")

    record = await collected(store, result(2, ONE))
    assert "2 rows by unknown, 1 row by a1" in record.mixed


@pytest.mark.anyio
async def test_an_error_of_infrastructure_is_of_no_version(store: RunStore) -> None:
    lost = result(1, error="lost", error_source="infrastructure")
    assert (await collected(store, result(0, ONE), lost)).mixed == ""


@pytest.mark.anyio
async def test_a_pinned_run_names_rows_of_another_version(store: RunStore) -> None:
    record = await collected(store, result(0, TWO), expect="a1:c1")
    assert "is pinned to a1:c1, and has 1 row by another version" in record.mixed


@pytest.mark.anyio
async def test_a_run_that_is_pinned_to_evaluators_may_have_any_agent_but_no_unknown_evaluators(
    store: RunStore,
) -> None:
    assert (await collected(store, result(0, ONE), expect="unknown:c1")).mixed == ""
    record = await collected(store, result(1), expect="unknown:c1")
    assert "is pinned to unknown:c1, and has 1 row by another version" in record.mixed


@pytest.mark.anyio
async def test_different_judges_of_the_same_evaluators_are_a_mix(store: RunStore) -> None:
    judges = [
        replace(
            ONE,
            criteria_version=model,
            criteria=(CriterionInfo(name="kind", judge={"model": model}),),
        )
        for model in ("small", "large")
    ]
    record = await collected(store, result(0, judges[0]), result(1, judges[1]))
    assert record.mixed == "mixes judges: kind by small, kind by large"


def test_a_description_replaces_bare_hashes_and_a_commit_is_a_version() -> None:
    known = add_version((), ONE.hashes())
    assert add_version(known, ONE) == (ONE,)
    assert add_version((ONE,), ONE.hashes()) == (ONE,)
    other = replace(ONE, git_commit="def")
    assert add_version((ONE,), other) == (ONE, other)


@pytest.mark.anyio
async def test_a_rescored_run_keeps_the_agents_and_has_one_set_of_evaluators(
    store: RunStore,
) -> None:
    other = replace(TWO, criteria_version="c2", criteria_fingerprint="f2")
    await collected(store, result(0, ONE), result(1, other))
    again = store.run(await rescore(store, "mine", contains))

    assert "mixes 2 versions of the agent" in again.mixed
    assert "evaluators" not in again.mixed
