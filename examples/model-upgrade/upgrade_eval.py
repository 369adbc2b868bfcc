"""Totals of orders: may we switch to another model?

    wink eval run upgrade_eval.py --model demo/small               # the model of today
    wink eval baseline latest -o baseline.json
    wink eval run upgrade_eval.py --model demo/large               # the new one
    wink eval gate latest --baseline baseline.json --margin 5

With real models: --model openai/gpt-4o-mini, and so on; it needs OPENAI_API_KEY.
"""

from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalSuite, numeric

prompt = PromptTemplate[str](
    ns="shop",
    key="total",
    sections=[
        MarkdownSection(
            title="Order", template="Answer with the number alone.\n\n$order", key="order"
        )
    ],
)

suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(Path(__file__).with_name("totals.jsonl"), str, str),
    evaluator=numeric(),
    adapter="demo/small",  # simulated; the model that is in use today
    name="totals",
)
