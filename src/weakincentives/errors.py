"""Every exception that WINK raises on purpose.

    WinkError
    ├── UsageError (ValueError)          you called us wrongly; names the argument
    │   ├── EvaluatorShapeError (TypeError)   a function that no evaluator shape fits
    │   ├── InvalidParameterError        a lease, a wait or a number of messages out of range
    │   ├── PromptError                  a template, section, tool or binding is wrong; names it
    │   └── MissingExtraError (ImportError)   an optional package is not installed
    ├── DatasetError (ValueError)        a data file is wrong; names file, line and `$.path`
    ├── ReportError (ValueError)         a saved report is wrong; names file and line
    ├── StoreError                       runs cannot be stored or read; names the file
    ├── SerializationError (ValueError)  a value has no JSON form, or JSON does not fit a type
    │   ├── SnapshotError                a session cannot become bytes, or bytes no session
    │   └── EnvelopeError                stored state is of another environment or version
    ├── MailboxError                     a mailbox could not do what it was asked
    │   ├── MailboxConnectionError       its server is away or unwell; another try may succeed
    │   ├── MailboxFullError             it holds as many messages as it may
    │   ├── MainLoopTimeoutError (TimeoutError)   no main loop answered in time
    │   ├── MailboxResolutionError       an address leads nowhere
    │   ├── MessageFinalizedError        the message was acknowledged or handed back before
    │   ├── ReceiptHandleExpiredError    the lease is over; somebody else may have the message
    │   └── ReplyNotAvailableError       the message has no address to reply to
    ├── MainLoopError                    a main loop far away failed; its own words
    ├── ProviderError                    a model's service failed; says whether to try again
    ├── RemoteError                      a script on another machine failed; its last lines
    ├── BudgetExceededError              an attempt used more than it may
    ├── DeadlineExceededError (TimeoutError)   an attempt took longer than it may
    ├── OutputParseError (ValueError)    a model's reply does not hold the output asked for
    └── EvaluatorError                   an evaluator could not judge; the sample's output is kept

Messages follow one grammar: what was expected, what came, where, what to do.
"""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

from .secrets import scrub

__all__ = [
    "BudgetExceededError",
    "DatasetError",
    "DeadlineExceededError",
    "EvaluatorError",
    "EvaluatorShapeError",
    "InvalidParameterError",
    "MailboxConnectionError",
    "MailboxError",
    "MailboxFullError",
    "MailboxResolutionError",
    "MainLoopError",
    "MainLoopTimeoutError",
    "MessageFinalizedError",
    "MissingExtraError",
    "OutputParseError",
    "PromptError",
    "ProviderError",
    "ReceiptHandleExpiredError",
    "RemoteError",
    "ReplyNotAvailableError",
    "ReportError",
    "SerializationError",
    "SnapshotError",
    "StoreError",
    "UsageError",
    "WinkError",
]


def shown(value: object, limit: int = 80) -> str:
    """The value's `repr` for a message: cut where it is long, and never a second error."""
    try:
        text = _signature(value) if isinstance(value, FunctionType) else repr(value)
    except Exception:
        text = object.__repr__(value)
    if len(text) <= limit:
        return text
    text = scrub(text)  # before it is cut, or a half of a secret might stay
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _signature(function: FunctionType) -> str:
    """`answer(question, context)`, which says more than an address does."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return f"`{function.__qualname__}({', '.join(code.co_varnames[:count])})`"


class WinkError(Exception):
    """The root: catch this to catch everything that WINK raises on purpose."""


class UsageError(WinkError, ValueError):
    """You called us wrongly. Raised at construction, never in the middle of a run."""


class EvaluatorShapeError(UsageError, TypeError):
    """A function takes parameters that no evaluator shape has."""


class InvalidParameterError(UsageError):
    """A lease, a wait or a number of messages is out of range; says which range."""


class PromptError(UsageError):
    """A prompt is wrong: names the template, and the section and parameter where it is one."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is needed here; the message is the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.missing = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed - "
            f"run: pip install 'weakincentives-evals[{extra}]'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.missing


class SerializationError(WinkError, ValueError):
    """A value has no JSON form, or JSON does not fit the type that was asked for."""


class SnapshotError(SerializationError):
    """A session has an item with no JSON form, or the bytes of a snapshot are damaged."""


class MailboxError(WinkError):
    """A mailbox could not do what it was asked; names the mailbox."""


class MailboxConnectionError(MailboxError):
    """The mailbox's server is away or unwell. Nothing is lost: another try may succeed."""


class MailboxFullError(MailboxError):
    """The mailbox holds as many messages as it may; nothing of what was sent went in."""


class MailboxResolutionError(MailboxError):
    """An address leads to no mailbox: `.identifier`."""

    def __init__(self, message: str, identifier: str = "") -> None:
        super().__init__(message)
        self.identifier = identifier


class MainLoopTimeoutError(MailboxError, TimeoutError):
    """No main loop answered a request in time."""


class MessageFinalizedError(MailboxError):
    """The message was acknowledged or handed back before, by the same receiver."""


class ReceiptHandleExpiredError(MailboxError):
    """The lease of the message is over: it is somebody else's, or gone."""


class ReplyNotAvailableError(MailboxError):
    """The message has no address to reply to, or one that leads nowhere."""


class MainLoopError(WinkError):
    """A main loop in another process failed on a request; the message is its own."""


class ProviderError(WinkError):
    """A model's service failed.

    `retryable` where another try may succeed (rate limits, overload, lost connections); then
    `retry_after` is the wait in seconds that the service asked for, if it did.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        state = {k: getattr(self, k) for k in ("retryable", "retry_after", "status")}
        return type(self), self.args, state


class RemoteError(WinkError):
    """A script on another machine failed, or the way there did; the message has its last lines."""


class BudgetExceededError(WinkError):
    """An attempt used more tokens than its budget allows."""


class DeadlineExceededError(WinkError, TimeoutError):
    """An attempt took longer than its deadline allows."""


class OutputParseError(WinkError, ValueError):
    """A model's reply does not hold the output that was asked for."""


class EvaluatorError(WinkError):
    """An evaluator could not reach a verdict. This is never a score of 0.0."""


class _FileError(WinkError, ValueError):
    """A message that ends in the place it speaks of: `problem - at `$.path` (file:line)`."""

    def __init__(
        self, problem: str, *, file: Path | str, line: int | None = None, path: str = ""
    ) -> None:
        self.problem = problem
        self.file = str(file)
        self.line = line
        self.path = path
        field = f" - at `{path}`" if path else ""
        place = f"{self.file}:{line}" if line is not None else self.file
        super().__init__(f"{problem}{field} ({place})")

    def __reduce__(self) -> tuple[object, ...]:
        # The default rebuilds from `args`, which lacks the keywords: errors cross process pools.
        rebuild = _rebuild_file_error
        return rebuild, (type(self), self.problem, self.file, self.line, self.path)


def _rebuild_file_error(
    cls: type[_FileError], problem: str, file: str, line: int | None, path: str
) -> _FileError:
    return cls(problem, file=file, line=line, path=path)


class DatasetError(_FileError):
    """A data file is wrong: `.file`, `.line` (from 1), `.path` (`$.input.question`), `.problem`."""


class ReportError(_FileError):
    """A saved report is wrong: `.file`, `.line` (from 1), `.path`, `.problem`."""


class StoreError(WinkError):
    """Runs cannot be stored or read; says what to do. What was stored before is still there."""
