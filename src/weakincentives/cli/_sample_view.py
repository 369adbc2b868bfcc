"""One sample of a run, whole: what went in, what came out, why it got its score, and how it went.

Everything here was written by a model, a user or a tool, so everything goes through `visible`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .. import serde
from ..errors import SerializationError, UsageError
from ..evals._export import verdict_of
from ..evals._overview import rows_of_sample
from ..evals._visible import as_text, visible
from ..evals._words import duration, events_of, money, readable
from ._summary import harmless
from ._views import COLOURS, out, say, screen

if TYPE_CHECKING:
    from ..chat import ChatMessage
    from ..evals import EvalResult, RunStore, StoredRow

__all__ = ["show_sample"]

LONGEST = 400  # letters of an event


def show_sample(store: RunStore, args: Namespace) -> int:
    """One epoch of the sample: the one that is asked for, or the first."""
    rows = rows_of_sample(store, args.run_id, args.sample_id)
    epochs = sorted({row.result.epoch for row in rows})
    epoch = epochs[0] if args.epoch is None else args.epoch
    if epoch not in epochs:
        raise UsageError(
            f"expected an epoch of sample {args.sample_id!r}, got {epoch} - "
            f"there are {', '.join(map(str, epochs))}"
        )
    chosen = [row for row in rows if row.result.epoch == epoch]
    if args.format == "json":
        data = {"rows": [_data(row) for row in chosen]}
        sys.stdout.write(serde.encode(data).decode() + "\n")
        return 0
    to = screen()
    for row in chosen:
        out(to, *_view(row))
    if len(epochs) > 1:
        others = [
            f"{row.result.epoch} {verdict_of(row.result)}" for row in rows if row not in chosen
        ]
        say(f"Other epochs: {', '.join(others)} - see one with --epoch N")
    return 0


def _data(row: StoredRow) -> dict[str, Any]:
    return {
        "verdict": verdict_of(row.result),
        "position": row.position,
        "result": row.result,
        "session": _session(row),
    }


def _session(row: StoredRow) -> Any:
    """The session as plain data: no class is needed to read it."""
    return None if row.session is None else serde.decode(row.session)


# ── in words ────────────────────────────────────────────────────────────────────────────────────


def _view(row: StoredRow) -> Iterator[RenderableType]:
    result = row.result
    yield _headline(result)
    yield ""
    if result.error is not None:
        yield from _part(f"Error ({result.error_source or 'agent'})", result.error, "red")
    if (sample := result.sample) is not None:
        yield from _part("Input", sample.input)
        if sample.expected is not None:
            yield from _part("Expected", sample.expected)
    if result.trajectory is not None:
        yield from _part("Output", result.output)
    if result.scores:
        yield from _scores(result)
    if result.metadata:
        yield from _part("Metadata", result.metadata)
    if result.trajectory is not None and result.trajectory.messages:
        yield Text("Messages", "bold")
        for message in result.trajectory.messages:
            yield from _message(message)
        yield ""
    yield from _events(row, said=bool(result.trajectory and result.trajectory.messages))


def _headline(result: EvalResult[Any]) -> Text:
    verdict = verdict_of(result)
    usage = result.trajectory.usage if result.trajectory else None
    cost = result.trajectory.cost if result.trajectory else None
    facts = [
        f"epoch {result.epoch}" if result.epoch > 1 else "",
        f"attempt {result.attempt}" if result.attempt > 1 else "",
        f"experiment {harmless(result.experiment_name)}"
        if result.experiment_name != "baseline"
        else "",
        duration(result.latency_ms / 1000),
        f"{usage.total_tokens:,} tokens" if usage else "",
        money(cost) if cost is not None else "",
        f"run {harmless(result.run_id)}",
    ]
    return Text.assemble(
        (harmless(result.sample_id), "bold"),
        (f"  {verdict}", f"bold {COLOURS[verdict]}"),
        "" if result.error is not None else f"  {result.score.value:.3f}",
        (f"  {', '.join(filter(None, facts))}", "dim"),
    )


def _part(title: str, value: Any, style: str = "") -> Iterator[RenderableType]:
    yield Text(title, "bold")
    yield _indented(readable(value), style)
    yield ""


def _indented(text: str, style: str = "", by: int = 2) -> Padding:
    return Padding(Text(visible(text.rstrip("\n")), style, overflow="fold"), (0, 0, 0, by))


def _scores(result: EvalResult[Any]) -> Iterator[RenderableType]:
    yield Text("Scores", "bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    for score in result.scores:
        verdict = "pass" if score.passed else "fail"
        table.add_row(
            Text(f"  {verdict}", COLOURS[verdict]),
            Text(f"{score.value:.3f}"),
            Text(harmless(score.criterion or "score"), no_wrap=True),
            Text(visible(score.reason), overflow="fold"),
        )
    parts = {score.criterion for score in result.scores}
    for metric in result.score.metrics:
        if metric.name not in parts:
            table.add_row("", Text(f"{metric.value:.3f}"), Text(harmless(metric.name), "dim"), "")
    yield table
    yield ""


def _message(message: ChatMessage) -> Iterator[RenderableType]:
    role = {"assistant": "cyan", "tool": "magenta"}.get(message.role, "blue")
    who = Text.assemble((f"  {message.role}", role))
    if message.name:
        who.append(f" {harmless(message.name)}")
    if message.tool_call_id:
        who.append(f"  {harmless(message.tool_call_id)}", "dim")
    yield who
    if message.content:
        yield _indented(message.content, by=4)
    for call in message.tool_calls:
        said = f"{harmless(call.name)}({visible(as_text(dict(call.arguments)))})"
        line = Text.assemble(("calls ", "dim"), said, (f"  {harmless(call.id)}", "dim"))
        yield Padding(line, (0, 0, 0, 4))


def _events(row: StoredRow, *, said: bool) -> Iterator[RenderableType]:
    """Events in the order in which they happened; then whatever else the session holds."""
    if row.session is None:
        return
    try:
        events = list(events_of(row.session, said=said))
    except SerializationError as error:
        yield Text(f"The session cannot be read: {harmless(str(error))}", "red")
        return
    if not events:
        return
    yield Text("Session", "bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    for moment, kind, told in events:
        words = harmless(told)
        table.add_row(
            Text(f"  {visible(moment)}", "dim", no_wrap=True),
            Text(harmless(kind), "cyan", no_wrap=True),
            Text(words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…", overflow="fold"),
        )
    yield table
