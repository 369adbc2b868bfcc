"""Plots as inline SVG without text; the words are HTML next to them, so they wrap and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...stats.intervals import Interval
from .markup import Html, tag

_BINS = 20
_HEIGHT = 100.0


def interval_bar(rate: Interval) -> Html:
    """Return a bar from 0 to 1 with a rate and its interval; the figures are next to it."""
    if not rate.n:
        return Html()
    grid = [
        tag("line", x1=x, x2=x, y1=0, y2=16, class_="end" if x in (0, 100) else "grid")
        for x in (0, 25, 50, 75, 100)
    ]
    low, width = _short(100 * rate.low), _short(max(100 * (rate.high - rate.low), 0.2))
    bar = tag("rect", x=low, y=5, width=width, height=6, class_="interval")
    at = _short(100 * rate.estimate)
    mark = tag("line", x1=at, x2=at, y1=1, y2=15, class_="estimate")
    return _svg("bar", 16, *grid, bar, mark, aria_hidden="true")


def histogram(passed: Sequence[float], failed: Sequence[float]) -> Html:
    """Return a histogram of values: those that passed solid, those that failed hollow on top."""
    low = min(0.0, min(passed, default=0.0), min(failed, default=0.0))
    high = max(1.0, max(passed, default=1.0), max(failed, default=1.0))
    solid, hollow = _counts(passed, low, high), _counts(failed, low, high)
    highest = max(map(sum, zip(solid, hollow, strict=True)))
    step = 100 / _BINS
    bars: list[Html] = []
    for at, (under, over) in enumerate(zip(solid, hollow, strict=True)):
        y = _HEIGHT
        for count, style in ((under, "solid"), (over, "hollow")):
            if count:
                height = (_HEIGHT - 2) * count / highest
                y -= height
                bars.append(
                    tag(
                        "rect",
                        tag("title", f"{count}"),
                        x=_short(at * step + 0.4),
                        y=_short(y),
                        width=_short(step - 0.8),
                        height=_short(height),
                        class_=style,
                    )
                )
    floor = tag("line", x1=0, x2=100, y1=_HEIGHT, y2=_HEIGHT, class_="end")
    label = (
        f"Histogram of {len(passed) + len(failed)} values from {_format(low)} to {_format(high)} "
        f"in {_BINS} bins; "
        f"passed: {_listed(solid)}; failed: {_listed(hollow)}"
    )
    middle = (low + high) / 2
    return tag(
        "figure",
        tag("div", tag("span", f"{highest}"), tag("span", "0"), class_="scale", aria_hidden="true"),
        _svg("histogram", _HEIGHT, *bars, floor, role="img", aria_label=label),
        tag(
            "div",
            *(tag("span", _format(x)) for x in (low, middle, high)),
            class_="axis",
            aria_hidden="true",
        ),
        tag(
            "figcaption",
            tag("span", class_="key solid"),
            f" passed ({len(passed):,})  ",
            tag("span", class_="key hollow"),
            f" failed ({len(failed):,})",
        ),
        class_="distribution",
    )


def _counts(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * _BINS
    for value in values:
        # Halve first: the distance between large rewards may overflow a float.
        share = (value / 2 - low / 2) / (high / 2 - low / 2)
        counts[min(_BINS - 1, math.floor(share * _BINS))] += 1
    return counts


def _format(number: float) -> str:
    return f"{number:,.0f}" if 1e3 <= abs(number) < 1e9 else f"{number:.4g}"


def _listed(counts: Sequence[int]) -> str:
    return " ".join(map(str, counts))


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _svg(style: str, height: float, *shapes: Html, **attributes: object) -> Html:
    box = f"0 0 100 {height:g}"
    return tag("svg", *shapes, class_=style, viewBox=box, preserveAspectRatio="none", **attributes)
