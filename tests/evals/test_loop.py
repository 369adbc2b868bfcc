"""EvalLoop: every submitted sample gives exactly one counted result."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from tests.engine import TIMEOUT
from weakincentives import Experiment
from weakincentives.clock import SYSTEM_CLOCK, Clock
from weakincentives.errors import MailboxConnectionError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    EvalRequest,
    EvalResult,
    Sample,
    Score,
    collect_results,
    exact_match,
    open_store,
    submit_dataset,
    submit_experiments,
)
from weakincentives.runtime.mailbox import InMemoryMailbox
from weakincentives.runtime.worker.dead_letters import (
    Backoff,
    DeadLetter,
    DLQPolicy,
    dead_letters_of,
)
from weakincentives.runtime.worker.leases import LeaseExtenderConfig
from weakincentives.testing import FakeClock

DATASET = Dataset([Sample(str(number), number, number + 1) for number in range(25)], name="sums")
NO_DELAY = Backoff(base=0.0, max_delay=0.0)


async def adds_one(number: int) -> int:
    return number + 1


class Mailboxes:
    """The mailboxes of one deployment."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.requests: InMemoryMailbox[Any] = InMemoryMailbox("requests", clock=clock)
        self.results: InMemoryMailbox[Any] = InMemoryMailbox("results")
        self.dead: InMemoryMailbox[DeadLetter[Any]] = InMemoryMailbox("dead")

    def loop(self, agent: Any = adds_one, **options: Any) -> EvalLoop[Any, Any, Any]:
        evaluator = options.pop("evaluator", exact_match)
        return EvalLoop(agent, evaluator, self.requests, self.results, **options)

    def policy(self, **options: Any) -> DLQPolicy[Any]:
        return DLQPolicy(self.dead, backoff=NO_DELAY, **options)


@pytest.fixture
def mailboxes() -> Mailboxes:
    return Mailboxes()


@contextmanager
def running_in_threads(*loops: Any, **run_options: float) -> Iterator[None]:
    """Run the loops in threads, and shut them down at the end."""
    threads = [threading.Thread(target=loop.run, kwargs=run_options) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        assert [loop.shutdown(timeout=TIMEOUT) for loop in loops] == [True] * len(loops)
        for thread in threads:
            thread.join()


# ── submit, run, collect ────────────────────────────────────────────────────────────────────────


def test_one_iteration_processes_all_queued_samples(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert (report.total, report.passed, report.missing) == (25, 25, ())
    assert [result.sample_id for result in report.results] == [s.id for s in DATASET]
    assert (report.run_id, report.dataset_name) == (submission.run_id, "sums")
    assert mailboxes.requests.approximate_count() == mailboxes.results.approximate_count() == 0


@pytest.mark.anyio
async def test_a_loop_runs_inside_an_event_loop(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    await mailboxes.loop().run_async(max_iterations=1)

    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 25


def test_samples_run_concurrently(mailboxes: Mailboxes) -> None:
    """The barrier opens only when ten samples run concurrently."""
    barrier = threading.Barrier(10, timeout=TIMEOUT)

    def waits_for_others(number: int) -> int:
        barrier.wait()
        return number + 1

    submission = submit_dataset(DATASET[:20], mailboxes.requests)
    mailboxes.loop(waits_for_others, config=EvalLoopConfig(max_concurrent=10)).run(max_iterations=1)

    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 20


def test_results_go_to_the_reply_address_if_the_loop_has_none(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests, reply_to=mailboxes.results)
    EvalLoop(adds_one, exact_match, mailboxes.requests).run(max_iterations=1)

    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 25


def test_experiments_and_epochs_are_counted_separately(mailboxes: Mailboxes) -> None:
    experiments = [Experiment("plain"), Experiment("bold")]
    submission = submit_experiments(DATASET[:3], experiments, mailboxes.requests, epochs=2)
    mailboxes.loop().run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert len(submission) == report.total == 12
    assert report.by_experiment().keys() == {"plain", "bold"}
    keys = {(r.experiment_name, r.sample_id, r.epoch) for r in report.results}
    assert len(keys) == 12


def test_submitting_again_with_the_same_run_id_queues_nothing_twice(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET, mailboxes.requests, run_id="night")
    submit_dataset(DATASET, mailboxes.requests, run_id="night")

    assert mailboxes.requests.approximate_count() == 25


def test_a_result_that_is_delivered_twice_counts_once(mailboxes: Mailboxes) -> None:
    """Each copy ran separately; results are counted by key."""
    for _ in range(2):
        submission = submit_dataset(DATASET, mailboxes.requests, run_id="night")
        mailboxes.loop().run(max_iterations=1)
    assert mailboxes.results.approximate_count() == 25  # the id of a result is its key

    loop = mailboxes.loop()
    loop.run(max_iterations=0)
    for message in mailboxes.results.receive(max_messages=10, visibility_timeout=0):
        mailboxes.results.send(message.body)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)
    assert report.total == 25


def test_after_a_timeout_the_report_lists_missing_samples(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET[:4], mailboxes.requests)
    mailboxes.requests.receive(max_messages=1)  # another worker holds the first one
    mailboxes.loop().run(max_iterations=1)
    clock = FakeClock()
    report = collect_results(
        mailboxes.results,
        submission,
        timeout_seconds=0.2,
        clock=clock,
        on_result=lambda result: clock.advance(0.1),
    )

    assert report.total == 3
    assert report.missing == (("baseline", "0", 1),)
    assert "1 of 4 missing after 0.2 s: 0" in str(report)


def test_results_can_be_collected_by_count(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET[:3], mailboxes.requests)
    mailboxes.loop().run(max_iterations=1)

    assert collect_results(mailboxes.results, expected_count=3, timeout_seconds=TIMEOUT).passed == 3
    late = collect_results(mailboxes.results, expected_count=2, timeout_seconds=0.05)
    assert "2 of 2 missing" in late.stopped


def test_an_incomplete_collection_is_logged_and_counted_even_if_only_a_number_is_known(
    mailboxes: Mailboxes, caplog: pytest.LogCaptureFixture
) -> None:
    submit_dataset(DATASET[:5], mailboxes.requests)
    mailboxes.requests.receive(max_messages=2)
    mailboxes.loop().run(max_iterations=1)
    report = collect_results(mailboxes.results, 5, timeout_seconds=0.01)

    assert (report.total, len(report.missing)) == (3, 2)
    assert "the results are not complete: 2 of 5 missing after 0.01 s" in caplog.text


def test_results_of_another_run_stay_in_the_mailbox(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET[:2], mailboxes.requests, run_id="other")
    submission = submit_dataset(DATASET[:2], mailboxes.requests, run_id="mine")
    mailboxes.loop().run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert {result.run_id for result in report.results} == {"mine"}
    assert mailboxes.results.approximate_count() == 2


def test_requests_that_a_server_lost_are_resubmitted(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.requests.purge()

    with running_in_threads(mailboxes.loop()):
        report = collect_results(
            mailboxes.results,
            submission,
            timeout_seconds=TIMEOUT,
            requests=mailboxes.requests,
            resubmit_after=0.1,
        )
    assert report.passed == 25


def test_on_result_is_called_before_a_result_is_acknowledged(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1)
    queued: list[int] = []
    collect_results(
        mailboxes.results,
        submission,
        timeout_seconds=TIMEOUT,
        on_result=lambda result: queued.append(mailboxes.results.approximate_count()),
    )

    assert len(queued) == queued[0] == 25  # none was acknowledged before the callbacks


# ── failures ────────────────────────────────────────────────────────────────────────────────────


async def always_fails(number: int) -> int:
    raise ValueError(f"no {number}")


def test_without_a_policy_a_failure_is_an_error_result_at_once(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET[:2], mailboxes.requests)
    mailboxes.loop(always_fails).run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert [(r.error, r.error_source) for r in report.results] == [
        ("no 0", "agent"),
        ("no 1", "agent"),
    ]


def test_with_a_policy_a_failure_is_retried_and_then_dead_lettered(mailboxes: Mailboxes) -> None:
    calls: list[int] = []

    async def failing_agent(number: int) -> int:
        calls.append(number)
        raise ValueError("never")

    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    mailboxes.loop(failing_agent, dlq=mailboxes.policy(max_delivery_count=3)).run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert calls == [0, 0, 0]
    assert report.results[0].error == "gave up after 3 deliveries: never"
    (letter,) = dead_letters_of(mailboxes.dead)
    assert (letter.last_error, letter.delivery_count) == ("never", 3)
    assert letter.body is not None
    assert letter.body.sample == DATASET[0]


def test_a_retry_that_succeeds_is_a_result(mailboxes: Mailboxes) -> None:
    tried: set[int] = set()

    async def fails_once(number: int) -> int:
        if number in tried:
            return number + 1
        tried.add(number)
        raise ValueError("not yet")

    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop(fails_once, dlq=mailboxes.policy()).run(max_iterations=1)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 25
    assert {result.attempt for result in report.results} == {2}
    assert mailboxes.dead.approximate_count() == 0


def test_an_evaluators_failure_is_never_retried(mailboxes: Mailboxes) -> None:
    def broken(output: int, expected: int) -> Score:
        raise RuntimeError("no verdict")

    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    mailboxes.loop(evaluator=broken, dlq=mailboxes.policy()).run(max_iterations=1)
    (result,) = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).results

    assert (result.error_source, result.output, result.attempt) == ("evaluator", 1, 1)


def test_a_sample_that_times_out_is_an_error(mailboxes: Mailboxes) -> None:
    async def never(number: int) -> int:
        await anyio.sleep_forever()
        return number

    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    config = EvalLoopConfig(timeout=0.05)
    mailboxes.loop(never, config=config).run(max_iterations=1)
    (result,) = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).results

    assert "timed out after 0.05 s" in (result.error or "")
    assert "EvalLoopConfig.timeout" in (result.error or "")


def test_a_worker_has_a_timeout_by_default_so_that_no_message_is_held_forever() -> None:
    assert EvalLoopConfig().timeout == 3600.0
    assert EvalLoopConfig(timeout=None).timeout is None


def test_a_message_that_kills_its_worker_is_dead_lettered_before_it_runs_again(
    mailboxes: Mailboxes,
) -> None:
    """Five workers received it and died; the sixth does not run it."""
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    for _ in range(5):
        mailboxes.requests.receive(visibility_timeout=0)
    loop = mailboxes.loop(always_fails)
    loop.run(max_iterations=1)
    (result,) = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).results

    assert "delivered 5 times and never finished" in (result.error or "")
    assert result.error_source == "infrastructure"
    assert len(dead_letters_of(loop.dead_letters)) == 1


def test_a_message_with_another_body_is_dead_lettered(mailboxes: Mailboxes) -> None:
    mailboxes.requests.send({"hello": 1})
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    loop = mailboxes.loop()
    loop.run(max_iterations=1)

    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 1
    (letter,) = dead_letters_of(loop.dead_letters)
    assert "expected an `EvalRequest`" in letter.last_error


def test_a_request_without_a_mailbox_for_its_result_is_not_run(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET[:1], mailboxes.requests)
    with pytest.raises(UsageError, match="pass `results`, or submit with `reply_to`"):
        EvalLoop(adds_one, exact_match, mailboxes.requests).run(max_iterations=1)
    assert mailboxes.requests.approximate_count() == 1  # it stays in its queue

    EvalLoop(adds_one, exact_match, mailboxes.requests, dlq=mailboxes.policy()).run(
        max_iterations=1
    )
    assert "reply_to" in dead_letters_of(mailboxes.dead)[0].last_error


def test_an_unavailable_mailbox_is_retried(mailboxes: Mailboxes) -> None:
    config = EvalLoopConfig(backoff=Backoff(base=0.01, max_delay=0.02))
    submission = submit_dataset(DATASET, mailboxes.requests)
    failures = iter([True] * 3)
    take = mailboxes.requests.queue.take

    def take_or_fail(count: int, lease: float, wait: float) -> Any:
        if next(failures, False):
            raise MailboxConnectionError("unavailable")
        return take(count, lease, wait)

    mailboxes.requests.queue.take = take_or_fail  # type: ignore[method-assign]
    with running_in_threads(mailboxes.loop(config=config)):
        assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 25


# ── leases, stores, stopping ────────────────────────────────────────────────────────────────────


FREQUENT_EXTENSION = EvalLoopConfig(lease_extender=LeaseExtenderConfig(interval=0.02))


def test_a_slow_sample_keeps_its_lease() -> None:
    """Two workers, a lease of 30 s and a sample of 100 s: it runs once."""
    mailboxes, runs = Mailboxes(clock := FakeClock()), list[int]()
    extended, extend = threading.Event(), mailboxes.requests.queue.extend
    advancing = threading.Lock()

    def extend_and_note(handles: Sequence[str], seconds: float) -> list[bool]:
        before = clock.monotonic()
        done = extend(handles, seconds)
        with advancing:
            if clock.monotonic() == before:  # the lease counts from the present time
                extended.set()
        return done

    async def slow(number: int) -> int:
        runs.append(number)
        for _ in range(5):
            assert await to_thread.run_sync(extended.wait, TIMEOUT)
            with advancing:
                clock.advance(20)
                extended.clear()
        return number + 1

    mailboxes.requests.queue.extend = extend_and_note  # type: ignore[method-assign]
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    loops = [
        mailboxes.loop(slow, config=FREQUENT_EXTENSION),
        mailboxes.loop(slow, config=FREQUENT_EXTENSION),
    ]
    with running_in_threads(*loops, visibility_timeout=30, wait_time_seconds=0.01):
        report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert runs == [0]
    assert report.passed == 1


def test_a_lost_lease_cancels_the_work(mailboxes: Mailboxes) -> None:
    cancelled = threading.Event()

    async def slow(number: int) -> int:
        mailboxes.requests.purge()  # ends the lease
        try:
            await anyio.sleep(TIMEOUT)
        finally:
            cancelled.set()
        return number

    submit_dataset(DATASET[:1], mailboxes.requests)
    loop = mailboxes.loop(slow, config=FREQUENT_EXTENSION)
    loop.run(max_iterations=1, visibility_timeout=30)

    assert cancelled.is_set()
    assert loop.metrics()["lease_lost_total"] == 1
    assert mailboxes.results.approximate_count() == 0


def test_without_extension_a_slow_sample_is_run_twice_and_counted_once() -> None:
    mailboxes, runs = Mailboxes(clock := FakeClock()), list[int]()

    async def slow_at_first(number: int) -> int:
        runs.append(number)
        clock.advance(40 if len(runs) == 1 else 0)
        return number + 1

    config = EvalLoopConfig(lease_extender=LeaseExtenderConfig(enabled=False))
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    loop = mailboxes.loop(slow_at_first, config=config)
    loop.run(max_iterations=1, visibility_timeout=30)
    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert report.total == 1
    assert runs == [0, 0]
    assert loop.metrics()["late_total"] == 1


def test_a_stored_result_is_not_run_again(mailboxes: Mailboxes, tmp_path: Path) -> None:
    """The first worker died after storing the result and before sending it."""
    runs: list[int] = []

    async def counting_agent(number: int) -> int:
        runs.append(number)
        return number + 1

    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    with open_store(tmp_path / "runs.db") as store:
        config = EvalLoopConfig(store=store)
        first = EvalLoop(
            counting_agent, exact_match, mailboxes.requests, InMemoryMailbox(), config=config
        )
        first.run(max_iterations=1)
        submit_dataset(DATASET[:1], mailboxes.requests, run_id=submission.run_id)
        mailboxes.requests.receive(visibility_timeout=0)  # makes the next one a second delivery
        mailboxes.loop(counting_agent, config=config).run(max_iterations=1)

    assert runs == [0]
    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 1


def test_shutdown_lets_samples_in_flight_finish(mailboxes: Mailboxes) -> None:
    started = threading.Event()

    async def slow(number: int) -> int:
        started.set()
        await anyio.sleep(0.2)
        return number + 1

    submit_dataset(DATASET[:3], mailboxes.requests)
    loop = mailboxes.loop(slow, config=EvalLoopConfig(max_concurrent=1))
    with running_in_threads(loop):
        assert started.wait(TIMEOUT)

    assert mailboxes.results.approximate_count() >= 1
    assert mailboxes.results.approximate_count() + mailboxes.requests.approximate_count() == 3


def test_shutdown_releases_samples_that_do_not_finish_in_time(mailboxes: Mailboxes) -> None:
    started = threading.Event()

    async def never(number: int) -> int:
        started.set()
        await anyio.sleep_forever()
        return number

    submit_dataset(DATASET[:1], mailboxes.requests)
    loop = mailboxes.loop(never)
    thread = threading.Thread(target=loop.run)
    thread.start()
    assert started.wait(TIMEOUT)

    loop.shutdown(timeout=0.1)
    thread.join(TIMEOUT)
    assert not loop.running
    (message,) = mailboxes.requests.receive()  # available at once, not only when its lease ends
    assert message.delivery_count == 2  # it reached the agent, so the delivery counts


def test_a_shutdown_before_the_start_is_respected(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET[:1], mailboxes.requests)
    loop = mailboxes.loop()
    loop.worker.stop()
    loop.run()

    assert mailboxes.requests.approximate_count() == 1


def test_an_exhausted_budget_stops_the_loop_and_leaves_the_rest_queued(
    mailboxes: Mailboxes,
) -> None:
    class BudgetOfThree:
        spent = 0

        async def spend(self, tokens: float, cost: float) -> str:
            return "3 of 3 used" if self.spent >= 3 else ""

    budget = BudgetOfThree()

    async def spending_agent(number: int) -> int:
        budget.spent += 1
        return number + 1

    submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop(spending_agent, config=EvalLoopConfig(max_concurrent=1, budget=budget)).run()

    assert mailboxes.results.approximate_count() == 3
    assert mailboxes.requests.approximate_count() == 22


# ── construction ────────────────────────────────────────────────────────────────────────────────


def test_missing_and_conflicting_arguments_are_rejected(mailboxes: Mailboxes) -> None:
    main: InMemoryMailbox[Any] = InMemoryMailbox("main")
    with pytest.raises(UsageError, match=r"exactly one of .* got neither"):
        EvalLoop(evaluator=exact_match, requests=mailboxes.requests)
    with pytest.raises(UsageError, match=r"exactly one of .* got both"):
        EvalLoop(adds_one, exact_match, mailboxes.requests, mainloop_requests=main)
    with pytest.raises(UsageError, match=r"EvalLoop\(evaluator=\.\.\.\)"):
        EvalLoop(adds_one, requests=mailboxes.requests)
    with pytest.raises(UsageError, match=r"EvalLoop\(requests=\.\.\.\)"):
        EvalLoop(adds_one, exact_match)
    with pytest.raises(UsageError, match="mainloop_timeout"):
        EvalLoopConfig(mainloop_timeout=0)
    with pytest.raises(UsageError, match="max_concurrent"):
        EvalLoopConfig(max_concurrent=0)


def test_bad_submissions_are_rejected(mailboxes: Mailboxes) -> None:
    twice = [Experiment("a"), Experiment("a")]
    with pytest.raises(UsageError, match="distinct names"):
        submit_experiments(DATASET, twice, mailboxes.requests)
    with pytest.raises(UsageError, match="a mailbox to submit to"):
        submit_dataset(DATASET, Experiment("a"))
    with pytest.raises(UsageError, match="expected a `Dataset`"):
        submit_dataset({1}, mailboxes.requests)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a `Sample`, got `int`"):
        submit_dataset([1], mailboxes.requests)  # type: ignore[list-item]
    with pytest.raises(UsageError, match="epochs"):
        submit_dataset(DATASET, mailboxes.requests, epochs=0)


def test_a_hand_written_request_is_evaluated(mailboxes: Mailboxes) -> None:
    mailboxes.requests.send(EvalRequest(sample=DATASET[0]))
    mailboxes.loop().run(max_iterations=1)
    (message,) = mailboxes.results.receive()

    assert isinstance(message.body, EvalResult)
    assert message.body.passed
