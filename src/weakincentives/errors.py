"""Every exception that WINK raises on purpose.

    WinkError
    ├── UsageError (ValueError)          a call is wrong; names the argument
    │   ├── EvaluatorShapeError (TypeError)   a function with no valid evaluator signature
    │   ├── InvalidParameterError        a lease, a wait or a number of messages out of range
    │   ├── PromptError                  a template, section, tool or binding is wrong; names it
    │   └── MissingExtraError (ImportError)   an optional package is not installed
    ├── DatasetError (ValueError)        a data file is wrong; names file, line and `$.path`
    │   └── DatasetTypeError (TypeError) a value in it has the wrong type
    ├── ReportError (ValueError)         a saved report is wrong; names file and line
    ├── RunIncompleteError               a run ended before its last sample; says how many it ran
    ├── StoreError                       runs cannot be stored or read; names the file
    ├── SerializationError (ValueError)  a value has no JSON form, or JSON does not fit a type
    │   ├── SnapshotError                a session cannot be serialized, or a snapshot is damaged
    │   └── EnvelopeError                stored state is of another environment or version
    ├── MailboxError                     a mailbox operation failed
    │   ├── MailboxConnectionError       its server is unavailable; a retry may succeed
    │   ├── MailboxFullError             it is at its capacity
    │   ├── MainLoopTimeoutError (TimeoutError)   no main loop replied in time
    │   ├── MailboxResolutionError       no mailbox has this address
    │   ├── MessageFinalizedError        the message was acknowledged or released before
    │   ├── ReceiptHandleExpiredError    the lease has expired; the message may be redelivered
    │   └── ReplyNotAvailableError       the message has no address to reply to
    ├── MainLoopError                    a main loop in another process failed; its message
    ├── WorkerEndedError                 a worker ended without being asked to; says why
    ├── ProviderError                    a model's service failed; says whether to retry
    ├── RolloutError                     a failed rollout was read to be scored or trained on
    ├── SimulatedUserError               the model that plays a user failed; not the agent's fault
    ├── RemoteError                      a script on another machine failed; its last lines
    ├── BudgetExceededError              an attempt exceeded its budget
    ├── DeadlineExceededError (TimeoutError)   an attempt exceeded its deadline
    ├── OutputParseError (ValueError)    a model's reply does not contain the expected output
    └── EvaluatorError                   an evaluator failed; the sample's output is kept
        └── UnsuitableAgentError         it reads what the agent does not leave, such as a session

Messages follow one grammar: what was expected, what was found, where, what to do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import FunctionType

from .secrets import shorten

__all__ = [
    "BudgetExceededError",
    "DatasetError",
    "DatasetTypeError",
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
    "RolloutError",
    "RunIncompleteError",
    "SerializationError",
    "SimulatedUserError",
    "SnapshotError",
    "StoreError",
    "UnsuitableAgentError",
    "UsageError",
    "WinkError",
    "WorkerEndedError",
    "is_infrastructure_error",
]


def short_repr(value: object, limit: int = 80) -> str:
    """Return the value's `repr`, cut to `limit` characters; never raise."""
    try:
        text = _signature(value) if isinstance(value, FunctionType) else repr(value)
    except Exception:
        text = object.__repr__(value)
    return shorten(text, limit)


def _signature(function: FunctionType) -> str:
    """Return `answer(question, context)`, which says more than the default `repr`."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return f"`{function.__qualname__}({', '.join(code.co_varnames[:count])})`"


class WinkError(Exception):
    """The root: catch this to catch everything that WINK raises on purpose."""


class UsageError(WinkError, ValueError):
    """A call is wrong. Raised at construction, never in the middle of a run."""


class EvaluatorShapeError(UsageError, TypeError):
    """A function has no valid evaluator signature."""


class InvalidParameterError(UsageError):
    """A lease, a wait or a number of messages is out of range; says which range."""


class PromptError(UsageError):
    """A prompt is wrong: names the template, and the section and parameter if there is one."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is missing; the message has the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.missing = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed - "
            f"run: pip install 'weakincentives-evals[{extra}]'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.missing


class SerializationError(WinkError, ValueError):
    """A value has no JSON form, or JSON does not fit the expected type."""


class SnapshotError(SerializationError):
    """A session has an item with no JSON form, or the bytes of a snapshot are damaged."""


class MailboxError(WinkError):
    """A mailbox operation failed; names the mailbox."""


class MailboxConnectionError(MailboxError):
    """The mailbox's server is unavailable. Nothing is lost: a retry may succeed."""


class MailboxFullError(MailboxError):
    """The mailbox is at its capacity; no message of the call was accepted."""


class MailboxResolutionError(MailboxError):
    """No mailbox has this address: `.identifier`."""

    def __init__(self, message: str, identifier: str = "") -> None:
        super().__init__(message)
        self.identifier = identifier


class MainLoopTimeoutError(MailboxError, TimeoutError):
    """No main loop replied to a request in time."""


class MessageFinalizedError(MailboxError):
    """The message was acknowledged or released before, by the same receiver."""


class ReceiptHandleExpiredError(MailboxError):
    """The lease of the message has expired: it was redelivered, or is gone."""


class ReplyNotAvailableError(MailboxError):
    """The message has no address to reply to, or one that cannot be resolved."""


class MainLoopError(WinkError):
    """A main loop in another process failed on a request; the message is that of its error.

    `details` has the type, the place and the traceback of that error, if they are known. With
    `infrastructure`, something that it depends on failed, such as a provider or a store.
    """

    def __init__(
        self, message: str = "", *, details: object = None, infrastructure: bool = False
    ) -> None:
        super().__init__(message)
        self.details = details  # an `ErrorDetails`
        self.infrastructure = infrastructure


class WorkerEndedError(WinkError):
    """A worker ended without being asked to; its messages were released, and count as delivered."""

    def __init__(
        self,
        why: str = "something cancelled its tasks - an agent must cancel only tasks it started",
    ) -> None:
        super().__init__(f"the worker ended because {why}")
        self.why = why

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.why,)


class ProviderError(WinkError):
    """A model's service failed.

    `retryable` is True if a retry may succeed (rate limits, overload, lost connections);
    `retry_after` is the delay in seconds that the service requested, if any.
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


class RunIncompleteError(WinkError):
    """A run ended before its last sample, because something in the process cancelled it."""

    def __init__(self, done: int) -> None:
        super().__init__(
            f"expected the run to reach its last sample, got a cancellation after {done:,} - the "
            "agent, an evaluator or a callback cancelled our tasks or stopped the event loop; "
            "stored results are kept, and `resume` continues the run"
        )
        self.done = done

    def __reduce__(self) -> tuple[type[RunIncompleteError], tuple[int]]:
        return type(self), (self.done,)


class RemoteError(WinkError):
    """A script on another machine failed, or the connection did; has its last lines of output."""


class BudgetExceededError(WinkError):
    """An attempt used more tokens than its budget allows."""


class DeadlineExceededError(WinkError, TimeoutError):
    """An attempt took longer than its deadline allows."""


class OutputParseError(WinkError, ValueError):
    """A model's reply does not contain the expected output."""


class EvaluatorError(WinkError):
    """An evaluator failed to reach a verdict. This is never a score of 0.0."""


class UnsuitableAgentError(EvaluatorError):
    """An evaluator reads what the agent does not leave: a session, or a type in it, usage, a score.

    A run whose first sample ends in it stops, since every other sample would end like that one.
    """


class _FileError(WinkError, ValueError):
    """An error at a place in a file: `problem - at `$.path` (file:line)`."""

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
        rebuild = partial(type(self), file=self.file, line=self.line, path=self.path)
        return rebuild, (self.problem,)


class DatasetError(_FileError):
    """A data file is wrong: `.file`, `.line` (from 1), `.path` (`$.input.question`), `.problem`."""


class DatasetTypeError(DatasetError, TypeError):
    """A value in a data file has another type than its field: `"4"` for an `int`."""


class ReportError(_FileError):
    """A saved report is wrong: `.file`, `.line` (from 1), `.path`, `.problem`."""


class StoreError(WinkError):
    """Runs cannot be stored or read; says what to do. Earlier data is still there."""


class RolloutError(WinkError):
    """A failed rollout was read to be scored or trained on. It has no trajectory and no reward."""


class SimulatedUserError(WinkError):
    """The model that plays a user failed or gave no reply; not the agent's fault."""


def is_infrastructure_error(error: BaseException | None) -> bool:
    """Return whether an error is not the agent's fault.

    A provider, a mailbox or a store is busy or unavailable, or a simulated user failed.
    """
    if isinstance(error, ProviderError):
        return error.retryable or (error.status or 0) >= 500
    if isinstance(error, MainLoopError):
        return error.infrastructure
    return isinstance(error, MailboxError | StoreError | SimulatedUserError)
