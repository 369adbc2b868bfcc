"""The eval in the pictures: a support agent with two tools, in five versions, and a judge.

The models are scripted, so every run has the same verdicts. The last version of the agent no longer
looks up the policy for some tickets, which breaks more answers than it fixes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from weakincentives import MarkdownSection, PromptTemplate, Tool
from weakincentives.adapters import ModelAdapter, Price, price_of
from weakincentives.adapters.model import ModelReply, ModelRequest
from weakincentives.adapters.scripted import scripted_model
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    Sample,
    Score,
    all_tools_succeeded,
    llm_judge,
)

POLICIES = {
    "refund": "Unused items can be returned for a full refund within 30 days.",
    "warranty": "Devices have a warranty of 24 months from the day of delivery.",
    "shipping": "Orders above 50 euros are shipped for free, others for 4.90 euros.",
    "exchange": "A size can be exchanged once, within 14 days, without a fee.",
    "cancellation": "An order can be cancelled for 2 hours after it was placed.",
    "invoice": "Invoices are sent by e-mail within 3 working days.",
}
PHRASES = {
    "refund": "I bought headphones last week and never opened them. Can I get my money back?",
    "warranty": "The screen of my tablet went dark after 20 months. Is that still covered?",
    "shipping": "My order is 38 euros. What will shipping cost me?",
    "exchange": "These shoes are too small. What does it cost to change them for a larger pair?",
    "cancellation": "I ordered this morning by mistake. How do I cancel it?",
    "invoice": "My company needs an invoice for the order. When will it come?",
}
# How often a version skips a look-up, how often it is wrong, and dollars per million tokens.
VERSIONS = {
    "v1": (0.0, 0.34, 0.4),
    "v2": (0.0, 0.26, 0.4),
    "v3": (0.0, 0.2, 2.5),
    "v4": (0.0, 0.1, 2.5),
    "v5": (0.45, 0.04, 1.1),
}
CUSTOMERS = ("Ana", "Bilal", "Chen", "Dora", "Emeka", "Freja", "Goro", "Hana")
TIERS = ("gold", "silver", "bronze")


@dataclass(frozen=True)
class Ticket:
    text: str


@dataclass(frozen=True)
class Order:
    order: int


@dataclass(frozen=True)
class Topic:
    topic: str


def find_order(params: Order) -> dict[str, Any]:
    time.sleep(0.012)
    return {"order": params.order, "status": "delivered", "items": 1 + params.order % 3}


def search_policy(params: Topic) -> str:
    time.sleep(0.03)
    return POLICIES[params.topic]


tools: list[Tool[Any, Any]] = [
    Tool[Order, dict[str, Any]](
        name="find_order", description="Finds an order.", handler=find_order
    ),
    Tool[Topic, str](
        name="search_policy", description="Finds the policy on a topic.", handler=search_policy
    ),
]
rules = MarkdownSection(
    title="Role",
    key="role",
    role="system",
    template="You are a support agent. Look things up, then answer in two sentences.",
)
ticket = MarkdownSection(title="Ticket", template="$text", key="ticket", tools=tools)
prompt = PromptTemplate[str](ns="support", key="answer", sections=[rules, ticket])


def samples() -> list[Sample[Ticket, str]]:
    all_samples = []
    for number in range(48):
        topic = [*POLICIES][number % len(POLICIES)]
        name = CUSTOMERS[number // len(POLICIES) % len(CUSTOMERS)]
        metadata = {"topic": topic, "tier": TIERS[number % 5 % 3]}
        text = f"{PHRASES[topic]} My order is {4000 + number}. {name}"
        all_samples.append(Sample(f"ticket-{number:03}", Ticket(text), POLICIES[topic], metadata))
    return all_samples


def fraction(*parts: object) -> float:
    """Return a number from 0 to 1 that is always the same for the same parts."""
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:4]) / 2**32


def model(reply: Callable[[ModelRequest], Any], name: str, dollars: float) -> ModelAdapter[str]:
    """Return a scripted model with a price per million tokens."""
    prices = {name: Price(dollars, dollars, 4 * dollars)}
    price = partial(price_of, prices=prices)
    return ModelAdapter(ask=scripted_model(reply), model=name, name="scripted", price=price)


def support_model(version: str) -> ModelAdapter[str]:
    """Return the model of a version of the agent: v5 does not look everything up."""
    skipped, wrong, dollars = VERSIONS[version]

    def reply(request: ModelRequest) -> ModelReply:
        text = next(m.content for m in request.messages if m.role == "user")
        topic = next(name for name, phrase in PHRASES.items() if phrase in text)
        order = int(text.partition("My order is 4")[2][:3]) + 4000
        done = [message for message in request.messages if message.role == "tool"]
        skips = fraction(order, "skips") < skipped
        if not done:
            return make_reply("", ToolCall("1", "find_order", {"order": order}), size=len(text))
        if len(done) == 1 and not skips:
            return make_reply("", ToolCall("2", "search_policy", {"topic": topic}), size=len(text))
        knows = not skips and fraction(order, "wrong") >= wrong
        answer = POLICIES[topic] if knows else "That depends on the order."
        return make_reply(
            f"Thank you for your message about order {order}. {answer}", size=len(text)
        )

    return model(reply, f"support-{version}", dollars)


def make_reply(text: str, *calls: ToolCall, size: int) -> ModelReply:
    began = time.perf_counter()
    time.sleep(0.02 + size / 5_000)
    usage = TokenUsage(320 + size, 24 + len(text) // 4)
    latency_ms = (time.perf_counter() - began) * 1000
    message = ChatMessage("assistant", text, calls)
    return ModelReply(message=message, usage=usage, latency_ms=latency_ms)


def judge_reply(request: ModelRequest) -> dict[str, str]:
    """Rate an answer as a judge would: does it say what the policy says?"""
    data = request.messages[-1].content
    texts = {
        name: json.loads(line.partition(": ")[2])
        for line in data.splitlines()
        for name in ("Output", "Expected")
        if line.startswith(f"{name}") and ": " in line
    }
    output = next(iter(texts.values()), "")
    if "depends on the order" in output:
        reason = "The answer avoids the question: it names no period, price or condition."
        return {"reason": reason, "rating": "poor"}
    return {"reason": "The answer states the policy and nothing else.", "rating": "excellent"}


def states_the_policy(output: str, expected: str) -> Score:
    good = expected in output
    return Score(float(good), reason="" if good else "the sentence of the policy is missing")


def suite(version: str) -> EvalSuite[Ticket, str, str]:
    """Return the suite for a version of the agent."""
    judge = llm_judge(
        model(judge_reply, "judge", 0.5),
        "The answer helps the customer, and follows from the policy.",
        name="helpful",
    )
    return EvalSuite(
        prompt,
        Dataset(samples(), name="support tickets"),
        [states_the_policy, judge, all_tools_succeeded()],
        support_model(version),
        EvalConfig(max_concurrent=8),
        name="support agent",
    )


v1, v2, v3, v4, v5 = map(suite, VERSIONS)
