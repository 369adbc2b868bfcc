"""A session records what happened to it: by type, all or nothing, and only its own."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st

from weakincentives.errors import UsageError
from weakincentives.runtime import (
    TELEMETRY,
    InProcessEventBus,
    PromptExecuted,
    PromptRendered,
    Session,
    SessionView,
    SliceView,
    ToolInvoked,
    append_all,
    replace_latest,
    upsert_by,
)
from weakincentives.serde import type_name

R = TypeVar("R")


@dataclass(frozen=True)
class Note:
    key: str
    text: str = ""


@dataclass(frozen=True)
class Total:
    value: int


@dataclass(frozen=True)
class Result(Generic[R]):
    output: R


@dataclass(frozen=True)
class SampleEvaluated:
    """An event that names no session, like that of seed 002."""

    result: Result[str]


@dataclass(frozen=True)
class Saved:
    """An event that names its session, in a class without slots or default."""

    session_id: UUID | None
    note: Note


def add(state: tuple[Total, ...], event: Total) -> tuple[Total, ...]:
    return (Total(sum(total.value for total in state) + event.value),)


def count(state: tuple[Total, ...], event: object) -> tuple[Total, ...]:
    return add(state, Total(1))


def test_items_are_kept_by_type_in_order() -> None:
    session = Session()
    for item in (Note("a"), Note("b"), Note("c")):
        session[Note].append(item)
    notes = session[Note]
    assert notes.all() == tuple(notes) == (Note("a"), Note("b"), Note("c"))
    assert (notes.latest(), len(notes)) == (Note("c"), 3)
    assert notes.where(lambda note: note.key > "a") == (Note("b"), Note("c"))


def test_an_unknown_type_reads_as_empty_and_is_not_created() -> None:
    session = Session()
    notes = session[Note]
    assert (notes.all(), notes.latest(), len(notes)) == ((), None, 0)
    notes.clear()
    assert "Note" not in repr(session)


def test_query_and_mutate_are_the_accessor() -> None:
    session = Session()
    session.mutate(Note).append(Note("a"))
    assert session.query(Note).all() == session[Note].all() == (Note("a"),)


def test_seed_replaces_by_one_item_or_many() -> None:
    session = Session()
    session[Note].seed([Note("a"), Note("b")])
    session[Note].seed(Note("c"))
    assert session[Note].all() == (Note("c"),)
    session[Note].seed(())
    assert session[Note].all() == ()


def test_clear_removes_all_or_what_matches() -> None:
    session = Session()
    session[Note].seed([Note("a"), Note("b")])
    session[Note].clear(lambda note: note.key == "a")
    assert session[Note].all() == (Note("b"),)
    session[Note].clear()
    assert session[Note].all() == ()


def test_a_generic_alias_is_the_slice_of_its_class() -> None:
    session = Session()
    session[Result[str]].append(Result("a"))
    assert session[Result].all() == (Result("a"),)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda notes: notes.append("a"),
        lambda notes: notes.seed([Note("a"), "a"]),
        lambda notes: notes.seed(3),
    ],
)
def test_a_slice_refuses_other_types(misuse: Callable[[Any], None]) -> None:
    session = Session()
    with pytest.raises(UsageError, match=r"expected `Note`, got `(str|int)` - at item \d from"):
        misuse(session[Note])
    assert session[Note].all() == ()


def test_a_subclass_is_another_slice() -> None:
    class Special(Note):
        pass

    with pytest.raises(UsageError, match=r"expected `Note`, got `.*Special`"):
        Session()[Note].append(Special("a"))


@pytest.mark.parametrize("name", ["Note", 0, None, Any, int | str, Annotated[int, "x"]])
def test_only_a_class_names_a_slice(name: Any) -> None:
    with pytest.raises(UsageError, match="expected a class to name a slice, got "):
        Session()[name]
    with pytest.raises(UsageError, match="expected a class to name a slice, got "):
        Session()[Note].register(name, append_all)


def test_a_session_is_no_collection() -> None:
    for session in (Session(), Session().view()):
        with pytest.raises(TypeError, match="is not iterable"):
            list(session)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="is not a container"):
            Note in session  # type: ignore[operator]  # noqa: B015


def test_wrong_arguments_are_refused_at_construction() -> None:
    with pytest.raises(UsageError, match="expected one bus"):
        Session(bus=InProcessEventBus(), dispatcher=InProcessEventBus())
    with pytest.raises(UsageError, match="expected `session_id` to be a UUID, got 'a'"):
        Session(session_id="a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected `tags` from `str` to `str`, got 'a': 1"):
        Session(tags={"a": 1})  # type: ignore[dict-item]


def test_bus_and_dispatcher_are_one_argument() -> None:
    bus = InProcessEventBus()
    assert Session(bus=bus).dispatcher is bus
    assert Session(dispatcher=bus, bus=bus).dispatcher is bus
    assert Session().dispatcher is None


def test_tags_cannot_be_changed() -> None:
    given_tags = {"a": "b"}
    session = Session(tags=given_tags)
    given_tags["a"] = "c"
    assert session.tags == {"a": "b"}
    with pytest.raises(TypeError):
        session.tags["a"] = "c"  # type: ignore[index]


def test_a_live_session_is_a_session_view() -> None:
    assert isinstance(Session(), SessionView)
    assert isinstance(Session()[Note], SliceView)


def test_the_accumulation_of_seed_002_works() -> None:
    bus = InProcessEventBus()
    session = Session(bus=bus)
    session.mutate(Result).seed(())
    session.mutate(Result).register(SampleEvaluated, lambda state, event: (*state, event.result))
    bus.publish(SampleEvaluated(Result("a")))
    session.dispatch(SampleEvaluated(Result("b")))
    assert session.query(Result).all() == (Result("a"), Result("b"))
    assert session[SampleEvaluated].all() == ()


def test_an_event_without_reducer_is_kept_in_its_own_slice() -> None:
    session = Session()
    assert session.dispatch(Note("a")).handlers_invoked == 0
    assert session[Note].all() == (Note("a"),)


def test_appending_runs_the_reducers_of_the_items_type() -> None:
    session = Session()
    session[Total].register(Total, add)
    for value in (1, 2, 3):
        session[Total].append(Total(value))
    assert session[Total].all() == (Total(6),)


def test_telemetry_is_recorded_despite_registered_reducers() -> None:
    session = Session()
    session[Total].register(ToolInvoked, count)
    session.dispatch(ToolInvoked(name="a"))
    session[ToolInvoked].append(ToolInvoked(name="b"))
    assert session[Total].all() == (Total(2),)
    assert [event.name for event in session[ToolInvoked]] == ["a", "b"]


def test_a_reducer_cannot_rewrite_telemetry() -> None:
    with pytest.raises(UsageError, match="telemetry is kept as it happened"):
        Session()[ToolInvoked].register(ToolInvoked, replace_latest)


def test_a_reducer_must_be_callable() -> None:
    with pytest.raises(UsageError, match=r"expected a function `\(state, event\) -> items`"):
        Session()[Note].register(Note, None)  # type: ignore[arg-type]


def test_reducers_of_one_slice_are_chained() -> None:
    session = Session()
    session[Note].register(Note, append_all)
    session[Note].register(Note, lambda state, _: state[-2:])
    session[Total].register(Note, count)
    for key in "abc":
        session.dispatch(Note(key))
    assert session[Note].all() == (Note("b"), Note("c"))
    assert session[Total].all() == (Total(3),)


def fail(state: tuple[Note, ...], event: object) -> tuple[Note, ...]:
    raise LookupError("no")


def test_a_raising_reducer_leaves_everything_unchanged_and_is_named() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(ToolInvoked, received.append)
    session = Session(bus=bus)
    session[Total].register(ToolInvoked, count)
    session[Note].register(ToolInvoked, fail)
    before = session.view()
    with pytest.raises(LookupError) as caught:
        session.dispatch(ToolInvoked(name="a"))
    assert session.view() == before
    assert received == []
    assert f"reducer `fail` of the slice `{type_name(Note)}`" in caught.value.__notes__[0]
    assert "wink:ToolInvoked" in caught.value.__notes__[0]


def test_a_reducer_of_the_wrong_type_is_named() -> None:
    session = Session()
    session[Note].register(Total, append_all)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="got `Total` - at item 0 from a reducer") as caught:
        session.dispatch(Total(1))
    assert "in the reducer `append_all`" in caught.value.__notes__[0]
    assert session[Note].all() == ()


def test_a_reducer_may_not_change_the_session() -> None:
    session = Session()

    def append_during_reduce(state: tuple[Note, ...], event: Total) -> tuple[Note, ...]:
        session[Note].append(Note("lost"))
        return state

    session[Note].register(Total, append_during_reduce)
    with pytest.raises(UsageError, match="reducer or predicate that only returns"):
        session.dispatch(Total(1))
    session[Note].append(Note("kept"))
    assert session[Note].all() == (Note("kept"),)


@given(st.lists(st.builds(Note, st.sampled_from("abc"), st.text(max_size=2))))
def test_the_built_in_reducers_keep_their_promises(notes: list[Note]) -> None:
    everything, newest, by_key = Session(), Session(), Session()
    everything[Note].register(Note, append_all)
    newest[Note].register(Note, replace_latest)
    by_key[Note].register(Note, upsert_by(lambda note: note.key))
    for note in notes:
        for session in (everything, newest, by_key):
            session.dispatch(note)
    assert everything[Note].all() == tuple(notes)
    assert newest[Note].all() == tuple(notes[-1:])
    assert by_key[Note].all() == tuple({note.key: note for note in notes}.values())


def test_upsert_leaves_one_item_per_key_also_in_a_seeded_slice() -> None:
    session = Session()
    session[Note].seed([Note("a", "1"), Note("b"), Note("a", "2")])
    session[Note].register(Note, upsert_by(lambda note: note.key))
    session[Note].append(Note("a", "3"))
    assert session[Note].all() == (Note("a", "3"), Note("b"))


def test_a_session_records_its_own_telemetry_from_the_bus() -> None:
    bus = InProcessEventBus()
    session, other = Session(bus=bus), Session(bus=bus)
    for kind in (PromptExecuted, PromptRendered):
        bus.publish(kind(session_id=session.session_id))
    bus.publish(ToolInvoked(name="a", session_id=session.session_id))
    assert [len(session[kind]) for kind in TELEMETRY] == [1, 1, 1]
    assert [len(other[kind]) for kind in TELEMETRY] == [0, 0, 0]


def test_an_event_without_a_session_is_not_recorded() -> None:
    bus = InProcessEventBus()
    session = Session(bus=bus)
    session[Note].register(Saved, lambda state, event: (*state, event.note))
    bus.publish(ToolInvoked(name="a"))
    bus.publish(Saved(None, Note("a")))
    assert len(session[ToolInvoked]) == len(session[Note]) == 0


def test_a_registered_event_that_names_its_session_is_filtered() -> None:
    bus = InProcessEventBus()
    sessions = [Session(bus=bus) for _ in range(2)]
    for session in sessions:
        session[Note].register(Saved, lambda state, event: (*state, event.note))
        session[Total].register(Saved, count)
    result = bus.publish(Saved(sessions[0].session_id, Note("a")))
    assert result.handlers_invoked == 1
    assert [session[Note].all() for session in sessions] == [(Note("a"),), ()]
    assert [session[Total].all() for session in sessions] == [(Total(1),), ()]


def test_a_session_filters_events_with_a_dynamic_session_id() -> None:
    class Dynamic:
        def __init__(self, owner: UUID) -> None:
            self.session_id = owner

    bus = InProcessEventBus()
    session = Session(bus=bus)
    session[Total].register(Dynamic, count)
    bus.publish(Dynamic(uuid4()))
    bus.publish(Dynamic(session.session_id))
    assert session[Total].all() == (Total(1),)


def test_a_dispatched_event_is_recorded_once_and_published_once() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(ToolInvoked, received.append)
    session = Session(bus=bus)
    event = ToolInvoked(name="a", session_id=session.session_id)
    assert session.dispatch(event).ok
    assert session[ToolInvoked].all() == (event,)
    assert received == [event]
    bus.publish(event)
    assert len(session[ToolInvoked]) == 2


def test_an_appended_item_is_not_published() -> None:
    bus, received = InProcessEventBus(), []
    bus.subscribe(ToolInvoked, received.append)
    Session(bus=bus)[ToolInvoked].append(ToolInvoked(name="a"))
    assert received == []


def test_a_subscriber_may_dispatch_to_the_same_session() -> None:
    bus = InProcessEventBus()
    session = Session(bus=bus)
    session[Total].register(Note, count)
    bus.subscribe(ToolInvoked, lambda event: session.dispatch(Note(event.name)))
    assert session.dispatch(ToolInvoked(name="a")).ok
    assert session[Total].all() == (Total(1),)


def test_the_event_of_another_session_cannot_be_dispatched_here() -> None:
    session = Session()
    with pytest.raises(UsageError, match="expected an event of session"):
        session.dispatch(ToolInvoked(name="a", session_id=uuid4()))
    assert session[ToolInvoked].all() == ()


def test_publishing_costs_the_same_with_400_sessions_on_the_bus() -> None:
    bus = InProcessEventBus()
    everyone: list[ToolInvoked] = []
    bus.subscribe(ToolInvoked, everyone.append)
    sessions = [Session(bus=bus) for _ in range(400)]
    for session in sessions:
        event = ToolInvoked(name="a", session_id=session.session_id)
        assert bus.publish(event).handlers_invoked == 2
    assert len(everyone) == 400
    assert {len(session[ToolInvoked]) for session in sessions} == {1}


def test_the_bus_keeps_no_session_alive() -> None:
    bus = InProcessEventBus()
    session = Session(bus=bus)
    session[Result].register(SampleEvaluated, lambda state, event: (*state, event.result))
    session_id, reference = session.session_id, weakref.ref(session)
    del session
    gc.collect()
    assert reference() is None
    assert bus.publish(ToolInvoked(name="a", session_id=session_id)).handlers_invoked == 0
    assert bus.publish(SampleEvaluated(Result("a"))).handlers_invoked == 0


def test_a_handler_that_outlives_its_session_does_nothing() -> None:
    class NeverUnsubscribes(InProcessEventBus):
        def unsubscribe(self, *args: Any, **kwargs: Any) -> bool:
            return False

    bus = NeverUnsubscribes()
    session = Session(bus=bus)
    mine = session.session_id
    del session
    gc.collect()
    assert bus.publish(ToolInvoked(name="a", session_id=mine)).ok


def test_a_closed_session_is_unsubscribed_from_the_bus() -> None:
    bus = InProcessEventBus()
    with Session(bus=bus) as session:
        bus.publish(ToolInvoked(name="a", session_id=session.session_id))
    session.close()
    session[Result].register(SampleEvaluated, lambda state, event: (*state, event.result))
    bus.publish(ToolInvoked(name="b", session_id=session.session_id))
    assert bus.publish(SampleEvaluated(Result("a"))).handlers_invoked == 0
    assert [event.name for event in session[ToolInvoked]] == ["a"]
    Session().close()


def test_no_update_is_lost_under_eight_threads() -> None:
    bus = InProcessEventBus()
    session, barrier = Session(bus=bus), threading.Barrier(8)

    def count_and_yield(state: tuple[Total, ...], event: object) -> tuple[Total, ...]:
        time.sleep(0)  # lets other threads run between reading and storing
        return count(state, event)

    session[Total].register(ToolInvoked, count_and_yield)

    def work(publish: Callable[[object], object]) -> None:
        barrier.wait()
        for _ in range(200):
            publish(ToolInvoked(name="a", session_id=session.session_id))

    ways = [session.dispatch, bus.publish, session[ToolInvoked].append, session.dispatch] * 2
    threads = [threading.Thread(target=work, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session[Total].all() == (Total(1600),)
    assert len(session[ToolInvoked]) == 1600


def test_only_the_dispatching_thread_skips_what_it_dispatched() -> None:
    bus = InProcessEventBus()
    session, note = Session(bus=bus), Note("shared")
    session[Total].register(Note, count)

    def publish_elsewhere(event: Note) -> None:
        bus.unsubscribe(Note, publish_elsewhere)
        thread = threading.Thread(target=bus.publish, args=(event,))
        thread.start()
        thread.join()

    bus.subscribe(Note, publish_elsewhere)
    session.dispatch(note)
    assert session[Total].all() == (Total(2),)


def test_appending_copies_nothing_until_the_slice_is_read() -> None:
    session, note = Session(), Note("a")
    references = sys.getrefcount(note)
    session[Note].append(note)
    for value in range(100_000):
        session[Note].append(Note(str(value)))
    assert sys.getrefcount(note) == references + 1
    everything = session[Note].all()
    assert len(everything) == 100_001
    assert session[Note].all() is everything
