"""Two prompts for one task: do detailed descriptions of the labels help?

wink eval run prompt_ab_eval.py                       # both suites, one run each
wink eval compare suite:short suite:detailed
wink eval run prompt_ab_eval.py --model openai/gpt-4o-mini     # a real model; OPENAI_API_KEY
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalContext, EvalSuite

SHORT = """Which topic is this ticket about?

- billing: payments
- shipping: parcels
- account: login
- returns: send back
- other: the shop"""
DETAILED = """Which topic is this ticket about?

- billing: charged, payment, pay, card, invoice, receipt, price, fee, refund
- shipping: parcel, package, delivery, courier, driver, tracking, address, ship
- account: password, login, log in, profile, user name, account, newsletter
- returns: return, exchange, send back, damaged, torn, wrong edition, replace
- other: jobs, readings, authors, recommend, opening hours, the shop itself"""


@dataclass(frozen=True)
class Ticket:
    topic: Literal["billing", "shipping", "account", "returns", "other"]


tickets = Dataset.load(
    Path(__file__).with_name("tickets.csv"), str, str, input="text", expected="label"
)


def right_topic(context: EvalContext[str, Ticket, str]) -> bool:
    return context.output.topic == context.expected


def suite_for(instructions: str) -> EvalSuite:
    """Return the same eval with other instructions: everything else must stay the same."""
    sections = [
        MarkdownSection(title="Instructions", template=instructions, key="instructions"),
        MarkdownSection(title="Ticket", template="$ticket", key="ticket"),
    ]
    prompt = PromptTemplate[Ticket](ns="tickets", key="classify", sections=sections)
    return EvalSuite(prompt=prompt, dataset=tickets, evaluator=right_topic, adapter="demo/large")


short = suite_for(SHORT)
detailed = suite_for(DETAILED)
