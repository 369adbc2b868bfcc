"""`EvalLoop`: a worker that evaluates the samples in a mailbox, on any number of machines."""

# Theory of operation
# ===================
#
# A request is one sample of one run. It is processed in this order:
#
#     run the agent -> score -> store the result -> send it -> acknowledge the request
#
# The request is acknowledged last, so a crash anywhere redelivers it. A redelivered request whose
# result is in the store is answered from there, without another run. Without a store it runs again.
# Either way the collector counts results by key, so a duplicate counts once: processing is
# at-least-once, counting is exactly-once.
#
# What a failure leads to:
#
#   the evaluator raises            an error result, at once; if it can work with no sample of this
#                                   agent, the error then ends the loop
#   the agent raises or times out   an error result, at once; with a `DLQPolicy`, redelivery with
#                                   backoff until the policy gives up
#   a main loop reports an error    an error result, at once: that loop has done the retries
#   the main loop's mailbox is      redelivery
#   full or unreachable
#   the store or the results        retried until `retry_timeout`, then redelivery
#   mailbox is unavailable
#   a store raises another error    retried a few times, then redelivery; an error result of the
#                                   infrastructure after the last delivery
#   the session is not in the       loaded again for some seconds, without another run; then as if
#   session store yet               the agent had raised, but with infrastructure as its source
#   the results mailbox rejects     an error result in its place, and a dead letter
#   the result (too large, closed)
#   too many deliveries             a dead letter, then an error result (see `Worker`)
#   the dead letters are            redelivery; the client is told when the letter is durable
#   unreachable
#   nowhere to send the result      a dead letter, before anything runs; with no `DLQPolicy` and no
#                                   reply address either, a `UsageError` that ends the loop
#   the body is not a request       a dead letter
#   the request expects another     redelivery, not counted as an attempt, after a pause in which
#   version than this worker's      other workers can take it; the client is told once
#   the budget is exhausted         redelivery, not counted as an attempt, and the loop stops

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, cast

import anyio

from .. import serde
from ..errors import (
    MailboxError,
    MainLoopError,
    ProviderError,
    ReplyNotAvailableError,
    SerializationError,
    StoreError,
    UnsuitableAgentError,
    UsageError,
    short_repr,
)
from ..internal.event_loop import run_sync
from ..internal.public_module import set_public_module
from ..internal.typevars import ExpectedT, InputT, OutputT
from ..runtime.mailbox import Mailbox, Message, QueueMailbox
from ..runtime.mailbox.backends.adapted import receiving_mailbox, sending_mailbox
from ..runtime.mailbox.core.envelope import Packed, redact_when_sent, unpack
from ..runtime.tracing import attach
from ..runtime.worker.dead_letters import DLQPolicy
from ..runtime.worker.in_flight import MaxDeliveriesExceeded
from ..runtime.worker.mailbox_loop import MailboxLoop, OutcomeStore, SessionStore
from ..runtime.worker.retry import TRANSIENT, permanent_failure
from ..runtime.worker.worker import Worker, WorkerConfig
from ..secrets import logger_for, redact_message
from ._types import EvalConfig, EvalRequest, Sample
from .built_ins import Evaluators, as_criterion
from .distributed.mailbox_agents import ReplyRouter, agent_for
from .distributed.submission import key_id, request_key
from .engine.agents import agent_of, check_models
from .engine.attempts import AttemptOutcome, RunSpec, error_without_attempt, run_attempt
from .engine.requirements import check_requirements
from .engine.run import evaluate
from .engine.run_manifest import version_of
from .model.redacted_ids import redact_ids
from .model.result import EvalResult
from .model.versions import WorkerNotice, WorkerVersion
from .runs.report import EvalReport
from .store.storable import storable
from .store.value_keys import OUTCOME

__all__ = ["EvalLoop", "EvalLoopConfig"]

logger = logger_for(__name__)
redact_when_sent(EvalResult, redact_ids)

DESCRIBED_EVERY = 100  # results with a whole description of the worker's version, of each run

RequestMessage = Message[EvalRequest[Any, Any]]
PackedResult = Packed[EvalResult[Any]]


class WorkBudget(Protocol):
    """A limit that workers share, such as an `adapters.SharedBudget`."""

    async def spend(self, tokens: float, cost: float) -> str:
        """Charge what a sample used; return which limit is reached, or an empty string."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalLoopConfig(WorkerConfig):
    """The settings and resources of an `EvalLoop`.

    mainloop_timeout: Seconds to wait for a main loop at the other end of a mailbox.
    timeout: Seconds that a sample may take, its evaluators included (default one hour; None: no
        timeout). Unlike a run, a worker has one by default: a sample that hangs would keep its
        slot and extend the lease of its message forever.
    store: Keeps results, so that a redelivered request is not run again.
    session_store: Where a main loop in another process leaves its sessions.
    adapter: The model for LLM judges, and for an agent that is a prompt.
    budget: Once it is exhausted, the loop stops; the remaining requests stay queued.
    """

    mainloop_timeout: float = 300.0
    timeout: float | None = 3600.0
    store: OutcomeStore | None = None
    session_store: SessionStore | None = None
    adapter: Any = None
    budget: WorkBudget | None = None

    def __post_init__(self) -> None:
        WorkerConfig.__post_init__(self)
        for name in ("mainloop_timeout", "timeout"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and limit > 0):
                raise UsageError(
                    f"expected a number > 0 for `EvalLoopConfig.{name}`, got {short_repr(limit)}"
                )


class EvalLoop(MailboxLoop, Generic[InputT, OutputT, ExpectedT]):
    """A worker that receives an `EvalRequest`, runs the agent, scores, and sends the result.

    The agent is `loop`, a `MainLoop` (or any other agent) in this process, or the main loop that
    works on `mainloop_requests`. Several evaluators in a list must all pass. Results go to
    `results`, or to the reply address of the request.
    `store` and `session_store` may also be given by `config`.
    """

    def __init__(
        self,
        loop: Any = None,
        evaluator: Evaluators | None = None,
        requests: Mailbox[EvalRequest[InputT, ExpectedT]] | None = None,
        results: Mailbox[EvalResult[OutputT]] | None = None,
        *,
        mainloop_requests: Mailbox[Any] | None = None,
        config: EvalLoopConfig | None = None,
        dlq: DLQPolicy[EvalRequest[InputT, ExpectedT]] | None = None,
        store: OutcomeStore | None = None,
        session_store: SessionStore | None = None,
    ) -> None:
        if (loop is None) == (mainloop_requests is None):
            raise UsageError(
                "expected exactly one of `loop` and `mainloop_requests`, got "
                + ("neither" if loop is None else "both")
            )
        if evaluator is None or requests is None:
            missing = "evaluator" if evaluator is None else "requests"
            raise UsageError(f"expected `EvalLoop({missing}=...)`, got none")
        requests = receiving_mailbox(requests, "requests")
        if results is not None:
            results = sending_mailbox(results, "results")
        if mainloop_requests is not None:
            mainloop_requests = sending_mailbox(mainloop_requests, "mainloop_requests", "sibling")
        config = config or EvalLoopConfig()
        self._config = config = replace(
            config,
            store=store if store is not None else config.store,
            session_store=session_store if session_store is not None else config.session_store,
        )
        self._replies: ReplyRouter | None = None
        if mainloop_requests is not None:
            router_requests = cast(QueueMailbox[Any], mainloop_requests)
            self._replies = ReplyRouter(router_requests, config.mainloop_timeout)
            self._agent = agent_for(self._replies, config.session_store, config.backoff)
        else:
            self._agent = agent_of(loop, adapter=config.adapter)
        self._criterion = as_criterion(evaluator)
        self._requests = cast(QueueMailbox[EvalRequest[InputT, ExpectedT]], requests)
        self._results = results
        self._dlq = dlq
        self._store = config.store
        adapter = config.adapter
        self._adapter = adapter if adapter is not None else getattr(loop, "adapter", None)
        check_requirements(self._criterion, self._adapter, self._agent)
        # Now, since the files of a deployment may be replaced while the worker runs.
        self.version = version_of(self._agent, self._criterion, self._adapter)
        self._spec = RunSpec(  # of the latest run
            agent=self._agent,
            criterion=self._criterion,
            config=EvalConfig(timeout=config.timeout),
            adapter=self._adapter,
            clock=config.clock,
        )
        self._has_scored = False
        self._results_of: Counter[str] = Counter()  # by run
        self._noticed: set[tuple[str, str]] = set()  # runs, with the version that they expect

    def execute(
        self, samples: Iterable[Sample[InputT, ExpectedT]] | Sample[InputT, ExpectedT]
    ) -> EvalReport[OutputT]:
        """Evaluate samples here, without their mailbox, and report in their order.

        Each runs through the loop and is scored, with the concurrency and timeout of the config.
        """
        return run_sync(self._execute, [samples] if isinstance(samples, Sample) else samples)

    async def _execute(self, samples: Any) -> EvalReport[OutputT]:
        config = EvalConfig(self._config.max_concurrent, timeout=self._config.timeout)
        try:
            return await evaluate(
                samples, config, self._criterion, agent=self._agent, adapter=self._adapter
            )
        finally:
            await self._release()

    def _worker(self) -> Worker[EvalRequest[InputT, ExpectedT]]:
        check_models(self._agent, self._criterion, self._adapter)
        return Worker(
            self._requests, self._handle, self._give_up, config=self._config, dlq=self._dlq
        )

    async def _release(self) -> None:
        """Close the reply mailbox after a run: on SQS it is a queue that must be deleted."""
        if self._replies is not None:
            with anyio.CancelScope(shield=True):
                await self._replies.requests.run_blocking(self._replies.close)

    async def _handle(self, message: RequestMessage) -> None:
        request = message.body
        if not isinstance(request, EvalRequest):
            error = UsageError(f"expected an `EvalRequest` as body, got {short_repr(request)}")
            await self.worker.dead_letter(message, error)
            return
        if self._target(message) is None:
            await self._reject_unanswerable(message)
            return
        if (stored := await self._load_outcome(request)) is not None:
            self.worker.counts["reused"] += 1
            await self._send_and_acknowledge(message, stored)
            return
        if request.expect and await self._difference(message):
            await self.worker.refuse(message)
            return
        if await self._charge_budget(0, 0.0):
            await self.worker.release(message, untried=True)
            return
        self.worker.start(message)
        with attach(message.headers):
            done = await self._attempt(request, message.delivery_count)
        self.worker.release_slot(message)
        done.result = result = replace(
            done.result,
            worker=_worker_name(),
            made_by=self._made_by(request.run_id, done.agent_version),
            request_number=request.request_number,
        )
        cost = (result.cost or 0.0) + (result.judge_cost or 0.0)
        with suppress(ProviderError):  # losing a charge is better than losing the result
            await self._charge_budget(result.tokens_used + result.judge_tokens, cost)
        if isinstance(done.failure, TRANSIENT):
            await self.worker.release(message)
        elif self._is_retryable(done) and self._dlq is not None and done.failure is not None:
            if self._dlq.should_dead_letter(message, done.failure):
                await self._give_up(message, done.failure, done.result)
            else:
                await self.worker.release(message)
        else:
            await self._settle(message, done.result)
            self._has_scored |= result.error is None
            if isinstance(done.failure, UnsuitableAgentError) and not self._has_scored:
                raise done.failure  # another sample would end like this one, and cost as much

    async def _difference(self, message: RequestMessage) -> str:
        """Return how this worker differs from the version that a request expects, if it does.

        Tell the client once, either way: it would wait in vain for workers that all refuse.
        """
        request = message.body
        difference = self.version.difference(request.expect)
        if (key := (request.run_id, request.expect)) not in self._noticed:
            self._noticed.add(key)
            await self._notify(message, difference)
        return difference

    async def _notify(self, message: RequestMessage, difference: str) -> None:
        run_id, target = message.body.run_id, self._target(message)
        if difference:
            logger.warning(
                "requests of run %s stay in the queue, for a worker of the version that they "
                "expect: of this one, %s - start a worker with the same code and options as the "
                "submission, or submit without a version",
                run_id,
                difference,
            )
        notice = WorkerNotice(
            run_id=run_id, worker=_worker_name(), version=self.version, refused=difference
        )
        id = f"notice-{key_id(run_id, message.body.expect, notice.worker).hex}"
        try:
            await permanent_failure(self.worker.send(target, notice, id))
        except MailboxError as error:  # it helps the client, and nothing depends on it
            logger.warning("the client of run %s is not told: %s", run_id, error)

    def _made_by(self, run_id: str, agent_version: str) -> WorkerVersion:
        """Return the version for a result; with its description from time to time."""
        version = self.version
        if agent_version:  # of a main loop in another process
            version = replace(version, agent_version=agent_version)
        number = self._results_of[run_id]
        self._results_of[run_id] += 1
        return version if number % DESCRIBED_EVERY == 0 else version.hashes()

    async def _attempt(
        self, request: EvalRequest[InputT, ExpectedT], delivery: int
    ) -> AttemptOutcome:
        spec, run_id, experiment = self._spec, request.run_id, request.experiment
        if (spec.run_id, spec.experiment) != (run_id, experiment):
            self._spec = spec = replace(spec, run_id=run_id, experiment=experiment)
        return await run_attempt(spec, request.sample, request.epoch, tries_before=delivery - 1)

    async def _charge_budget(self, tokens: int, cost: float) -> bool:
        """Charge the budget; return whether it is exhausted, and stop the loop if it is."""
        if self._config.budget is None:
            return False
        spend = partial(self._config.budget.spend, tokens, cost)
        reason = await (spend() if tokens or cost else self.worker.retry(spend, ProviderError))
        if reason:
            logger.warning("no more samples are started: %s", reason)
            self.worker.stop()
        return bool(reason)

    def _is_retryable(self, done: AttemptOutcome) -> bool:
        """Return whether a redelivery could help, unless a main loop has already retried."""
        source = done.result.error_source
        return source in ("agent", "infrastructure") and not isinstance(done.failure, MainLoopError)

    async def _settle(self, message: RequestMessage, result: EvalResult[Any]) -> None:
        """Store, send, acknowledge."""
        stored = await self._store_outcome(message, _packed(result))
        await self._send_and_acknowledge(message, stored)

    async def _load_outcome(self, request: EvalRequest[InputT, ExpectedT]) -> PackedResult | None:
        """Return the result of an earlier delivery, or of a copy of the request."""
        if self._store is None:
            return None
        data = await self._find_outcome(self._store, OUTCOME + request_key(request))
        return None if data is None else _decode_outcome(data)

    async def _store_outcome(self, message: RequestMessage, result: PackedResult) -> PackedResult:
        """Store a result; return it, or the one that another worker stored first.

        Errors are not stored, so that a request that is sent again runs again.
        """
        if self._store is None:
            return result
        if result.body.success:
            key = OUTCOME + request_key(message.body)
            data = await self._keep_outcome(self._store, key, result.data)
            first = None if data == result.data else _decode_outcome(data)
        else:
            first = await self._load_outcome(message.body)
        return first or result

    async def _send_and_acknowledge(self, message: RequestMessage, result: PackedResult) -> None:
        if (problem := await self._send(message, result)) is None:
            self.worker.counts["evaluated"] += 1
            await self.worker.acknowledge(message)
        else:  # for example a result that is too large; an error result is small
            error_result = _packed(_gave_up_result(message, problem))
            await self._send_error_and_dead_letter(message, problem, error_result)

    async def _give_up(
        self,
        message: RequestMessage,
        error: BaseException,
        last: EvalResult[Any] | None = None,
    ) -> None:
        """Send an error result for a request that no delivery finished, and dead-letter it."""
        if not isinstance(message.body, EvalRequest) or self._target(message) is None:
            await self.worker.dead_letter(message, error)
            return
        result = _packed(_gave_up_result(message, error, last))
        try:
            result = await self._store_outcome(message, result)
        except StoreError as problem:
            sample_id = result.body.sample_id
            logger.warning("cannot look for an earlier result of %s: %s", sample_id, problem)
        if result.body.success:  # an earlier delivery stored it, and crashed before sending it
            await self._send_and_acknowledge(message, result)
        else:
            await self._send_error_and_dead_letter(message, error, result)

    async def _send_error_and_dead_letter(
        self,
        message: RequestMessage,
        error: BaseException,
        result: PackedResult,
    ) -> None:
        async def report() -> None:
            if (problem := await self._send(message, result)) is not None:
                logger.warning("the result of %s is lost: %s", result.body.sample_id, problem)
                self.worker.counts["unanswered"] += 1

        await self.worker.dead_letter(message, error, report)

    async def _send(self, message: RequestMessage, result: PackedResult) -> MailboxError | None:
        """Send a result; return the error if the mailbox will never take it."""
        target = self._target(message)
        if target is None:
            return ReplyNotAvailableError(
                "expected an open mailbox for the result of "
                f"{result.body.sample_id!r}, got a closed one ({message.reply_address!r})"
            )
        return await permanent_failure(self.worker.send(target, result, request_key(message.body)))

    def _target(self, message: RequestMessage) -> Mailbox[Any] | None:
        """Return the mailbox for the result, or None if there is no open one."""
        target = self._results if self._results is not None else message.reply_to
        return None if target is None or target.closed else target

    async def _reject_unanswerable(self, message: RequestMessage) -> None:
        """Dead-letter a request whose result would be lost, instead of running it.

        Raise if the loop itself is misconfigured: neither it nor the request names a mailbox.
        """
        error = UsageError(
            "expected an open mailbox for a sample's result, got neither `EvalLoop(results=...)` "
            f"nor a usable reply address ({message.reply_address!r}) - pass `results`, or submit "
            "with `reply_to`"
        )
        if self._dlq is None and message.reply_address is None:
            raise error
        await self.worker.dead_letter(message, error)


def _worker_name() -> str:
    """Return the name under which this process is known to those who collect its results."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _decode_outcome(data: bytes) -> PackedResult | None:
    """Return a stored result, or None if it is damaged, as if there were none."""
    try:
        return Packed.of(unpack(data, EvalResult)[0])
    except SerializationError as error:
        logger.warning("a stored result is damaged, so its sample runs again: %s", error)
        return None


def _gave_up_result(
    message: RequestMessage,
    error: BaseException,
    last: EvalResult[Any] | None = None,
) -> EvalResult[Any]:
    """Return the error result of a request that no delivery finished, from the `last` one."""
    request = message.body
    # The error of one that was delivered too often already says how often.
    counted = isinstance(error, MaxDeliveriesExceeded)
    gave_up = "gave up" if counted else f"gave up after {message.delivery_count} deliveries"
    text = redact_message(f"{gave_up}: {error}")
    if last is not None:
        return replace(last, error=text)
    result = error_without_attempt(
        request.sample,
        text,
        run_id=request.run_id,
        experiment=request.experiment.name,
        epoch=request.epoch,
        attempt=message.delivery_count,
    )
    return replace(result, worker=_worker_name(), request_number=request.request_number)


def _packed(result: EvalResult[Any]) -> PackedResult:
    """Return the result as a receiver can decode it, with the same verdict, and its encoding.

    What JSON cannot represent is dropped, as in a run store. An output that cannot be rebuilt from
    its JSON, such as a dataclass with a field of the wrong type, is sent as plain data.
    """
    try:
        packed = Packed.of(result)
    except Exception:  # serializing a user's type may raise anything
        number, worker = result.request_number, result.worker
        packed = Packed.of(replace(storable(result), worker=worker, request_number=number))
    trajectory = packed.body.trajectory
    if trajectory is None or "[" not in packed.kind:  # no type of the output that could refuse it
        return packed
    try:
        unpack(packed.data, EvalResult)
    except SerializationError:
        plain = replace(trajectory, output=serde.plain(trajectory.output))
        return Packed.of(replace(packed.body, trajectory=plain))
    return packed


set_public_module("weakincentives.evals", globals(), __all__)
