"""The figures of a benchmark that its pass rate does not give: SimpleQA's and HealthBench's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ...evals import RunStore
from ...evals.reporting.documents import interval_data
from ...evals.statistics import Interval
from ...evals.store.overview import Overview
from .tables import two_columns


def figures_of(store: RunStore, overview: Overview) -> dict[str, Interval]:
    """Return the figures of a stored run, with their intervals; none for most runs."""
    from ...evals.benchmarks import FIGURES, benchmark_figures

    if not any(name in FIGURES for name in overview.criteria):
        return {}  # most runs, whose rows are not read
    return benchmark_figures(store.report(overview.record.manifest.run_id))


def figures_text(figures: Mapping[str, Interval]) -> Text:
    """Return each figure with its interval, in two columns."""
    return two_columns(
        (name.replace("_", " "), f"{f.estimate:.3f}  95% {f.low:.3f} to {f.high:.3f}")
        for name, f in figures.items()
    )


def figures_data(figures: Mapping[str, Interval]) -> dict[str, Any]:
    """Return the figures as JSON data."""
    return {name: interval_data(figure) for name, figure in figures.items()}
