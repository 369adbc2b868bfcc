"""One sample of a run in full: errors, input, output, scores and reasons, messages and events.

All of it was written by a model, a user or a tool, so control characters are always escaped.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ... import serde
from ...chat import ChatMessage
from ...errors import SerializationError, UsageError
from ...evals import EvalResult, RunStore, why_failed
from ...evals.model import failed_criteria
from ...evals.model.judge_calls import judge_labels
from ...evals.model.result import JUDGE_USAGE
from ...evals.model.timing import calls_of, split_time
from ...evals.model.versions import UNKNOWN
from ...evals.reporting.export import verdict_of
from ...evals.runs.table import known_latency
from ...evals.store import StoredRow
from ...evals.store.find_rows import rows_of_sample
from ...internal.escaping import as_text, escape_control_chars
from ...internal.formatting import cost_text, duration, events_of, pretty, tokens_text
from ...secrets import redact, shorten
from .json_output import write_line
from .styled_text import COLOURS, one_line, print_stderr
from .text_tables import print_stdout, screen

MAX_EVENT_CHARS = 400
MAX_CHARS = 20_000  # per text, unless --full
MAX_ITEMS = 200  # messages, and events, unless --full

T = TypeVar("T")


def show_sample(store: RunStore, args: Namespace) -> int:
    """Print one epoch of the sample: that of --epoch, or the first."""
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
        write_line(sys.stdout, {"rows": [_data(row) for row in chosen]})
        return 0
    to = screen()
    mixed = bool(store.run(args.run_id).mixed)
    for row in chosen:
        version = f"agent {row.agent_version or UNKNOWN}" if mixed else ""
        _print(to, _view(row, version, args.full, args.from_message))
    if len(epochs) > 1:
        others = [
            f"{row.result.epoch} {verdict_of(row.result)}" for row in rows if row not in chosen
        ]
        print_stderr(f"Other epochs: {', '.join(others)} - see one with --epoch N")
    return 0


def _data(row: StoredRow) -> dict[str, Any]:
    return {
        "verdict": verdict_of(row.result),
        "reason": why_failed(row.result),
        "position": row.position,
        "time_ms": split_time(calls_of(row.result.trajectory, row.session), row.result.latency_ms),
        "result": row.result,
        # As plain data, so that no class is needed to read it.
        "session": None if row.session is None else serde.decode(row.session),
    }


def _print(to: Console, things: Iterable[RenderableType]) -> None:
    """Print; very long texts without rich, which would take seconds to wrap them."""
    batch: list[RenderableType] = []
    for thing in things:
        if isinstance(thing, _LongText):
            print_stdout(to, *batch)
            batch.clear()
            indent = " " * thing.indent
            sys.stdout.writelines(f"{indent}{line}\n" for line in thing.text.split("\n"))
        else:
            batch.append(thing)
    print_stdout(to, *batch)


# ── as text ────────────────────────────────────────────────────────────────────────────────────


class _LongText(NamedTuple):
    """A text that is printed without rich; `__rich__` makes it a renderable like the others."""

    text: str
    indent: int

    def __rich__(self) -> str:
        return self.text


def _view(
    row: StoredRow, agent: str, full: bool, from_message: int | None
) -> Iterator[RenderableType]:
    result, limit = row.result, sys.maxsize if full else MAX_CHARS
    yield _headline(result, agent)
    if time := split_time(calls_of(result.trajectory, row.session), result.latency_ms):
        parts = (f"{name} {duration(ms / 1000)}" for name, ms in time.items())
        yield Text(f"  time: {', '.join(parts)}", "dim")
    yield ""
    if result.error is not None:
        source = result.error_source or "agent"
        yield from _part(f"Error ({source})", result.error_message, limit, "red")
        if result.error_details is not None and result.error_details.traceback:
            yield from _part("Traceback", result.error_details.traceback, limit)
    elif not result.passed:
        yield from _part("Why", "\n".join(map(str, failed_criteria(result))), limit, "yellow")
    if (sample := result.sample) is not None:
        yield from _part("Input", sample.input, limit)
        if sample.expected is not None:
            yield from _part("Expected", sample.expected, limit)
    if result.trajectory is not None:
        yield from _part("Output", result.output, limit)
    if result.scores:
        yield from _scores(result, limit)
    if result.metadata:
        yield from _part("Metadata", result.metadata, limit)
    if result.trajectory is not None and result.trajectory.metadata:
        yield from _part("Metadata of the trajectory", result.trajectory.metadata, limit)
    if result.trajectory is not None and result.trajectory.messages:
        messages = result.trajectory.messages
        yield Text("Messages", "bold")
        if from_message is not None:
            if (first := from_message - 1) >= len(messages):
                raise UsageError(
                    f"expected a message from 1 to {len(messages):,}, got {from_message:,}"
                )
            page, last = messages[first : first + MAX_ITEMS], min(first + MAX_ITEMS, len(messages))
            yield Text(f"  [{from_message:,} to {last:,} of {len(messages):,}]", "dim")
        else:
            page = messages
        advice = f"--from-message N prints {MAX_ITEMS} from N on, --full prints all"
        for message in _folded(page, full):
            if isinstance(message, str):
                yield Text(f"  [{message} messages - {advice}]", "dim")
            else:
                yield from _message(message, limit)
        yield ""
    with_messages = bool(result.trajectory and result.trajectory.messages)
    yield from _events(row, full, with_messages=with_messages)


def _folded(items: Sequence[T], full: bool) -> Iterator[T | str]:
    """Yield the items; of too many, the first and the last, and between them what is left out."""
    omitted = len(items) - MAX_ITEMS
    if full or omitted <= 0:
        yield from items
        return
    half = MAX_ITEMS // 2
    yield from items[:half]
    yield f"{omitted:,} more"
    yield from items[-half:]


def _headline(result: EvalResult[Any], agent: str) -> Text:
    verdict, experiment = verdict_of(result), result.experiment_name
    latency = known_latency(result.latency_ms, result.error_source)
    facts = [
        f"epoch {result.epoch}" if result.epoch > 1 else "",
        f"attempt {result.attempt}" if result.attempt > 1 else "",
        "" if experiment == "baseline" else f"experiment {one_line(experiment)}",
        "" if latency is None else duration(latency / 1000),
        tokens_text(result.agent_tokens, result.judge_tokens),
        cost_text(result.cost, result.judge_cost, judged=result.judge_tokens > 0),
        one_line(agent),
        f"run {one_line(result.run_id)}",
    ]
    return Text.assemble(
        (one_line(result.sample_id), "bold"),
        (f"  {verdict}", f"bold {COLOURS[verdict]}"),
        "" if result.error is not None else f"  {result.score.value:.3f}",
        (f"  {', '.join(filter(None, facts))}", "dim"),
    )


def _part(title: str, value: Any, limit: int, style: str = "") -> Iterator[RenderableType]:
    yield Text(title, "bold")
    yield _indented(pretty(value), limit, style)
    yield ""


def _indented(text: str, limit: int, style: str = "", by: int = 2) -> RenderableType:
    text = escape_control_chars(_shortened(text.rstrip("\n"), limit))
    if len(text) > 2 * MAX_CHARS:
        return _LongText(text, by)
    return Padding(Text(text, style, overflow="fold"), (0, 0, 0, by))


def _shortened(text: str, limit: int) -> str:
    """Return the text without its middle, if it is too long."""
    if len(text) <= limit or len(text := redact(text)) <= limit:
        return text
    tail = limit // 4
    head, omitted = limit - tail, len(text) - limit
    note = f"[{omitted:,} more characters - --full prints them]"
    return f"{text[:head]}…\n{note}\n…{text[-tail:]}"


def _scores(result: EvalResult[Any], limit: int) -> Iterator[RenderableType]:
    yield Text("Scores", "bold")
    table, labels = Table.grid(padding=(0, 2, 0, 0)), judge_labels(result.judge_calls)
    for score in result.scores:
        verdict = "pass" if score.passed else "fail"
        reason = ": ".join(filter(None, (labels.get(score.criterion), score.reason)))
        table.add_row(
            Text(f"  {verdict}", COLOURS[verdict]),
            Text(f"{score.value:.3f}"),
            Text(one_line(score.criterion or "score"), no_wrap=True),
            Text(escape_control_chars(_shortened(reason, limit)), overflow="fold"),
        )
    named = {score.criterion for score in result.scores}.union(JUDGE_USAGE)
    for metric in result.score.metrics:
        if metric.name not in named:
            table.add_row("", Text(f"{metric.value:.3f}"), Text(one_line(metric.name), "dim"), "")
    yield table
    yield ""


def _message(message: ChatMessage, limit: int) -> Iterator[RenderableType]:
    role = {"assistant": "cyan", "tool": "magenta"}.get(message.role, "blue")
    head = Text(f"  {message.role}", role)
    if message.name:
        head.append(f" {one_line(message.name)}")
    if message.tool_call_id:
        head.append(f"  {one_line(message.tool_call_id)}", "dim")
    yield head
    if message.content:
        yield _indented(message.content, limit, by=4)
    for call in message.tool_calls:
        arguments = as_text(dict(call.arguments))
        text = f"{one_line(call.name)}({escape_control_chars(_shortened(arguments, limit))})"
        line = Text.assemble(("calls ", "dim"), text, (f"  {one_line(call.id)}", "dim"))
        yield Padding(line, (0, 0, 0, 4))


def _events(row: StoredRow, full: bool, *, with_messages: bool) -> Iterator[RenderableType]:
    """Yield the events of the session in their order, then everything else that it holds."""
    if row.session is None:
        return
    try:
        events = list(events_of(row.session, with_messages=with_messages))
    except SerializationError as error:
        yield Text(f"The session cannot be read: {one_line(str(error))}", "red")
        return
    if not events:
        return
    yield Text("Session", "bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    for event in _folded(events, full):
        if isinstance(event, str):
            table.add_row("", "", Text(f"[{event} events - --full prints all]", "dim"))
            continue
        moment, kind, description = event
        table.add_row(
            Text(f"  {escape_control_chars(moment)}", "dim", no_wrap=True),
            Text(one_line(kind), "cyan", no_wrap=True),
            Text(shorten(one_line(description), MAX_EVENT_CHARS), overflow="fold"),
        )
    yield table
