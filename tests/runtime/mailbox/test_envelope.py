"""A body is decoded equal to what was sent, or refused; nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from weakincentives.errors import SerializationError
from weakincentives.runtime.mailbox.core.envelope import pack, unpack
from weakincentives.runtime.mailbox.core.type_names import class_name, type_for

I = TypeVar("I")  # noqa: E741
E = TypeVar("E")


@dataclass(frozen=True)
class Point:
    x: int
    label: str = ""


@dataclass(frozen=True)
class Shape:
    points: tuple[Point, ...] = ()
    names: dict[str, Point] = field(default_factory=dict)
    centre: Point | None = None


@dataclass(frozen=True)
class Sample(Generic[I, E]):
    input: I
    expected: E | None = None


@dataclass(frozen=True)
class Request(Generic[I, E]):
    sample: Sample[I, E]
    hints: list[I] = field(default_factory=list)
    by_name: dict[str, E] = field(default_factory=dict)


class Colour(Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


class Record(msgspec.Struct):
    text: str


@dataclass
class Picky:
    number: int

    def __post_init__(self) -> None:
        if self.number == 13:
            raise KeyError("thirteen")


def round_trip(value: Any, body_type: Any = None) -> Any:
    body, headers = unpack(pack(value), body_type)
    assert headers == {}
    assert type(body) is type(value)
    return body


# ── values ──────────────────────────────────────────────────────────────────────────────────────


def is_text(text: str) -> bool:
    """Return whether JSON keeps it: a high and a low surrogate would become one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


texts = st.text() | st.text(st.characters(exclude_categories=())).filter(is_text)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
plain = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20
)
points = st.builds(Point, st.integers(-(2**63), 2**63 - 1), texts)
shapes = st.builds(
    Shape,
    st.lists(points, max_size=3).map(tuple),
    st.dictionaries(texts, points, max_size=3),
    st.none() | points,
)
dates = st.datetimes(timezones=st.just(UTC))
objects = points | shapes | st.uuids() | dates | st.just(Colour.RED)
requests = st.one_of(
    st.builds(Request, st.builds(Sample, kind, expected), st.lists(kind, max_size=2))
    for kind in (points, st.text(), st.uuids(), shapes)
    for expected in (st.none(), st.text(), points)
)


@given(plain | objects | requests)
@settings(max_examples=400)
def test_every_value_is_decoded_equal(value: Any) -> None:
    assert round_trip(value) == value


@given(points, st.dictionaries(st.text(), st.text()))
def test_headers_are_decoded_with_the_body(body: Point, headers: dict[str, str]) -> None:
    assert unpack(pack(body, headers)) == (body, headers)


@pytest.mark.parametrize(
    "value",
    [
        [Point(1), Point(2)],
        (Point(1),),
        (1, "a", None),
        {1, 2},
        frozenset({"a"}),
        {"a": Point(1)},
        {1: "a", -2: "b"},
        {UUID(int=1): [Point(1)]},
        {date(2026, 1, 1): 1},
        [[Point(1)], [Point(2)]],
        {"a": (Point(1), Point(2))},
        [],
        (),
        {},
        set(),
        b"\0\xff",
        Pair(1, "b"),
        Record("a"),
        Decimal("1.10"),
        timedelta(seconds=1.5),
        datetime(2026, 1, 1, tzinfo=UTC),
        Path("a/b"),
        Request(Sample(Point(1), Shape()), [Point(2)], {"a": Shape((Point(3),))}),
        Request(Sample([Point(1)], {"a": Point(2)})),
        Request(Sample(Point(1), None), [Point(2)], {"a": Colour.RED}),
        Sample(Sample(Point(1), Colour.RED), (1, 2)),
    ],
    ids=repr,
)
def test_containers_and_type_arguments_are_decoded(value: Any) -> None:
    assert round_trip(value) == value


def test_values_of_several_classes_are_decoded_as_plain_data() -> None:
    assert unpack(pack([Point(1), Colour.RED]))[0] == [{"x": 1, "label": ""}, "red"]
    assert unpack(pack(Request(Sample(Point(1)), ["text"])))[0] == Request(
        Sample({"x": 1, "label": ""}), ["text"]
    )
    assert unpack(pack(Request(Sample(None), [Point(1)])))[0].hints == [{"x": 1, "label": ""}]


def test_plain_data_may_be_nested_deeply() -> None:
    value: Any = 1
    for _ in range(600):
        value = [value]

    assert round_trip(value) == value


def test_a_mapping_is_decoded_as_a_dict() -> None:
    assert unpack(pack(OrderedDict(a=1)))[0] == {"a": 1}
    assert unpack(pack(MappingProxyType({"a": 1})))[0] == {"a": 1}


@pytest.mark.parametrize("value", [object(), print, Point, float("nan"), [object()], {"a": 1j}])
def test_a_value_that_cannot_be_decoded_is_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match="expected"):
        pack(value)


def test_headers_that_are_not_text_are_refused() -> None:
    with pytest.raises(SerializationError, match="headers"):
        pack("body", {"a": object()})  # type: ignore[dict-item]
    with pytest.raises(SerializationError):
        unpack(pack("body", {"a": 1}))  # type: ignore[dict-item]


# ── the type that a receiver asks for ───────────────────────────────────────────────────────────


def test_a_body_is_decoded_as_the_type_of_the_receiver() -> None:
    assert round_trip(Point(1), Point) == Point(1)
    assert unpack(pack(Point(1)), Any)[0] == {"x": 1, "label": ""}
    assert unpack(pack({"x": 1}), Point)[0] == Point(1)
    assert round_trip([Point(1)], list[Point]) == [Point(1)]
    assert round_trip(Sample(Point(1)), Sample) == Sample(Point(1))
    assert round_trip(Sample(Point(1)), Sample[Point, str]) == Sample(Point(1))


def test_a_receiver_of_several_types_gets_the_one_that_was_sent() -> None:
    for value in (Point(1), Shape((Point(1),)), Sample(Point(1))):
        assert round_trip(value, Point | Shape | Sample[Point, Any]) == value


def test_a_receiver_knows_its_own_type_wherever_it_is_defined() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(SerializationError, match="body_type"):
        unpack(pack(Local(1)))
    assert round_trip(Local(1), Local) == Local(1)
    assert unpack(pack([Local(1)]), list[Local])[0] == [Local(1)]


@pytest.mark.parametrize("body_type", [Shape, list[Point], Point | Colour, Sample[Point, Any]])
def test_another_type_than_asked_for_is_refused(body_type: Any) -> None:
    with pytest.raises(SerializationError, match="Record"):
        unpack(pack(Record("x")), body_type)


def test_any_error_of_a_class_is_a_problem_of_the_body() -> None:
    with pytest.raises(SerializationError, match="thirteen"):
        unpack(pack({"number": 13}), Picky)


# ── damage ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [Point(1, "é\u001b"), "", {"a": [1, 2]}], ids=repr)
def test_every_flipped_bit_is_noticed(body: Any) -> None:
    data = pack(body, {"trace": "t\u001b"})

    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(SerializationError):
                unpack(bytes(changed))


def test_every_missing_or_added_byte_is_noticed() -> None:
    data = pack(Point(1))

    for changed in (*(data[:end] for end in range(len(data))), data + b" ", b" " + data, data * 2):
        with pytest.raises(SerializationError):
            unpack(changed)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        unpack(data)


# ── names that mean harm ────────────────────────────────────────────────────────────────────────


def forge(name: Any, content: bytes = b"{}", version: Any = 1) -> bytes:
    """Return an envelope as an attacker would write it."""
    rest = b" " + json.dumps({"v": version, "type": name}).encode() + b"\n" + content
    return blake2b(rest, digest_size=8).hexdigest().encode() + rest


class Proxy:
    """An object with side effects on attribute access, as lazy objects have."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"looked at {name}")


PROXY = Proxy()
HERE = __name__
HARM = [
    "os:system",
    "builtins:eval",
    "builtins:object",
    "builtins:type",
    "builtins:str",
    "subprocess:Popen",
    "threading:Thread",
    "sys:modules",
    "sys:modules.os",
    "os:environ",
    "os:path.join",
    "pathlib:Path.home",
    "pickle:loads",
    "antigravity:geohash",
    "__main__:__builtins__",
    "weakincentives.serde:encode",
    f"{HERE}:Proxy",
    f"{HERE}:PROXY",
    f"{HERE}:PROXY.a.b",
    f"{HERE}:Point.__init__",
    f"{HERE}:Point.__class__",
    f"{HERE}:Point[",
    f"{HERE}:Point[int]",
    f"{HERE}:Sample[os:system,]",
    f"{HERE}:Sample[{HERE}:Point,,,]",
    ":",
    "a",
    "[",
    "]",
    ",",
    "list[",
    "list]",
    "list[]]",
    "list[]x",
    "list[][]",
    "[" * 3000,
    "]" * 3000,
    "list[" * 700 + "]" * 700,
    "list[" * 2_000_000,
    "x" * 10_000_000,
    "a." * 1000 + ":" + "b." * 900,
    "\0:\ud800",
]


@pytest.mark.parametrize("name", HARM, ids=lambda name: ascii(name[:30]))
def test_a_hostile_type_name_is_refused(name: str) -> None:
    before = set(sys.modules)

    with pytest.raises(SerializationError) as caught:
        unpack(forge(name))

    assert len(str(caught.value)) < 500
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "data",
    [
        forge(None),
        forge(["list"]),
        forge("", version=2),
        forge("", version="1"),
        forge("", b"[" * 100_000),
        forge("", b"\xff"),
        forge("", b""),
        forge(f"{HERE}:Point", b'{"x": "one"}'),
        forge(f"{HERE}:Colour", b'"blue"'),
        forge(f"{HERE}:Record", b"[]"),
    ],
)
def test_a_forged_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        unpack(data)


def test_a_forged_type_name_of_plain_data_stays_plain_data() -> None:
    assert unpack(forge(f"{HERE}:Point", b'{"x":1}'))[0] == Point(1)


# ── scripts ─────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """
import sys
from dataclasses import dataclass
from multiprocessing import get_context

from weakincentives.runtime.mailbox.core.envelope import pack, unpack

@dataclass
class Question:
    text: str

def packed():
    return pack([Question("why?")])

if __name__ == "__main__":
    if sys.argv[1] == "write":
        sys.stdout.buffer.write(packed())
    elif sys.argv[1] == "spawn":
        with get_context("spawn").Pool(1) as pool:
            assert unpack(pool.apply(packed))[0] == [Question("why?")]
            assert pool.apply(unpack, (packed(),))[0] == [Question("why?")]
    else:
        assert unpack(sys.stdin.buffer.read())[0] == [Question("why?")]
"""
IMPORTER = """
import sys
from importlib import import_module

from weakincentives.runtime.mailbox.core.envelope import unpack

qa = import_module(sys.argv[1])
if sys.argv[2] == "write":
    sys.stdout.buffer.write(qa.packed())
else:
    assert unpack(sys.stdin.buffer.read())[0] == [qa.Question("why?")]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kit").mkdir()
    for file in ("qa.py", "kit/qa.py", "kit/__main__.py"):
        (tmp_path / file).write_text(SCRIPT)
    (tmp_path / "importer.py").write_text(IMPORTER)
    return tmp_path


def run(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize(
    ("start", "module"),
    [
        (("qa.py",), "qa"),
        (("-m", "qa"), "qa"),
        (("-m", "kit.qa"), "kit.qa"),
        (("-m", "kit"), "kit.__main__"),
    ],
    ids=" ".join,
)
def test_a_scripts_class_is_the_same_where_the_script_is_imported(
    folder: Path, start: tuple[str, ...], module: str
) -> None:
    from_script = run(folder, *start, "write")
    from_importer = run(folder, "importer.py", module, "write")

    assert from_script == from_importer
    run(folder, "importer.py", module, "read", data=from_script)
    run(folder, *start, "read", data=from_importer)


def test_a_scripts_class_is_the_same_in_a_spawned_process(folder: Path) -> None:
    run(folder, "qa.py", "spawn")


def test_a_receiver_may_use_other_type_arguments_than_the_sender() -> None:
    """Read results as plain data, as a collector that cannot import the agent's classes."""
    name = f"{class_name(Sample)}[no.such.module:Input,]"

    assert type_for(name, Sample[Any, Any]) == Sample[Any, Any]
    with pytest.raises(SerializationError, match=r"no\.such\.module:Input"):
        type_for(name, Sample)
