"""Summaries of news: are the facts there, is it short, is nothing invented?

wink eval run summaries_eval.py
wink eval run summaries_eval.py --model openai/gpt-4o-mini     # a real model; OPENAI_API_KEY
"""

import os
from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalContext, EvalSuite, Score, llm_judge
from weakincentives.evals.judges import Scale

JUDGE = os.environ.get("JUDGE", "demo/large")  # simulated; better another model than the agent's

prompt = PromptTemplate[str](
    ns="news",
    key="summary",
    sections=[
        MarkdownSection(
            title="Instructions",
            template="Summarize the article in two sentences. Keep numbers and dates.",
            key="instructions",
        ),
        MarkdownSection(title="Article", template="$article", key="article"),
    ],
)


def facts(context: EvalContext[str, str, list[str]]) -> Score:
    """Return the share of the facts that the summary has; all of them must be there."""
    missing = [fact for fact in context.expected if fact.lower() not in context.output.lower()]
    return Score(
        1 - len(missing) / len(context.expected),
        passed=not missing,
        reason=f"missing: {', '.join(missing)}" if missing else "",
    )


def short(context: EvalContext[str, str, list[str]]) -> Score:
    count = len(context.output.split())
    return Score(count <= 50, reason=f"{count} words (limit: 50)")


faithful = llm_judge(
    JUDGE,
    "Every statement of the summary is in the article",
    name="faithful",
    scale=Scale({"yes": 1.0, "no": 0.0}, passing=frozenset({"yes"})),
    template="Context: ${input}\nOutput: ${output}",  # the facts are not for the judge
)

suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(Path(__file__).with_name("articles.jsonl"), str, list[str]),
    evaluator=[facts, short, faithful],
    adapter="demo/large",  # simulated; a real one: "openai/gpt-4o-mini"
)
