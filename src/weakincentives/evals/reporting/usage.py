"""The usage of a run, in words: tokens and cost, of the agent and of the judges."""

from __future__ import annotations

from ...internal.formatting import cost_text, tokens_text
from ..runs.figures import Figures


def usage_of(figures: Figures) -> dict[str, str]:
    """Return the tokens and the cost of a run as text; what is unknown is said to be."""
    if not figures.total + figures.quarantined_rows:
        return {}
    agent, judges = figures.agent_cost, figures.judge_cost
    tokens = figures.agent_tokens, figures.judge_tokens
    used = {"tokens": tokens_text(*tokens, unknown=figures.without_tokens)}
    if agent is not None or judges is not None:
        judged, unknown = figures.judge_tokens > 0, figures.without_cost
        used["cost"] = cost_text(agent, judges, unknown=unknown, judged=judged)
    return used
