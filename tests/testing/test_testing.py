"""The test helpers of the package: a real session with given events, and a fake clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest

from weakincentives.clock import Clock
from weakincentives.errors import UsageError
from weakincentives.runtime import PromptExecuted, Session, ToolInvoked
from weakincentives.testing import FakeClock, session_with


def test_each_item_is_in_its_own_slice() -> None:
    session = session_with(ToolInvoked(name="a"), "note", ToolInvoked(name="b"), tags={"k": "v"})
    assert isinstance(session, Session)
    assert [event.name for event in session[ToolInvoked]] == ["a", "b"]
    assert session[str].all() == ("note",)
    assert session.tags == {"k": "v"}


def test_telemetry_without_a_session_id_gets_that_of_the_session() -> None:
    other, without_session = uuid4(), ToolInvoked(name="a", success=False)
    session = session_with(without_session, PromptExecuted(session_id=other))
    event = session[ToolInvoked].latest()
    assert event is not None
    assert (event.session_id, event.success) == (session.session_id, False)
    assert event.event_id == without_session.event_id
    assert [executed.session_id for executed in session[PromptExecuted]] == [other]


def test_wall_clock_and_monotonic_time_advance_together() -> None:
    clock: Clock = FakeClock()
    start = clock.now()
    clock.advance(90)
    clock.advance(0.5)
    assert clock.monotonic() == 90.5
    assert clock.now() - start == timedelta(seconds=90.5)
    assert clock.now().tzinfo is UTC


def test_the_clock_starts_at_the_given_time() -> None:
    noon = datetime(2030, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert FakeClock(noon).now() == datetime(2030, 6, 1, 10, tzinfo=UTC)


def test_the_clock_refuses_negative_steps_and_naive_times() -> None:
    with pytest.raises(UsageError, match="time never goes back"):
        FakeClock().advance(-1)
    with pytest.raises(UsageError, match="expected an aware `start`"):
        FakeClock(datetime(2030, 1, 1))  # noqa: DTZ001
