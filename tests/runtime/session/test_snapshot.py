"""A session is restored equal, in any process, and damaged bytes are refused."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import FrozenInstanceError, dataclass, make_dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from weakincentives.errors import SerializationError, SnapshotError, UsageError
from weakincentives.runtime import (
    TELEMETRY,
    InProcessEventBus,
    Session,
    SessionSnapshot,
    SessionView,
    SliceView,
    ToolInvoked,
)
from weakincentives.serde import type_name
from weakincentives.testing import session_with

SOURCE = Path(__file__).parents[3] / "src"


@dataclass(frozen=True)
class Place:
    name: str
    position: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trip:
    title: str
    places: tuple[Place, ...]
    notes: dict[str, int | None]
    inner: Trip | None = None


@dataclass(frozen=True)
class Percent:
    value: int

    def __post_init__(self) -> None:
        if self.value > 100:
            raise LookupError("more than all")


@dataclass(frozen=True)
class Holder:
    value: object


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLACES = st.builds(Place, our.texts, st.tuples(FLOATS, FLOATS))
TRIPS = st.recursive(
    st.builds(Trip, our.texts, st.lists(PLACES, max_size=2).map(tuple), st.just({})),
    lambda inner: st.builds(
        Trip,
        our.texts,
        st.just(()),
        st.dictionaries(our.texts, st.none() | st.integers(), max_size=2),
        inner,
    ),
    max_leaves=3,
)
SESSIONS = st.builds(
    lambda items, tags, created_at: _fill(Session(tags=tags, created_at=created_at), items),
    st.lists(our.events | TRIPS | PLACES, max_size=5),
    st.dictionaries(our.texts, our.texts, max_size=2),
    our.dates,
)


def _fill(session: Session, items: list[object]) -> Session:
    for item in items:
        session[type(item)].append(item)
    return session


def score_in(module: str) -> type[Any]:
    """Return a new class at every call, as if it came from that module."""
    cls = make_dataclass("Score", [("value", int)])
    cls.__module__ = module  # since 3.12, `make_dataclass` sets it by itself
    return cls


def change(data: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(data) | fields).encode()


@given(SESSIONS)
def test_a_restored_session_is_equal(session: Session) -> None:
    restored = Session().restore(session.snapshot())
    assert restored.view() == session.view()
    assert (restored.session_id, restored.created_at) == (session.session_id, session.created_at)
    assert restored.tags == session.tags
    for cls in (*TELEMETRY, Trip, Place):
        assert restored[cls].all() == session[cls].all()
    assert restored.view() == session.view()


@given(SESSIONS)
def test_a_snapshot_reads_the_same_live_and_from_bytes(session: Session) -> None:
    live, data = session.view(), session.snapshot()
    sent = SessionSnapshot.from_bytes(data)
    for cls in (*TELEMETRY, Trip, Place):
        assert sent[cls].all() == tuple(live[cls]) == session[cls].all()
    assert sent == live
    assert hash(sent) == hash(live)
    assert sent.to_bytes() == data


@given(SESSIONS)
def test_an_unread_slice_is_kept_byte_for_byte(session: Session) -> None:
    data = session.snapshot()
    assert Session().restore(data).snapshot() == data
    assert SessionSnapshot.from_bytes(data).to_bytes() == data


def test_a_view_is_a_point_in_time() -> None:
    session = session_with(Place("a", (0, 0)))
    view = session.view()
    session[Place].append(Place("b", (0, 0)))
    places = view[Place]
    assert places.latest() == Place("a", (0, 0))
    assert places.where(lambda place: place.name == "b") == ()
    assert len(places) == 1
    assert view != session.view()
    assert (view[Trip].all(), view[Trip].latest()) == ((), None)


def test_a_view_cannot_be_changed() -> None:
    view = session_with(ToolInvoked(name="a"), tags={"a": "b"}).view()
    assert isinstance(view, SessionView)
    assert isinstance(view[ToolInvoked], SliceView)
    for name in ("append", "clear", "dispatch", "mutate", "register", "restore", "seed"):
        assert not hasattr(view, name)
        assert not hasattr(view[ToolInvoked], name)
    with pytest.raises(FrozenInstanceError):
        view.session_id = uuid4()  # type: ignore[misc]
    with pytest.raises(TypeError):
        view.tags["a"] = "c"  # type: ignore[index]


def test_only_views_with_equal_data_are_equal() -> None:
    session = session_with(Place("a", (0, 0)))
    view = session.view()
    session[Trip].seed(())
    assert (session.view(), session.snapshot()) == (view, view.to_bytes())
    assert view != "a view"
    session[Holder].append(Holder(value=object()))
    assert session.view() == session.view() != view


def test_restoring_replaces_all_state_and_keeps_the_reducers() -> None:
    session = session_with(Place("old", (0, 0)), Trip("old", (), {}))
    session[Trip].register(Place, lambda _, event: (Trip(event.name, (event,), {}),))
    assert session.restore(session_with(Place("new", (0, 0))).snapshot()) is session
    assert [place.name for place in session[Place]] == ["new"]
    assert session[Trip].all() == ()
    session.dispatch(Place("b", (0, 0)))
    assert [trip.title for trip in session[Trip]] == ["b"]


def test_a_session_can_be_restored_from_a_view() -> None:
    original = session_with(Place("a", (0, 0)), tags={"a": "b"})
    restored = Session().restore(original.view())
    restored[Place].append(Place("b", (0, 0)))
    assert (len(original[Place]), len(restored[Place])) == (1, 2)
    assert restored.tags == {"a": "b"}


def test_a_restored_session_continues() -> None:
    session = Session().restore(session_with(ToolInvoked(name="a")).snapshot())
    session.dispatch(ToolInvoked(name="b"))
    again = SessionSnapshot.from_bytes(session.snapshot())
    assert [event.name for event in again[ToolInvoked]] == ["a", "b"]


def test_a_restored_session_receives_events_under_its_new_id() -> None:
    bus = InProcessEventBus()
    session = Session(bus=bus)
    before = session.session_id
    session.restore(Session().snapshot())
    for owner in (before, session.session_id):
        bus.publish(ToolInvoked(name="a", session_id=owner))
    assert [event.session_id for event in session[ToolInvoked]] == [session.session_id]
    session.close()
    session.restore(Session().snapshot())
    result = bus.publish(ToolInvoked(name="a", session_id=session.session_id))
    assert result.handlers_invoked == 0


@pytest.mark.parametrize("data", [None, "{}", Session(), {}])
def test_only_bytes_or_a_view_can_be_restored(data: Any) -> None:
    session = Session()
    with pytest.raises(UsageError, match=r"expected the `bytes` of a snapshot, got .* - pass what"):
        session.restore(data)


def share_of_successes(view: SessionView) -> float:
    calls = view[ToolInvoked].all()
    return sum(call.success for call in calls) / len(calls)


def test_a_view_scores_the_same_in_another_process() -> None:
    view = session_with(ToolInvoked(name="a"), ToolInvoked(name="b", success=False)).view()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(share_of_successes, view).result() == share_of_successes(view) == 0.5


@given(SESSIONS)
def test_a_view_can_be_copied_and_pickled(session: Session) -> None:
    view = session.view()
    assert pickle.loads(pickle.dumps(view)) == copy.deepcopy(view) == view


def test_the_format_is_plain_json() -> None:
    session = session_with(Place("a", (1, 2)), tags={"a": "b"})
    assert json.loads(session.snapshot()) == {
        "version": 1,
        "session_id": str(session.session_id),
        "created_at": session.created_at.isoformat().replace("+00:00", "Z"),
        "tags": {"a": "b"},
        "slices": [{"type": type_name(Place), "items": [{"name": "a", "position": [1, 2]}]}],
    }


GOOD = session_with(Place("a", (0, 0))).snapshot()
DEEP = b"[" * 100_000 + b"]" * 100_000
DAMAGED = {
    "nothing": (b"", "truncated"),
    "cut off": (GOOD[:-1], "truncated"),
    "pickle": (pickle.dumps({"a": 1}), "malformed"),
    "not text": (b"\xff\xfe" + GOOD, "malformed"),
    "not text inside": (GOOD.replace(b'"tags":{', b'"tags":{"a":"\xff"'), "can't decode byte 0xff"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "deep list": (DEEP, "Expected `object`, got `array`"),
    "deep items": (GOOD.replace(b'"items":', b'"items":' + DEEP + b',"_":'), "recursion depth"),
    "version": (change(GOOD, version=2), r"Invalid enum value 2 - at `\$.version`"),
    "fields": (b'{"version":1}', "missing required field `session_id`"),
    "id": (change(GOOD, session_id="me"), r"Invalid UUID - at `\$.session_id`"),
    "tags": (change(GOOD, tags={"a": 1}), r"got `int` - at `\$.tags\[...\]`"),
    "slices": (change(GOOD, slices="?"), r"got `str` - at `\$.slices`"),
    "lone surrogate": (change(GOOD, slices="\ud800"), r"got `str` - at `\$.slices`"),
    "slice": (change(GOOD, slices=[{"type": "a:B"}]), r"field `items` - at `\$.slices\[0\]`"),
    "twice": (change(GOOD, slices=2 * json.loads(GOOD)["slices"]), r"got one twice - at `\$.sl"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_bytes_raise_a_serialization_error(damage: str) -> None:
    data, message = DAMAGED[damage]
    session = session_with(Place("kept", (0, 0)))
    before = session.view()
    with pytest.raises(SnapshotError, match=message) as caught:
        session.restore(data)
    assert str(caught.value).startswith("expected ")
    assert session.view() == before


@pytest.mark.parametrize(
    ("cls", "items", "message"),
    [
        (Place, [{"name": "a"}], r"missing required field `position` - at `\$\[0\]`"),
        (Place, [{"name": 3, "position": [0, 0]}], r"got `int` - at `\$\[0\].name`"),
        (Place, {"name": "a"}, "Expected `array`, got `object`"),
        (Percent, [{"value": 101}], "more than all"),
    ],
)
def test_an_invalid_item_is_an_error_when_it_is_read(
    cls: type[Any], items: object, message: str
) -> None:
    data = change(GOOD, slices=[{"type": type_name(cls), "items": items}])
    for session in (SessionSnapshot.from_bytes(data), Session().restore(data)):
        assert session[Trip].all() == ()
        with pytest.raises(SnapshotError, match=message) as caught:
            session[cls].all()
        assert f"in the slice `{type_name(cls)}`" in str(caught.value)


def test_damage_inside_a_raw_slice_does_not_break_comparing() -> None:
    view = SessionSnapshot.from_bytes(GOOD.replace(b'"a"', b'"\xff"'))
    assert view == SessionSnapshot.from_bytes(view.to_bytes())
    with pytest.raises(SnapshotError, match="expected items that fit `Place`"):
        view[Place]


def test_an_event_that_meets_a_damaged_slice_changes_nothing() -> None:
    raw = [{"type": type_name(ToolInvoked), "items": [{"name": 3}]}]
    session = Session().restore(change(GOOD, slices=raw))
    session[Place].register(ToolInvoked, lambda _, event: (Place(event.name, (0, 0)),))
    with pytest.raises(SnapshotError):
        session.dispatch(ToolInvoked(name="a"))
    assert session[Place].all() == ()


def test_loading_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    data = change(GOOD, slices=[{"type": "planted:Place", "items": []}])
    session = Session().restore(data)
    assert session[Place].all() == ()
    assert b"planted:Place" in session.snapshot()
    assert "planted" not in sys.modules


def test_an_item_without_json_form_is_named() -> None:
    session = session_with(Holder("fine"), Holder(object()))
    with pytest.raises(SnapshotError, match="got `object`") as caught:
        session.snapshot()
    assert f"at item 1 of the slice `{type_name(Holder)}`; keep only plain" in str(caught.value)
    assert isinstance(caught.value, SerializationError)


def test_two_types_of_one_name_cannot_share_a_snapshot() -> None:
    session = session_with(score_in("app")(1), score_in("app")(2))
    with pytest.raises(SnapshotError, match="got two types called `app:Score`"):
        session.snapshot()


@pytest.mark.parametrize(
    ("stored", "requested", "is_found"),
    [
        (["app"], "app", True),
        (["__main__"], "app", True),
        (["app"], "__main__", True),
        (["app"], "other", False),
        (["app", "other"], "__main__", False),
        (["app", "__main__"], "__main__", True),
        (["app", "__main__"], "other", False),
    ],
)
def test_a_class_of_a_script_is_found_if_its_name_is_unique(
    stored: list[str], requested: str, is_found: bool
) -> None:
    session = session_with(*(score_in(module)(3) for module in stored))
    sent = SessionSnapshot.from_bytes(session.snapshot())
    assert len(sent[score_in(requested)]) == is_found


SCRIPT = """
import sys
from dataclasses import dataclass
from weakincentives.runtime import Session, ToolInvoked
{types}
session = Session()
if sys.argv[1] == "write":
    session[Note].append(Note("a", Inner([1, 2])))
    session[ToolInvoked].append(ToolInvoked(name="search"))
    sys.stdout.buffer.write(session.snapshot())
else:
    session.restore(sys.stdin.buffer.read())
    assert session[Note].all() == (Note("a", Inner([1, 2])),), session[Note].all()
    assert session[ToolInvoked].latest().name == "search"
"""
TYPES = """
from dataclasses import dataclass

@dataclass
class Inner:
    numbers: list[int]

@dataclass
class Note:
    text: str
    inner: Inner
"""


def test_a_fresh_process_reads_what_another_wrote(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(TYPES)
    (tmp_path / "imports.py").write_text(SCRIPT.format(types="from notes import Inner, Note"))
    (tmp_path / "script.py").write_text(SCRIPT.format(types=TYPES))

    def run(name: str, mode: str, data: bytes = b"") -> bytes:
        command = [sys.executable, str(tmp_path / name), mode]
        env = {**os.environ, "PYTHONPATH": str(SOURCE)}
        return subprocess.run(command, input=data, capture_output=True, check=True, env=env).stdout

    for writer in ("imports.py", "script.py"):
        data = run(writer, "write")
        for reader in ("imports.py", "script.py"):
            run(reader, "read", data)
