"""MainLoop: from a request to a response, by a prompt and a session that the user prepares.

A user's loop overrides one method, `initialize(request)` or `prepare(request, experiment=...)`,
and returns the prompt to answer and the session to record in. It may also override `execute` or
`execute_async`, to do more than ask the model once. With `requests`, `run()` handles the messages
of a mailbox, and replies to their senders.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Any, Generic, Literal, cast
from uuid import UUID, uuid4

from ...budget import Budget, BudgetTracker, Deadline
from ...chat import ChatMessage, TokenTrace, TokenUsage
from ...clock import SYSTEM_CLOCK
from ...errors import (
    MailboxError,
    MailboxResolutionError,
    ReplyNotAvailableError,
    StoreError,
    UsageError,
    is_infrastructure_error,
    short_repr,
)
from ...experiment import Experiment
from ...internal.checks import check_number
from ...internal.error_details import ErrorDetails, error_details
from ...internal.event_loop import run_sync
from ...internal.frozen import frozen_generic
from ...internal.isolation import run_isolated
from ...internal.threads import in_thread
from ...internal.typevars import InputT, OutputT
from ...internal.wire_names import wire_name
from ...prompt import Prompt
from ...secrets import logger_for, redact_bytes, redact_message
from ..dispatcher import EventBus
from ..mailbox import Message
from ..mailbox.backends.adapted import receiving_mailbox
from ..mailbox.core.envelope import Packed, redact_when_sent, unpack
from ..session import Session
from ..tracing import attach
from ..worker.dead_letters import DLQPolicy
from ..worker.heartbeat import Heartbeat, beating
from ..worker.in_flight import MaxDeliveriesExceeded
from ..worker.mailbox_loop import MailboxLoop, OutcomeStore, SessionStore
from ..worker.retry import call_store, permanent_failure
from ..worker.worker import Worker, WorkerConfig
from .adapter_calls import AdapterCall, adapter_call
from .provider import PromptResponse

logger = logger_for(__name__)

Prepared = tuple[Prompt[OutputT], Session] | Prompt[OutputT]


@wire_name("wink:MainLoopRequest", "weakincentives.runtime.main_loop:MainLoopRequest")
@frozen_generic
@dataclass(frozen=True, slots=True)
class MainLoopRequest(Generic[InputT]):
    """A request and its limits, to be sent through a mailbox.

    The reply goes to the reply address of the message; `reply_to` is the address to use if the
    message has none. `reply_timeout` is how many seconds its sender waits, if that is known.
    """

    request: InputT
    budget: Budget | None = None
    deadline: Deadline | None = None
    experiment: Experiment | None = None
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    reply_to: str | None = None
    reply_timeout: float | None = None


@wire_name("wink:MainLoopResult", "weakincentives.runtime.main_loop:MainLoopResult")
@redact_when_sent
@frozen_generic
@dataclass(frozen=True, slots=True)
class MainLoopResult(Generic[OutputT]):
    """The result of a request: an output or an error, and a snapshot of the session.

    It has all that a trajectory has, so that an evaluator gives the same score as in the process of
    the main loop. `latency_ms` is the time of the main loop, without the wait in the mailbox.
    `agent_version` is the version of the loop, empty if it is unknown.
    """

    request_id: UUID
    output: OutputT = cast(Any, None)
    error: str | None = None
    text: str | None = None
    usage: TokenUsage | None = None
    session_id: UUID | None = None
    session_snapshot: bytes | None = None
    completed_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    messages: tuple[ChatMessage, ...] = ()
    stop_reason: str | None = None
    latency_ms: int | None = None
    cost: float | None = None
    tokens: tuple[TokenTrace, ...] = ()
    error_source: Literal["agent", "infrastructure"] | None = None
    error_details: ErrorDetails | None = None
    agent_version: str = ""

    @property
    def success(self) -> bool:
        """True if there was no error."""
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLoopConfig(WorkerConfig):
    """Default limits of requests, and settings of the worker.

    A worker replies with an error to a request that takes longer than `timeout` seconds, even if
    its code hangs; None means no limit.
    """

    budget: Budget | None = None
    deadline_seconds: float | None = None
    timeout: float | None = 3600.0

    def __post_init__(self) -> None:
        WorkerConfig.__post_init__(self)
        if self.timeout not in (None, math.inf):
            check_number(self.timeout, "MainLoopConfig.timeout")


class MainLoop(MailboxLoop, Generic[InputT, OutputT]):
    """The one class that users subclass: `initialize` returns the prompt for a request.

    With `session_store`, sessions are saved there instead of being sent with the result. With
    `store`, a redelivered request that was answered before is not answered by the model again.
    """

    agent_version: str = ""
    """The version that replies carry; `wink worker main` sets a hash of the loop's code."""

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
        is_prepared = (
            own.initialize is not MainLoop.initialize or own.prepare is not MainLoop.prepare
        )
        if not is_prepared and _override_of(own) is None:
            raise UsageError(
                f"expected `{own.__qualname__}` to override `initialize` or `prepare`, got neither"
            )
        if bus is not None and dispatcher is not None and bus is not dispatcher:
            raise UsageError("expected one bus, got `bus` and `dispatcher` that differ - pass one")
        self._adapter = adapter
        self._adapter_call = None if adapter is None else adapter_call(adapter)
        self._bus = bus if bus is not None else dispatcher
        self._requests = None if requests is None else receiving_mailbox(requests, "requests")
        self._config = config or MainLoopConfig()
        self._dlq = dlq
        self._session_store = session_store
        self._store = store

    def __getattr__(self, name: str) -> Any:
        # These are always set by `__init__`.
        if name in ("_adapter", "_adapter_call", "_config", "_requests"):
            raise UsageError(
                f"expected `__init__` of `{type(self).__qualname__}` to call "
                "`super().__init__(...)`, got a loop without it"
            )
        raise AttributeError(f"`{type(self).__qualname__}` has no attribute {name!r}")

    @property
    def adapter(self) -> Any:
        """The adapter that answers the prompts."""
        return self._adapter

    def initialize(self, request: InputT, /) -> Prepared[OutputT] | Awaitable[Prepared[OutputT]]:
        """Return the prompt for a request, and the session to record in. Override this …

        It may be async, and may return the prompt alone: then the session is a new one.
        """
        raise UsageError(f"`{type(self).__qualname__}` does not override `initialize`")

    def prepare(
        self, request: InputT, *, experiment: Experiment | None = None
    ) -> Prepared[OutputT] | Awaitable[Prepared[OutputT]]:
        """Do the same for an experiment. … or override this, if the experiment matters."""
        return self.initialize(request)

    def execute(
        self,
        request: InputT | MainLoopRequest[InputT],
        *,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        experiment: Experiment | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer a request, plain or wrapped, from synchronous code.

        Every model call and tool call beats `heartbeat`; in a worker, it is the worker's.
        """
        request, limits, experiment = self._limits(request, budget, deadline, experiment)
        prepared: Any = self.prepare(request, experiment=experiment)
        if inspect.isawaitable(prepared):
            prepared = run_sync(lambda: prepared)
        call, prompt, session = self._open(prepared)
        with beating(heartbeat):
            return call.ask_sync(
                prompt, {"session": session, **limits}, self._config.clock
            ), session

    async def execute_async(
        self,
        request: InputT | MainLoopRequest[InputT],
        *,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        experiment: Experiment | None = None,
        on_session: Callable[[Session], object] | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer a request without blocking the event loop; a synchronous adapter gets a thread.

        `on_session` gets the session before the model is called, so that a failure cannot lose it.
        """
        request, limits, experiment = self._limits(request, budget, deadline, experiment)
        prepared: Any = self.prepare(request, experiment=experiment)
        if inspect.isawaitable(prepared):
            prepared = await prepared
        call, prompt, session = self._open(prepared)
        if on_session is not None:
            on_session(session)
        with beating(heartbeat):
            options = {"session": session, **limits}
            return await call.ask(prompt, options, self._config.clock), session

    async def answer(
        self,
        request: InputT | MainLoopRequest[InputT],
        *,
        experiment: Experiment | None = None,
        on_session: Callable[[Session], object] | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer a request by `execute_async`, or by the method that a subclass overrides.

        A synchronous `execute` runs in a thread. An override gets the plain request, and its
        budget, deadline and experiment if it accepts them.
        """
        override = _override_of(type(self))
        if override is None:
            return await self.execute_async(request, experiment=experiment, on_session=on_session)
        name, accepted = override
        options: dict[str, Any] = {"experiment": experiment}
        if isinstance(request, MainLoopRequest):
            options["experiment"] = experiment or request.experiment
            options |= {"budget": request.budget, "deadline": request.deadline}
            request = request.request
        options = {key: value for key, value in options.items() if value is not None}
        where = f"`{type(self).__qualname__}.{name}`"
        for key in ("budget", "deadline"):
            if key in options and key not in accepted:
                raise UsageError(
                    f"expected {where} to accept `{key}`, which the request has, got one that "
                    "does not - it could not enforce the limit"
                )
        call = partial(
            getattr(self, name), request, **{k: v for k, v in options.items() if k in accepted}
        )
        token = _sessions.set((self, on_session))
        try:
            answered = call() if inspect.iscoroutinefunction(call.func) else await in_thread(call)
            if inspect.isawaitable(answered):
                answered = await answered
        finally:
            _sessions.reset(token)
        if not isinstance(answered, tuple) or len(answered) != 2:
            raise UsageError(
                f"expected (response, session) from {where}, got {short_repr(answered)}"
            )
        return answered

    async def respond(self, request: MainLoopRequest[InputT]) -> MainLoopResult[OutputT]:
        """Return the result to send back, failures included, with the session."""
        result, _ = await self._respond(request)
        return result

    async def _respond(
        self, request: MainLoopRequest[InputT]
    ) -> tuple[MainLoopResult[OutputT], BaseException | None]:
        sessions: list[Session] = []  # the last one counts
        done: dict[str, Any] = {}
        clock, timeout = self._config.clock, self._config.timeout
        start = clock.monotonic()

        async def answer() -> None:
            response, session = await self.answer(request, on_session=sessions.append)
            sessions.append(session)
            done.update(output=response.output, text=response.text, usage=response.usage)
            done.update(_trajectory_fields(response))

        failure = await run_isolated(answer, timeout)
        took = clock.monotonic() - start
        if isinstance(failure, TimeoutError) and timeout is not None and took >= timeout:
            failure = TimeoutError(f"timed out after {timeout:g} s - raise MainLoopConfig.timeout")
        session_fields: dict[str, Any] = {}
        if sessions:
            session = sessions[-1]
            session_fields["session_id"] = session.session_id
            if self._session_store is None:
                session_fields["session_snapshot"] = redact_bytes(session.snapshot())
            else:
                problem = await self._save_session(self._session_store, session, request, took)
                failure = failure or problem
        if failure is not None:
            error = redact_message(str(failure)) or type(failure).__name__
            done = {"error": error, "error_details": error_details(failure)}
            done["error_source"] = _error_source(failure)
        done.setdefault("latency_ms", round(took * 1000))
        done["agent_version"] = self.agent_version
        return MainLoopResult(request.request_id, **done, **session_fields), failure

    async def _save_session(
        self,
        store: SessionStore,
        session: Session,
        request: MainLoopRequest[InputT],
        took: float,
    ) -> StoreError | None:
        """Save the session of a request that took so many seconds; return why that failed.

        Stop retrying while the sender still waits: afterwards nobody would learn the reason.
        """
        timeout = self._config.retry_timeout
        if request.reply_timeout is not None:
            timeout = min(timeout, max(0.0, request.reply_timeout - took) / 2)
        delay, id = self._config.backoff.jittered, session.session_id
        try:
            await call_store(store.save, id, session, delay=delay, timeout=timeout, abandon=False)
        except StoreError as error:
            problem = StoreError(f"could not save the session: {error}")
            problem.__cause__ = error
            return problem
        return None

    # ── as a mailbox worker ─────────────────────────────────────────────────────────────────────

    def _worker(self) -> Worker[MainLoopRequest[InputT]]:
        if self._requests is None:
            raise UsageError(
                f"expected `{type(self).__qualname__}(requests=...)`, a mailbox with requests"
            )
        return Worker(
            self._requests, self._handle, self._give_up, config=self._config, dlq=self._dlq
        )

    async def _handle(self, message: Message[MainLoopRequest[InputT]]) -> None:
        """Answer, store the outcome, reply, acknowledge."""
        if not isinstance(message.body, MainLoopRequest):
            problem = UsageError(
                f"expected a `MainLoopRequest` as body, got {short_repr(message.body)}"
            )
            await self.worker.dead_letter(message, problem)
            return
        request, key = message.body, f"main:{message.body.request_id}"
        if self._store is not None:
            kept = await self._find_outcome(self._store, key)
            if kept is not None:
                await self._reply(message, unpack(kept, MainLoopResult)[0])
                return
        self.worker.start(message)
        with attach(message.headers):
            result, failure = await self._respond(request)
        self.worker.release_slot(message)
        if failure is not None and self._dlq is not None:
            if self._dlq.should_dead_letter(message, failure):
                await self._give_up(message, failure)
            else:
                await self.worker.release(message)
            return
        reply: MainLoopResult[Any] | Packed[MainLoopResult[Any]] = result
        if self._store is not None and failure is None:
            reply = Packed.of(result)
            await self._keep_outcome(self._store, key, reply.data)
        await self._reply(message, reply)

    async def _give_up(
        self, message: Message[MainLoopRequest[InputT]], error: BaseException
    ) -> None:
        """Reply with an error, and dead-letter the request."""
        if not isinstance(message.body, MainLoopRequest):
            await self.worker.dead_letter(message, error)
            return
        text = redact_message(f"gave up after {message.delivery_count} attempts: {error}")
        result: MainLoopResult[Any] = MainLoopResult(
            message.body.request_id, error=text, error_source=_error_source(error)
        )

        async def report() -> None:
            if (problem := await self._send(message, result)) is not None:
                self._unanswered(message.body, problem)

        await self.worker.dead_letter(message, error, report)

    async def _reply(
        self,
        message: Message[MainLoopRequest[InputT]],
        result: MainLoopResult[Any] | Packed[MainLoopResult[Any]],
    ) -> None:
        problem = await self._send(message, result)
        if isinstance(problem, MailboxResolutionError | ReplyNotAvailableError):
            self._unanswered(message.body, problem)  # the sender is gone
        elif problem is not None:  # such as a result that is too long; an error fits
            await self._give_up(message, problem)
            return
        await self.worker.acknowledge(message)

    async def _send(
        self,
        message: Message[MainLoopRequest[InputT]],
        result: MainLoopResult[Any] | Packed[MainLoopResult[Any]],
    ) -> MailboxError | None:
        """Reply to the sender; return the error that no retry can cure."""
        target = message.reply_to
        if target is None and message.reply_address is None and message.body.reply_to is not None:
            target = message.resolve(message.body.reply_to)
        if target is None or target.closed:
            address = message.reply_address or message.body.reply_to
            return ReplyNotAvailableError(f"expected a mailbox to reply to, got {address!r}")
        id = f"{message.body.request_id}:{message.delivery_count}"
        return await permanent_failure(self.worker.send(target, result, id))

    def _unanswered(self, request: MainLoopRequest[InputT], problem: MailboxError) -> None:
        logger.warning("the reply to %s is lost: %s", request.request_id, problem)
        self.worker.counts["unanswered"] += 1

    def _limits(
        self,
        request: InputT | MainLoopRequest[InputT],
        budget: Budget | None,
        deadline: Deadline | None,
        experiment: Experiment | None,
    ) -> tuple[InputT, Mapping[str, Any], Experiment | None]:
        """Return the plain request, its limits as keyword arguments, and its experiment."""
        if self._adapter_call is None:
            raise UsageError(f"expected `{type(self).__qualname__}(adapter=...)` to answer prompts")
        if isinstance(request, MainLoopRequest):
            budget = budget or request.budget
            deadline = deadline or request.deadline
            experiment = experiment or request.experiment
            request = request.request
        budget = budget or self._config.budget
        if deadline is None and self._config.deadline_seconds is not None:
            deadline = Deadline.after(self._config.deadline_seconds)
        limits = {"deadline": deadline, "budget_tracker": BudgetTracker(budget) if budget else None}
        for name, limit in limits.items():
            if limit is not None and name not in self._adapter_call.sync_options:
                raise UsageError(
                    f"expected an adapter whose `evaluate` takes `{name}`, got "
                    f"`{type(self._adapter).__qualname__}` - it could not enforce the limit"
                )
        return request, limits, experiment

    def _open(self, prepared: Any) -> tuple[AdapterCall, Prompt[OutputT], Session]:
        """Return the adapter call, the prompt and the session; make one if none was prepared."""
        assert self._adapter_call is not None  # checked by `_limits`
        if isinstance(prepared, Prompt):
            prepared = prepared, Session(bus=self._bus)
        if not isinstance(prepared, tuple) or len(prepared) != 2:
            raise UsageError(
                "expected a prompt, or (prompt, session), from `initialize` or `prepare` of "
                f"`{type(self).__qualname__}`, got {short_repr(prepared)}"
            )
        loop, on_session = _sessions.get()
        if loop is self and on_session is not None:
            on_session(prepared[1])
        return self._adapter_call, *prepared


# The loop whose overridden `execute` is running, and what receives the sessions that it opens.
_sessions: ContextVar[tuple[Any, Callable[[Session], object] | None]] = ContextVar(
    "weakincentives.on_session", default=(None, None)
)


@cache
def _override_of(kind: type[MainLoop[Any, Any]]) -> tuple[str, frozenset[str]] | None:
    """Return which of `execute_async` and `execute` a class overrides, and its parameters.

    The one in the most derived class counts; `execute_async` if that class has both.
    """
    for own in kind.__mro__[: kind.__mro__.index(MainLoop)]:
        for name in ("execute_async", "execute"):
            if name in vars(own):
                return name, _keywords(getattr(kind, name), "budget", "deadline", "experiment")
    return None


def _keywords(function: Callable[..., Any], *known: str) -> frozenset[str]:
    """Return which of the known keyword arguments a function accepts."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return frozenset(known)
    return frozenset(known).intersection(parameters)


def _trajectory_fields(response: PromptResponse[Any]) -> dict[str, Any]:
    """Return the fields of a trajectory that a response has; a user's own class may have fewer."""
    fields: dict[str, tuple[Any, Any]] = {
        "messages": (tuple, getattr(response, "messages", None)),
        "stop_reason": (str, getattr(response, "finish_reason", None)),
        "cost": (int | float, getattr(response, "cost", None)),
        "tokens": (tuple, getattr(response, "tokens", None)),
    }
    latency_ms = getattr(response, "latency_ms", None)
    if isinstance(latency_ms, int | float):
        fields["latency_ms"] = (int, round(latency_ms))
    return {name: value for name, (kind, value) in fields.items() if isinstance(value, kind)}


def _error_source(error: BaseException) -> Literal["agent", "infrastructure"]:
    """Return the source of an error: a message that was delivered too often may crash workers."""
    ours = isinstance(error, MaxDeliveriesExceeded) or is_infrastructure_error(error)
    return "infrastructure" if ours else "agent"
