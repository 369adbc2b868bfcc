"""EvalLoop: works off a mailbox of samples to evaluate, on as many machines as there are.

Rules of this file:
1. Order of work: run, score, keep, send, acknowledge. A crash between any two means that the
   sample is delivered again, and that its result is counted once, by its key.
2. A failure is one of three: the agent's, the evaluator's, the infrastructure's. The evaluator's
   is a result at once; the others are too, unless a `DLQPolicy` asks for another try.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol

import anyio

from .._typevars import ExpectedT, InputT, OutputT
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import (
    MailboxError,
    MainLoopError,
    ProviderError,
    ReplyNotAvailableError,
    SerializationError,
    StoreError,
    UsageError,
    shown,
)
from ..runtime._patience import PASSING, refusal
from ..runtime.dlq import DLQPolicy
from ..runtime.mailbox import Mailbox, Message, QueueMailbox
from ..runtime.mailbox._envelope import pack, sent_scrubbed, unpack
from ..runtime.mailbox_loop import MailboxLoop, OutcomeStore, SessionStore
from ..runtime.tracing import continued
from ..runtime.worker import Worker, WorkerConfig
from ..secrets import logger_for, scrub_message
from ._agents import Attempt, agent_of
from ._attempt import Attempted, attempted
from ._criterion import criterion
from ._mailbox_agent import ReplyDesk, asking, key_id
from ._report import ErrorSource, EvalResult
from ._run import sample_span
from ._score import Score
from ._threads import in_thread
from ._types import EvalContext, EvalRequest

__all__ = ["EvalLoop", "EvalLoopConfig", "request_key"]


logger = logger_for(__name__)
sent_scrubbed(EvalResult)


class WorkBudget(Protocol):
    """What workers may use up together: an `adapters.SharedBudget`."""

    async def spend(self, tokens: float, cost: float) -> str:
        """Count what a sample used, and say what is used up by now: empty where nothing is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalLoopConfig(WorkerConfig):
    """How an `EvalLoop` works.

    `mainloop_timeout` is how many seconds to wait for a main loop at the other end of a mailbox;
    `timeout_per_sample_ms` how long a sample may take, its evaluators included.
    """

    mainloop_timeout: float = 300.0
    timeout_per_sample_ms: int | None = None

    def __post_init__(self) -> None:
        WorkerConfig.__post_init__(self)
        for name in ("mainloop_timeout", "timeout_per_sample_ms"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and limit > 0):
                raise UsageError(
                    f"expected a number > 0 for `EvalLoopConfig.{name}`, got {shown(limit)}"
                )


def request_key(request: EvalRequest[Any, Any]) -> str:
    """What a request is known by: the same for every copy of it."""
    if not request.run_id:
        return request.request_id.hex
    return key_id(request.run_id, request.experiment.name, request.sample.id, request.epoch).hex


class EvalLoop(MailboxLoop, Generic[InputT, OutputT, ExpectedT]):
    """A worker for samples: receives an `EvalRequest`, runs the agent, scores, sends the result.

    The agent is `loop`, a `MainLoop` (or any agent) in this process, or whichever main loop works
    off `mainloop_requests`. Results go to `results`, otherwise to where the request says. With
    `store`, a sample that is delivered again after it was scored is not run again. With
    `session_store`, the sessions of a main loop elsewhere are read from there. A `budget` that is
    used up stops the loop; what is left stays queued.
    """

    def __init__(
        self,
        loop: Any = None,
        evaluator: Callable[..., Any] | None = None,
        requests: QueueMailbox[EvalRequest[InputT, ExpectedT]] | None = None,
        results: Mailbox[EvalResult[OutputT]] | None = None,
        *,
        mainloop_requests: QueueMailbox[Any] | None = None,
        config: EvalLoopConfig | None = None,
        dlq: DLQPolicy[EvalRequest[InputT, ExpectedT]] | None = None,
        session_store: SessionStore | None = None,
        store: OutcomeStore | None = None,
        adapter: Any = None,
        budget: WorkBudget | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if (loop is None) == (mainloop_requests is None):
            raise UsageError(
                "expected exactly one of `loop` and `mainloop_requests`, got "
                + ("neither" if loop is None else "both")
            )
        if evaluator is None or requests is None:
            missing = "evaluator" if evaluator is None else "requests"
            raise UsageError(f"expected `EvalLoop({missing}=...)`, got none")
        self._config = config or EvalLoopConfig()
        self._desk: ReplyDesk | None = None
        if mainloop_requests is not None:
            self._desk = ReplyDesk(mainloop_requests, self._config.mainloop_timeout)
            self._agent = asking(self._desk, session_store)
        else:
            self._agent = agent_of(loop, adapter=adapter)
        self._criterion = criterion(evaluator)
        self._requests = requests
        self._results = results
        self._dlq = dlq
        self._store = store
        self._clock = clock
        self._adapter = adapter if adapter is not None else getattr(loop, "adapter", None)
        self._budget = budget

    def _worker(self) -> Worker[EvalRequest[InputT, ExpectedT]]:
        return Worker(
            self._requests,
            self._handle,
            self._give_up,
            config=self._config,
            dlq=self._dlq,
            clock=self._clock,
        )

    async def _let_go(self) -> None:
        """The mailbox for replies ends with the run, which on SQS is a queue."""
        if self._desk is not None:
            with anyio.CancelScope(shield=True):
                await self._desk.requests.aside(self._desk.close)

    async def _handle(self, message: Message[EvalRequest[InputT, ExpectedT]]) -> None:
        request = message.body
        if not isinstance(request, EvalRequest):
            problem = UsageError(f"expected an `EvalRequest` as body, got {shown(request)}")
            await self.worker.bury(message, problem)
            return
        if self._target(message) is None:
            await self._unanswerable(message)
            return
        if (kept := await self._found(request)) is not None:
            self.worker.counts["reused"] += 1
            await self._answer(message, kept)
            return
        if await self._used_up(0, 0.0):
            await self.worker.hand_back(message, untried=True)
            return
        with continued(message.headers):
            done = await self._attempt(request, message.delivery_count)
        self.worker.worked(message)
        trajectory = done.result.trajectory
        cost = 0.0 if trajectory is None else trajectory.cost or 0.0
        with suppress(ProviderError):  # what was spent is lost to the count, but not its result
            await self._used_up(done.result.tokens_used, cost)
        if isinstance(done.failure, PASSING):
            await self.worker.hand_back(message)
        elif self._worth_another_try(done) and self._dlq is not None and done.failure is not None:
            if self._dlq.should_dead_letter(message, done.failure):
                await self._give_up(message, done.failure, done.result)
            else:
                await self.worker.hand_back(message)
        else:
            await self._settle(message, done.result)

    async def _attempt(self, request: EvalRequest[InputT, ExpectedT], delivery: int) -> Attempted:
        this = Attempt(
            request.run_id,
            request.experiment,
            request.epoch,
            delivery,
            keep=False,
            clock=self.worker.clock,
        )
        limit = self._config.timeout_per_sample_ms
        scope = EvalContext(adapter=self._adapter, run_id=request.run_id)
        until = None if limit is None else anyio.move_on_after(limit / 1000)
        with sample_span(request.sample, request.run_id, request.experiment, request.epoch) as seen:
            done = await attempted(
                self._agent, request.sample, self._criterion, this, scope=scope, limit=until
            )
            seen.add(result=done.result)
            seen.error = done.failure
        return done

    async def _used_up(self, tokens: int, cost: float) -> bool:
        """Count what a sample used; with nothing left, the loop stops."""
        if self._budget is None:
            return False
        spend = partial(self._budget.spend, tokens, cost)
        if why := await (spend() if tokens or cost else self.worker.insist(spend, ProviderError)):
            logger.warning("no further sample is begun: %s", why)
            self.worker.stop()
        return bool(why)

    def _worth_another_try(self, done: Attempted) -> bool:
        """Not an evaluator's failure; nor what a main loop reports, which tries by itself."""
        source = done.result.error_source
        return source in ("agent", "infrastructure") and not isinstance(done.failure, MainLoopError)

    async def _settle(
        self, message: Message[EvalRequest[InputT, ExpectedT]], result: EvalResult[Any]
    ) -> None:
        """Keep, send, acknowledge."""
        try:
            await self._answer(message, await self._kept(message, result))
        except SerializationError as error:
            unsaid = _without_what_cannot_be_written(result, error)
            await self._answer(message, await self._kept(message, unsaid))

    async def _found(self, request: EvalRequest[InputT, ExpectedT]) -> EvalResult[Any] | None:
        """The result of an earlier delivery, or of the same request in another message."""
        if self._store is None:
            return None
        find = partial(in_thread, self._store.find, f"eval:{request_key(request)}")
        kept = await self.worker.insist(find, StoreError)
        return None if kept is None else unpack(kept, EvalResult)[0]

    async def _kept(
        self, message: Message[EvalRequest[InputT, ExpectedT]], result: EvalResult[Any]
    ) -> EvalResult[Any]:
        """The result that stays: this one, or another worker's who was first.

        An error is not kept: whoever has it tried again means it.
        """
        if self._store is None:
            return result
        if not result.success:
            return await self._found(message.body) or result
        value = pack(result)
        keep = partial(in_thread, self._store.keep, f"eval:{request_key(message.body)}", value)
        kept = await self.worker.insist(keep, StoreError)
        return result if kept == value else unpack(kept, EvalResult)[0]

    async def _answer(
        self, message: Message[EvalRequest[InputT, ExpectedT]], result: EvalResult[Any]
    ) -> None:
        if (problem := await self._send(message, result)) is None:
            self.worker.counts["evaluated"] += 1
            await self.worker.acknowledge(message)
        else:  # such as a result that is too long, which an error is not
            await self._tell_and_bury(message, problem, _given_up(message, problem))

    async def _give_up(
        self,
        message: Message[EvalRequest[InputT, ExpectedT]],
        error: BaseException,
        last: EvalResult[Any] | None = None,
    ) -> None:
        """An error result for whoever waits, and a dead letter for whoever looks into it."""
        if not isinstance(message.body, EvalRequest) or self._target(message) is None:
            await self.worker.bury(message, error)
            return
        result = await self._kept(message, _given_up(message, error, last))
        if result.success:  # somebody finished it after all, and only that was not heard
            await self._answer(message, result)
        else:
            await self._tell_and_bury(message, error, result)

    async def _tell_and_bury(
        self,
        message: Message[EvalRequest[InputT, ExpectedT]],
        error: BaseException,
        result: EvalResult[Any],
    ) -> None:
        if (problem := await self._send(message, result)) is not None:
            logger.warning("the result of %s is lost: %s", result.sample_id, problem)
            self.worker.counts["unanswered"] += 1
        await self.worker.bury(message, error)

    async def _send(
        self, message: Message[EvalRequest[InputT, ExpectedT]], result: EvalResult[Any]
    ) -> MailboxError | None:
        """Send a result; where no other try could, such as to a mailbox that is gone, why."""
        target = self._target(message)
        if target is None:
            return ReplyNotAvailableError(
                f"expected an open mailbox for the result of {result.sample_id!r}, got none any "
                f"more ({message.reply_address!r})"
            )
        return await refusal(self.worker.send(target, result, request_key(message.body)))

    def _target(self, message: Message[EvalRequest[InputT, ExpectedT]]) -> Mailbox[Any] | None:
        """Where the result goes; None where nobody would get it."""
        target = self._results if self._results is not None else message.reply_to
        return None if target is None or target.closed else target

    async def _unanswerable(self, message: Message[EvalRequest[InputT, ExpectedT]]) -> None:
        """Nothing is evaluated whose result would be lost.

        Without any address that is the fault of whoever made the loop; else it is the message's.
        """
        problem = UsageError(
            "expected an open mailbox for a sample's result, got neither `EvalLoop(results=...)` "
            f"nor a usable reply address ({message.reply_address!r}) - pass `results`, or submit "
            "with `reply_to`"
        )
        if self._dlq is None and message.reply_address is None:
            raise problem
        await self.worker.bury(message, problem)


def _given_up(
    message: Message[EvalRequest[Any, Any]],
    error: BaseException,
    last: EvalResult[Any] | None = None,
) -> EvalResult[Any]:
    """What whoever waits is told of a message that nobody finished; with the `last` result."""
    request = message.body
    said = scrub_message(f"gave up after {message.delivery_count} deliveries: {error}")
    if last is not None:
        return replace(last, error=said)
    return EvalResult(
        request.sample.id,
        Score(0.0, False, said),
        error=said,
        sample=request.sample,
        metadata=request.sample.metadata,
        experiment_name=request.experiment.name,
        epoch=request.epoch,
        run_id=request.run_id,
        attempt=message.delivery_count,
        error_source="infrastructure",
    )


def _without_what_cannot_be_written(
    result: EvalResult[Any], error: SerializationError
) -> EvalResult[Any]:
    """The error instead of an output, or of a score, that has no JSON form."""
    source: ErrorSource = "evaluator"
    try:
        pack(result.trajectory)
    except SerializationError:
        source, result = "agent", replace(result, trajectory=None)
    said = str(error)
    return replace(result, score=Score(0.0, False, said), error=said, error_source=source)
