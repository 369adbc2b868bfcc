"""Learning curves from 0 to 1: as text for a terminal, and as an SVG for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Curve", "in_svg", "in_terminal"]

MARKS = "●▲■◆"
STYLE = """
svg { --ink: #1b1f24; --paper: #ffffff; --grid: #d5dae0; --c0: #0b5cad; --c1: #b3470a;
  --c2: #1c7a3f; --c3: #7a3fa8; font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e8ecf1; --paper: #14181d; --grid: #39424d;
  --c0: #6cb2ff; --c1: #ffa264; --c2: #6fdc96; --c3: #cfa3ff; } }
text { fill: var(--ink); } .grid { stroke: var(--grid); } .title { font-size: 16px; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
"""
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 66, 46, 150, 56


@dataclass(frozen=True)
class Curve:
    """One training: the pass rate of each step, and of an exam before and after."""

    name: str
    values: Sequence[float]
    before: float
    after: float


def in_terminal(
    curves: Sequence[Curve], y: str, x: str, *, width: int = 72, height: int = 12
) -> str:
    """Return all curves as one text; where two meet, the first one is drawn."""
    rows = [[" "] * width for _ in range(height + 1)]
    steps = max(len(curve.values) for curve in curves)
    for number, curve in reversed([*enumerate(curves)]):
        for column in range(width):
            share = _mean_at(curve.values, column / width, (column + 1) / width)
            if share is not None:
                rows[height - round(share * height)][column] = MARKS[number % len(MARKS)]
    lines = [
        f"{'' if row % 3 else f'{1 - row / height:.2f}':>5} │{''.join(cells).rstrip()}"
        for row, cells in enumerate(rows)
    ]
    names = "   ".join(f"{MARKS[n % len(MARKS)]} {curve.name}" for n, curve in enumerate(curves))
    scale = f"{'':6}└{'─' * width}\n{'':7}1{steps:>{width - 1}} {x}"
    return "\n".join([f"{y:>5}   {names}", *lines, scale])


def _mean_at(values: Sequence[float], start: float, end: float) -> float | None:
    """Return the mean of a part of the sequence, of at least one value."""
    if not values:
        return None
    first = int(start * len(values))
    part = values[first : max(first + 1, int(end * len(values)))]
    return sum(part) / len(part)


def in_svg(curves: Sequence[Curve], title: str, y: str, x: str) -> str:
    """Return an SVG for light and dark pages. Rings are the exams before and after."""
    steps = max(1, *(len(curve.values) for curve in curves))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(step: float, share: float) -> str:
        return f"{LEFT + (right - LEFT) * step / steps:.1f},{bottom - (bottom - TOP) * share:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><style>{STYLE}</style>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="var(--paper)"/>',
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
    ]
    for tick in range(6):
        height = bottom - (bottom - TOP) * tick / 5
        parts += [
            f'<path class="grid" d="M{LEFT} {height:.1f}H{right}"/>',
            f'<text x="{LEFT - 9}" y="{height + 4:.1f}" text-anchor="end">{tick / 5:.1f}</text>',
        ]
    for tick in range(6):
        place, step = LEFT + (right - LEFT) * tick / 5, steps * tick / 5
        parts.append(
            f'<text x="{place:.1f}" y="{bottom + 20}" text-anchor="middle">{step:.0f}</text>'
        )
    middle = (TOP + bottom) / 2
    parts += [
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(20 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(y)}</text>",
    ]
    for number, curve in enumerate(curves):
        colour = f"var(--c{number % 4})"
        line = " ".join(at(step + 1, share) for step, share in enumerate(curve.values))
        parts.append(
            f'<polyline class="curve" stroke="{colour}" points="{line}" '
            f'stroke-dasharray="{DASHES[number % 4]}"/>'
        )
        for step, share in ((0, curve.before), (steps, curve.after)):
            across, down = at(step, share).split(",")
            parts.append(
                f'<circle cx="{across}" cy="{down}" r="5" fill="var(--paper)" stroke="{colour}" '
                'stroke-width="2"/>'
            )
        height = TOP + 14 + 24 * number
        parts += [
            f'<path class="curve" stroke="{colour}" stroke-dasharray="{DASHES[number % 4]}" '
            f'd="M{right + 18} {height}h34"/>',
            f'<text x="{right + 60}" y="{height + 4}">{escape(curve.name)}</text>',
        ]
    height = TOP + 14 + 24 * len(curves)
    parts += [
        f'<circle cx="{right + 35}" cy="{height}" r="5" fill="none" stroke="var(--ink)" '
        'stroke-width="2"/>',
        f'<text x="{right + 60}" y="{height + 4}">held out</text></svg>',
    ]
    return "\n".join(parts) + "\n"
