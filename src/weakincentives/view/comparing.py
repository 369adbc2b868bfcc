"""Runs side by side, as the screen for comparisons shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..evals import RunStore
from ..evals.comparison import AlignedStep, RunComparison, RunOutcomes, Step, align, divergence
from ..evals.comparison.matrix import SampleVerdicts
from ..evals.comparison.outcomes import incomparable
from ..evals.model.explain import why_failed
from ..evals.reporting.documents import sample_data
from ..evals.reporting.export import verdict_of
from ..evals.runs.table import known_latency
from ..evals.store import StoredRow
from ..internal.escaping import as_text
from ..internal.formatting import pretty
from ..internal.text_differences import word_diff
from ..secrets import shorten
from .sample_data import scores_data, value_data

_SNIPPET_CHARS = 300
# Of steps side by side, in one answer; the page of a sample has its messages whole.
_MAX_STEPS = 1_000
_STEP_CHARS = 5_000  # of each text
_MAX_STEP_CHARS = 2_000_000


def matrix_row(store: RunStore, runs: Sequence[RunOutcomes], row: SampleVerdicts) -> dict[str, Any]:
    """Return a sample with its verdict and the beginning of its output in each run."""
    cells: list[dict[str, Any] | None] = []
    text = ""
    for run, side in zip(runs, row.sides, strict=True):
        found = None if side is None else store.row(run.run_id, *side.key)
        if side is None or found is None:
            cells.append(None)
            continue
        result = found.result
        if not text and result.sample is not None:
            text = shorten(as_text(result.sample.input), _SNIPPET_CHARS)
        cells.append(
            {
                "verdict": verdict_of(result),
                "passes": side.passes,
                "attempts": side.attempts,
                "epoch": result.epoch,
                "output": shorten(as_text(result.output), _SNIPPET_CHARS),
                "why": "" if result.passed else shorten(why_failed(result), _SNIPPET_CHARS),
            }
        )
    return {"sample": row.sample, "input": text, "cells": cells}


def aligned_data(rows: Sequence[StoredRow | None]) -> dict[str, Any]:
    """Return a sample in two runs: both results, what changed, and the steps side by side."""
    before, after = (row.result.trajectory if row else None for row in rows)
    pairs = align(before, after)
    found = divergence(pairs)
    output, other = (as_text(row.result.output) if row else "" for row in rows)
    steps = _pairs_data(pairs)
    return {
        "sides": [None if row is None else _side_data(row) for row in rows],
        "diff": word_diff(output, other) if all(rows) else (),
        "steps": steps,
        "left_out": len(pairs) - len(steps),
        "divergence": None
        if found is None
        else {"index": found.index, "text": str(found), "number": found.number},
    }


def _side_data(row: StoredRow) -> dict[str, Any]:
    """Return a sample in one of two runs."""
    result = row.result
    return {
        **sample_data(result),
        "output": value_data(result.output),
        "latency_ms": known_latency(result.latency_ms, result.error_source),
        "scores": scores_data(result),
    }


def _pairs_data(pairs: Sequence[AlignedStep]) -> list[dict[str, Any]]:
    """Return aligned steps: the first ones, as far as their texts fit into an answer."""
    found: list[dict[str, Any]] = []
    left = _MAX_STEP_CHARS
    for pair in pairs[:_MAX_STEPS]:
        texts = [_step_data(pair.before), _step_data(pair.after)]
        left -= sum(len(value or "") for step in texts if step for value in step.values())
        if left < 0:
            break
        found.append({"relation": pair.relation, "before": texts[0], "after": texts[1]})
    return found


def _step_data(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {
        "kind": step.kind,
        "label": step.label,
        "text": _beginning(step.text),
        "arguments": _beginning(pretty(dict(step.arguments))) if step.kind == "tool" else "",
        "result": None if step.result is None else _beginning(step.result),
    }


def _beginning(text: str) -> str:
    more = len(text) - _STEP_CHARS
    return text if more <= 0 else f"{text[:_STEP_CHARS]}… ({more:,} more characters)"


def comparison_page(compared: RunComparison) -> dict[str, Any]:
    """Return the verdict of a comparison, its counts, and every measure."""
    return {
        "verdict": str(compared),
        "outcome": compared.measure.outcome,
        "label": compared.label,
        "fixed": compared.fixed,
        "broken": compared.broken,
        "both": compared.both,
        "neither": compared.neither,
        "pairing": compared.pairing,
        "warnings": list(compared.warnings),
        "incomparable": incomparable(compared.before, compared.after),
        "measures": [
            {
                "name": measure.name,
                "before": measure.amount(measure.before),
                "after": measure.amount(measure.after),
                "delta": measure.amount(measure.difference.delta.estimate, sign=True),
                "interval": measure.interval(),
                "evidence": measure.evidence(),
                "outcome": measure.outcome,
            }
            for measure in compared.measures.values()
        ],
    }
