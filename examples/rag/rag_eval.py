"""Questions about a handbook: retrieve sections, then answer from them.

wink eval run rag_eval.py
MODEL=openai/gpt-4o-mini wink eval run rag_eval.py     # a real model; it needs OPENAI_API_KEY
"""

import os
import re
from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import Dataset, EvalContext, EvalSuite, Score, Trajectory, contains
from weakincentives.evals.judges import groundedness

HERE = Path(__file__).parent
MODEL = os.environ.get("MODEL", "demo/large")  # simulated, without a key
JUDGE = os.environ.get("JUDGE", "demo/large")  # use another model than for the answers

# ── The agent: replace it by yours ──────────────────────────────────────────────────────────────

SECTIONS = {
    title.strip(): text.strip()
    for title, _, text in (
        part.partition("\n") for part in (HERE / "handbook.md").read_text("utf-8").split("## ")[1:]
    )
}
prompt = PromptTemplate[str](
    ns="rag",
    key="answer",
    sections=[
        MarkdownSection(
            title="Instructions",
            template="Answer the question in one sentence, from the context alone.",
            key="instructions",
        ),
        MarkdownSection(title="Context", template="$context", key="context"),
        MarkdownSection(title="Question", template="$question", key="question"),
    ],
)
model = adapter_for(MODEL)


def retrieve(question: str, k: int = 2) -> list[str]:
    """Return the titles of the k sections that share most words with the question."""
    asked = words(question)

    def shared(title: str) -> int:
        return len(asked & words(f"{title} {SECTIONS[title]}"))

    return sorted(SECTIONS, key=shared, reverse=True)[:k]


def words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[\w-]{3,}", text.lower())}


async def answer(question: str) -> Trajectory[str]:
    titles = retrieve(question)
    context = "\n\n".join(SECTIONS[title] for title in titles)
    response = await model.evaluate_async(prompt.bind(context=context, question=question))
    return Trajectory(
        output=response.output,
        messages=response.messages,
        usage=response.usage,
        cost=response.cost,
        metadata={"context": context, "sections": titles},  # for the evaluators
    )


# ── The evaluators ──────────────────────────────────────────────────────────────────────────────


def found(context: EvalContext) -> Score:
    """Check retrieval: is the section with the answer among those that were retrieved?"""
    retrieved = context.trajectory.metadata["sections"]
    wanted = context.sample.metadata["section"]
    if wanted in retrieved:
        return Score(1.0)
    return Score(0.0, reason=f"retrieved {', '.join(retrieved)}; expected {wanted}")


suite = EvalSuite(
    agent=answer,
    dataset=Dataset.load(HERE / "questions.csv", str, str, input="question", expected="answer"),
    evaluator=[found, contains, groundedness(JUDGE)],  # retrieval, answer, no invention
)
