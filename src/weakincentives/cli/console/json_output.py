"""Runs as JSON, as the command prints them: the documents of `evals.reporting`, and `run_data`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TextIO

from ... import serde
from ...errors import SerializationError
from ...evals import EvalResult
from ...evals.reporting.documents import interval_data, overview_data, sample_data
from ...evals.runs import Interval
from .summary import RunEnding


def write_line(data: TextIO, value: Any) -> None:
    """Write one line of JSON and flush it."""
    try:
        encoded = serde.encode(value)
    except SerializationError:
        if not isinstance(value, EvalResult):
            raise
        # The output has no JSON form; the store says so as well.
        encoded = serde.encode(replace(value, sample=None, trajectory=None, metadata={}))
    data.write(encoded.decode() + "\n")
    data.flush()


def benchmark_data(figures: Mapping[str, Interval]) -> dict[str, Any]:
    """Return the field with the figures of a benchmark, if there are any."""
    data = {name: interval_data(figure) for name, figure in figures.items()}
    return {"figures": data} if data else {}


def run_data(outcome: RunEnding) -> dict[str, Any]:
    """Return a run that has just ended: its numbers, its worst samples, and its exit code."""
    cache = outcome.cache
    return {
        **overview_data(outcome.found),
        **benchmark_data(outcome.figures),
        "worst": [sample_data(row.result) for row in outcome.worst],
        "cache": None if cache is None else {"hits": cache.hits, "misses": cache.misses},
        "seconds": round(outcome.seconds, 3),
        "exit_code": outcome.code,
        "rule": outcome.rule,
    }
