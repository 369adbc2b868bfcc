"""Tables of simulated figures, each with the bars that its figures must keep.

A subject is a file beside this one with `PARTS`: functions that take the number of simulated runs
for each figure, and return tables. The seeds are fixed, so the same number gives the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["FULL", "NEGLIGIBLE", "Table", "percent"]

FULL = 2_000
"""Default number of runs for each figure; with it, the bars are strict."""

NEGLIGIBLE = 1e-9
"""The chance of an outcome that an exact figure may leave out: no digit that is printed changes."""


@dataclass(frozen=True)
class Table:
    """Figures in rows, and the lower and upper bar of each of them.

    `columns` has the title of the first column, then one for each figure. `reference` are the
    columns that are for comparison only, without a bar. `exact` figures do not depend on the number
    of runs, so their bars are always strict.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    at_least: float = -math.inf
    at_most: float = math.inf
    digits: int = 1
    reference: Sequence[str] = ()
    exact: bool = False

    def missed(self, runs: int) -> list[str]:
        """Return the figures outside the bars; few runs may be off by four standard errors."""
        strict = self.exact or runs >= FULL
        slack = 0.0 if strict else 400 * math.sqrt(0.05 * 0.95 / runs)
        return [
            f"{name}, {column}: {figure:.{self.digits}f}"
            for name, figures in self.rows
            for column, figure in zip(self.columns[1:], figures, strict=True)
            if column not in self.reference
            and not self.at_least - slack <= figure <= self.at_most + slack
        ]

    def barred(self) -> int:
        """Return how many figures have a bar."""
        if not math.isfinite(self.at_least) and not math.isfinite(self.at_most):
            return 0
        return len(self.rows) * sum(column not in self.reference for column in self.columns[1:])

    def lines(self) -> list[str]:
        """Return the table as Markdown, as the documentation shows it."""
        bars = [
            f"{word} {bar:g}"
            for word, bar in (("at least", self.at_least), ("at most", self.at_most))
            if math.isfinite(bar)
        ]
        cells = [
            [name, *(f"{figure:.{self.digits}f}" for figure in figures)]
            for name, figures in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        return [
            f"{self.title} (bar: {', '.join(bars) or 'none'})",
            "",
            _row(self.columns, widths),
            _row(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])], widths),
            *(_row(row, widths) for row in cells),
        ]


def percent(hits: Sequence[bool] | Sequence[float]) -> float:
    """Return the share of hits, in percent."""
    return 100 * math.fsum(hits) / len(hits)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join([first, *others])} |"
