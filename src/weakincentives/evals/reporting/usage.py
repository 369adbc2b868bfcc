"""The usage of a run, in words: tokens and cost, of the agent and of the judges."""

from __future__ import annotations

from ...internal.formatting import cost_text, tokens_text
from ..store.run_store import RunRecord


def usage_of(record: RunRecord) -> dict[str, str]:
    """Return the tokens and the cost of a run as text, as far as they are known."""
    used = {}
    if record.tokens:
        used["tokens"] = tokens_text(record.tokens, record.judge_tokens)
    if record.cost is not None:
        used["cost"] = cost_text(record.cost, record.judge_cost)
    return used
