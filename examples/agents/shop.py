"""Code that the three agents share: the data behind their tools, the dataset, the evaluators."""

import json
from pathlib import Path
from typing import Any

from weakincentives.evals import Dataset, EvalContext, Score, all_of, contains, token_usage_under

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


def look_up(order_id: str) -> str:
    return json.dumps(ORDERS.get(order_id, {"error": f"no order {order_id}"}))


def pay_back(order_id: str) -> str:
    order = ORDERS.get(order_id, {})
    if order.get("status") != "delivered":
        return "not possible: only delivered orders can be refunded"
    return f"refunded {order['total']} euros"


def right_tools(context: EvalContext) -> Score:
    """Check that the agent called the tools that the sample names, in order."""
    called = [call.name for turn in context.trajectory.messages for call in turn.tool_calls]
    wanted = context.sample.metadata["tools"]
    return Score(float(called == wanted), reason=f"called {called}, expected {wanted}")


dataset = Dataset.load(Path(__file__).with_name("orders.jsonl"), str, str)
evaluator = all_of(right_tools, contains, token_usage_under(500))
