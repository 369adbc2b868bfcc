"""The bus routes by exact type and session, and isolates handlers from each other."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest

from weakincentives.runtime import (
    ControlDispatcher,
    Dispatcher,
    EventBus,
    InProcessDispatcher,
    InProcessEventBus,
    ToolInvoked,
)


class Base:
    pass


class Derived(Base):
    pass


def fail(event: object) -> None:
    raise LookupError("no")


def test_a_handler_receives_exactly_its_type() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(Base, received.append)
    base = Base()
    bus.publish(Derived())
    assert bus.publish(base).handlers_invoked == 1
    assert received == [base]


def test_a_filtered_handler_is_called_first_and_for_its_session_only() -> None:
    bus, received, own_id = InProcessEventBus(), [], uuid4()
    bus.subscribe(ToolInvoked, lambda event: received.append(("all", event.name)))
    bus.subscribe(
        ToolInvoked, lambda event: received.append(("mine", event.name)), session_id=own_id
    )
    bus.publish(ToolInvoked(name="a", session_id=own_id))
    bus.publish(ToolInvoked(name="b", session_id=uuid4()))
    bus.publish(ToolInvoked(name="c"))
    assert received == [("mine", "a"), ("all", "a"), ("all", "b"), ("all", "c")]


def test_a_generic_alias_means_its_class() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(list[int], received.append)
    bus.publish([1])
    assert received == [[1]]


def test_unsubscribing_undoes_one_subscription() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(Base, received.append)
    bus.subscribe(Base, received.append)
    assert bus.unsubscribe(Base, received.append)
    bus.publish(Base())
    assert len(received) == 1
    assert bus.unsubscribe(Base, received.append)
    assert not bus.unsubscribe(Base, received.append)
    assert bus.publish(Base()).handlers_invoked == 0


def test_the_session_is_part_of_a_subscription() -> None:
    bus, received, own_id = InProcessEventBus(), [], uuid4()
    bus.subscribe(ToolInvoked, received.append, session_id=own_id)
    assert not bus.unsubscribe(ToolInvoked, received.append)
    assert bus.unsubscribe(ToolInvoked, received.append, session_id=own_id)


def test_a_failing_handler_is_logged_and_collected_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(Base, fail)
    bus.subscribe(Base, received.append)
    with caplog.at_level(logging.ERROR):
        result = bus.publish(Base())
    assert len(received) == 1
    assert (result.ok, result.handlers_invoked) == (False, 2)
    assert [str(error) for error in result.errors] == ["no"]
    assert "failed on Base" in caplog.text


def test_errors_can_be_raised_as_a_group() -> None:
    bus = InProcessEventBus()
    bus.publish(Base()).raise_if_errors()
    bus.subscribe(Base, fail)
    with pytest.raises(ExceptionGroup, match="1 of 1 handlers failed on `Base`") as caught:
        bus.publish(Base()).raise_if_errors()
    assert isinstance(caught.value.exceptions[0], LookupError)


def test_an_interrupt_passes_through() -> None:
    def interrupt(event: object) -> None:
        raise KeyboardInterrupt

    bus = InProcessEventBus()
    bus.subscribe(Base, interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.publish(Base())


def test_a_handler_may_unsubscribe_itself_while_it_runs() -> None:
    bus, received = InProcessEventBus(), []

    def once(event: object) -> None:
        received.append(event)
        bus.unsubscribe(Base, once)

    bus.subscribe(Base, once)
    bus.publish(Base())
    bus.publish(Base())
    assert len(received) == 1


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Switch threads after every few bytecodes, so that a race becomes visible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_can_subscribe_at_once() -> None:
    bus, barrier = InProcessEventBus(), threading.Barrier(8)

    def subscribe() -> None:
        barrier.wait()
        for _ in range(200):
            bus.subscribe(Base, lambda _: None)

    threads = [threading.Thread(target=subscribe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.publish(Base()).handlers_invoked == 1600


def test_the_aliases_are_the_same_classes() -> None:
    assert Dispatcher is EventBus
    assert ControlDispatcher is InProcessDispatcher is InProcessEventBus
    bus = ControlDispatcher()
    assert isinstance(bus, EventBus)
    assert bus.dispatch(Base()).ok
