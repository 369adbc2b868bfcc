"""Run an agent of a framework on samples, concurrently, and print the verdicts as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

from weakincentives.evals import (
    EvalConfig,
    EvalSuite,
    Sample,
    all_tools_succeeded,
    composite,
    cost_under,
    exact_match,
    token_usage_under,
    tool_called_with,
    tools_called_in_order,
)

SAMPLES = [Sample(str(order), f"Where is order {order} ?", "It is shipped.") for order in range(6)]


def print_verdicts(agent: Callable[[str], Any]) -> None:
    evaluator = composite(
        exact_match,
        tool_called_with("get_order", order_id=lambda order: True),
        tools_called_in_order("get_order", exactly=True),
        all_tools_succeeded(),
        token_usage_under(23),
        cost_under(0.0001),
    )
    report = EvalSuite(agent, SAMPLES, evaluator, config=EvalConfig(max_concurrent=6)).run()
    verdicts = [
        {
            "error": result.error,
            "failed": [score.criterion for score in result.scores if not score.passed],
            "asked": [c.arguments for m in result.trajectory.messages for c in m.tool_calls],
            "roles": [message.role for message in result.trajectory.messages],
            "tokens": result.tokens_used,
        }
        for result in report.results
        if result.trajectory is not None
    ]
    sys.stdout.write(json.dumps(verdicts) + "\n")
