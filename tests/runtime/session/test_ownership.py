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


def listening(bus: InProcessEventBus) -> Session:
    session = Session(bus=bus)
    session[SampleEvaluated].register(SampleEvaluated, append_all)
    return session


def test_what_one_session_dispatches_no_other_records() -> None:
    bus, heard = InProcessEventBus(), []
    bus.subscribe(SampleEvaluated, heard.append)
    mine, other = listening(bus), listening(bus)
    mine.dispatch(SampleEvaluated("1"))
    assert (len(mine[SampleEvaluated]), len(other[SampleEvaluated]), len(heard)) == (1, 0, 1)


def test_what_is_published_reaches_every_session_that_registered() -> None:
    bus = InProcessEventBus()
    sessions = [listening(bus), listening(bus)]
    bus.publish(SampleEvaluated("1"))
    assert [len(session[SampleEvaluated]) for session in sessions] == [1, 1]


def test_what_is_published_while_a_session_dispatches_reaches_all() -> None:
    bus = InProcessEventBus()
    sessions = [listening(bus), listening(bus)]
    bus.subscribe(ToolInvoked, lambda event: bus.publish(SampleEvaluated(event.name)))
    sessions[0].dispatch(ToolInvoked(name="a"))
    assert [len(session[SampleEvaluated]) for session in sessions] == [1, 1]


def test_what_is_forwarded_to_another_bus_is_published_there() -> None:
    here, there = InProcessEventBus(), InProcessEventBus()
    here.subscribe(SampleEvaluated, there.publish)
    mine, other = listening(here), listening(there)
    mine.dispatch(SampleEvaluated("1"))
    assert (len(mine[SampleEvaluated]), len(other[SampleEvaluated])) == (1, 1)


@pytest.mark.parametrize("event", [ToolInvoked(name="a"), PromptExecuted(), PromptRendered()])
def test_telemetry_without_a_session_becomes_the_sessions_own(
    event: ToolInvoked | PromptExecuted | PromptRendered,
) -> None:
    bus, heard = InProcessEventBus(), []
    bus.subscribe(type(event), heard.append)
    session = Session(bus=bus)
    result = session.dispatch(event)
    session[type(event)].append(event)
    owners = [recorded.session_id for recorded in (*session[type(event)], *heard, result.event)]
    assert owners == [session.session_id] * 4
    assert {recorded.event_id for recorded in session[type(event)]} == {event.event_id}
