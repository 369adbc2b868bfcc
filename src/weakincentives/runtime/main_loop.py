"""MainLoop: from a request to a response, by a prompt and a session that the user prepares.

A user's loop overrides one method, `initialize(request)` or `prepare(request, experiment=...)`,
and returns the prompt to answer and the session to record in. With `requests`, `run()` works off a
mailbox, and replies to whoever asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Generic, cast
from uuid import UUID, uuid4

from anyio import to_thread

from .._frozen import truly_frozen
from .._typevars import InputT, OutputT
from ..budget import Budget, BudgetTracker, Deadline
from ..chat import TokenUsage
from ..clock import SYSTEM_CLOCK
from ..errors import (
    MailboxError,
    MailboxResolutionError,
    ReplyNotAvailableError,
    StoreError,
    UsageError,
    shown,
)
from ..experiment import Experiment
from ..prompt import Prompt
from ..secrets import logger_for, scrub_bytes, scrub_message
from ._patience import refusal
from .dispatcher import EventBus
from .dlq import DLQPolicy
from .mailbox import Message
from .mailbox._envelope import pack, sent_scrubbed, unpack
from .mailbox_loop import MailboxLoop, OutcomeStore, SessionStore
from .provider import PromptResponse
from .session import Session
from .tracing import continued
from .worker import Worker, WorkerConfig

__all__ = ["MainLoop", "MainLoopConfig", "MainLoopRequest", "MainLoopResult"]


logger = logger_for(__name__)


@truly_frozen
@dataclass(frozen=True, slots=True)
class MainLoopRequest(Generic[InputT]):
    """A wish to have something done, and within what limits; it travels through mailboxes."""

    request: InputT
    budget: Budget | None = None
    deadline: Deadline | None = None
    experiment: Experiment | None = None
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)


@sent_scrubbed
@truly_frozen
@dataclass(frozen=True, slots=True)
class MainLoopResult(Generic[OutputT]):
    """What came of a request: an output or an error, and the session for those far away."""

    request_id: UUID
    output: OutputT = cast(Any, None)
    error: str | None = None
    text: str | None = None
    usage: TokenUsage | None = None
    session_id: UUID | None = None
    session_snapshot: bytes | None = None
    completed_at: datetime = field(default_factory=SYSTEM_CLOCK.now)

    @property
    def success(self) -> bool:
        """True where no error occurred."""
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLoopConfig(WorkerConfig):
    """Limits for every request that brings none of its own, and how `run` works."""

    budget: Budget | None = None
    deadline_seconds: float | None = None


class MainLoop(MailboxLoop, Generic[InputT, OutputT]):
    """The one class that users subclass: `initialize` says what to ask for a request.

    With `session_store`, sessions are saved there instead of travelling with the result. With
    `store`, a request that was answered before is not answered by the model again.
    """

    def __init__(
        self,
        *,
        adapter: Any = None,
        bus: EventBus | None = None,
        dispatcher: EventBus | None = None,
        requests: Any = None,
        config: MainLoopConfig | None = None,
        dlq: DLQPolicy[Any] | None = None,
        session_store: SessionStore | None = None,
        store: OutcomeStore | None = None,
    ) -> None:
        own = type(self)
        if own.initialize is MainLoop.initialize and own.prepare is MainLoop.prepare:
            raise UsageError(
                f"expected `{own.__qualname__}` to override `initialize` or `prepare`, got neither"
            )
        if adapter is not None and not callable(getattr(adapter, "evaluate", None)):
            raise UsageError(f"expected an adapter with `evaluate`, got {shown(adapter)}")
        if bus is not None and dispatcher is not None and bus is not dispatcher:
            raise UsageError("expected one bus, got `bus` and `dispatcher` that differ - pass one")
        self._adapter = adapter
        self._bus = bus if bus is not None else dispatcher
        self._requests = requests
        self._config = config or MainLoopConfig()
        self._dlq = dlq
        self._session_store = session_store
        self._store = store
        self._accepted = _accepted(adapter)

    @property
    def adapter(self) -> Any:
        """Who answers the prompts."""
        return self._adapter

    def initialize(self, request: InputT) -> tuple[Prompt[OutputT], Session]:
        """The prompt for a request, and the session to record in. Override this one …"""
        raise UsageError(f"`{type(self).__qualname__}` prepares nothing by this name")

    def prepare(
        self, request: InputT, *, experiment: Experiment | None = None
    ) -> tuple[Prompt[OutputT], Session]:
        """… or this one, where the experiment matters."""
        return self.initialize(request)

    def execute(
        self,
        request: InputT | MainLoopRequest[InputT],
        *,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        experiment: Experiment | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer a request, plain or wrapped, from synchronous code."""
        prompt, session, limits = self._begin(request, budget, deadline, experiment)
        return self._adapter.evaluate(prompt, **limits), session

    async def execute_async(
        self,
        request: InputT | MainLoopRequest[InputT],
        *,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        experiment: Experiment | None = None,
        on_session: Callable[[Session], object] | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer a request without blocking the event loop; a synchronous adapter gets a thread.

        `on_session` sees the session before anything is asked, so that a failure cannot lose it.
        """
        prompt, session, limits = self._begin(request, budget, deadline, experiment)
        if on_session is not None:
            on_session(session)
        return await self._ask(prompt, limits), session

    async def respond(self, request: MainLoopRequest[InputT]) -> MainLoopResult[OutputT]:
        """What goes back through a mailbox: whatever happened, as data, with the session."""
        result, _ = await self._respond(request)
        return result

    async def _respond(
        self, request: MainLoopRequest[InputT]
    ) -> tuple[MainLoopResult[OutputT], Exception | None]:
        session: Session | None = None
        failure: Exception | None = None
        done: dict[str, Any]
        try:
            prompt, session, limits = self._begin(request, None, None, None)
            response = await self._ask(prompt, limits)
            done = {"output": response.output, "text": response.text, "usage": response.usage}
        except Exception as error:
            failure, done = error, {"error": scrub_message(str(error)) or type(error).__name__}
        if session is not None:
            done["session_id"] = session.session_id
            if self._session_store is None:
                done["session_snapshot"] = scrub_bytes(session.snapshot())
            else:
                save = partial(self._session_store.save, session.session_id, session)
                await to_thread.run_sync(save)
        return MainLoopResult(request.request_id, **done), failure

    # ── as a mailbox worker ─────────────────────────────────────────────────────────────────────

    def _worker(self) -> Worker[MainLoopRequest[InputT]]:
        if self._requests is None:
            raise UsageError(
                f"expected `{type(self).__qualname__}(requests=...)`, a mailbox to work off"
            )
        return Worker(
            self._requests, self._handle, self._give_up, config=self._config, dlq=self._dlq
        )

    async def _handle(self, message: Message[MainLoopRequest[InputT]]) -> None:
        """Answer, keep the outcome, reply, acknowledge."""
        if not isinstance(message.body, MainLoopRequest):
            problem = UsageError(f"expected a `MainLoopRequest` as body, got {shown(message.body)}")
            await self.worker.bury(message, problem)
            return
        request, key = message.body, f"main:{message.body.request_id}"
        if self._store is not None:
            find = partial(to_thread.run_sync, self._store.find, key)
            kept = await self.worker.insist(find, StoreError)
            if kept is not None:
                await self._reply(message, unpack(kept, MainLoopResult)[0])
                return
        with continued(message.headers):
            result, failure = await self._respond(request)
        self.worker.worked(message)
        if failure is not None and self._dlq is not None:
            if self._dlq.should_dead_letter(message, failure):
                await self._give_up(message, failure)
            else:
                await self.worker.hand_back(message)
            return
        if self._store is not None and failure is None:
            keep = partial(to_thread.run_sync, self._store.keep, key, pack(result))
            await self.worker.insist(keep, StoreError)
        await self._reply(message, result)

    async def _give_up(
        self, message: Message[MainLoopRequest[InputT]], error: BaseException
    ) -> None:
        """Set the request aside, and tell whoever asked."""
        if not isinstance(message.body, MainLoopRequest):
            await self.worker.bury(message, error)
            return
        said = scrub_message(f"gave up after {message.delivery_count} attempts: {error}")
        problem = await self._send(message, MainLoopResult(message.body.request_id, error=said))
        if problem is not None:
            self._unanswered(message.body, problem)
        await self.worker.bury(message, error)

    async def _reply(
        self, message: Message[MainLoopRequest[InputT]], result: MainLoopResult[Any]
    ) -> None:
        problem = await self._send(message, result)
        if isinstance(problem, MailboxResolutionError | ReplyNotAvailableError):
            self._unanswered(message.body, problem)  # who asked is gone
        elif problem is not None:  # such as an answer that is too long, which an error is not
            await self._give_up(message, problem)
            return
        await self.worker.acknowledge(message)

    async def _send(
        self, message: Message[MainLoopRequest[InputT]], result: MainLoopResult[Any]
    ) -> MailboxError | None:
        """Tell whoever asked; where no other try could, why."""
        target = message.reply_to
        if target is None or target.closed:
            return ReplyNotAvailableError(
                f"expected a mailbox to reply to, got {message.reply_address!r}"
            )
        id = f"{result.request_id}:{message.delivery_count}"
        return await refusal(self.worker.send(target, result, id))

    def _unanswered(self, request: MainLoopRequest[InputT], problem: MailboxError) -> None:
        logger.warning("the answer to %s is lost: %s", request.request_id, problem)
        self.worker.counts["unanswered"] += 1

    async def _ask(
        self, prompt: Prompt[OutputT], limits: Mapping[str, Any]
    ) -> PromptResponse[OutputT]:
        if hasattr(self._adapter, "evaluate_async"):
            response: PromptResponse[OutputT] = await self._adapter.evaluate_async(prompt, **limits)
            return response
        call = partial(self._adapter.evaluate, prompt, **limits)
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    def _begin(
        self,
        request: InputT | MainLoopRequest[InputT],
        budget: Budget | None,
        deadline: Deadline | None,
        experiment: Experiment | None,
    ) -> tuple[Prompt[OutputT], Session, Mapping[str, Any]]:
        """The prompt, the session, and the session and limits as the adapter takes them."""
        if self._adapter is None:
            raise UsageError(f"expected `{type(self).__qualname__}(adapter=...)` to answer prompts")
        if isinstance(request, MainLoopRequest):
            budget = budget or request.budget
            deadline = deadline or request.deadline
            experiment = experiment or request.experiment
            request = request.request
        budget = budget or self._config.budget
        if deadline is None and self._config.deadline_seconds is not None:
            deadline = Deadline.after(self._config.deadline_seconds)
        prompt, session = self.prepare(request, experiment=experiment)
        limits = {
            "session": session,
            "deadline": deadline,
            "budget_tracker": BudgetTracker(budget) if budget else None,
        }
        for name, limit in limits.items():
            if name != "session" and limit is not None and name not in self._accepted:
                raise UsageError(
                    f"expected an adapter whose `evaluate` takes `{name}`, got "
                    f"`{type(self._adapter).__qualname__}` - it could not keep the limit"
                )
        return prompt, session, {k: v for k, v in limits.items() if k in self._accepted}


def _accepted(adapter: Any) -> set[str]:
    """Which of our keywords a user's `evaluate` takes; seen once, not at every request."""
    known = {"session", "deadline", "budget_tracker"}
    if adapter is None:
        return known
    parameters = inspect.signature(adapter.evaluate).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return known
    return known & set(parameters)
