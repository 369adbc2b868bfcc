"""The details of an error besides its message: its type, its place, and its traceback.

Rules of this file:
1. Only text is kept, never an exception, a frame or a local variable: those would hold memory.
2. Everything is redacted before it is cut, since half a secret cannot be recognised.
3. A group of errors is kept with its message and its members. One that a task group made around a
   single error is not: the error is kept as if it had been raised.
4. Frames of our own are left out, and so is everything above the first frame of the user's code.
   Paths are relative to the working directory, or to `site-packages`: the same error has the same
   place on every machine.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from ..errors import EvaluatorError, MainLoopError
from ..secrets import redact_message
from .checks import plain_texts
from .concurrency import errors_of
from .public_module import set_public_module
from .wire_names import wire_name

MAX_TRACEBACK_CHARS = 8_000
_MAX_MESSAGE_CHARS = 1_000  # per exception, in a traceback
_MAX_LINE_CHARS = 200  # per line of source code
_MAX_FRAMES = 40  # per exception
_MAX_CHAINED = 6  # exceptions that led to one another
_MAX_MEMBERS = 10  # exceptions of a group
_MAX_DEPTH = 2  # groups in groups, in a traceback
_TASK_GROUPS = ("unhandled errors in a TaskGroup", "Exceptions from Trio nursery")


@wire_name("wink:ErrorDetails")
@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """The type of an exception, the place in the user's code, and the traceback, redacted.

    `type` has its module, unless it is a built-in: `json.decoder.JSONDecodeError`. `where` is the
    innermost place in the user's own code: `rag.py:41 in retrieve`. Both may be empty.
    """

    type: str
    where: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        plain_texts(self, "type", "where", "traceback")

    def __str__(self) -> str:
        kind = self.type.removeprefix("weakincentives.errors.")
        return f"{kind} at {self.where}" if self.where else kind


def error_details(failure: BaseException) -> ErrorDetails:
    """Return what is kept of an exception, or of the cause in a wrapper.

    Errors that an evaluator raises are wrapped in an `EvaluatorError`; the details are those of the
    original error.
    """
    error = _original(failure)
    if isinstance(error, MainLoopError) and isinstance(error.details, ErrorDetails):
        return error.details  # the details from the other process
    kind = redact_message(_type_name(error))
    try:
        blocks = [_Block(each, link) for each, link in _chain(error)]
        users = [frame for frame in blocks[0].frames if frame.is_users]
        where = str(users[-1]) if users else ""
        return ErrorDetails(kind, redact_message(where), _traceback(blocks))
    except Exception:  # a user's exceptions and loaders of source code may raise anything
        return ErrorDetails(kind)


def message_of(failure: BaseException) -> str:
    """Return the message of an exception, redacted; the name of its type if it has none."""
    failure = _unwrapped(failure)
    if isinstance(failure, BaseExceptionGroup):
        members = errors_of(failure)
        texts = [f"{type(each).__name__}: {_text(each)}" for each in members[:_MAX_MEMBERS]]
        if more := len(members) - len(texts):
            texts.append(f"{more:,} more")
        return f"{redact_message(failure.message)}: {'; '.join(map(_short, texts))}"
    kind = type(failure).__name__
    text = _text(failure)
    if text and isinstance(failure, KeyError | SystemExit):
        text = f"{kind}: {text}"
    return redact_message(text) or kind


def with_type(message: str, details: ErrorDetails | None) -> str:
    """Return the message after the name of the error's type, unless it says so already.

    >>> with_type("division by zero", ErrorDetails("ZeroDivisionError"))
    'ZeroDivisionError: division by zero'

    Our own errors are whole sentences, and need no type.
    """
    if details is None or details.type.startswith("weakincentives."):
        return message
    name = details.type.rpartition(".")[2]
    has_type = message.startswith(name) or f" {name}: " in message
    return message if has_type else f"{name}: {message}"


def _original(failure: BaseException) -> BaseException:
    error = _unwrapped(failure)
    if isinstance(error, EvaluatorError) and (cause := error.__cause__) is not None:
        # One that wraps another error names its type.
        return cause if type(cause).__name__ in _text(error) else error
    return error


def _unwrapped(error: BaseException) -> BaseException:
    """Return the only error of a group that a task group made; any other error as it is."""
    if isinstance(error, BaseExceptionGroup):
        members = errors_of(error)
        if len(members) == 1 and error.message.startswith(_TASK_GROUPS):
            return members[0]
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__} (its message could not be read)"


def _type_name(error: BaseException) -> str:
    kind = type(error)
    if isinstance(error, BaseExceptionGroup):
        members = sorted({type(each).__name__ for each in errors_of(error)})
        return f"{kind.__name__}[{', '.join(members)}]"
    if kind.__module__ in (None, "builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# ── frames ──────────────────────────────────────────────────────────────────────────────────────

_OURS = str(Path(__file__).parents[1]) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(slots=True)
class _Frame:
    file: str  # as it is shown
    line: int
    function: str
    source: str
    is_users: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    def lines(self) -> Iterator[str]:
        yield f'  File "{self.file}", line {self.line}, in {self.function}'
        if self.source:
            yield f"    {_cut(self.source, _MAX_LINE_CHARS)}"


def _frames(traceback: TracebackType | None) -> Iterator[_Frame]:
    """Yield the frames that are not ours, outermost first."""
    try:
        here = str(Path.cwd())
    except OSError:  # it was deleted
        here = ""
    for frame, line in walk_tb(traceback):
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            file, is_users = _place(code.co_filename, here)
            source = linecache.getline(code.co_filename, line, frame.f_globals)
            function = code.co_qualname.rpartition("<locals>.")[2]
            yield _Frame(file, line, function, source.strip(), is_users)


@lru_cache(maxsize=1024)
def _place(file: str, here: str) -> tuple[str, bool]:
    """Return a file as it is shown, and whether it is the user's own code."""
    parts = Path(file).parts
    for index, part in enumerate(parts):
        if part in _INSTALLED:
            return str(Path(*parts[index:])), False
    path = Path(file)
    for library in _standard_library():
        if path.is_relative_to(library):
            return str(path.relative_to(library)), False
    if path.is_absolute() and path.is_relative_to(here):
        file = str(path.relative_to(here))
    return file, not file.startswith("<frozen ")


@lru_cache(maxsize=1)
def _standard_library() -> tuple[str, ...]:
    import sysconfig  # slow to import, and only needed for an error

    names = ("stdlib", "platstdlib")
    return tuple({path for name in names if (path := sysconfig.get_path(name))})


# ── the traceback ───────────────────────────────────────────────────────────────────────────────

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def _traceback(blocks: list[_Block]) -> str:
    """Return the traceback, with what led to the error first, as Python prints it.

    It is empty without frames: errors that we raise ourselves say everything in their messages.
    """
    if not any(block.frames or block.members for block in blocks):
        return ""
    limit = MAX_TRACEBACK_CHARS * (1 + min(len(blocks[0].members), _MAX_CHAINED))
    return _without_middle(redact_message("\n".join(_lines(blocks))), limit)


def _lines(blocks: list[_Block]) -> Iterator[str]:
    for block in reversed(blocks):
        yield from block.lines()
        if block.link:
            yield from ("", block.link, "")


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yield an error and those that led to it, latest first, each with how it led to the next."""
    seen: set[int] = set()
    link = ""
    following: BaseException | None = error
    while following is not None and id(following) not in seen and len(seen) < _MAX_CHAINED:
        seen.add(id(following))
        yield following, link
        if following.__cause__ is not None:
            link, following = _CAUSE, following.__cause__
        elif not following.__suppress_context__:
            link, following = _CONTEXT, following.__context__
        else:
            following = None


class _Block:
    """One error of a chain: its frames from the user's code on, its last lines, and the link.

    `members` are the chains of the errors of a group.
    """

    def __init__(self, error: BaseException, link: str, depth: int = 0) -> None:
        frames = list(_frames(error.__traceback__))
        first = next((index for index, frame in enumerate(frames) if frame.is_users), 0)
        self.frames, self.link = frames[first:], link
        text, notes = _text(error), getattr(error, "__notes__", None)
        last = [f"{_type_name(error)}: {text}" if text else _type_name(error)]
        last += [note for note in notes or () if isinstance(note, str)]
        self.last = [_short(line) for line in last[:_MAX_CHAINED]]
        self.members: list[list[_Block]] = []
        if isinstance(error, BaseExceptionGroup) and depth < _MAX_DEPTH:
            self.members = [
                [_Block(each, link, depth + 1) for each, link in _chain(member)]
                for member in error.exceptions[:_MAX_MEMBERS]
            ]

    def lines(self) -> Iterator[str]:
        if self.frames:
            yield "Traceback (most recent call last):"
        head, tail = self.frames, self.frames[:0]
        if (more := len(self.frames) - _MAX_FRAMES) > 0:
            head, tail = head[: _MAX_FRAMES // 4], head[_MAX_FRAMES // 4 + more :]
        for frame in head:
            yield from frame.lines()
        if tail:
            yield f"  [{more:,} more frames]"
        for frame in tail:
            yield from frame.lines()
        yield from self.last
        for number, member in enumerate(self.members, 1):
            yield f"  ── error {number} of the group"
            yield from (f"  {line}" for line in _lines(member))


def _short(text: str) -> str:
    return _cut(text, _MAX_MESSAGE_CHARS)


def _cut(text: str, limit: int) -> str:
    text = redact_message(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _without_middle(text: str, limit: int) -> str:
    """Return the head and the tail of a text that is too long: the tail matters most."""
    if len(text) <= limit:
        return text
    note = "\n[…]\n"
    head = (limit - len(note)) // 4
    return f"{text[:head]}{note}{text[-(limit - len(note) - head) :]}"


set_public_module("weakincentives.evals.model", globals(), ("ErrorDetails",))
