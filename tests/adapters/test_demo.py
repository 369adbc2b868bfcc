"""The simulated model: it says that it is simulated, is deterministic, and does what it claims."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Meta

from tests.processes import outputs_by_hash_seed
from weakincentives import ChatMessage, Session
from weakincentives.adapters import ModelRequest, ModelSettings
from weakincentives.adapters.demo import DemoAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import EvalContext, Sample, llm_judge
from weakincentives.evals.judges import RATING_VALUES, Scale
from weakincentives.evals.judges.pairwise import pairwise_judge
from weakincentives.evals.judges.rubric import llm_rubric
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.runtime import ToolInvoked


def prompt(question: str, wanted: Any = str, *tools: Tool[Any, Any]) -> Prompt[Any]:
    section = MarkdownSection("Question", "$question", "q", tools=tools)
    template = PromptTemplate(ns="tests", key="qa", sections=[section], output_type=wanted)
    return template.bind(question=question)


def answer(question: str, model: str = "large", *, seed: int = 0, epoch: int = 1) -> str:
    adapter: DemoAdapter[str] = DemoAdapter(model, settings=ModelSettings(seed=seed))
    return adapter.evaluate(prompt(question), epoch=epoch).output


def most_common(ask: Callable[[DemoAdapter[Any]], Any]) -> Any:
    """Return the most frequent answer of nine large models: each of them makes mistakes."""
    answers = [ask(DemoAdapter(settings=ModelSettings(seed=seed))) for seed in range(9)]
    return max(answers, key=answers.count)


def right(question: str) -> str:
    return str(most_common(lambda adapter: adapter.evaluate(prompt(question)).output))


# --- that it is simulated ----------------------------------------------------------------------


def test_its_answers_say_that_they_are_simulated() -> None:
    adapter: DemoAdapter[str] = DemoAdapter("small")
    response = adapter.evaluate(prompt("What is the meaning of life?"))

    assert (adapter.name, adapter.model) == ("demo", "small")
    assert response.model == "demo/small (simulated)"
    assert "simulated" in response.output
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (8, 14)
    assert (response.finish_reason, response.cost) == ("stop", None)


@pytest.mark.parametrize(("models", "warnings"), [((), 0), (("large", "small", "large"), 1)])
def test_a_process_is_warned_once_when_it_asks(models: tuple[str, ...], warnings: int) -> None:
    code = f"""
from weakincentives.adapters.demo import DemoAdapter
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
adapters = {{name: DemoAdapter(name) for name in ("large", "small")}}
section = MarkdownSection(title="Q", template="2 + 2?", key="q")
prompt = Prompt(PromptTemplate(ns="n", key="k", sections=[section]))
for name in {models}:
    adapters[name].evaluate(prompt)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert process.stderr.count("answers are simulated") == warnings


@pytest.mark.parametrize("wrong", ["huge", "demo/large", "", None, ["large"]])
def test_an_unknown_model_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected `large` or `small` as a model of `demo`, got"):
        DemoAdapter(wrong)


# --- the same everywhere, and not always right ---------------------------------------------------


def test_an_answer_is_the_same_in_every_process() -> None:
    code = """
import anyio, logging
from weakincentives import ChatMessage
from weakincentives.adapters import ModelRequest
from weakincentives.adapters.demo import DemoAdapter

logging.disable()
schema = {"type": "object", "properties": {"label": {"enum": ["a", "b", "c"]}}}
for n in range(20):
    messages = (ChatMessage("user", f"What is {n} * 7?"),)
    for wanted in (None, schema):
        request = ModelRequest(model="small", messages=messages, output_schema=wanted)
        print(anyio.run(DemoAdapter("small").ask, request))
"""
    assert len(outputs_by_hash_seed(code)) == 1


def test_the_large_model_is_better_than_the_small_one() -> None:
    def wrong(model: str) -> int:
        return sum(answer(f"What is {n} * 7?", model) != str(n * 7) for n in range(200))

    assert 2 <= wrong("large") <= 20
    assert 55 <= wrong("small") <= 85


def test_another_epoch_or_seed_may_get_another_answer() -> None:
    question = "What is 15 * 7?"

    assert len({answer(question, "small", epoch=epoch) for epoch in range(1, 30)}) > 2
    assert len({answer(question, "small", seed=seed) for seed in range(30)}) > 2


def test_a_wrong_answer_is_of_the_right_kind() -> None:
    answers = {answer("Capital of France?", "small", seed=seed) for seed in range(40)}

    assert {"Paris"} < answers
    assert not any(city.isnumeric() or "simulated" in city for city in answers)


# --- what it knows -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is 15 * 7?", "105"),
        ("What is 2 plus 2?", "4"),
        ("What is 3 x 4?", "12"),
        ("10 divided by 4", "2.5"),
        ("What is (2 + 3) * 4 - 1,000?", "-980"),
        ("0.1 + 0.2", "0.3"),
        ("What is -(2 - 5)?", "3"),
        ("What is 1 / 0?", "undefined"),
        ("Example: 1 + 1 = 2. What is 6 * 7? Answer in 1-2 words.", "42"),
        ("Capital of France?", "Paris"),
        ("What is the capital of the United Kingdom? Answer in 1-2 words.", "London"),
    ],
)
def test_it_answers_what_it_knows(question: str, expected: str) -> None:
    assert right(question) == expected


@pytest.mark.parametrize(
    "question", ["", "Who are you?", "On 2024-01-15?", "2 (3)", "2 ** 9", "9" * 200 + " + 1"]
)
def test_it_says_when_it_does_not_know(question: str) -> None:
    assert "simulated" in right(question)


@given(st.text("0123456789+-*/(). ", max_size=60))
def test_no_arithmetic_can_break_it(text: str) -> None:
    assert answer(text)


@given(a=st.integers(0, 10**9), b=st.integers(1, 10**9), sign=st.sampled_from("+-*/"))
def test_its_arithmetic_is_exact(a: int, b: int, sign: str) -> None:
    result = float(right(f"What is {a} {sign} {b}?"))

    assert result == pytest.approx(
        {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign], rel=1e-13
    )


# --- tools ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    expression: str
    digits: int
    unit: str | None = None


def calculator(result: Any = "105") -> Tool[Any, Any]:
    return Tool("calculator", "Works out a sum.", lambda params: result, params_type=Sum)


@pytest.mark.anyio
@pytest.mark.parametrize("result", ["105", 105, {"expression": "15 * 7", "value": 105}])
async def test_it_calls_a_calculator_and_says_its_result(result: Any) -> None:
    session = Session()
    question_prompt = prompt("What is 15 * 7?", str, calculator(result))
    response = await DemoAdapter[str]().evaluate_async(question_prompt, session=session)

    (call,) = session[ToolInvoked].all()
    assert call.success
    assert (call.name, call.params["expression"]) == ("calculator", "15 * 7")
    assert response.output == "105"


def test_the_result_of_a_tool_is_repeated_even_if_it_is_wrong() -> None:
    question_prompt = prompt("What is 15 * 7?", str, calculator("no idea"))
    outputs = {
        DemoAdapter[str]("small").evaluate(question_prompt, epoch=epoch).output
        for epoch in range(30)
    }

    assert "no idea" in outputs
    assert "105" not in outputs


def test_a_tool_that_cannot_help_is_not_called() -> None:
    query = make_dataclass("Query", [("query", str)])
    search = Tool("search", "Finds pages.", lambda params: "page 1", params_type=query)

    def used(question: str, tool: Tool[Any, Any]) -> int:
        session = Session()
        for epoch in range(9):
            DemoAdapter[str]().evaluate(prompt(question, str, tool), session=session, epoch=epoch)
        return len(session[ToolInvoked].all())

    assert used("What is 15 * 7?", calculator()) > 0
    assert used("What is 15 * 7?", search) == 0
    assert used("Capital of Peru in 1-2 words?", calculator()) == 0


# --- structured output ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    reasoning: str
    answer: str
    confidence: Annotated[float, Meta(ge=0, le=1)]
    sources: list[str] = field(default_factory=list)
    note: str | None = None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Tree:
    value: int
    kids: list[Tree] = field(default_factory=list)
    next: Tree | None = None


class Leaf(msgspec.Struct, tag=True):
    a: Point
    b: Point
    c: Colour


class Branch(msgspec.Struct, tag=True):
    left: Branch | Leaf
    right: Branch | Leaf


def test_fields_that_are_like_an_answer_get_it() -> None:
    output = DemoAdapter[Answer]().evaluate(prompt("What is 15 * 7?", Answer)).output

    assert (output.answer, output.sources, output.note) == ("105", ["105"], "105")
    assert output.reasoning == "This reason is simulated."
    assert 0 <= output.confidence <= 1


@pytest.mark.parametrize(
    ("wanted", "question", "expected"),
    [
        (int, "What is 15 * 7?", 105),
        (float, "What is 1 / 8?", 0.125),
        (Annotated[int, Meta(le=100)], "What is 15 * 7?", 100),
        (list[str], "Capital of France?", ["Paris"]),
        (Literal["Oslo", "Paris", "Rome"], "Capital of France?", "Paris"),
    ],
)
def test_an_answer_takes_the_form_asked_for(wanted: Any, question: str, expected: Any) -> None:
    assert most_common(lambda each: each.evaluate(prompt(question, wanted)).output) == expected


@cache
def dataclass_of(*parts: Any) -> Any:
    """Return a new dataclass with these fields; msgspec needs a distinct name for each."""
    fields = [(f"f{n}", each) for n, each in enumerate(parts)]
    return make_dataclass(f"Made{next(NUMBERS)}", fields)


NUMBERS = count()


plain_types = st.sampled_from(
    [
        *(str, int, float, bool, bytes, Any, None, Decimal, date, timedelta, UUID),
        *(Colour, Point, Tree, Answer, Branch | Leaf, Literal["a", 1, None]),
        *(dict[str, int], dict[int, Point], dict[Colour, bool], set[Colour], frozenset[int]),
        *(Annotated[int, Meta(gt=3, lt=5)], Annotated[float, Meta(gt=0, lt=0.001)]),
        *(Annotated[int, Meta(le=-7)], Annotated[float, Meta(ge=1e9)]),
        *(Annotated[str, Meta(min_length=200)], Annotated[str, Meta(max_length=2)]),
        *(Annotated[list[int], Meta(min_length=2, max_length=3)], tuple[int, str, Point]),
    ]
)
types = st.recursive(
    plain_types,
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),
        inner.map(lambda each: tuple[each, ...]),
        inner.map(lambda each: Optional[each]),  # noqa: UP045 - it may be None
        inner.map(lambda each: Annotated[list[each], Meta(max_length=0)]),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: dataclass_of(*parts)),
    ),
    max_leaves=6,
)
questions = st.sampled_from(["What is 15 * 7?", "What is 1 / 8?", "Capital of Peru?", "Why?"])


@given(wanted=types, question=questions, model=st.sampled_from(["large", "small"]))
def test_an_answer_has_the_requested_type(wanted: Any, question: str, model: str) -> None:
    DemoAdapter[Any](model).evaluate(prompt(question, wanted))  # raises unless it parses


# --- the judge -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "label"),
    [
        ("Paris", "Paris", "excellent"),
        ("It is Paris.", "Paris", "good"),
        ("Rome", "Paris", "wrong"),
        ("-5", "5", "wrong"),
        (4, 4, "excellent"),
        ("the red one", "the red car", "poor"),
    ],
)
def test_a_judge_compares_with_the_reference(output: Any, expected: Any, label: str) -> None:
    score = most_common(lambda adapter: llm_judge(adapter, "correctness")(output, expected))

    assert score.value == RATING_VALUES[label]  # type: ignore[index]
    assert score.reason == "This reason is simulated."


def test_a_judge_without_a_reference_answers_the_question_itself() -> None:
    def rated(output: str) -> float:
        sample = Sample("1", {"text": "What is 6 * 7?"})
        judge = most_common(
            lambda each: llm_judge(each, "Right?")(sample, output, context=EvalContext())
        )
        return float(judge[0].value)

    assert (rated("42"), rated("43")) == (1.0, 0.0)


@pytest.mark.parametrize(
    "values",
    [{"correct": 1, "incorrect": 0}, {"no": 0, "yes": 1}, {"bad": 0, "good": 1}, {"z": 1, "a": 0}],
)
def test_a_judge_knows_which_label_is_best(values: dict[str, float]) -> None:
    scale = Scale(values, frozenset())

    def rated(output: str) -> float:
        judge = most_common(
            lambda each: llm_judge(each, "correctness", scale=scale)(output, "Paris")
        )
        return float(judge.value)

    assert (rated("Paris"), rated("Rome")) == (1.0, 0.0)


def test_rubrics_and_pairs_are_judged_too() -> None:
    rubric = {"right": "Is it right?", "kind": "Is it kind?"}
    sample = Sample("1", "Capital of France?", "Paris")

    assert most_common(lambda each: llm_rubric(each, rubric)("Paris", "Paris")).value == 1.0
    pairs = [("Paris", "Rome"), ("Rome", "It is Paris"), ("Rome", "Oslo")]
    verdicts = [
        most_common(lambda each, p=p: pairwise_judge(each, "Right?")(sample, *p)) for p in pairs
    ]
    assert [each.winner for each in verdicts] == ["first", "second", "tie"]


def test_the_small_judge_is_worse() -> None:
    def agreed(model: str) -> int:
        judge = llm_judge(DemoAdapter(model), "correctness")
        return sum(judge(str(n), str(n)).passed for n in range(100))

    assert agreed("large") > 85 > 75 > agreed("small") > 50


def test_a_custom_judge_may_ask_for_a_bool() -> None:
    def is_right(output: str) -> bool:
        judge_prompt = prompt(f"Is it right?\nOutput: {output}\nExpected: Paris", bool)
        return bool(most_common(lambda each: each.evaluate(judge_prompt).output))

    assert is_right("Paris")
    assert not is_right("Rome")


@pytest.mark.anyio
async def test_it_accepts_any_request() -> None:
    system = ChatMessage("system", "What is 2 + 3?")
    requests = [
        ModelRequest(model="any", messages=()),
        ModelRequest(model="any", messages=(system,)),
        ModelRequest(model="any", messages=(ChatMessage("user", "\ud800 Capital of Peru?"),)),
        ModelRequest(model="any", messages=(system, ChatMessage("user", "Thanks"))),
    ]
    replies = [await DemoAdapter[Any]().ask(request) for request in requests]

    texts = [reply.message.content for reply in replies]
    assert texts[1:3] == ["5", "Lima"]
    assert "simulated" in texts[0]
    assert "simulated" in texts[3]
    assert {reply.model for reply in replies} == {"demo/large (simulated)"}
