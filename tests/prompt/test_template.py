"""Templates and prompts: binding, rendering, and the errors of both."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any, Generic, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import pytest

from tests.processes import outputs_by_hash_seed
from weakincentives.errors import PromptError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, Tool

T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    question: str


@dataclass(frozen=True)
class Style:
    tone: str = "dry"
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Picky:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise KeyError(self.size)


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


class Reply(TypedDict):
    answer: str


def template(*sections: MarkdownSection[Any], **more: Any) -> PromptTemplate[Any]:
    return PromptTemplate(ns="n", key="k", sections=sections, **more)


def tool(name: str) -> Tool[Any, Any]:
    return Tool(name, "Does it.", lambda: None)


ASK = MarkdownSection[Question]("Ask", "Answer: $question", "ask")
STYLE = MarkdownSection[Style]("Style", "Be $tone. Say $words.", "style")


@pytest.mark.parametrize("cls", [PromptTemplate, PromptTemplate[str], PromptTemplate[Any]])
def test_plain_text_is_an_output_like_any_other(cls: Any) -> None:
    assert (cls(ns="n", key="k").output_type, cls(ns="n", key="k").output_schema) == (str, None)


@pytest.mark.parametrize("wanted", [Question, list[Question], Reply, int, Question | None])
def test_the_subscript_is_the_output_type(wanted: Any) -> None:
    created = PromptTemplate[wanted](ns="n", key="k")

    assert created.output_type == wanted
    assert created.output_schema
    assert created == PromptTemplate(ns="n", key="k", output_type=wanted)
    assert replace(created, key="other").output_type == wanted


def test_the_subscripted_class_works_in_annotations() -> None:
    class Loop:
        one: PromptTemplate[int] | None
        two: MarkdownSection[T]

    assert get_origin(PromptTemplate[int]) is PromptTemplate
    assert get_args(PromptTemplate[int]) == (int,)
    assert get_args(get_type_hints(Loop)["one"]) == (PromptTemplate[int], type(None))
    assert PromptTemplate[T][Question](ns="n", key="k").output_type is Question
    assert PromptTemplate[T](ns="n", key="k").output_type is str
    with pytest.raises(TypeError, match="Too many"):
        PromptTemplate[int, str]


def test_two_output_types_are_refused() -> None:
    with pytest.raises(PromptError, match=r"`PromptTemplate\[int\]` with `output_type=<class 'f"):
        PromptTemplate[int](ns="n", key="k", output_type=float)


@pytest.mark.parametrize("wanted", [object, "Question", 5])
def test_an_output_that_json_cannot_fill_is_refused_at_construction(wanted: Any) -> None:
    with pytest.raises(PromptError, match=r"type that JSON can fill.* for template `n/k`"):
        PromptTemplate(ns="n", key="k", output_type=wanted)


def test_sections_of_one_role_become_one_message() -> None:
    inner = MarkdownSection("Inner", "c", "inner", children=[MarkdownSection("", "d", "deep")])
    rendered = (
        template(
            MarkdownSection("Rules", "a", "rules", role="system", children=[inner]),
            MarkdownSection("", "b", "plain"),
            MarkdownSection("End", "", "end"),
        )
        .bind()
        .render()
    )

    assert [(m.role, m.content) for m in rendered.messages] == [
        ("system", "## Rules\n\na\n\n### Inner\n\nc\n\nd"),
        ("user", "b\n\n## End"),
    ]
    assert rendered.text == "\n\n".join(m.content for m in rendered.messages)


def test_headings_stop_at_six() -> None:
    section = MarkdownSection("T", "", "s")
    for _ in range(6):
        section = MarkdownSection("T", "", "s", children=(section,))

    lines = template(section).bind().render().text.split("\n\n")
    assert [line.count("#") for line in lines] == [2, 3, 4, 5, 6, 6, 6]


def test_a_disabled_section_disables_its_children_and_tools() -> None:
    child = MarkdownSection("Child", "$never", "child", tools=[tool("inner")])
    maybe = MarkdownSection[Question](
        "Maybe",
        "",
        "maybe",
        enabled=lambda params: params.question != "",
        children=[child],
        tools=[tool("maybe")],
    )
    prompt = Prompt(template(maybe, MarkdownSection("Last", "", "last", tools=[tool("always")])))

    rendered = prompt.bind(Question("")).render()

    assert rendered.text == "## Last"
    assert [each.name for each in rendered.tools] == ["always"]
    with pytest.raises(PromptError, match="`never`, got none - in section `maybe/child` of "):
        prompt.bind(Question("x")).render()


def test_enabled_gets_the_keywords_of_a_section_without_a_dataclass() -> None:
    section = MarkdownSection("T", "$a", "s", enabled=lambda values: values["a"] == "yes")

    assert template(section).bind(a="yes").render().text == "## T\n\nyes"
    assert template(section).bind(a="no").render().messages == ()


def test_an_enabled_that_raises_is_named() -> None:
    section = MarkdownSection("T", "", "s", enabled=lambda values: values["a"])

    with pytest.raises(PromptError, match="`enabled` raised KeyError: 'a' - in section `s`"):
        template(section).bind().render()


def test_bind_returns_a_new_prompt() -> None:
    prompt = Prompt(template(ASK, STYLE))

    bound = prompt.bind(Question("Why?")).bind(Style("wry", ["so"]))

    assert bound.render().text == '## Ask\n\nAnswer: Why?\n\n## Style\n\nBe wry. Say ["so"].'
    assert (prompt.params, prompt.name) == ((), "k")
    with pytest.raises(FrozenInstanceError):
        bound.params = ()  # type: ignore[misc]


def test_keywords_fill_the_dataclasses_too() -> None:
    bound = template(ASK, STYLE).bind(question="Why?", tone="wry")

    assert bound.render().text == "## Ask\n\nAnswer: Why?\n\n## Style\n\nBe wry. Say []."
    assert bound == template(ASK, STYLE).bind(tone="wry", question="Why?")
    assert template(ASK, STYLE).bind(Question("Why?")).render().text.endswith("Be dry. Say [].")


def test_keywords_override_the_defaults_of_a_section() -> None:
    typed = MarkdownSection[Question]("", "$question", "a", default_params=Question("Who?"))
    loose = MarkdownSection("", "$x $y", "b", default_params={"x": 1})

    assert template(typed, loose).bind(y=2).render().text == "Who?\n\n1 2"
    assert template(typed, loose).bind(y=2, x=3, question="?").render().text == "?\n\n3 2"


def test_a_generic_dataclass_can_hold_the_parameters() -> None:
    section = MarkdownSection[Box[int]]("", "$content", "a", default_params=Box(1))

    assert Prompt(template(section)).bind(Box(2)).render().text == "2"
    assert template(section).bind().render().text == "1"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            lambda: template(ASK).bind(),
            r"value for `question`, got none - in section `ask` of template `n/k`; bind\(Question",
        ),
        (
            lambda: Prompt(template(ASK)).render(),
            "value for `question`, got none - in section `ask` of template `n/k`",
        ),
        (
            lambda: template(MarkdownSection("", "$a $b", "x")).bind(a=1),
            r"value for `b`, got none - in section `x` of template `n/k`; template.bind\(b=...\)",
        ),
        (
            lambda: template(ASK, MarkdownSection("", "", "x")).bind(qestion=""),
            "template `n/k`, got `qestion` - section `ask` takes question; section `x` takes none",
        ),
        (
            lambda: Prompt(template(ASK)).bind(Question(""), question=""),
            "got `question`",
        ),
        (
            lambda: Prompt(template(ASK)).bind(Style()),
            "expected `Question`, got `Style` - no section of template `n/k` takes it",
        ),
        (lambda: Prompt(template()).bind(3), "expected nothing, got `int`"),
        (
            lambda: Prompt(template(ASK)).bind(Question("")).bind(Question("")),
            "expected one `Question`, got two - for template `n/k`",
        ),
        (
            lambda: Prompt(template(ASK)).bind(question="").bind(question=""),
            "expected one `question`, got two - for template `n/k`",
        ),
        (
            lambda: template(MarkdownSection[Picky]("", "$size", "x")).bind(size=-1),
            "expected a valid `Picky`, got KeyError: -1 - in section `x` of template `n/k`",
        ),
        (lambda: Prompt(ASK), "expected a PromptTemplate, got Markdown"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_binding_names_template_section_and_parameter(
    action: Callable[[], Any], message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        action()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            [MarkdownSection("", "", "top", children=[MarkdownSection[Question]("", "$q", "x")])],
            r"a field of `Question`, got `\$q` - in section `top/x` of template `n/k`",
        ),
        (
            [MarkdownSection[Style]("", "$tone", "x")],
            "parameter of `Style` to be used, got no use of `words` - in section `x` of template",
        ),
        (
            [MarkdownSection("", "$a", "x", default_params={"a": 1, "b": 2})],
            "of its default parameters to be used, got no use of `b` - in section `x`",
        ),
        (
            [MarkdownSection("", "$a", "x", default_params={"a": object()})],
            "a value that JSON can carry, got `object` .* for template `n/k`",
        ),
        ([ASK, ASK], "got two `ask` - in template `n/k`"),
        (["x"], r"got 'x' - at `n/k.sections\[0\]`"),
        (
            [MarkdownSection("", "", "x", tools=[tool("t"), tool("t")])],
            "tools with different names, got two `t` - in section `x`",
        ),
    ],
)
def test_a_wrong_template_is_refused_at_construction(sections: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        template(*sections)


def test_a_field_may_be_used_in_another_section_or_by_enabled() -> None:
    one = MarkdownSection[Style]("", "$tone", "one")
    two = MarkdownSection[Style]("", "$words", "two")
    asks = MarkdownSection[Style]("", "$tone", "asks", enabled=lambda style: not style.words)

    assert template(one, two).bind().render().text == "dry\n\n[]"
    assert template(asks).bind().render().text == "dry"


def test_tools_of_one_name_may_exclude_each_other() -> None:
    sections = [
        MarkdownSection("", on, on, tools=[tool("t")], enabled=enabled)
        for on, enabled in (("a", lambda _: True), ("b", lambda _: False))
    ]
    both = MarkdownSection("", "", "c", tools=[tool("t")], enabled=lambda _: True)

    assert len(template(*sections).bind().render().tools) == 1
    with pytest.raises(PromptError, match="got two `t` - in section `c` of template `n/k`"):
        template(*sections, both).bind().render()


CODE = """
from weakincentives.prompt import *
section = MarkdownSection("T", "$a", "s", tools=[Tool("t", "d", lambda: 1)])
print(PromptTemplate[dict[str, int]](ns="n", key="k", sections=[section]).descriptor)
"""


def test_the_descriptor_is_the_same_in_every_process() -> None:
    (only,) = outputs_by_hash_seed(CODE)

    assert len(only.strip()) == 64


@pytest.mark.parametrize(
    "other",
    [
        PromptTemplate(ns="n", key="other", sections=[ASK]),
        PromptTemplate(ns="n", key="k", sections=[replace(ASK, title="Other")]),
        PromptTemplate(ns="n", key="k", sections=[replace(ASK, template="$question?")]),
        PromptTemplate(ns="n", key="k", sections=[replace(ASK, role="system")]),
        PromptTemplate(ns="n", key="k", sections=[replace(ASK, tools=[tool("t")])]),
        PromptTemplate[int](ns="n", key="k", sections=[ASK]),
    ],
)
def test_the_descriptor_follows_the_content(other: PromptTemplate[Any]) -> None:
    assert other.descriptor != template(ASK).descriptor
    assert template(ASK, name="a name is no content").descriptor == template(ASK).descriptor


def test_templates_and_prompts_are_hashable_and_can_be_pickled() -> None:
    bound = PromptTemplate[Question](ns="n", key="k", sections=[ASK]).bind(Question("?"))

    assert len({bound, bound.template, ASK, bound.render()}) == 4
    rendered = pickle.loads(pickle.dumps(bound.render()))
    assert isinstance(rendered, RenderedPrompt)
    assert rendered == bound.render()
    assert PromptTemplate[int] == pickle.loads(pickle.dumps(PromptTemplate[int]))
