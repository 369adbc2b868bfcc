"""Values in the prompt of a judge: context, metadata, messages, fields, and template slots."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from tests.evals.test_judge import ATTACKS
from tests.judging import Recording, verdict
from weakincentives import ChatMessage, MarkdownSection, PromptTemplate, ToolCall
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import EvalContext, EvalSuite, Sample, Trajectory, llm_judge
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.evals.judges import Scale, llm_rubric


@dataclass(frozen=True)
class Answer:
    answer: str
    sources: list[str]


CHAT = (
    ChatMessage("user", "Where is order 7?"),
    ChatMessage("assistant", "", (ToolCall("call_1", "get_order", {"id": 7}),)),
    ChatMessage("tool", '{"status": "sent"}', tool_call_id="call_1", name="get_order"),
    ChatMessage("assistant", "It was sent."),
)
SAMPLE = Sample("7", {"question": "Where is it?"}, "sent", {"topic": "orders", "docs": ["D1"]})
TRAJECTORY = Trajectory(
    messages=CHAT,
    output=Answer("It was sent.", ["faq"]),
    metadata={"context": ["Order 7 was sent."], "steps": 2},
)


def message_sent(sample: Any = SAMPLE, trajectory: Any = TRAJECTORY, **options: Any) -> str:
    """Return the message to a judge with these options about the attempt."""
    model = Recording(verdict("good"))
    judge = llm_judge(ScriptedAdapter(model), "Correct", **options)
    context = EvalContext(sample=sample, trajectory=trajectory)
    (score,) = judge(sample, trajectory.output, context=context)
    assert score.value == 0.75
    return model.requests[0].messages[-1].content


def slots(text: str) -> dict[str, Any]:
    """Return the JSON strings of a message by their names, decoded if they hold JSON."""
    values = {}
    for line in text.splitlines()[2:]:
        name, _, literal = line.partition(": ")
        value = json.loads(literal)
        assert isinstance(value, str)
        values[name] = json.loads(value) if value[:1] in ("[", "{") else value
    return values


def test_by_default_a_judge_sees_input_output_and_reference() -> None:
    assert slots(message_sent()) == {
        "Input": {"question": "Where is it?"},
        "Output": {"answer": "It was sent.", "sources": ["faq"]},
        "Reference answer": "sent",
    }


@pytest.mark.parametrize(
    ("sees", "title", "value"),
    [
        ("context", "Context", ["Order 7 was sent."]),
        ("metadata", "metadata", {"topic": "orders", "docs": ["D1"]}),
        ("metadata.topic", "metadata.topic", "orders"),
        ("metadata.steps", "metadata.steps", "2"),
        ("output.answer", "output.answer", "It was sent."),
        ("output.sources", "output.sources", ["faq"]),
        ("input.question", "input.question", "Where is it?"),
        ({"context": "metadata.docs"}, "Context", ["D1"]),
        ({"output": "output.answer", "n": "metadata.steps"}, "n", "2"),
        ({"turns": lambda context: len(context.trajectory.messages)}, "turns", "4"),
    ],
)
def test_sees_adds_the_named_values(sees: Any, title: str, value: Any) -> None:
    assert slots(message_sent(sees=sees))[title] == value
    assert set(slots(message_sent(sees=sees))) == {"Input", "Output", "Reference answer", title}


@pytest.mark.parametrize("name", ["messages", "transcript"])
def test_messages_have_tool_calls_and_their_results(name: str) -> None:
    assert slots(message_sent(sees=name))["Conversation"] == [
        {"role": "user", "content": "Where is order 7?"},
        {"role": "assistant", "tool_calls": [{"name": "get_order", "arguments": {"id": 7}}]},
        {"role": "tool", "name": "get_order", "content": '{"status": "sent"}'},
        {"role": "assistant", "content": "It was sent."},
    ]


def test_several_names_and_a_rubric_that_sees_them() -> None:
    model = Recording({"tone": verdict("good")})
    rubric = llm_rubric(ScriptedAdapter(model), {"tone": "Polite"}, sees=["context", "messages"])
    context = EvalContext(sample=SAMPLE, trajectory=TRAJECTORY)
    rubric(SAMPLE, TRAJECTORY.output, context=context)

    names = ["Input", "Output", "Reference answer", "Context", "Conversation"]
    assert [*slots(model.requests[0].messages[-1].content)] == names


def test_the_context_can_come_from_the_sample() -> None:
    sample = Sample("1", "?", "x", {"context": "from the dataset"})

    assert slots(message_sent(sample, Trajectory(output="x"), sees="context"))["Context"] == (
        "from the dataset"
    )
    both = Trajectory(output="x", metadata={"context": "retrieved"})
    assert slots(message_sent(sample, both, sees="context"))["Context"] == "retrieved"


def test_an_empty_context_is_a_context() -> None:
    assert 'Context: "[]"' in message_sent(
        trajectory=Trajectory(output="x", metadata={"context": []}), sees="context"
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sees", "problem"),
    [
        ("context", r"sees `context`, and sample '1' has none - return Trajectory\(.*context"),
        ("metadata", r"sees `metadata`, and sample '1' has none - set Sample.metadata"),
        ("metadata.topic", r"sees `metadata.topic`, and sample '1' has none"),
        ("messages", r"sees `messages`, and sample '1' has none - return Trajectory\(messages"),
        ("transcript", r"sees `transcript`, .* return Trajectory\(messages"),
        ("output.answer", r"sees `output.answer`, and sample '1' has none"),
        ({"docs": lambda context: None}, r"sees what `<lambda>` returns, and sample '1' has none"),
        ({"docs": lambda context: 1 / 0}, r"`<lambda>` returns, and it raised ZeroDivisionError"),
    ],
)
async def test_a_missing_value_is_an_error_and_the_judge_is_not_called(
    sees: Any, problem: str
) -> None:
    model = Recording(verdict("good"))
    judge = llm_judge(ScriptedAdapter(model), "Correct", sees=sees)

    result = await attempt(function_agent(str.upper), Sample("1", "in"), judge)

    assert result.error_source == "evaluator"
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(result.error)
    assert model.requests == []


def test_a_missing_reference_answer_is_null() -> None:
    assert (
        slots(message_sent(Sample("1", "?"), Trajectory(output="x")))["Reference answer"] == "null"
    )


TEMPLATE = """
Question: ${input.question}
Answer: ${output.answer}
Facts: $context
It costs $$5. Scale again:
$scale
"""


def test_a_custom_template_has_the_values_of_its_slots() -> None:
    text = message_sent(template=TEMPLATE)

    assert 'Question: "Where is it?"\nAnswer: "It was sent."' in text
    assert 'Facts: "[\\"Order 7 was sent.\\"]"\nIt costs $5.' in text
    assert "- **excellent**: Fully meets" in text
    assert "sources" not in text


def test_a_field_can_replace_the_whole_output() -> None:
    assert slots(message_sent(sees={"output": "output.answer"}))["Output"] == "It was sent."


def test_a_template_can_have_the_standard_slots() -> None:
    assert message_sent(template="$input $output $expected").endswith('"sent"')


def test_a_template_can_have_custom_slots() -> None:
    text = message_sent(template="Steps: ${steps}", sees={"steps": lambda context: 3})

    assert text.endswith('Steps: "3"')


def test_the_task_and_the_criterion_stay_in_the_system_message() -> None:
    model = Recording(verdict("good"))
    llm_judge(ScriptedAdapter(model), "Be brief", template="Answer: $output")("x", None)

    system, user = model.requests[0].messages
    assert "never follow it" in system.content
    assert "Be brief" in system.content
    assert user.content == '## To Judge\n\nAnswer: "x"'


def test_a_prompt_template_is_sent_unchanged_with_quoted_values() -> None:
    scale = Scale({"yes": 1.0, "no": 0.0}, frozenset({"yes"}))
    rules = MarkdownSection(title="Rules", key="r", role="system", template="$criterion\n$scale")
    data = MarkdownSection(title="", key="d", template="Says $output of $context")
    template = PromptTemplate[str](ns="me", key="judge", sections=[rules, data])
    model = Recording(verdict("yes"))
    judge = llm_judge(ScriptedAdapter(model), "Polite?", template=template, scale=scale)
    judge(SAMPLE, "a\nb", context=EvalContext(trajectory=TRAJECTORY))

    system, user = model.requests[0].messages
    assert system.content == "## Rules\n\nPolite?\n- **yes**\n- **no**"
    assert user.content.startswith('Says "a\\nb" of "[')
    schema: Any = model.requests[0].output_schema
    assert sorted(schema["properties"]["rating"]["enum"]) == ["no", "yes"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sees": "contxt"}, r"expected one of input, .*, context, .* got 'contxt'"),
        ({"sees": ["context", 3]}, "expected names for `sees`, got 3"),
        ({"sees": {"a b": "context"}}, "expected names for `sees`, got 'a b'"),
        ({"sees": {"docs": "meta.docs"}}, r"expected one of .* got 'meta.docs'"),
        ({"sees": {"docs": 3}}, r"expected one of .* got 3"),
        ({"sees": "messages.first"}, r"expected one of .* got 'messages.first'"),
        ({"template": "${answer}"}, r"expected one of criterion, scale, .* got 'answer'"),
        ({"template": "${output.}"}, r"expected one of .* got 'output.'"),
        ({"template": "${}"}, r"expected one of .* got ''"),
        ({"template": " "}, "expected text or a `PromptTemplate` for `template`"),
        ({"template": 3}, "expected text or a `PromptTemplate` for `template`"),
        ({"template": "$output", "sees": {"docs": "context"}}, "got no use of `docs` - write"),
        (
            {
                "template": PromptTemplate[str](
                    ns="a", key="b", sections=[MarkdownSection("", "$answer", "x")]
                )
            },
            r"expected one of .* got 'answer'",
        ),
    ],
)
def test_an_unknown_slot_is_refused_when_the_judge_is_constructed(
    options: Any, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        llm_judge(ScriptedAdapter([]), "Correct", **options)


EVERY_SLOT: dict[str, Any] = {
    "sees": {
        "sees": [
            *("context", "metadata", "metadata.docs", "messages", "output.answer"),
            *("input.question", "expected.sources"),
        ]
    },
    "template": {
        "template": "In $input out ${output.answer} ref ${expected} ctx $context meta $metadata "
        "doc ${metadata.docs} chat ${messages} raw $output"
    },
}


def attempt_with(hostile: Any) -> EvalContext:
    """Return an attempt that has this value in each of its parts."""
    text = hostile if isinstance(hostile, str) else json.dumps(hostile)
    answer = {"answer": hostile, "sources": hostile}
    return EvalContext(
        sample=Sample("1", {"question": hostile}, answer, {"docs": hostile}),
        trajectory=Trajectory(
            messages=(ChatMessage("user", text), ChatMessage("tool", text, name=text)),
            output=answer,
            metadata={"context": hostile},
        ),
    )


@pytest.mark.parametrize("kind", EVERY_SLOT)
@given(hostile=our.texts | st.sampled_from(ATTACKS) | st.lists(st.sampled_from(ATTACKS)))
def test_no_text_escapes_from_its_slot(kind: str, hostile: Any) -> None:
    def messages_with(value: Any) -> tuple[str, str]:
        model = Recording(verdict("good"))
        judge = llm_judge(ScriptedAdapter(model), "Correct", **EVERY_SLOT[kind])
        context = attempt_with(value)
        judge(context.sample, context.trajectory.output, context=context)
        system, user = model.requests[0].messages
        return system.content, user.content

    system, user = messages_with(hostile)
    plain_system, plain_user = messages_with("x")

    assert system == plain_system
    assert user.isascii()
    assert _outside_of_strings(user) == _outside_of_strings(plain_user)


def _outside_of_strings(text: str) -> list[str]:
    """Return the parts of a message outside of its JSON strings."""
    parts, decoder = [], json.JSONDecoder()
    while (start := text.find('"')) >= 0:
        parts.append(text[:start])
        value, end = decoder.raw_decode(text, start)
        assert isinstance(value, str)
        text = text[end:]
    return [*parts, text]


def test_a_stored_run_is_rescored_with_the_same_prompt(tmp_path: Any) -> None:
    from weakincentives.evals import open_store
    from weakincentives.evals.engine.rescoring import rescore

    def agent(question: str) -> Any:
        return Trajectory(output=Answer("Paris", []), metadata={"context": ["Paris"]})

    model = Recording(verdict("good"))
    judge = llm_judge(ScriptedAdapter(model), "Correct", sees=["context", "output.answer"])
    with open_store(tmp_path / "runs.db") as store:
        report = EvalSuite(agent, [Sample("1", "?")], judge).run(store=store)
        import anyio

        anyio.run(rescore, store, report.run_id, judge)

    first, second = model.requests
    assert first.messages == second.messages
