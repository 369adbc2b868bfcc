"""Owners of events: what a session dispatches is its own, for all subscribers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from weakincentives.runtime import (
    InProcessEventBus,
    PromptExecuted,
    PromptRendered,
    Session,
    ToolInvoked,
    append_all,
)


@dataclass(frozen=True)
class SampleEvaluated:
    """An event that names no session, like that of seed 002."""

    sample_id: str


def session_on(bus: InProcessEventBus) -> Session:
    session = Session(bus=bus)
    session[SampleEvaluated].register(SampleEvaluated, append_all)
    return session


def test_a_dispatched_event_is_not_recorded_by_other_sessions() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(SampleEvaluated, received.append)
    own, other = session_on(bus), session_on(bus)
    own.dispatch(SampleEvaluated("1"))
    assert (len(own[SampleEvaluated]), len(other[SampleEvaluated]), len(received)) == (1, 0, 1)


def test_a_published_event_reaches_every_registered_session() -> None:
    bus = InProcessEventBus()
    sessions = [session_on(bus), session_on(bus)]
    bus.publish(SampleEvaluated("1"))
    assert [len(session[SampleEvaluated]) for session in sessions] == [1, 1]


def test_an_event_published_during_a_dispatch_reaches_all() -> None:
    bus = InProcessEventBus()
    sessions = [session_on(bus), session_on(bus)]
    bus.subscribe(ToolInvoked, lambda event: bus.publish(SampleEvaluated(event.name)))
    sessions[0].dispatch(ToolInvoked(name="a"))
    assert [len(session[SampleEvaluated]) for session in sessions] == [1, 1]


def test_an_event_forwarded_to_another_bus_is_published_there() -> None:
    here, there = InProcessEventBus(), InProcessEventBus()
    here.subscribe(SampleEvaluated, there.publish)
    own, other = session_on(here), session_on(there)
    own.dispatch(SampleEvaluated("1"))
    assert (len(own[SampleEvaluated]), len(other[SampleEvaluated])) == (1, 1)


@pytest.mark.parametrize("event", [ToolInvoked(name="a"), PromptExecuted(), PromptRendered()])
def test_telemetry_without_a_session_becomes_the_sessions_own(
    event: ToolInvoked | PromptExecuted | PromptRendered,
) -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(type(event), received.append)
    session = Session(bus=bus)
    result = session.dispatch(event)
    session[type(event)].append(event)
    owners = [recorded.session_id for recorded in (*session[type(event)], *received, result.event)]
    assert owners == [session.session_id] * 4
    assert {recorded.event_id for recorded in session[type(event)]} == {event.event_id}
