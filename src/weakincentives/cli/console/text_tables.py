"""The console of stdout, and tables that fit its width."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .styled_text import one_line

if TYPE_CHECKING:  # commands about queues use this file too, and should not load all evals
    from ...evals.runs import Interval
    from ...evals.store import RunRecord

WIDE = 110  # columns of a terminal that has room for whole ids and repeated facts
UNLIMITED = 1000  # columns of a pipe or a file; longer lines are not cut
MIN_COLUMN = 6  # width below which no column shrinks
_TIMESTAMP = len("20260102-030405")  # the beginning of a run's id


def has_width(stream: IO[str] | None = None) -> bool:
    """Return whether stdout, or another stream, has a width: that of a terminal, or of COLUMNS."""
    return (stream or sys.stdout).isatty() or "COLUMNS" in os.environ


def screen() -> Console:
    """Return the console of stdout; a pipe or a file has room for everything."""
    width = None if has_width() else UNLIMITED
    return Console(highlight=False, emoji=False, markup=False, width=width)


def print_stdout(to: Console, *things: RenderableType) -> None:
    """Print to stdout: wrapped for a terminal, each sentence in one line for a pipe or a file.

    Characters that its encoding lacks are escaped; a closed pipe raises BrokenPipeError.
    """
    # Captured, because rich would answer a closed pipe with exit code 1: a failed gate.
    wrapped = has_width()
    for thing in things:
        if isinstance(thing, Text) and not wrapped:
            thing.no_wrap, thing.overflow = True, "ignore"
    with to.capture() as captured:
        # In a group: printed by itself, a text ignores its `no_wrap`.
        to.print(Group(*map(_hanging, things)), crop=wrapped)
    encoding = sys.stdout.encoding or "utf-8"
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _hanging(thing: RenderableType) -> RenderableType:
    """Return a text whose wrapped lines are indented like its first one."""
    if not isinstance(thing, Text) or thing.no_wrap or "\n" in thing.plain:
        return thing
    indent = len(thing.plain) - len(thing.plain.lstrip(" "))
    return Padding(thing[indent:], (0, 0, 0, indent), expand=False) if indent else thing


def columns(
    table: Mapping[str, Iterable[Text]],
    width: int,
    *,
    right: Container[str] = (),
    shrink: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Text:
    """Return columns below their titles, in this width.

    Columns in `shrink` are truncated as far as necessary. If that is not enough, columns in `drop`
    are left out, one after the other. (A table of rich truncates every column a little, and takes
    much longer for a thousand rows.)
    """
    cells = {title: [Text(title, "dim"), *column] for title, column in table.items()}
    widths = {title: max(cell.cell_len for cell in column) for title, column in cells.items()}
    minimum = {
        title: min(wide, MIN_COLUMN) if title in shrink else wide for title, wide in widths.items()
    }
    for title in drop:
        if title in minimum and sum(minimum.values()) + 2 * (len(minimum) - 1) > width:
            del cells[title], widths[title], minimum[title]
    while sum(widths.values()) + 2 * (len(widths) - 1) > width and widths != minimum:
        widths[max(minimum, key=lambda title: widths[title] - minimum[title])] -= 1
    lines = []
    for row in zip(*cells.values(), strict=True):
        line = Text()
        for cell, (title, wide) in zip(row, widths.items(), strict=True):
            cell.truncate(wide, overflow="ellipsis")
            gap = " " * (wide - cell.cell_len)
            line.append("  " if line else "").append(gap if title in right else "")
            line.append_text(cell).append("" if title in right else gap)
        lines.append(line)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def without_empty(table: Mapping[str, list[Text]], *titles: str) -> dict[str, list[Text]]:
    """Return the table without those of these columns that are empty."""
    return {title: column for title, column in table.items() if title not in titles or any(column)}


def table_width(table: Mapping[str, Sequence[Text]]) -> int:
    """Return the width that `columns` needs to show this without truncating anything."""
    widths = [max(len(title), *(c.cell_len for c in cells)) for title, cells in table.items()]
    return sum(widths) + 2 * (len(widths) - 1)


def two_columns(rows: Iterable[tuple[str, str]], style: str = "") -> Text:
    """Return two indented columns, the first in this style."""
    rows = list(rows)
    width = max(cell_len(name) for name, _ in rows)
    lines = (
        Text.assemble("  ", (f"{name}{' ' * (width - cell_len(name))}", style), f"  {value}")
        for name, value in rows
    )
    return Text("\n").join(lines)


def label_width(names: Iterable[str], maximum: int = 32, *, of: IO[str] | None = None) -> int:
    """Return the width of the longest of these names, on a terminal within a maximum."""
    width = max((cell_len(one_line(name)) for name in names), default=1)
    return min(maximum, width) if has_width(of) else width


def rate_text(rate: Interval) -> Text:
    """Return a rate with its interval, rounded as everywhere: `77.5% (62.5-87.7)`."""
    from ...evals.runs import rate_ends

    if not rate.n:
        return Text("-", "dim")
    ends = f" ({'-'.join(rate_ends(rate))})"
    return Text.assemble((f"{rate.estimate:.1%}", "bold"), (ends, "dim"))


def rate_title(rate: Interval) -> str:
    """Return the title of a column of rates, with the confidence of their intervals."""
    return f"rate ({rate.confidence * 100:g}%)"


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as they are typed: `branch=main ci=7`."""
    return " ".join(f"{name}={value}" for name, value in tags.items())


def short_ids(records: Sequence[RunRecord], *, whole: bool) -> list[str]:
    """Return the ids of runs; unless `whole`, the shortest prefixes that are still unambiguous."""
    ids = [record.manifest.run_id for record in records]
    if whole:
        return ids
    lengths = dict.fromkeys(ids, _TIMESTAMP)
    for a, b in pairwise(sorted(ids)):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
        common = sum(1 for _ in same)
        lengths[a], lengths[b] = max(lengths[a], common + 1), max(lengths[b], common + 1)
    return [run_id[: lengths[run_id]] for run_id in ids]
