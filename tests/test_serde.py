"""Values to JSON and back."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st

from weakincentives import serde
from weakincentives.errors import SerializationError
from weakincentives.evals import Dataset, EvalReport, EvalRequest, EvalResult, Metric, Sample, Score

from . import strategies as our
from .processes import outputs_by_hash_seed


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


class PydanticLike:
    """A class with the methods of a pydantic model that serde uses."""

    def __init__(self, x: int) -> None:
        self.x = x

    def model_dump(self) -> dict[str, Any]:
        return {"x": self.x}

    @classmethod
    def model_validate(cls, data: dict[str, Any]) -> PydanticLike:
        return cls(**data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PydanticLike) and self.x == other.x


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (our.metrics, Metric),
        (our.scores, Score),
        (our.samples, Sample),
        (our.messages, None),
        (our.trajectories, None),
        (our.experiments, None),
        (our.configs, None),
        (our.requests, EvalRequest),
        (our.results, EvalResult),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
@given(data=st.data())
def test_every_type_survives_json(
    values: st.SearchStrategy[Any], wanted: type[Any] | None, data: st.DataObject
) -> None:
    value = data.draw(values)

    assert serde.decode(serde.encode(value), wanted or type(value)) == value


@given(our.json_values)
def test_plain_data_comes_back_equal_and_stays_plain(value: Any) -> None:
    assert serde.decode(serde.encode(value)) == value
    assert serde.plain(value) == value


@given(st.dictionaries(our.texts, our.json_values, max_size=4))
def test_sorted_json_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    shuffled = dict(reversed(value.items()))

    assert serde.encode(value, sort=True) == serde.encode(shuffled, sort=True)


def test_typed_datasets_and_reports_decode_into_their_types() -> None:
    dataset = Dataset([Sample("1", Point(1), 2.0)], name="points")
    request = EvalRequest(dataset[0])

    assert serde.decode(serde.encode(dataset), Dataset[Point, float]) == dataset
    assert serde.decode(serde.encode(request), EvalRequest[Point, float]) == request
    assert EvalReport([]).results == ()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("a/b"), "a/b"),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Point(1), {"x": 1, "y": 0.0}),
        ((1, 2), [1, 2]),
        (Point, "tests.test_serde:Point"),
        (PydanticLike(3), {"x": 3}),
    ],
)
def test_common_output_values_become_plain_data(value: Any, plain: Any) -> None:
    assert serde.plain(value) == plain


def test_paths_come_back_as_paths() -> None:
    assert serde.decode(serde.encode([Path("a/b")]), list[Path]) == [Path("a/b")]


def test_a_type_that_does_not_resolve_is_refused() -> None:
    @dataclass
    class Unresolved:
        inner: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037

    with pytest.raises(SerializationError, match="Nowhere"):
        serde.decode(b"{}", Unresolved)


def test_pydantic_models_decode_through_their_own_validation() -> None:
    assert serde.decode(b'{"x": 3}', PydanticLike) == PydanticLike(3)
    assert serde.convert({"x": 3}, PydanticLike) == PydanticLike(3)


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Opaque(), "expected a value that JSON can carry, got `Opaque`"),
        ({"deep": [Opaque()]}, "make it a dataclass"),
        ({(1, 2): 3}, "expected a value that JSON can carry"),
    ],
)
def test_a_value_without_a_json_form_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.encode(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"got nan - at `\$`"),
        ({"p": [1.0, float("-inf")]}, r"got -inf - at `\$\.p\[1\]`"),
        ({"text": "\ud800", "p": float("inf")}, r"got inf - at `\$\.p`"),
        ({"big": 10**30, "p": float("nan")}, r"got nan - at `\$\.p`"),
        (Sample("1", (0.5, float("nan"))), r"got nan - at `\$\.input\[1\]`"),
    ],
)
def test_a_number_that_json_lacks_is_refused_and_never_becomes_null(
    value: Any, message: str
) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.encode(value)


@pytest.mark.parametrize("value", [None, [None, 1.5], {"big": 10**30, "x": None}, b"\xcb\x7f\xf8"])
def test_null_is_allowed(value: Any) -> None:
    assert serde.encode(value)


def test_endless_nesting_is_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(SerializationError):
        serde.encode(endless)
    with pytest.raises(SerializationError):
        serde.decode(b"[" * 100_000)


@dataclass(frozen=True)
class Utf8Text:
    """A user's type that refuses text without a UTF-8 form."""

    text: str

    def __post_init__(self) -> None:
        self.text.encode()


@pytest.mark.parametrize(
    ("data", "wanted", "message"),
    [
        (b'{"x": "1"}', Point, r"Expected `int`, got `str` - at `\$\.x`"),
        (b"{}", Point, "missing required field `x`"),
        (b"{", Point, "truncated"),
        (b'"\xff"', str, "utf-8"),
        (b'"\\ud800', str, "malformed|truncated"),
        (b'{"a": NaN, "b": "\\ud800"}', Any, "malformed"),
        (b'{"a": 1e999, "b": "\\ud800"}', Any, "out of range"),
        (b'{"x": "\\ud800"}', Point, "Expected `int`, got `str`"),
        (b'"\\ud800"', Literal["a"], "Invalid enum value"),
        (b'{"text": "\\ud800"}', Utf8Text, "surrogates not allowed"),
        (b"1", Opaque, "expected a type that JSON can fill, got `Opaque`"),
        (b"1", Point | list[Point] | Opaque, "expected a type that JSON can fill"),
    ],
)
def test_invalid_json_is_refused_with_its_location(data: bytes, wanted: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.decode(data, wanted)


def test_nothing_is_coerced() -> None:
    for value, wanted in [("3", int), (4, str), (True, int), (1.5, int), (None, str)]:
        with pytest.raises(SerializationError):
            serde.convert(value, wanted)


def test_an_instance_of_an_unknown_type_passes_through_convert() -> None:
    opaque = Opaque()

    assert serde.convert({"here": opaque}, dict[str, Opaque]) == {"here": opaque}


def test_keys_that_are_numbers_come_back_as_numbers_beside_a_lone_surrogate() -> None:
    value = {1: "\ud800", 2: "b"}

    assert serde.decode(serde.encode(value), dict[int, str]) == value


def test_text_decodes_like_bytes_and_keeps_lone_surrogates() -> None:
    assert serde.decode('{"x": 1}', Point) == Point(1)
    assert serde.decode(serde.encode("a\ud800b").decode()) == "a\ud800b"


def test_a_payload_that_names_a_class_stays_plain_data() -> None:
    hostile = {"__class__": "os:system", "$type": "Point", "lc": 1, "__proto__": {"x": 1}}

    assert serde.decode(serde.encode(hostile)) == hostile


def test_sorted_json_is_the_same_in_every_process() -> None:
    code = (
        "from weakincentives import serde\n"
        "print(serde.encode({'b': {'x', 'y', 'z'}, 'a': 'é'}, sort=True))\n"
        "print(serde.encode({'b': {'x', 'y', 'z'}, 'a': '\\ud800'}, sort=True))"
    )

    assert len(outputs_by_hash_seed(code)) == 1


def test_a_mock_is_refused() -> None:
    mock = Mock()
    with pytest.raises(SerializationError, match="got `Mock`"):
        serde.encode(mock)

    assert mock.mock_calls == []


READING_TYPES_IN_THREADS = """
import sys, threading
from dataclasses import make_dataclass
from weakincentives import serde

sys.setswitchinterval(1e-6)
plain = {"inner": {"number": 1}, "name": "a"}
calls = [
    lambda: serde.decode(b'{"inner": {"number": 1}, "name": "a"}', Outer),
    lambda: serde.convert(plain, Outer),
] * 2

def call_together(start, call):
    start.wait()
    assert call().name == "a"

for _ in range(100):
    Inner = make_dataclass("Inner", [("number", "int"), *[(f"i{n}", "int", 0) for n in range(10)]])
    fields = [("inner", "Inner"), ("name", "str"), *[(f"o{n}", "Inner", None) for n in range(20)]]
    Outer = make_dataclass("Outer", fields)
    Inner.__module__ = Outer.__module__ = __name__  # where their annotations are resolved
    start = threading.Barrier(len(calls))
    threads = [threading.Thread(target=call_together, args=(start, call)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_can_decode_to_a_type_that_none_has_used_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READING_TYPES_IN_THREADS], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
