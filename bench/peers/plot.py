"""Draw the comparison as SVG: bars on a logarithmic axis, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

__all__ = ["Bar", "draw"]

Bar = tuple[str, float | None, str]  # label, value, and what stands there if there is no value

LABEL, WIDTH, ROW, GAP = 170, 430, 22, 56
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .small { font-size: 11px; fill: #57606a }
.bar { fill: #8c959f } .ours { fill: #0969da } .grid { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  .bar { fill: #6e7681 } .ours { fill: #4493f8 } .grid { stroke: #30363d }
}"""


def draw(panels: Sequence[tuple[str, Sequence[Bar]]], title: str) -> str:
    """Return an SVG with one panel of bars below the other; bars of WINK have a colour."""
    parts, top = [], 30
    for name, bars in panels:
        parts += panel(name, bars, top)
        top += GAP + ROW * len(bars)
    width = LABEL + WIDTH + 110
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top - 10}" '
            f'width="{width}" height="{top - 10}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}\n</style>",
            *parts,
            "</svg>\n",
        )
    )


def panel(name: str, bars: Sequence[Bar], top: int) -> list[str]:
    """Return the elements of one panel: title, grid lines at powers of ten, bars."""
    values = [value for _, value, _ in bars if value]
    high = max(1, math.ceil(math.log10(max(values, default=10.0))))
    bottom = top + 14 + ROW * len(bars)
    parts = [f'<text class="title" x="0" y="{top}">{escape(name)}</text>']
    for power in range(high + 1):
        x = LABEL + WIDTH * power / high
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="{top + 8}" y2="{bottom}"/>')
        parts.append(
            f'<text class="small" x="{x:.0f}" y="{bottom + 13}" text-anchor="middle">'
            f"{10**power:,} x</text>"
        )
    for index, (label, value, missing) in enumerate(bars):
        y = top + 12 + ROW * index
        parts.append(f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        length = WIDTH * max(0.0, math.log10(value)) / high if value else 0.0
        kind = "bar ours" if label.startswith("WINK") else "bar"
        if value:
            parts.append(
                f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{max(2.0, length):.1f}" '
                f'height="{ROW - 7}" rx="2"/>'
            )
        text = f"{value:,.1f} x" if value else missing
        parts.append(
            f'<text class="small" x="{LABEL + length + 8:.1f}" y="{y + 14}">{escape(text)}</text>'
        )
    return parts
