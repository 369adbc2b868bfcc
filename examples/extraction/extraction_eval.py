"""Fields of invoices as typed data: which fields are right, and which are not?

wink eval run extraction_eval.py
wink eval run extraction_eval.py --model openai/gpt-4o-mini    # a real model; OPENAI_API_KEY
"""

from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalContext, EvalSuite, Metric, Score


@dataclass(frozen=True)
class Invoice:
    """The output: the model gets its JSON schema, and the answer is parsed into it."""

    invoice_number: str
    vendor: str
    date: date
    total: float
    currency: str
    purchase_order: str | None


prompt = PromptTemplate[Invoice](
    ns="invoices",
    key="extract",
    sections=[
        MarkdownSection(
            title="Instructions",
            template="Extract the fields. A field that the text does not have is null.",
            key="instructions",
        ),
        MarkdownSection(title="Text", template="$text", key="text"),
    ],
)


def all_fields(context: EvalContext[str, Invoice, Invoice]) -> Score:
    """Return one metric for each field; the sample passes if all are right."""
    output, expected = context.output, context.expected
    right = {
        each.name: getattr(output, each.name) == getattr(expected, each.name)
        for each in fields(Invoice)
    }
    wrong = [
        f"{name}: got {getattr(output, name)!r}, expected {getattr(expected, name)!r}"
        for name, is_right in right.items()
        if not is_right
    ]
    return Score(
        passed=not wrong,
        reason="; ".join(wrong),
        metrics=[Metric(name, is_right, weight=1) for name, is_right in right.items()],
    )


suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(Path(__file__).with_name("invoices.jsonl"), str, Invoice),
    evaluator=all_fields,
    adapter="demo/large",  # simulated; a real one: "openai/gpt-4o-mini"
)
