"""How often each sample of a run passed."""

from __future__ import annotations

from .run_store import RunStore


def passes_by_sample(store: RunStore, run_id: str) -> dict[str, tuple[int, int, str]]:
    """Return, for each sample of a run, its passes, its attempts, and the start of its digest.

    Errors of infrastructure or of an evaluator say nothing about the agent, and do not count.
    """
    table = store.table(run_id)
    found: dict[str, tuple[int, int, str]] = {}
    for at, sample in enumerate(table.samples):
        if table.error_source(at) not in ("infrastructure", "evaluator"):
            passed, total, digest = found.get(sample, (0, 0, ""))
            digest = max(digest, table.digest(at))
            found[sample] = passed + table.passed[at], total + 1, digest
    return found
