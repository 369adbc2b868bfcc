"""A support agent with tools: does it call the right ones, and does it say what they returned?

wink eval run tools_eval.py
wink eval run tools_eval.py --model openai/gpt-4o-mini     # a real model; it needs OPENAI_API_KEY
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weakincentives import MarkdownSection, PromptTemplate, Tool
from weakincentives.evals import (
    Dataset,
    EvalContext,
    EvalSuite,
    Score,
    contains,
    token_usage_under,
    tool_call_count,
)

HERE = Path(__file__).parent

# ── The agent: a prompt with three tools ────────────────────────────────────────────────────────

ORDERS: dict[str, dict[str, Any]] = {
    "A-1001": {"status": "shipped", "total": 31},
    "A-1002": {"status": "delivered", "total": 18},
    "A-1003": {"status": "packed", "total": 40},
    "A-1004": {"status": "cancelled", "total": 9},
    "A-1005": {"status": "shipped", "total": 54},
    "A-1006": {"status": "delivered", "total": 22},
    "A-1007": {"status": "delivered", "total": 12},
    "A-1008": {"status": "packed", "total": 27},
}
STOCK = {"B-17": 4, "B-18": 0, "B-19": 11}


@dataclass(frozen=True)
class Order:
    order_id: str


@dataclass(frozen=True)
class Book:
    book_id: str


def get_order(params: Order) -> dict[str, Any]:
    return ORDERS.get(params.order_id, {"error": f"no order {params.order_id}"})


def refund_order(params: Order) -> str:
    order = get_order(params)
    if order.get("status") != "delivered":
        return "not possible: only delivered orders can be refunded"
    return f"refunded {order['total']} euros"


def check_stock(params: Book) -> int:
    return STOCK[params.book_id]


support = MarkdownSection(
    title="Customer",
    template="You work for a bookshop. Look up what you say.\n\n$message",
    key="customer",
    tools=[
        Tool[Order, dict[str, Any]]("get_order", "Return status and total.", get_order),
        Tool[Order, str]("refund_order", "Pay back a delivered order.", refund_order),
        Tool[Book, int]("check_stock", "Return how many copies we have.", check_stock),
    ],
)
prompt = PromptTemplate[str](ns="shop", key="support", sections=[support])

# ── The evaluators ──────────────────────────────────────────────────────────────────────────────


def right_tools(context: EvalContext) -> Score:
    """Check that the agent called the tools that the sample names, in order."""
    called = [call.name for turn in context.trajectory.messages for call in turn.tool_calls]
    wanted = context.sample.metadata["tools"]
    return Score(float(called == wanted), reason=f"called {called}, expected {wanted}")


suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(HERE / "orders.jsonl", str, str),
    evaluator=[
        right_tools,
        contains,
        tool_call_count("refund_order", max_count=1),
        token_usage_under(500),
    ],
    adapter="demo/large",  # simulated; a real one: "openai/gpt-4o-mini"
)
