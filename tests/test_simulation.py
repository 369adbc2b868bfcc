"""Forty seeds of the simulation, and mutations that prove that it finds bugs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from chaos.sim_check import check
from chaos.sim_faults import Plan, SimMailbox
from chaos.sim_run import Totals, run, run_seeds
from chaos.sim_system import simulate
from tests.soak import soak_size
from weakincentives.errors import MailboxConnectionError
from weakincentives.evals import EvalReport, Trajectory, _loop
from weakincentives.evals._loop import EvalLoop
from weakincentives.evals.distributed import (
    Collector,
    Key,
    MemoryLedger,
    collector as _collecting,
    request_key,
)
from weakincentives.evals.engine import attempts as _attempt
from weakincentives.internal.isolation import run_isolated
from weakincentives.runtime.agent import main_loop
from weakincentives.runtime.mailbox import MemoryQueue
from weakincentives.runtime.mailbox.core.envelope import Packed
from weakincentives.runtime.worker import worker
from weakincentives.runtime.worker.worker import Worker

# The other tests cover the same code, and measuring it here would double the time.
pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).parent.parent
SEEDS = soak_size(40, 2000)
LATE = Plan(rates={"request lost": 0.2, "slow": 0.7}, extends=False)
RARE: dict[str, Any] = {
    "samples": 8,
    "eval_workers": 1,
    "wait": 1000.0,
    "lease": 2000.0,
    "resubmits": False,
}
TWICE = Plan(epochs=2, **RARE)
FULL = Plan(rates={"store away": 10.0}, stores=False, **RARE)
ODD_VALUES = Plan(rates={"odd": 1.0})
CRASHES = Plan(rates={"crash before": 0.05, "crash after": 0.05}, resubmits=False)
CUT_SHORT = Plan(rates={"lease cut short": 0.5, "slow": 0.9}, lease=10.0)
UNDECODABLE = Plan(samples=8, eval_workers=1, poison=4, trouble=30.0)
CANCELS = Plan(samples=8, rates={"cancels": 0.5}, main_workers=1)
STOPS = Plan(samples=8, rates={"stops": 0.5})
HANGS = Plan(samples=8, rates={"hangs": 0.5})
DAMAGED = Plan(rates={"result damaged": 0.5}, **RARE)
INVALID_RESULTS = Plan(rates={"result damaged": 0.3, "forged result": 10.0})
OTHER_RUNS = Plan(rates={"slow": 0.5}, lease=60.0, other_runs=True)
SHORT = Plan(samples=8, eval_workers=1, lease=20.0, wait=1000.0, poison=4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: pytest would keep the messages of thousands of faults."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.soak
def test_nothing_is_lost_counted_twice_wrong_or_changed_by_any_seed() -> None:
    totals = run_seeds(1, SEEDS)

    assert totals.bad == {}, f"\n{totals}"
    assert (totals.lost, totals.twice, totals.wrong, totals.changed) == (0, 0, 0, 0)
    assert len(totals.faults) >= 20  # nearly every kind
    assert sum(totals.faults.values()) > 20 * SEEDS


def test_without_faults_every_sample_is_executed_once() -> None:
    calm = Plan(samples=30, eval_workers=3, lease=10.0, rates={"slow": 0.5})

    outcome = simulate(7, plan=calm)

    assert check(outcome).good
    assert set(outcome.executions.values()) == {1}


@pytest.mark.parametrize(
    "plan",
    [
        ODD_VALUES,
        Plan(rates={"odd": 1.0}, main_workers=1),
        Plan(rates={"slow": 1.0}, extends=False),
        LATE,
        Plan(rates={"store away": 10.0}),
        Plan(rates={"reply lost": 0.3}, policy=1),
        Plan(rates={"lease cut short": 0.5, "slow": 0.5}, main_workers=2),
        Plan(rates={"graceful stop": 5.0, "slow": 0.5}, main_workers=1),
        Plan(rates={"cancels": 0.3, "stale": 0.3}),
        Plan(rates={"cancels": 0.3, "stale": 0.3}, main_workers=2, policy=3),
        STOPS,
        HANGS,
        INVALID_RESULTS,
        Plan(rates={"result damaged": 0.5, "delivered again": 0.3, "reply lost": 0.2}),
    ],
    ids=lambda plan: " ".join(plan.rates),
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_plan_that_failed_once_passes(plan: Plan, seed: int) -> None:
    """Outputs that cannot be serialized, leases that are not extended, an unavailable store."""
    verdict = check(simulate(seed, plan=plan))

    assert verdict.good, verdict


def test_a_seed_always_gives_the_same_trace() -> None:
    """Check it in another process, too, with another seed of string hashes."""

    def trace(hashing: str) -> bytes:
        command = [sys.executable, "-m", "chaos", "sim", "--seed", "6"]
        env = {**os.environ, "PYTHONHASHSEED": hashing}
        return subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True).stdout

    assert simulate(1, trace=True).trace == simulate(1, trace=True).trace
    first = trace("1")
    assert first == trace("2")
    assert len(first.splitlines()) > 100


def test_the_table_names_failed_seeds_and_how_to_replay_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted_by_number(monkeypatch)
    seed = first_failure(*MUTANTS[counted_by_number])

    assert run(["1", "--first", str(seed), "-j", "1", "--system", "queue"]) == 1
    table = capsys.readouterr().out
    assert f"seed={seed}" in table
    assert f"python -m chaos sim --system queue --seed {seed}" in table
    assert run(["--seed", str(seed), "--system", "queue"]) == 1
    assert "executes" in capsys.readouterr().out


# ── mutations ───────────────────────────────────────────────────────────────────────────────────


def acknowledged_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    async def settle(self: Any, message: Any, result: Any) -> None:
        target = self._target(message)
        await self.worker.acknowledge(message)
        stored = await self._store_outcome(message, Packed.of(result))
        await self.worker.send(target, stored, request_key(message.body))

    patch.setattr(EvalLoop, "_settle", settle)


def counted_by_number(patch: pytest.MonkeyPatch) -> None:
    def add(self: MemoryLedger, result: Any) -> bool:
        self.results[len(self.results)] = result
        return True

    def report(self: MemoryLedger, why: str) -> EvalReport[Any]:
        return EvalReport(list(self.results.values())[: self.expected])

    patch.setattr(MemoryLedger, "add", add)
    patch.setattr(MemoryLedger, "report", report)


def the_last_result_wins(patch: pytest.MonkeyPatch) -> None:
    async def store_last(self: Any, message: Any, result: Any) -> Any:
        if self._store is not None:
            self._store.keep(f"eval:{request_key(message.body)}", result.data)
        return result

    patch.setattr(EvalLoop, "_store_outcome", store_last)


def deliveries_are_counted_only_after_an_error(patch: pytest.MonkeyPatch) -> None:
    async def attend(self: Any, message: Any) -> None:
        if message.problem is not None:
            await self.dead_letter(message, ValueError(message.problem))
        else:
            await self._handle(message)

    patch.setattr(Worker, "_dispatch", attend)


def a_lost_lease_is_ignored(patch: pytest.MonkeyPatch) -> None:
    real = SimMailbox.extend_all

    def extend_all(self: Any, messages: Any, timeout: float) -> list[bool]:
        return [True for _ in real(self, messages, timeout)]

    patch.setattr(SimMailbox, "extend_all", extend_all)


def an_unreadable_body_is_raised(patch: pytest.MonkeyPatch) -> None:
    async def attend(self: Any, message: Any) -> None:
        _ = message.body
        await self._handle(message)

    patch.setattr(Worker, "_dispatch", attend)


def an_unavailable_server_ends_the_worker(patch: pytest.MonkeyPatch) -> None:
    async def pause(self: Any) -> None:
        raise MailboxConnectionError("unavailable")

    patch.setattr(Worker, "_pause", pause)


def epochs_collapse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Key, "of", lambda r: Key(r.experiment_name, r.sample_id, 1))


def results_are_acknowledged_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    process = Collector._process

    async def acknowledge_first(self: Any, messages: Any) -> None:
        bodies = [m for m in messages if m.problem is None]
        await self._results.run_blocking(lambda: self._results.acknowledge_all(bodies))
        patch.setattr(self._results, "acknowledge_all", lambda messages: [])
        await process(self, messages)
        patch.undo()
        results_are_acknowledged_before_they_are_stored(patch)

    patch.setattr(Collector, "_process", acknowledge_first)


def invalid_results_stay_in_the_mailbox(patch: pytest.MonkeyPatch) -> None:
    async def leave(self: Any, message: Any, problem: str) -> None:
        await self._results.run_blocking(lambda: self._results.release_all([message], 60.0))

    patch.setattr(Collector, "_dead_letter", leave)


def invalid_results_are_dropped(patch: pytest.MonkeyPatch) -> None:
    async def drop(self: Any, message: Any, problem: str) -> None:
        await self._results.run_blocking(lambda: self._results.acknowledge_all([message]))

    patch.setattr(Collector, "_dead_letter", drop)


def results_of_any_attempt_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_collecting, "_read", lambda message: message.body)


def a_lease_counts_from_before_a_long_wait(patch: pytest.MonkeyPatch) -> None:
    async def receive(self: Any, lease: float, wait: float) -> Any:
        begin = anyio.current_time()
        messages = await self.requests.receive_async(
            max_messages=self._free_slots(), visibility_timeout=lease, wait_time_seconds=wait
        )
        return messages, begin + lease

    patch.setattr(Worker, "_receive", receive)


def values_without_json_form_are_sent_unchanged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_loop, "_packed", Packed.of)


def no_value_is_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Trajectory, "__post_init__", lambda self: None)


def a_stopped_delivery_does_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "start", lambda self, message: None)


def a_request_runs_in_the_task_of_its_worker(patch: pytest.MonkeyPatch) -> None:
    async def run_here(fn: Any) -> Exception | None:
        try:
            await fn()
        except Exception as error:
            return error
        return None

    patch.setattr(main_loop, "run_isolated", run_here)


def a_sample_that_hangs_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_attempt, "run_isolated", lambda fn, timeout: run_isolated(fn))


def a_cancelled_sample_runs_on(patch: pytest.MonkeyPatch) -> None:
    async def watch(*args: Any) -> None:
        await anyio.sleep_forever()

    patch.setattr(worker, "watch_cancellations", watch)


def what_is_cancelled_can_be_sent_again(patch: pytest.MonkeyPatch) -> None:
    cancel = MemoryQueue.cancel

    def cancel_and_forget(self: MemoryQueue, group: str) -> int:
        removed = cancel(self, group)
        self._cancelled.clear()
        return removed

    patch.setattr(MemoryQueue, "cancel", cancel_and_forget)


def a_collector_waits_for_a_cancelled_run(patch: pytest.MonkeyPatch) -> None:
    async def ignore(self: Any, requests: Any) -> None: ...

    patch.setattr(Collector, "_notice_cancellation", ignore)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, Plan | None]] = {
    # with a seed that finds it soon, and a plan if that of the seed has too few faults
    acknowledged_before_it_is_stored: (1, CRASHES),
    counted_by_number: (3, None),
    the_last_result_wins: (14, LATE),
    deliveries_are_counted_only_after_an_error: (13, None),
    a_lost_lease_is_ignored: (1, CUT_SHORT),
    an_unreadable_body_is_raised: (2, UNDECODABLE),
    an_unavailable_server_ends_the_worker: (6, None),
    epochs_collapse: (1, TWICE),
    results_are_acknowledged_before_they_are_stored: (1, FULL),
    invalid_results_stay_in_the_mailbox: (1, DAMAGED),
    invalid_results_are_dropped: (1, INVALID_RESULTS),
    results_of_any_attempt_are_believed: (1, INVALID_RESULTS),
    a_lease_counts_from_before_a_long_wait: (7, SHORT),
    values_without_json_form_are_sent_unchanged: (1, ODD_VALUES),
    no_value_is_checked: (1, ODD_VALUES),
    a_stopped_delivery_does_not_count: (1, STOPS),
    a_request_runs_in_the_task_of_its_worker: (1, CANCELS),
    a_sample_that_hangs_is_waited_for: (1, HANGS),
    a_cancelled_sample_runs_on: (1, OTHER_RUNS),
    what_is_cancelled_can_be_sent_again: (1, OTHER_RUNS),
    a_collector_waits_for_a_cancelled_run: (1, OTHER_RUNS),
}


@pytest.mark.parametrize(
    ("mutate", "found"), MUTANTS.items(), ids=[mutate.__name__ for mutate in MUTANTS]
)
def test_a_bug_is_caught_within_a_hundred_seeds(
    mutate: Callable[[pytest.MonkeyPatch], None],
    found: tuple[int, Plan | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)

    assert first_failure(*found) <= 100


def first_failure(first: int, plan: Plan | None) -> int:
    """Return a seed that fails, trying `first` first; if none does, one more than there are."""
    totals = Totals()
    for seed in (first, *range(1, 101)):
        outcome = simulate(seed, plan=plan)
        totals.add(seed, outcome, check(outcome))
        if totals.bad:
            return seed
    return 101
