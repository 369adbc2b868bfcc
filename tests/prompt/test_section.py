"""Sections: how templates are parsed, and that values cannot change them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from weakincentives.errors import PromptError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.prompt.section import rendered_value


@dataclass(frozen=True)
class Two:
    first: str
    second: str


def render(template: str, **values: object) -> str:
    section = MarkdownSection("", template, "it")
    return PromptTemplate(ns="n", key="k", sections=[section]).bind(**values).render().text


@given(first=our.texts, second=our.texts | st.sampled_from(["$first", "${first}", "$$", "$"]))
def test_a_value_fills_its_slot_and_changes_no_other_byte(first: str, second: str) -> None:
    assert render("<$first|${second}|$first>", first=first, second=second) == (
        f"<{first}|{second}|{first}>"
    )
    section = MarkdownSection[Two]("T", "<$first|${second}>", "it")
    template = PromptTemplate[str](ns="n", key="k", sections=[section])
    bound = Prompt(template).bind(Two(first, second))
    assert bound.render().text == f"## T\n\n<{first}|{second}>"


@given(pieces=st.lists(st.tuples(our.texts, st.sampled_from(["a", "b1", "_c"])), max_size=5))
def test_any_text_can_stand_around_placeholders(pieces: list[tuple[str, str]]) -> None:
    template = "." + "".join(f"{text.replace('$', '$$')}${{{name}}}" for text, name in pieces) + "."
    values = {name: "$a ${b1} $$" for _, name in pieces}

    expected = "." + "".join(text + values[name] for text, name in pieces) + "."
    if not any(c in expected for c in "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
        assert render(template, **values) == expected


def test_a_template_is_dedented_and_a_value_is_not() -> None:
    template = """
        Read:
          $code
    """

    assert render(template, code="  x\n\n") == "Read:\n    x\n\n"


def test_two_dollars_escape_one() -> None:
    assert render("$$5 and $$name and $name.", name="x") == "$5 and $name and x."


@pytest.mark.parametrize("template", ["costs $5", "one\ntwo $", "${a b}", "${}", "$-"])
def test_a_lone_dollar_is_refused_with_advice(template: str) -> None:
    with pytest.raises(PromptError, match=r"`\$`.* line \d of section `it`; write `\$\$`"):
        MarkdownSection("", template, "it")


class Colour(Enum):
    RED = "red"


class Size(int, Enum):
    BIG = 3


class Level(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as is", "as is"),
        (None, ""),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (Colour.RED, "red"),
        (Size.BIG, "3"),
        (Level.ONE, "1"),
        (date(2026, 1, 2), "2026-01-02"),
        (Path("a/b"), "a/b"),
        (Two("é", "y"), '{"first":"é","second":"y"}'),
        ([1, "x"], '[1,"x"]'),
        ({"k": None}, '{"k":null}'),
    ],
)
def test_a_value_becomes_text(value: Any, text: str) -> None:
    assert rendered_value(value) == text
    assert render("<$v>", v=value) == f"<{text}>"


@pytest.mark.parametrize(
    "value", [object(), 10**5000, [float("nan")]], ids=["object", "long", "nan"]
)
def test_a_value_without_a_text_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(PromptError, match=r"`v` has no text: .* section `it` of template `n/k`"):
        render("<$v>", v=value)


@pytest.mark.parametrize("key", ["", "Upper", "-a", "a b", "a" * 65, None, "a\n"])
def test_a_bad_key_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match="got "):
        MarkdownSection("T", "x", key)
    with pytest.raises(PromptError, match="as the `ns` of a template"):
        PromptTemplate(ns=key, key="k")
    with pytest.raises(PromptError, match="as the `key` of a template"):
        PromptTemplate(ns="n", key=key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"role": "tool"}, "expected a role of"),
        ({"enabled": True}, "expected a function, got True"),
        ({"children": ["x"]}, r"got 'x' - at `it.children\[0\]`"),
        ({"tools": ["x"]}, r"got 'x' - at `it.tools\[0\]`"),
        ({"title": "a\nb"}, "a title of one line"),
        ({"params_type": int}, "expected a dataclass for the parameters of section `it`"),
        ({"default_params": 3}, "expected a mapping for `it.default_params`"),
        ({"params_type": Two, "default_params": {}}, "expected `Two` as default parameters"),
    ],
)
def test_a_wrong_section_is_refused_at_construction(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MarkdownSection(**{"title": "T", "template": "x", "key": "it", **wrong})


def test_two_children_of_one_key_are_refused() -> None:
    child = MarkdownSection("T", "x", "same")

    with pytest.raises(PromptError, match="two `same` - in section `it`"):
        MarkdownSection("T", "x", "it", children=[child, child])


def test_a_subscript_of_none_or_any_means_no_parameters() -> None:
    assert MarkdownSection[None]("T", "x", "it").params_type is None
    assert MarkdownSection[Any]("T", "x", "it").params_type is None
