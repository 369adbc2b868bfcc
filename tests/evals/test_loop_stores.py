"""A user's store that fails never stops a worker: it is retried, as other infrastructure."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import pytest

from tests.processes import TIMEOUT, running_loops
from tests.seeds.in_memory_cluster import DATASET, Cluster, adds
from weakincentives.errors import StoreError
from weakincentives.evals import (
    EvalLoop,
    EvalLoopConfig,
    EvalResult,
    all_of,
    collect_results,
    exact_match,
    submit_dataset,
    token_usage_under,
)
from weakincentives.runtime import Backoff, InMemoryMailbox, MainLoopConfig
from weakincentives.runtime.mailbox import MemoryQueue, QueueMailbox

NO_DELAY = Backoff(base=0.0, max_delay=0.0)
USES_SESSION = all_of(exact_match, token_usage_under(10_000))


class FlakySessionStore:
    """A session store whose first calls of `save` and `load` raise these errors."""

    def __init__(self, save: list[Any] = [], load: list[Any] = []) -> None:  # noqa: B006
        self.saved: dict[str, Any] = {}
        self.failures = {"save": iter(save), "load": iter(load)}

    def _fail(self, name: str) -> None:
        failure = next(self.failures[name], None)
        if failure is not None:
            raise failure

    def save(self, session_id: UUID | str, session: Any) -> None:
        self._fail("save")
        self.saved[str(session_id)] = session

    def load(self, session_id: UUID | str) -> Any:
        self._fail("load")
        return self.saved[str(session_id)]


def run(sessions: Any, calls: list[Any], **options: Any) -> tuple[EvalResult[Any], Cluster]:
    def answer(request: Any) -> str:
        calls.append(request)
        return adds(request)

    cluster = Cluster()
    config = MainLoopConfig(backoff=NO_DELAY)
    main_loop = cluster.main_loop(answer, session_store=sessions, config=config)
    eval_loop: EvalLoop[Any, Any, Any] = EvalLoop(
        evaluator=USES_SESSION,
        requests=cluster.requests,
        mainloop_requests=cluster.main,
        session_store=sessions,
        config=EvalLoopConfig(mainloop_timeout=TIMEOUT, backoff=NO_DELAY),
        **options,
    )
    submission = cluster.submit(DATASET[:1])
    with running_loops(main_loop, eval_loop):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)
        assert main_loop.running
        assert eval_loop.running
    return report.results[0], cluster


@pytest.mark.parametrize("error", [OSError("disk full"), KeyError("x"), StoreError("unavailable")])
def test_a_session_that_is_saved_on_retry_needs_one_model_call(error: Exception) -> None:
    calls: list[Any] = []
    result, _ = run(FlakySessionStore(save=[error] * 3), calls)

    assert (result.passed, len(calls)) == (True, 1)


def test_a_session_that_can_never_be_saved_is_an_infrastructure_error() -> None:
    result, _ = run(FlakySessionStore(save=[OSError("disk full")] * 1000), [])

    assert result.error_source == "infrastructure"
    assert "OSError: 'disk full'" in (result.error or "")


@pytest.mark.parametrize("error", [OSError("disk full"), StoreError("disk full")])
def test_a_failing_session_store_is_reported_before_the_eval_loop_stops_waiting(
    error: Exception,
) -> None:
    cluster, sessions = Cluster(), FlakySessionStore(save=[error] * 1000)
    loops = cluster.main_loop(session_store=sessions), cluster.eval_loop(mainloop_timeout=4.0)
    submission = cluster.submit(DATASET[:1])
    with running_loops(*loops):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.results[0].error_source == "infrastructure"
    assert "could not save the session: " in (report.results[0].error or "")
    assert "disk full" in (report.results[0].error or "")


@pytest.mark.parametrize(
    "error", [KeyError("not yet"), StoreError("unavailable"), ConnectionError("no")]
)
def test_a_session_that_is_loaded_on_retry_needs_one_model_call(
    error: Exception,
) -> None:
    calls: list[Any] = []
    result, _ = run(FlakySessionStore(load=[error] * 3), calls)

    assert (result.passed, len(calls)) == (True, 1)


def test_a_store_may_return_none_for_a_session_that_does_not_exist_yet() -> None:
    class ReturnsNone(FlakySessionStore):
        def load(self, session_id: UUID | str) -> Any:
            try:
                return super().load(session_id)
            except KeyError:
                return None

    assert run(ReturnsNone(load=[KeyError("not yet")] * 3), [])[0].passed


@pytest.mark.parametrize("error", [KeyError("gone"), StoreError("gone")])
def test_a_session_that_never_appears_is_an_infrastructure_error(error: Exception) -> None:
    calls: list[Any] = []
    result, _ = run(FlakySessionStore(load=[error] * 1000), calls)

    assert (result.error_source, len(calls)) == ("infrastructure", 1)
    assert "gone" in (result.error or "")


def test_a_main_loop_reports_that_its_provider_was_overloaded() -> None:
    from weakincentives.errors import ProviderError

    def overloaded(request: Any) -> str:
        raise ProviderError("overloaded", retryable=True)

    cluster = Cluster()
    submission = cluster.submit(DATASET[:1])
    with running_loops(cluster.main_loop(overloaded), cluster.eval_loop()):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.results[0].error_source == "infrastructure"


class FlakyOutcomeStore:
    """An outcome store whose first calls of `find` and `keep` raise these errors."""

    def __init__(self, find: list[Any] = [], keep: list[Any] = []) -> None:  # noqa: B006
        self.kept: dict[str, bytes] = {}
        self.failures = {"find": iter(find), "keep": iter(keep)}

    def find(self, key: str) -> bytes | None:
        if (failure := next(self.failures["find"], None)) is not None:
            raise failure
        return self.kept.get(key)

    def keep(self, key: str, value: bytes) -> bytes:
        if (failure := next(self.failures["keep"], None)) is not None:
            raise failure
        return self.kept.setdefault(key, value)


def evaluate_with(store: Any) -> tuple[EvalResult[Any], int]:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    calls: list[str] = []

    def agent(text: str) -> str:
        calls.append(text)
        return "1"

    config = EvalLoopConfig(backoff=NO_DELAY)
    loop = EvalLoop(agent, exact_match, requests, results, store=store, config=config)
    submission = submit_dataset(DATASET[:1], requests)
    with running_loops(loop):
        report = collect_results(results, submission, timeout_seconds=TIMEOUT)
        assert loop.running
    return report.results[0], len(calls)


@pytest.mark.parametrize("method", ["find", "keep"])
def test_an_outcome_store_that_fails_at_first_is_retried(method: str) -> None:
    result, calls = evaluate_with(FlakyOutcomeStore(**{method: [OSError("busy")] * 3}))

    assert (result.passed, calls) == (True, 1)


@pytest.mark.parametrize("method", ["find", "keep"])
def test_an_outcome_store_that_always_fails_is_an_infrastructure_error(method: str) -> None:
    result, _ = evaluate_with(FlakyOutcomeStore(**{method: [OSError("disk full")] * 1000}))

    assert result.error_source == "infrastructure"
    assert "disk full" in (result.error or "")


def test_a_result_is_sent_as_the_bytes_that_are_stored() -> None:
    requests: QueueMailbox[Any] = QueueMailbox(MemoryQueue("requests"))
    results: QueueMailbox[Any] = QueueMailbox(MemoryQueue("results"))
    store = FlakyOutcomeStore()
    submit_dataset(DATASET[:1], requests)
    loop = EvalLoop(lambda text: "1", exact_match, requests, results, store=store)
    loop.run(max_iterations=1)
    (message,) = results.receive()

    assert [message.raw] == list(store.kept.values())
    assert message.body.worker.endswith(f":{os.getpid()}")


def test_a_mailbox_with_its_own_send_gets_the_result_itself() -> None:
    sent: list[Any] = []

    class Recording(InMemoryMailbox[Any]):
        def send(self, body: Any, **options: Any) -> str:
            sent.append(body)
            return super().send(body, **options)

    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    submit_dataset(DATASET[:1], requests)
    EvalLoop(lambda text: "1", exact_match, requests, Recording()).run(max_iterations=1)

    assert [type(body) for body in sent] == [EvalResult]


def test_an_invalid_value_from_an_outcome_store_does_not_stop_the_worker() -> None:
    class ReturnsText(FlakyOutcomeStore):
        def find(self, key: str) -> Any:
            return "text"

    result, calls = evaluate_with(ReturnsText())

    assert (result.error_source, calls) == ("infrastructure", 0)
    assert "expected bytes" in (result.error or "")


@pytest.mark.parametrize("method", ["find", "keep"])
def test_the_outcome_store_of_a_main_loop_is_retried_too(method: str) -> None:
    cluster = Cluster()
    store = FlakyOutcomeStore(**{method: [OSError("busy")] * 3})
    main_loop = cluster.main_loop(store=store, config=MainLoopConfig(backoff=NO_DELAY))
    submission = cluster.submit(DATASET[:1])
    with running_loops(main_loop, cluster.eval_loop()):
        report = collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 1
