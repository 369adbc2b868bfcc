"""Tickets of a help desk by topic: accuracy, and which topics are confused.

wink eval run classification_eval.py
python classification_eval.py                     # runs it and prints the confusion matrix
wink eval run classification_eval.py --model openai/gpt-4o-mini    # a real model
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalContext, EvalReport, EvalSuite

Topic = Literal["billing", "shipping", "account", "returns", "other"]


@dataclass(frozen=True)
class Ticket:
    """The output. The schema allows these labels only, so there is nothing to parse."""

    topic: Topic


prompt = PromptTemplate[Ticket](
    ns="tickets",
    key="classify",
    sections=[
        MarkdownSection(
            title="Instructions",
            template="""Which topic is this ticket about?

- billing: charged, payment, pay, card, invoice, receipt, price, fee, refund
- shipping: parcel, package, delivery, courier, driver, tracking, address, ship
- account: password, login, log in, profile, user name, account, newsletter
- returns: return, exchange, send back, damaged, torn, wrong edition, replace
- other: jobs, readings, authors, recommend, opening hours, the shop itself""",
            key="instructions",
        ),
        MarkdownSection(title="Ticket", template="$ticket", key="ticket"),
    ],
)


def right_topic(context: EvalContext[str, Ticket, str]) -> bool:
    return context.output.topic == context.expected


suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(
        Path(__file__).with_name("tickets.csv"), str, str, input="text", expected="label"
    ),
    evaluator=right_topic,
    adapter="demo/large",  # simulated; a real one: "openai/gpt-4o-mini"
)


def print_confusion(report: EvalReport[Ticket]) -> None:
    """Print how often each topic was taken for each other one, and precision and recall."""
    topics = get_args(Topic)
    pairs = Counter(
        (suite.dataset[result.sample_id].expected, result.output.topic)
        for result in report.results
        if result.output
    )
    print(f"{'expected':<10}", *(f"{topic:>9}" for topic in topics), "   recall", "precision")
    for topic in topics:
        row = [pairs[topic, other] for other in topics]
        right, predicted = pairs[topic, topic], sum(pairs[other, topic] for other in topics)
        cells = "".join(f"{count:>10}" for count in row)
        print(f"{topic:<10}{cells}   {right / sum(row):6.0%} {right / max(predicted, 1):9.0%}")


if __name__ == "__main__":
    report = suite.run(progress=False)
    print(report, end="\n\n")
    print_confusion(report)
