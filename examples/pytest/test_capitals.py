"""An eval as a test: one item for each sample, and one for the pass rate.

pip install pytest
pytest -v
"""

import pytest

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import contains

model = adapter_for("demo/large")  # simulated; a real one: "openai/gpt-4o-mini"
question_section = MarkdownSection(title="Question", template="$question", key="question")
prompt = PromptTemplate[str](ns="evals", key="capitals", sections=[question_section])


@pytest.mark.wink_eval(dataset="capitals.jsonl", evaluator=contains, fail_under=0.8)
async def test_capitals(question: str) -> str:
    """The agent: it gets the input of a sample and returns the output."""
    response = await model.evaluate_async(prompt.bind(question=question))
    return str(response.output)
