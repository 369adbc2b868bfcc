"""Collect the results of a run from a mailbox that may hold other messages too.

Rules of this file:
1. Order of work: count, commit, acknowledge. A crash in between redelivers a result, and its key
   is counted once.
2. A message that is not a result of the run becomes a dead letter, byte for byte. If it stayed in
   the mailbox, it would block the new result of its sample, which has the same message id.
3. Missing requests are sent again once the queue is empty and no results arrive.
4. A result is matched by its key before anything is redacted, or by the redacted form of its key.
5. An unavailable server is retried.
6. Once the run is cancelled, what has arrived is collected, and nothing is sent again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from ... import serde
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import (
    MailboxConnectionError,
    MailboxError,
    SerializationError,
    WinkError,
    short_repr,
)
from ...internal.formatting import pluralize
from ...internal.threads import in_thread
from ...runtime.mailbox.core.envelope import unpack
from ...runtime.worker.dead_letters import DeadLetter
from ...secrets import logger_for
from ..model.redacted_ids import is_redacted, stands_for
from ..model.result import EvalResult
from ..model.versions import WorkerNotice
from ..runs.tally import Tally
from ..store.queue_state import QueueState, WorkerState
from .ledgers import ResultLedger
from .submission import Key, Submission, is_cancelled, key_id

if TYPE_CHECKING:
    from ...runtime.mailbox import Message, QueueMailbox

logger = logger_for(__name__)

BATCH_SIZE = 100  # results received at a time
LEASE_SECONDS = 60.0  # results are committed at once
RETRY_SECONDS = 1.0  # between two attempts to reach a server
OTHER_RUN_DELAY = 10.0  # seconds before a result of another run is delivered again
DEAD_LETTER_RETRY_DELAY = 60.0  # seconds before a message that could not be dead-lettered
REPORT_SECONDS = 1.0  # between two calls of `on_poll`
DRAIN_SECONDS = 1.0  # without a result, before the collection of a cancelled run ends
REFUSAL_SECONDS = 30.0  # after a refusal, without a worker that accepts, if nothing is resubmitted
NOTICE_FIELDS = {each.name for each in fields(WorkerNotice)}
MAX_REFUSALS = 5  # workers that are named
MAX_COUNT = 2**31  # exclusive upper bound of epochs and attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """Settings of a collector: how it waits, and what it does with messages of other runs.

    Missing requests are sent again after `resubmit_after` seconds without a result (None: never),
    and after `max_rounds` of that without a new result the collector gives up. `poll` is the
    longest wait for a batch. With `exclusive`, the mailbox is for this run only: results of other
    runs become dead letters, and the mailbox is emptied at the end. A server that does not answer
    in the first `connect_timeout` seconds is an error; without it, it is retried until the end.
    If workers refuse the version that the run expects, and none accepts it for `resubmit_after`
    seconds (30 if that is None), the collection ends.
    Dead letters go to the mailbox `dead_letters`, or to `NAME-dlq` next to the results.
    With `cancelled`, the run is known to be cancelled; otherwise its requests are asked.
    """

    resubmit_after: float | None = 30.0
    max_rounds: int | None = None
    poll: float = 20.0
    exclusive: bool = False
    connect_timeout: float | None = None
    dead_letters: str | None = None
    cancelled: bool = False


class Collector:
    """Collects the results of one run from a mailbox into a ledger.

    Without a `submission` every result counts, and nothing is sent again.
    """

    def __init__(
        self,
        results: QueueMailbox[Any],
        ledger: ResultLedger,
        submission: Submission | None = None,
        *,
        requests: QueueMailbox[Any] | None = None,
        config: CollectConfig | None = None,
        on_note: Callable[[str], object] = logger.warning,
        on_poll: Callable[[QueueState], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.submission, self.ledger = submission, ledger
        self.workers: dict[str, WorkerState] = {}  # by their results
        self.tally = Tally()  # new results only
        self.stopped = False
        self.gave_up = False  # because sending again brought no result
        self.refusals: dict[str, str] = {}  # by worker, why it does not run this run
        self._accepted = False  # by a worker of the expected version
        self._refused_at = math.inf
        self.queued: int | None = None  # requests queued or in flight, at the last poll
        self.dead_lettered = 0
        self.rounds = 0  # resubmissions since the last new result
        self.last_result = clock.monotonic()
        self._last_result_at: datetime | None = None
        self._on_poll = on_poll
        self._polled = -math.inf  # when `on_poll` was last called
        self._results, self._requests = results, requests
        self._keys = frozenset(submission.keys() if submission is not None else ())
        self._dead_letters: QueueMailbox[Any] | None = None
        self._config = config or CollectConfig()
        self.cancelled = self._config.cancelled
        self._on_note = on_note
        self._clock = clock
        self._connected = False
        self._last_error = ""
        self._noted_leases = False

    def stop(self) -> None:
        """Stop after the current batch."""
        self.stopped = True
        self._results.wake()

    async def run(self, timeout: float | None) -> None:
        """Collect until no result is missing, until `stop`, or for `timeout` seconds."""
        started = self._clock.monotonic()
        deadline = math.inf if timeout is None else started + timeout
        try:
            await self._run(deadline, started + (self._config.connect_timeout or math.inf))
        finally:
            if self._dead_letters is not None:
                self._dead_letters.close()
                self._dead_letters = None
            with anyio.CancelScope(shield=True):
                await self._report(ended=True)

    def state(self, *, ended: bool = False) -> QueueState:
        """Return what is known of the queue and the workers now."""
        return QueueState(
            updated_at=self._clock.now(),
            missing=len(self.ledger.missing()),
            queued=self.queued,
            resubmitted=self.rounds,
            dead_lettered=self.dead_lettered,
            last_result_at=self._last_result_at,
            ended=ended,
            workers=tuple(self.workers.values()),
        )

    async def _report(self, *, ended: bool = False) -> None:
        """Call `on_poll` with the state, at most once in `REPORT_SECONDS`, and at the end."""
        now = self._clock.monotonic()
        if self._on_poll is not None and (ended or now - self._polled >= REPORT_SECONDS):
            self._polled = now
            try:
                await in_thread(self._on_poll, self.state(ended=ended))
            except WinkError as error:  # it is for display only: continue collecting
                logger.debug("cannot report the state of the queue: %s", error)

    async def _run(self, deadline: float, connect_by: float) -> None:
        retry = () if self.cancelled else self.ledger.retried
        while not self.stopped and (left := deadline - self._clock.monotonic()) > 0:
            await anyio.lowlevel.checkpoint_if_cancelled()
            try:
                if retry:
                    sent, retry = await self._send(retry), ()
                    self._on_note(f"resubmitted samples that ended in an error: {sent:,}")
                finished = await self._step(left)
                self._last_error = ""
            except MailboxError as error:
                if (message := str(error)) != self._last_error:
                    self._last_error = message
                    self._on_note(f"retrying until the queue answers: {message}")
                pause = min(RETRY_SECONDS, left)
                must_connect = not self._connected and self._config.connect_timeout is not None
                if must_connect and self._clock.monotonic() + pause >= min(deadline, connect_by):
                    raise
                await anyio.sleep(pause)
            else:
                if finished:
                    return

    async def _step(self, left: float) -> bool:
        """Receive and process one batch; return whether the collection is over."""
        ledger, config = self.ledger, self._config
        wait = config.poll
        if config.resubmit_after is not None:
            wait = min(wait, max(config.resubmit_after, 0.05))
        if self.cancelled:
            wait = min(wait, DRAIN_SECONDS)
        messages = await self._results.receive_async(
            max_messages=BATCH_SIZE,
            visibility_timeout=LEASE_SECONDS,
            wait_time_seconds=0 if ledger.complete() else min(left, wait),
        )
        self._connected = True
        new = await self._process(messages) if messages else 0
        if ledger.complete():
            # The rest of the mailbox may hold results for samples that ended in an error.
            return not (messages and config.exclusive)
        if self.cancelled and not messages:
            return True
        after = REFUSAL_SECONDS if config.resubmit_after is None else config.resubmit_after
        if self.refused and self._clock.monotonic() - self._refused_at >= after:
            return True
        if self._requests is not None:
            self.queued = await self._requests.run_blocking(self._requests.approximate_count)
            await self._notice_cancellation(self._requests)
        await self._report()
        if new or self.cancelled:
            return False
        await ledger.refresh()
        return ledger.complete() or await self._resubmit()

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    async def _process(self, messages: list[Message[Any]]) -> int:
        """Count, commit, acknowledge; dead-letter the rest. Return how many results were new."""
        counted: list[Message[Any]] = []
        new: list[EvalResult[Any]] = []
        of_others: list[Message[Any]] = []
        invalid: list[tuple[Message[Any], str]] = []
        for message in messages:
            try:
                if (notice := _notice_in(message)) is not None:
                    run_id = None if self.submission is None else self.submission.run_id
                    if notice.run_id == run_id:
                        self._note_worker(notice)
                    (counted if run_id in (None, notice.run_id) else of_others).append(message)
                    continue
                result = self._result_in(message)
            except SerializationError as error:
                invalid.append((message, str(error)))
                continue
            if result is None:
                of_others.append(message)
                continue
            counted.append(message)
            if self.ledger.count(result):
                new.append(result)
        results = self._results
        if counted:
            await self.ledger.commit()
            await results.run_blocking(partial(results.acknowledge_all, counted))
        if of_others:
            await results.run_blocking(partial(results.release_all, of_others, OTHER_RUN_DELAY))
        if new:
            self.rounds, self.last_result = 0, self._clock.monotonic()
            self._accepted = True
        for result in new:
            self.tally.add(result)
            self._count_for_worker(result)
        for message, problem in invalid:
            await self._dead_letter(message, problem)
        return len(new)

    @property
    def refused(self) -> str:
        """Why no worker runs the samples: all that were seen have another version; else empty."""
        if self._accepted or not self.refusals:
            return ""
        expected = self.submission.expect if self.submission is not None else ""
        by = "; ".join(f"{worker}: {why}" for worker, why in self.refusals.items())
        return f"no worker has the expected version {expected} ({by})"

    def _note_worker(self, notice: WorkerNotice) -> None:
        """Note whether a worker runs the samples of this run."""
        if not notice.refused:
            self._accepted = True
        elif len(self.refusals) < MAX_REFUSALS:
            self._refused_at = min(self._refused_at, self._clock.monotonic())
            if notice.refused not in self.refusals.values():
                self._on_note(f"{notice.worker} does not run these samples: {notice.refused}")
            self.refusals[notice.worker] = notice.refused

    def _count_for_worker(self, result: EvalResult[Any]) -> None:
        """Note which worker a result came from."""
        self._last_result_at = now = self._clock.now()
        if result.worker:
            last = self.workers.get(result.worker)
            results, errors = (last.results, last.errors) if last else (0, 0)
            errors += result.error is not None
            self.workers[result.worker] = WorkerState(result.worker, results + 1, errors, now)

    def _result_in(self, message: Message[Any]) -> EvalResult[Any] | None:
        """Return the result in a message, under the key that was submitted.

        Return None for a result of another run; raise a `SerializationError` for anything else.
        """
        result = _read(message)
        if self.submission is None:
            return result
        if result.run_id != self.submission.run_id:
            # Under the message id of one of our results, it would block that result.
            if self._config.exclusive or message.id in self._keys_by_message_id:
                raise SerializationError(
                    f"expected a result of the run {self.submission.run_id!r}, got one of "
                    f"{short_repr(result.run_id)}"
                )
            return None
        if (key := Key.of(result)) in self._keys:
            return result
        if (original := self._original_key(message, key)) is None:
            raise SerializationError(
                f"expected the result of a sample of this run, got {short_repr(key.sample_id)}, "
                f"epoch {short_repr(key.epoch)}, of {short_repr(key.experiment)}"
            )
        return original.restore(result)

    def _original_key(self, message: Message[Any], key: Key) -> Key | None:
        """Return the submitted key that a worker redacted, found by the id of its message."""
        if not (is_redacted(key.sample_id) or is_redacted(key.experiment)):
            return None
        original = self._keys_by_message_id.get(message.id)
        if original is None or key.epoch != original.epoch:
            return None
        same = stands_for(key.sample_id, original.sample_id)
        return original if same and stands_for(key.experiment, original.experiment) else None

    @cached_property
    def _keys_by_message_id(self) -> dict[str, Key]:
        run_id = "" if self.submission is None else self.submission.run_id
        return {key_id(run_id, *key).hex: key for key in self._keys}

    async def _dead_letter(self, message: Message[Any], problem: str) -> None:
        """Move a message to the dead letters; if they cannot take it, release it for later."""
        letter = _letter_for(message, problem, self._clock)
        try:
            dead = await self._results.run_blocking(self._open_dead_letters)
            await dead.run_blocking(partial(dead.send, letter, id=letter.message_id))
        except MailboxConnectionError:
            raise
        except MailboxError as error:  # the mailbox is full, or the letter is too large for it
            self._on_note(f"cannot move {message!r} to the dead letters: {error}")
            release = partial(self._results.release_all, [message], DEAD_LETTER_RETRY_DELAY)
            await self._results.run_blocking(release)
            return
        await self._results.run_blocking(partial(self._results.acknowledge_all, [message]))
        self.dead_lettered += 1
        if self.dead_lettered == 1:
            self._on_note(f"moved to {dead.name}, not a result of this run: {problem}")

    def _open_dead_letters(self) -> QueueMailbox[Any]:
        """Return the mailbox of dead letters, which is created for the first one."""
        if self._dead_letters is None:
            name = self._config.dead_letters or f"{self._results.name}-dlq"
            self._dead_letters = self._results.sibling(name, DeadLetter)
        return self._dead_letters

    # ── sending again ───────────────────────────────────────────────────────────────────────────

    async def _resubmit(self) -> bool:
        """Send missing requests again if it is time to; return whether to give up instead."""
        after = self._config.resubmit_after
        idle = self._clock.monotonic() - self.last_result
        if self._requests is None or self.submission is None or after is None:
            return False
        if self.queued or idle < after or await self._others_hold_results():
            return False
        if self.rounds == self._config.max_rounds:
            self.gave_up = True
            return True
        self.rounds += 1
        self.last_result = self._clock.monotonic()
        sent = await self._send(frozenset(self.ledger.missing()))
        self._on_note(f"the queue is empty, resubmitted missing samples: {sent:,}")
        return False

    async def _notice_cancellation(self, requests: QueueMailbox[Any]) -> None:
        if self.cancelled or self.submission is None:
            return
        if await requests.run_blocking(partial(is_cancelled, self.submission.run_id, requests)):
            self.cancelled = True
            self._on_note("the run was cancelled: collecting what is finished")

    async def _others_hold_results(self) -> bool:
        """Return whether results of this run are leased to another collector, perhaps a dead one.

        They are delivered again when the lease ends. Until then the mailbox drops copies of them.
        """
        if not self._config.exclusive:
            return False
        held = await self._results.run_blocking(self._results.approximate_count)
        if held and not self._noted_leases:
            self._noted_leases = True
            self._on_note(
                f"waiting for {pluralize(held, 'result')} that another collector has received: if "
                f"it was killed, for up to {LEASE_SECONDS:g} s"
            )
        return held > 0

    async def _send(self, keys: Container[Key]) -> int:
        assert self.submission is not None
        assert self._requests is not None
        send = partial(
            self.submission.send, self._requests, reply_to=self._results, only=keys.__contains__
        )
        return await self._requests.run_blocking(send)


def _notice_in(message: Message[Any]) -> WorkerNotice | None:
    """Return what a worker says of a run, if the message is that and not a result."""
    body = None if message.problem is not None else message.body
    if isinstance(body, dict) and body.keys() == NOTICE_FIELDS:  # of a mailbox of plain data
        body = serde.convert(body, WorkerNotice)
    return body if isinstance(body, WorkerNotice) else None


def _read(message: Message[Any]) -> EvalResult[Any]:
    """Return the result in a message; raise a `SerializationError` if it holds none."""
    try:
        body = message.body
    except SerializationError:
        # The output may be of a type that is not imported here: read it as plain data.
        if message._mailbox.body_type is not None or not isinstance(message.raw, bytes):
            raise
        body = unpack(message.raw, Any)[0]
    try:
        result: EvalResult[Any] = (
            body if isinstance(body, EvalResult) else serde.convert(body, EvalResult[Any])
        )
        valid = (
            isinstance(result.run_id, str)
            and isinstance(result.experiment_name, str)
            and type(result.epoch) is int
            and 1 <= result.epoch < MAX_COUNT
            and type(result.attempt) is int
            and 0 <= result.attempt < MAX_COUNT
        )
    except Exception as error:  # anything that the constructor of a result raises
        raise SerializationError(f"expected a result, got: {error}") from error
    if not valid:
        raise SerializationError(
            "expected a result with a valid epoch and attempt, got epoch "
            f"{short_repr(result.epoch)}, attempt {short_repr(result.attempt)} "
            f"(sample {short_repr(result.sample_id)})"
        )
    return result


def _letter_for(message: Message[Any], problem: str, clock: Clock) -> DeadLetter[Any]:
    """Return the dead letter for a message, as raw bytes if it has any.

    Damaged copies of a result share a message id, so the letter's id includes a content digest.
    """
    letter = DeadLetter.of(message, problem, clock=clock)
    raw = message.raw
    if isinstance(raw, bytes):
        letter = replace(letter, body=None, raw=raw)
    else:  # in memory bodies are objects, which differ by when they were sent
        raw = repr(letter.first_received_at).encode()
    id = f"{message.id}-{blake2b(raw, digest_size=4).hexdigest()}"
    return replace(letter, message_id=id)
