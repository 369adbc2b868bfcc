"""Replies as typed values: exactly one JSON value may fit, and only that is returned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from weakincentives.errors import OutputParseError, PromptError, WinkError
from weakincentives.prompt import output_schema, parse_output


@dataclass(frozen=True)
class Point:
    x: int
    label: str = ""


@dataclass(frozen=True)
class Tree:
    """A point with points below it."""

    point: Point
    kind: Literal["leaf", "node"]
    below: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise KeyError(self.n)


class Reply(TypedDict):
    answer: str
    note: NotRequired[str]


class PydanticLike:
    """A class with the methods of a pydantic model that we use."""

    def __init__(self, x: int) -> None:
        self.x = x

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": {"type": "integer"}}}

    @classmethod
    def model_validate(cls, data: dict[str, Any]) -> PydanticLike:
        return cls(data["x"])


TREE = '{"point": {"x": 1}, "kind": "leaf"}'


@given(text=our.texts)
@pytest.mark.parametrize("wanted", [str, Any, None])
def test_plain_text_is_the_reply_itself(wanted: Any, text: str) -> None:
    assert parse_output(text, wanted) == text


@pytest.mark.parametrize(
    "reply",
    [
        '{"x": 1}',
        ' \n{"x": 1, "label": ""}\n ',
        '```json\n{"x": 1}\n```',
        'Sure!\n ```JSON \r\n{"x":\n1}\r\n ``` \nBye {"x": 2}',
        'Sure! ```{"x": 1}```',
        '```\n{"x": 1}\n```',
        '```json\n{"x": 1}',
        'It is {"x": 1}, see [1] and [the notes].',
        'The set {a, b} [of two: {"x": 1}',
        '{"y": 1} is wrong, {"x": 1} is right',
        '```json\n{"y": 1}\n```\n```json\n{"x": 1}\n```',
    ],
)
def test_a_value_is_found_in_a_reply(reply: str) -> None:
    assert parse_output(reply, Point) == Point(1)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("", "got no JSON - in ''"),
        ("I cannot.", "got no JSON - in 'I cannot.'"),
        ('{"x": "1"}', "got expected `int`, got `str` - at `$.x` - in"),
        ("{}", "got object missing required field `x`"),
        ("null", "got expected `object`, got `null`"),
        ('{"x": 1, "y": 2}', "no other keys than `x`, `label`, got `y` - at `$`"),
        ('{"x": 1} or {"x": 2}', "got 2 that fit"),
        ('```json\n{"x": 1}\n```\n```json\n{"x": 1}\n```', "got 2 that fit"),
        ('```json\n{"y": 1}\n```\n{"x": 1}', "got object missing required field `x`"),
        ('{"a": {"x": 1}, "b": oops}', "got broken JSON"),
        ('[{"x": 1}, {"x": 2', "got broken JSON"),
        ('Well, {"x": 1} but {"x', "got broken JSON"),
        ("no: " + "[" * 100_000, "got broken JSON"),
        ('no: {"x": ' + "1" * 5000 + "}", "got broken JSON"),
        ("x" * 1000, "xxx…"),
    ],
)
def test_a_reply_without_exactly_one_value_is_an_error(reply: str, message: str) -> None:
    with pytest.raises(OutputParseError) as caught:
        parse_output(reply, Point)

    assert "expected one JSON value for `Point` in the reply, got " in str(caught.value)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    assert isinstance(caught.value, WinkError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("reply", "wanted", "value"),
    [
        ('[{"x": 1}]', list[Point], [Point(1)]),
        ("Both: [1, 2]", tuple[int, int], (1, 2)),
        ('{"answer": "a"}', Reply, {"answer": "a"}),
        ('{"1": {"x": 1}}', dict[int, Point], {1: Point(1)}),
        ("42", int, 42),
        ('```json\n"yes"\n```', Literal["yes", "no"], "yes"),
        ('"a/b"', Path, Path("a/b")),
        ('{"x": {"deep": [1]}}', dict[str, Any], {"x": {"deep": [1]}}),
        (f'{{"point": {{"x": 2}}, "kind": "node", "below": [{TREE}]}}', Tree,
         Tree(Point(2), "node", (Tree(Point(1), "leaf"),))),
    ],
)  # fmt: skip
def test_many_types_can_be_an_output(reply: str, wanted: Any, value: Any) -> None:
    assert parse_output(reply, wanted) == value


@pytest.mark.parametrize(
    ("reply", "wanted", "message"),
    [
        ('{"answer": "a", "z": 1}', Reply, "other keys than `answer`, got `z` - at `$`"),
        ('[{"x": 1, "y": 2}]', list[Point], r"got `y` - at `$[0]`"),
        ('{"1": {"x": 1, "y": 2}}', dict[int, Point], "got `y` - at `$.1`"),
        ('{"point": {"x": 1, "y": 2}, "kind": "leaf"}', Tree, "got `y` - at `$.point`"),
        ('{"n": 0}', Positive, "expected a valid `Positive`, got KeyError: 0"),
        ("[1]", list[Point], "for `list[tests.prompt.test_output.Point]`"),
    ],
)
def test_nothing_is_coerced_or_dropped_at_any_depth(reply: str, wanted: Any, message: str) -> None:
    with pytest.raises(OutputParseError) as caught:
        parse_output(reply, wanted)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "wanted", "key"),
    [
        ('{"x": 1, "x": 2}', Point, "x"),
        ('{"x": 1, "x": 1}', Point, "x"),
        (r'{"x": 1, "\u0078": 2}', Point, "x"),
        ('```json\n{"x": 1, "x": 2}\n```', Point, "x"),
        ('It is {"x": 1, "x": 2}.', Point, "x"),
        ('{"x": 1, "x": 2}, I mean {"x": 3}', Point, "x"),
        ('[{"x": 1}, {"x": 2, "label": "a", "label": "b"}]', list[Point], "label"),
        ('{"point": {"x": 1, "x": 2}, "kind": "leaf"}', Tree, "x"),
        ('{"a": [{"b": {"c": 1, "c": 2}}]}', dict[str, Any], "c"),
        (r'{"x": 1, "label": "\ud800", "label": ""}', Point, "label"),
        ('{"x": 1, "x": 2}', PydanticLike, "x"),
    ],
)
def test_an_object_with_a_duplicate_key_is_refused(reply: str, wanted: Any, key: str) -> None:
    message = f"got an object that has the key '{key}' 2 times - in"
    with pytest.raises(OutputParseError, match=message):
        parse_output(reply, wanted)


def test_the_same_key_in_several_objects_is_allowed() -> None:
    reply = '{"point": {"x": 1}, "kind": "node", "below": [' + f"{TREE}, {TREE}" + "]}"

    assert len(parse_output(reply, Tree).below) == 2


@pytest.mark.parametrize("depth", [10, 300, 600, 900, 1200, 100_000], ids=str)
def test_deep_nesting_does_not_crash(depth: int) -> None:
    reply = '{"a": ' + "[" * depth + "]" * depth + "}"

    try:
        assert list(parse_output(reply, dict[str, Any])) == ["a"]
    except OutputParseError:
        assert depth >= 300


def test_the_validation_rules_of_a_model_apply() -> None:
    assert parse_output('{"x": 1, "y": 2}', PydanticLike).x == 1
    schema = output_schema(PydanticLike)
    assert schema is not None
    assert schema["properties"] == {"x": {"type": "integer"}}


def is_point(value: Any) -> bool:
    return type(value) is Point and type(value.x) is int and type(value.label) is str


point_like = st.fixed_dictionaries(
    {}, optional={"x": our.json_values, "label": our.json_values, "y": our.json_values}
)
candidates = (point_like | our.json_values | st.lists(point_like, max_size=2)).map(json.dumps)
prose = our.texts | st.sampled_from(["```json\n", "\n```", "\n```\n", "{", "[", '{"', "}", "]"])


@given(pieces=st.lists(candidates | prose, max_size=5))
@pytest.mark.parametrize("wanted", [Point, list[Point]])
def test_a_parsed_value_always_has_the_type(wanted: Any, pieces: list[str]) -> None:
    try:
        value = parse_output("".join(pieces), wanted)
    except OutputParseError:
        return

    assert is_point(value) if wanted is Point else all(map(is_point, value))


@given(
    x=st.integers(-(2**63), 2**63), label=our.texts, before=st.text("ab ,."), fenced=st.booleans()
)
def test_a_value_is_found_in_any_prose(x: int, label: str, before: str, fenced: bool) -> None:
    data = json.dumps({"x": x, "label": label})
    reply = f"{before}\n```json\n{data}\n```" if fenced else before + data

    assert parse_output(reply, Point) == Point(x, label)


def test_a_schema_has_the_object_at_its_top_and_lists_every_key() -> None:
    assert output_schema(Point) == {
        "title": "Point",
        "type": "object",
        "properties": {"x": {"type": "integer"}, "label": {"type": "string", "default": ""}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert output_schema(str) is None
    assert output_schema(Path) == {"type": "string"}


def test_a_recursive_schema_keeps_its_name() -> None:
    schema = output_schema(Tree)

    assert schema is not None
    assert (schema["type"], schema["description"]) == ("object", "A point with points below it.")
    assert set(schema["$defs"]) == {"Tree", "Point"}
    assert schema["$defs"]["Point"]["additionalProperties"] is False


def test_a_schema_is_closed_inside_lists_and_choices_and_open_where_any_key_goes() -> None:
    schema = output_schema(dict[str, list[tuple[Point, int] | None]])

    assert schema is not None
    assert schema["additionalProperties"]["items"]["anyOf"][1] == {"type": "null"}
    assert schema["$defs"]["Point"]["additionalProperties"] is False
    assert output_schema(dict[str, Any]) == {"type": "object"}


@pytest.mark.parametrize("wanted", [object, complex, "Point", 5, list[object]])
def test_a_type_without_a_schema_is_refused(wanted: Any) -> None:
    with pytest.raises(PromptError, match="expected a type that JSON can fill"):
        output_schema(wanted)
