"""One output to review on a terminal: what the agent did, what was asked, and the keys to label it.

All of it was written by a model, a user or a tool, so control characters are always escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from ...errors import UsageError
from ...evals import EvalResult
from ...evals.store.human_labels import HumanLabel, verdict_on
from ...internal.escaping import escape_control_chars
from ...internal.formatting import pretty, verdict_word
from .styled_text import COLOURS, one_line
from .text_tables import screen

KEYS: Mapping[str, str] = {
    "p": "pass",
    "f": "fail",
    "1-9": "fail, in this category",
    "n": "note: what went wrong first",
    "c": "new category for this output",
    "s": "skip",
    "u": "undo",
    "j k": "next, previous",
    "m": "whole texts and messages",
    "?": "this help",
    "q": "quit",
}
_ARROWS = {"\x1b[A": "k", "\x1b[D": "k", "\x1b[B": "j", "\x1b[C": "j"}
_FRAME_LINES = 8  # headline, titles and keys around the texts
_MIN_TEXT_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewView:
    """The state of the screen: the output at `at` of `total` in the queue, and its reviewer.

    `categories` are the names that the keys 1 to 9 stand for.
    """

    result: EvalResult[Any]
    at: int
    total: int
    labelled: int
    reviewer: str
    criterion: str
    only: bool
    blind: bool
    reasons: Sequence[str]
    label: HumanLabel | None
    category: str
    categories: Sequence[str]
    message: str = ""


# ── the keyboard ────────────────────────────────────────────────────────────────────────────────


@contextmanager
def keyboard() -> Iterator[None]:
    """Read single keys in this block; the terminal is as before afterwards."""
    try:
        import termios
        import tty
    except ModuleNotFoundError:
        raise UsageError(
            "expected a terminal with single keys, got none on this system - review in the "
            "browser: wink view"
        ) from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "expected a terminal to review in, got a pipe or a file - use `wink view`, or "
            "`wink judge sample` for a file"
        )
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_key() -> str:
    """Wait for a key and return it; an arrow is "j" or "k", the end of the input "q"."""
    pressed = os.read(sys.stdin.fileno(), 1)
    if not pressed or pressed == b"\x04":
        return "q"
    if pressed == b"\x1b":
        return _ARROWS.get((pressed + os.read(sys.stdin.fileno(), 8)).decode("latin-1"), "")
    return pressed.decode("latin-1")


def read_text(title: str) -> str:
    """Read a line of text, with the editing that the terminal has; "" at the end of the input."""
    import termios

    descriptor = sys.stdin.fileno()
    single_keys = termios.tcgetattr(descriptor)
    lines = termios.tcgetattr(descriptor)
    lines[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, lines)
    try:
        sys.stdout.write(f"{title}: ")
        sys.stdout.flush()
        return sys.stdin.readline().strip()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, single_keys)


# ── the screen ──────────────────────────────────────────────────────────────────────────────────


def show_item(view: ReviewView, *, whole: bool = False) -> None:
    """Clear the terminal and show an output; `whole` without cutting its texts."""
    to = screen()
    height = sys.maxsize if whole else to.size.height
    lines = [*_head(view), *_body(view, to, height)]
    if whole:
        lines += _messages(view.result)
    _write(to, [*lines, Text(), *_foot(view)])


def show_help() -> None:
    """Clear the terminal and list the keys."""
    to = screen()
    rows = [Text.assemble((f"  {key:5}", "bold"), what) for key, what in KEYS.items()]
    _write(to, [Text("Keys", "bold"), *rows, Text(), Text("Press any key to go back.", "dim")])


def _write(to: Console, lines: Sequence[Text]) -> None:
    with to.capture() as captured:
        for line in lines:
            to.print(line, overflow="fold")
    sys.stdout.write("\x1b[2J\x1b[H" + captured.get())
    sys.stdout.flush()


def _head(view: ReviewView) -> Iterator[Text]:
    yield Text.assemble(
        (f"{view.at + 1} of {view.total}", "bold"),
        f"  {view.labelled} labelled  ",
        (one_line(view.result.sample_id), "bold"),
        f"  epoch {view.result.epoch}" if view.result.epoch > 1 else "",
        (f"  {one_line(view.reviewer)}{', blind' if view.blind else ''}", "dim"),
    )
    yield Text(f"by {one_line(view.criterion) or 'the verdict of the run'}", "dim")
    yield Text()


def _body(view: ReviewView, to: Console, height: int) -> Iterator[Text]:
    """Yield the texts, cut so that they fit the terminal."""
    sample = view.result.sample
    parts = [("Output", pretty(view.result.output))]
    if sample is not None:
        if sample.expected is not None:
            parts.insert(0, ("Expected", pretty(sample.expected)))
        parts.insert(0, ("Input", pretty(sample.input)))
    budget = max(height - _FRAME_LINES - 2 * len(parts), _MIN_TEXT_LINES * len(parts))
    for title, text in parts:
        share = budget if title == "Output" else budget // 3
        yield Text(title, "bold")
        wrapped = _wrapped(text, to.width, share)
        yield from wrapped
        budget -= len(wrapped)
    if not view.blind:
        passed, reason = verdict_on(view.result, view.criterion, only=view.only)
        word = verdict_word(passed, "error")
        yield Text.assemble(
            ("Judge  ", "bold"), (word, COLOURS[word]), f"  {one_line(reason)}"[: to.width * 2]
        )
        if view.reasons:
            yield Text(f"in the queue: {', '.join(view.reasons)}", "dim")


def _wrapped(text: str, width: int, limit: int) -> list[Text]:
    """Return the first lines of a text; wide characters take two columns."""
    clean = escape_control_chars(text.rstrip("\n"))
    head = clean[: limit * width]  # no more fits
    lines = [
        Text(f"  {part}")
        for line in head.split("\n")
        for part in (chop_cells(line, width - 4) or [""])
    ]
    if len(lines) <= limit and head == clean:
        return lines
    return [*lines[: limit - 1], Text("  … and more: m shows everything", "dim")]


def _messages(result: EvalResult[Any]) -> Iterator[Text]:
    trajectory = result.trajectory
    for message in trajectory.messages if trajectory else ():
        yield Text(f"{message.role} {one_line(message.name or '')}", "cyan")
        if message.content:
            yield Text(f"  {escape_control_chars(message.content)}")
        for call in message.tool_calls:
            yield Text(f"  calls {one_line(call.name)} {one_line(pretty(dict(call.arguments)))}")


def _foot(view: ReviewView) -> Iterator[Text]:
    label = view.label
    if label is not None and (label.passed is not None or label.note):
        word = verdict_word(label.passed)
        yield Text.assemble(
            ("You: ", "bold"),
            (word, COLOURS.get(word, "")),
            f"  {one_line(view.category)}" if view.category else "",
            f"  {one_line(label.note or '')}",
        )
    if view.categories:
        keys = (f"{key} {one_line(name)}" for key, name in enumerate(view.categories, 1))
        yield Text("  ".join(keys))
    if view.message:
        yield Text(one_line(view.message), "yellow")
    yield Text(
        "p pass  f fail  n note  c category  s skip  u undo  j k move  ? help  q quit",
        "dim",
    )
