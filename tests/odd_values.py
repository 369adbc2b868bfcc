"""Values of many types, as agents and evaluators do return them."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import numpy

__all__ = ["ODD", "Hostile", "Kind", "Text"]


class Text(str):
    """A subclass of `str`, like Markup of MarkupSafe or NavigableString of BeautifulSoup."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Whole(int):
    pass


class Real(float):
    pass


class Data(bytes):
    pass


class Items(list[Any]):
    pass


class Fields(dict[str, Any]):
    pass


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Kind(Enum):
    STOP = "stop"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    A = "a"


class Share(Enum):
    HALF = 0.5


class Bits(Flag):
    A = 1
    B = 2


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Answer:
    text: str


@dataclass
class Holder:
    what: Any


class Hostile:
    """Raises on any access."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("do not touch")

    __str__ = __repr__ = __eq__ = __bool__ = __float__ = __index__ = __len__ = __int__ = _refuse
    __hash__ = object.__hash__


class Pretender:
    """Has every attribute, like a mock."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self


def _cyclic() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def _deep(depth: int) -> list[Any]:
    items: list[Any] = []
    for _ in range(depth):
        items = [items]
    return items


ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "bool": lambda: True,
    "int": lambda: 3,
    "big int": lambda: 2**70,
    "huge int": lambda: 10**5000,
    "negative": lambda: -1,
    "float": lambda: 0.25,
    "nan": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("0.0125"),
    "Decimal nan": lambda: Decimal("sNaN"),
    "Fraction": lambda: Fraction(1, 3),
    "numpy float": lambda: numpy.float32(0.5),
    "numpy int": lambda: numpy.int64(4),
    "numpy bool": lambda: numpy.bool_(True),
    "numpy text": lambda: numpy.str_("x"),
    "numpy array": lambda: numpy.array([1, 2]),
    "numpy nan": lambda: numpy.array([math.nan]),
    "numpy date": lambda: numpy.datetime64("2020-01-01"),
    "text": lambda: "text",
    "empty": lambda: "",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "str subclass": lambda: Text("a"),
    "int subclass": lambda: Whole(3),
    "float subclass": lambda: Real(0.5),
    "bytes subclass": lambda: Data(b"x"),
    "list subclass": lambda: Items([Text("a")]),
    "dict subclass": lambda: Fields(a=Whole(1)),
    "tuple subclass": lambda: Pair((1, 2)),
    "Enum": lambda: Kind.STOP,
    "IntEnum": lambda: Level.HIGH,
    "StrEnum": lambda: Word.A,
    "float Enum": lambda: Share.HALF,
    "Flag": lambda: Bits.A | Bits.B,
    "bytes": lambda: b"bytes",
    "bytearray": lambda: bytearray(b"1"),
    "memoryview": lambda: memoryview(b"1"),
    "list": lambda: [1, "a", None],
    "dict": lambda: {"why": "so"},
    "dict of int keys": lambda: {1: "a"},
    "dict of tuple keys": lambda: {(1, 2): "a"},
    "dict of None": lambda: {None: 1},
    "dict with a text subclass": lambda: {Text("k"): Text("v")},
    "dict with nan": lambda: {"a": math.nan},
    "dict with an object": lambda: {"a": object(), "b": 1},
    "tuple": lambda: (1, 2),
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset([1]),
    "OrderedDict": lambda: OrderedDict(a=1),
    "Counter": lambda: Counter("aab"),
    "defaultdict": lambda: defaultdict(list, a=[1]),
    "deque": lambda: deque([1]),
    "mapping proxy": lambda: MappingProxyType({"a": 1}),
    "UserDict": lambda: UserDict(a=1),
    "UserList": lambda: UserList([1]),
    "UserString": lambda: UserString("x"),
    "named tuple": lambda: Place(1, 2),
    "dataclass": lambda: Answer("x"),
    "dataclass of another type": lambda: Answer(3),  # type: ignore[arg-type]
    "dataclass with an object": lambda: Holder(object()),
    "namespace": lambda: SimpleNamespace(a=1),
    "datetime": lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "date": lambda: date(2026, 1, 2),
    "time": lambda: time(3, 4),
    "timedelta": lambda: timedelta(seconds=3),
    "UUID": lambda: UUID(int=1),
    "path": lambda: PurePosixPath("a/b"),
    "range": lambda: range(3),
    "generator": lambda: (each for each in [1]),
    "exception": lambda: ValueError("the answer is no number"),
    "exception without a message": KeyError,
    "class": lambda: ValueError,
    "function": lambda: len,
    "object": object,
    "Ellipsis": lambda: ...,
    "cyclic": _cyclic,
    "nested deeply": lambda: _deep(100_000),
    "hostile": Hostile,
    "pretender": Pretender,
}
"""Functions that make each value, by its description; some values can be used only once."""
