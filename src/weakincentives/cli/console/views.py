"""One result in a line: its verdict, its score, its id, and the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ...evals import EvalResult, why_failed
from ...evals.analysis import ErrorGroup
from ...evals.reporting.export import verdict_of
from .styled_text import COLOURS, one_line, pluralize
from .text_tables import label_width

MAX_REASON_LINES = 6
MAX_ERROR_GROUPS = 5


def why(result: EvalResult[Any]) -> str:
    """Return why a result failed, in one line."""
    return one_line(why_failed(result))


def line_of(result: EvalResult[Any], width: int, *, epochs: bool) -> Text:
    """Return a result in a line: verdict, score, id in a column of this width, and the reason."""
    verdict = verdict_of(result)
    name = Text(one_line(result.sample_id))
    name.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(
        (f"  {verdict:<5}", COLOURS[verdict]),
        "     -  " if verdict == "error" else f"  {result.score.value:4.2f}  ",
        name,
        (f"  epoch {result.epoch}" if epochs else "", "dim"),
        "  ",
        (why(result), "dim" if verdict == "pass" else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def lines_of_failures(
    results: Sequence[EvalResult[Any]], to: Console, *, epochs: bool = False
) -> Iterator[Text]:
    """Yield a few lines for each failure; `the same` is the reason of the one above."""
    width = label_width((result.sample_id for result in results), of=to.file)
    above = None
    for result in results:
        line, reason = line_of(result, width, epochs=epochs), why(result)
        start = line[: len(line) - len(reason)]
        text = Text("the same" if reason == above else reason)
        above = reason
        for piece in text.wrap(to, max(30, to.width - start.cell_len))[:MAX_REASON_LINES]:
            piece.rstrip()
            yield start + piece
            start = Text(" " * start.cell_len)


def lines_of_errors(groups: Sequence[ErrorGroup]) -> Iterator[Text]:
    """Yield a line for each group of errors, the most frequent first: `30 x OSError at …`."""
    for group in groups[:MAX_ERROR_GROUPS]:
        line = f"  {one_line(str(group))}"
        yield Text(line, COLOURS["error"], overflow="fold", no_wrap=False)
    if more := sum(group.count for group in groups[MAX_ERROR_GROUPS:]):
        yield Text(f"  and {pluralize(more, 'other error')}", "dim")
