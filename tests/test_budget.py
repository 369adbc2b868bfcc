"""Deadlines, budgets, and their use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from weakincentives import TokenUsage
from weakincentives.budget import Budget, BudgetTracker, Deadline
from weakincentives.errors import BudgetExceededError, DeadlineExceededError, UsageError
from weakincentives.testing import FakeClock


def test_a_deadline_passes() -> None:
    clock = FakeClock()
    deadline = Deadline.after(60, clock=clock)
    deadline.check()
    clock.advance(59)

    assert (deadline.remaining(), deadline.expired) == (1.0, False)
    clock.advance(3)
    with pytest.raises(DeadlineExceededError, match=r"exceeded it by 2\.0 s"):
        deadline.check()
    assert isinstance(DeadlineExceededError("late"), TimeoutError)


def test_a_deadline_is_aware() -> None:
    with pytest.raises(UsageError, match="expected an aware datetime"):
        Deadline(datetime(2025, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("budget", "usage", "message"),
    [
        (Budget(max_input_tokens=10), TokenUsage(11, 0), "at most 10 input tokens, used 11"),
        (Budget(max_output_tokens=10), TokenUsage(0, 11), "at most 10 output tokens, used 11"),
        (Budget(max_total_tokens=10), TokenUsage(5, 6), "at most 10 total tokens, used 11"),
    ],
)
def test_a_limit_is_exceeded_only_beyond_it(
    budget: Budget, usage: TokenUsage, message: str
) -> None:
    tracker = BudgetTracker(budget)
    tracker.record(TokenUsage(1, 1))
    tracker.check()
    tracker.record(usage + TokenUsage(0, 0))

    with pytest.raises(BudgetExceededError, match="expected"):
        tracker.check()
    exact = BudgetTracker(budget)
    exact.record(TokenUsage(5, 5))
    exact.check()
    over = BudgetTracker(budget)
    over.record(usage)
    with pytest.raises(BudgetExceededError, match=message):
        over.check()


def test_a_budget_keeps_its_deadline() -> None:
    clock = FakeClock()
    tracker = BudgetTracker(Budget(deadline=Deadline.after(1, clock=clock)))
    tracker.check()
    clock.advance(2)

    with pytest.raises(DeadlineExceededError):
        tracker.check()


@pytest.mark.parametrize(
    "wrong", [{}, {"max_total_tokens": 0}, {"max_input_tokens": 1.5}, {"max_output_tokens": True}]
)
def test_a_budget_that_limits_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected a"):
        Budget(**wrong)


def test_no_usage_is_lost_between_threads() -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=10**9))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(lambda: [tracker.record(TokenUsage(1, 2)) for _ in range(500)])

    assert tracker.consumed == TokenUsage(4000, 8000)
