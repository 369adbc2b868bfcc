"""Two trajectories side by side: as text, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ...evals import EvalResult
from ...evals.comparison import AlignedStep, Step, Work, align, divergence
from ...evals.comparison.flips import contrast_reason
from ...evals.reporting.export import verdict_of
from ...internal.escaping import as_text
from ...internal.matching import ANSWER_STEPS
from ...internal.text_differences import word_diff
from ...secrets import shorten
from .comparison import TOO_MUCH_TEXT, diff_text
from .styled_text import COLOURS, one_line
from .text_tables import label_width

MAX_CHARS = 300  # per text, unless --full
MARKS = {
    "same": (" ", "dim"),
    "changed": ("~", "yellow"),
    "before": ("-", "red"),
    "after": ("+", "green"),
}


def trajectories_text(
    before: EvalResult[Any], after: EvalResult[Any], *, full: bool = False
) -> Iterator[RenderableType]:
    """Yield both verdicts, the first divergence, and the steps with a mark for each difference."""
    limit = sys.maxsize if full else MAX_CHARS
    yield Text(one_line(before.sample_id), "bold")
    for label, result, other in (("A", before, after), ("B", after, before)):
        verdict = verdict_of(result)
        yield Text.assemble(
            (f"{label}  ", "bold"),
            (f"{verdict:<5}", COLOURS[verdict]),
            f" {one_line(result.error_message or contrast_reason(result, other))}".rstrip(),
            (f"  run {one_line(result.run_id)}", "dim"),
        )
    pairs = align(before.trajectory, after.trajectory)
    found = divergence(pairs)
    yield ""
    yield Text("They do not diverge" if found is None else f"They diverge at {found}", "bold")
    yield Text("- only in A, + only in B, ~ different", "dim")
    yield ""
    width = label_width((pair.step.label for pair in pairs), 24)
    work = Work(ANSWER_STEPS)
    for index, pair in enumerate(pairs):
        yield from _step(pair, width, limit, work)
        if found is not None and index == found.index:
            yield Text(f"{' ' * (width + 4)}^ first divergence", "bold")
    if work.exhausted:
        yield Text(TOO_MUCH_TEXT, "dim")


def _step(pair: AlignedStep, width: int, limit: int, work: Work) -> Iterator[Text]:
    mark, style = MARKS[pair.relation]
    name = Text(one_line(pair.step.label), "bold" if pair.step.kind == "tool" else "")
    name.truncate(width, overflow="ellipsis", pad=True)
    indent = " " * (width + 4)
    lines = [*_lines(pair, limit, work)] or [Text()]
    for number, line in enumerate(lines):
        start = Text.assemble((f"{mark} ", style), name, "  ") if number == 0 else Text(indent)
        line.stylize(style if pair.relation in ("before", "after") else "")
        yield start + line


def _lines(pair: AlignedStep, limit: int, work: Work) -> Iterator[Text]:
    """Yield the text of a step; of a tool its arguments, then its result."""
    for a, b in zip(_texts(pair.before), _texts(pair.after), strict=True):
        if a is not None and b is not None and a != b:
            yield diff_text(word_diff(shorten(a, limit), shorten(b, limit), work))
        elif (text := b if a is None else a) is not None:
            yield Text(one_line(shorten(text, limit)))


def _texts(step: Step | None) -> tuple[str | None, str | None]:
    if step is None:
        return None, None
    if step.kind != "tool":
        return step.text, None
    result = None if step.result is None else f"-> {step.result}"
    return as_text(dict(step.arguments)), result


def trajectories_data(before: EvalResult[Any], after: EvalResult[Any]) -> dict[str, Any]:
    """Return both verdicts, the aligned steps, and the first divergence."""
    pairs = align(before.trajectory, after.trajectory)
    found = divergence(pairs)
    return {
        "sample_id": before.sample_id,
        "before": {"run_id": before.run_id, "epoch": before.epoch, "verdict": verdict_of(before)},
        "after": {"run_id": after.run_id, "epoch": after.epoch, "verdict": verdict_of(after)},
        "steps": pairs,
        "divergence": None
        if found is None
        else {"index": found.index, "step": found.number, "what": found.what},
    }
