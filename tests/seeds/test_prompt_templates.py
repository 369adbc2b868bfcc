"""The templates of the specifications render."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from tests.seeds.loops import QAParams
from tests.seeds.questions import QAInput, QAOutput, qa_prompt
from weakincentives.chat import ChatMessage
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, parse_output


@dataclass(slots=True, frozen=True)
class JudgeParams:
    criterion: str
    output: str
    expected: str


@dataclass(slots=True, frozen=True)
class JudgeOutput:
    rating: Literal["excellent", "good", "fair", "poor", "wrong"]
    rationale: str


JUDGE_TEXT = """
You are an evaluation judge. Rate the output on the given criterion.

## Criterion
$criterion

## Output to Evaluate
$output

## Reference Answer
$expected

Select one rating and explain your reasoning briefly.
"""


def judge(section: MarkdownSection[JudgeParams]) -> PromptTemplate[JudgeOutput]:
    return PromptTemplate[JudgeOutput](
        ns="wink.evals", key="llm-judge", name="llm_judge", sections=[section]
    )


def test_the_qa_prompt_is_bound_by_keyword() -> None:
    rendered = qa_prompt.bind(**asdict(QAInput("Why?"))).render()

    text = "## Question Answering\n\nAnswer the question: Why?"
    assert rendered.messages == (ChatMessage("user", text),)
    assert (rendered.name, rendered.ns, rendered.key) == ("qa_prompt", "my-app", "qa")
    assert rendered.output_type is QAOutput
    assert rendered.output_schema is not None
    assert rendered.output_schema["required"] == ["answer"]
    assert rendered.descriptor == qa_prompt.descriptor


def test_the_prompt_of_the_math_loop_is_plain_text() -> None:
    template = PromptTemplate[str](
        ns="qa",
        key="answer",
        name="qa",
        sections=[
            MarkdownSection[QAParams](
                title="Question", template="Answer concisely: $question", key="q"
            )
        ],
    )

    rendered = Prompt(template).bind(QAParams(question="2 + 2?")).render()

    assert rendered.text == "## Question\n\nAnswer concisely: 2 + 2?"
    assert (rendered.output_type, rendered.output_schema) == (str, None)


@pytest.mark.parametrize("typed", [True, False])
def test_the_judge_prompt_renders_in_both_forms(typed: bool) -> None:
    values = {"criterion": "Accurate", "output": "It costs $5.", "expected": "Not provided"}
    if typed:
        section = MarkdownSection[JudgeParams](title="Task", template=JUDGE_TEXT, key="task")
        prompt = Prompt(judge(section)).bind(JudgeParams(**values))
    else:
        section = MarkdownSection(title="Task", template=JUDGE_TEXT, key="task")
        prompt = judge(section).bind(**values)

    text = prompt.render().text

    assert text.startswith("## Task\n\nYou are an evaluation judge.")
    assert "## Output to Evaluate\nIt costs $5.\n\n## Reference Answer\nNot provided\n" in text


def test_a_verdict_is_read_from_a_fenced_reply() -> None:
    reply = 'Let me see.\n```json\n{"rating": "good", "rationale": "fine"}\n```\nDone.'

    assert parse_output(reply, JudgeOutput) == JudgeOutput("good", "fine")
