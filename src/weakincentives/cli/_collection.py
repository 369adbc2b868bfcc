"""Results on their way from a mailbox into the run store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from .. import serde
from ..clock import SYSTEM_CLOCK
from ..errors import MailboxConnectionError, SerializationError
from ..evals import EvalResult, RunStore, StoredRow
from ..evals._helpers import LEASE, NAMED, Key, Submission
from ..evals._run import Tally, sample_digest
from ..evals._store_rows import KeyState
from ..evals._threads import in_thread
from ..evals._types import EvalRequest
from ..evals._words import duration
from ._display import Moment
from ._summary import harmless

if TYPE_CHECKING:
    from ..runtime.mailbox import Message
    from ._queues import Deployment

__all__ = ["Collection"]

POLL = 1.0  # seconds after which a wait for results looks up
MOST = 100  # results in one commit
QUIET = 10.0  # seconds without a result before that is worth a word
ROUNDS = 3  # times that what is missing is sent again, with nothing come of it
AGAIN = 60.0  # seconds before a message that is not for us is looked at again


class Collection:
    """What a run owes, brought in result by result.

    A result that comes for an error, after a dead letter was sent again say, takes its place.
    """

    def __init__(
        self,
        submission: Submission,
        store: RunStore,
        queue: Deployment,
        *,
        on_result: Callable[[EvalResult[Any]], object],
        on_note: Callable[[str], object],
        patience: float | None,
        retry_errors: bool,
    ) -> None:
        self.submission = submission
        self.stopped = False
        self._store = store
        self._requests = queue.mailbox(EvalRequest)
        # As plain data: who collects need not have the classes of the agent.
        self._results = queue.mailbox(Any, queue.results(submission.run_id))
        self._on_result, self._on_note = on_result, on_note
        self._patience = patience
        self._positions = {sample.id: at for at, sample in enumerate(submission.dataset)}
        self._keys = frozenset(submission.keys())
        self._stored: dict[Any, KeyState] = dict(store.keys(submission.run_id))
        errors = {key for key, state in self._stored.items() if state.error}
        self._again = errors if retry_errors else set()
        self.owed: set[Any] = {*(self._keys - self._stored.keys()), *self._again}
        self._tally = Tally()
        self._began = self._last = self._looked = SYSTEM_CLOCK.monotonic()
        self._reached = self._unreadable = False
        self._rounds = 0
        self._waiting: int | None = None

    def stop(self) -> None:
        """Leave after the batch that is in hand."""
        self.stopped = True
        self._results.wake()

    def moment(self) -> Moment:
        """What can be seen of it now."""
        now, tally = SYSTEM_CLOCK.monotonic(), self._tally
        elapsed, total = now - self._began, len(self.submission)
        return Moment(
            total=total,
            done=total - len(self.owed),
            seen=tally.done,
            passed=tally.passed,
            errors=tuple(sorted(tally.errors.items())),
            tokens=tally.tokens,
            cost=tally.cost,
            elapsed=elapsed,
            speed=tally.done / elapsed if elapsed else 0.0,
            plain=self.submission.epochs == 1 and len(self.submission.experiments) == 1,
            queue=self._queue(now - self._last),
        )

    def _queue(self, quiet: float) -> str:
        if self._waiting is None:
            return "-"
        words = f"{self._waiting:,} waiting or under way"
        if quiet < QUIET:
            return words
        asked = " - is a worker running?" if self._waiting else ""
        return f"{words}, no result for {duration(quiet)}{asked}"

    # ── collecting ──────────────────────────────────────────────────────────────────────────────

    async def run(self, timeout: float | None) -> None:
        """Collect until nothing is owed, until `stop`, or for so many seconds."""
        end = float("inf") if timeout is None else self._began + timeout
        if self._again:
            sent = await self._send(self._again.__contains__)
            self._on_note(f"sent {sent:,} that ended in an error again")
        while not self.stopped and (left := end - SYSTEM_CLOCK.monotonic()) > 0:
            try:
                # Once all is there, what still lies there may be better than an error.
                came = await self._some(min(left, POLL) if self.owed else 0)
            except MailboxConnectionError as error:
                if not self._reached:
                    raise
                self._on_note(f"still trying: {harmless(str(error))}")
                await anyio.sleep(min(POLL, left))
                continue
            if not came and not self.owed:
                break

    async def _some(self, wait: float) -> bool:
        """Receive once: store, commit, acknowledge; whether anything came."""
        messages = await self._results.receive_async(
            max_messages=MOST, visibility_timeout=LEASE, wait_time_seconds=wait
        )
        self._reached = True
        done: list[Message[Any]] = []
        others: list[Message[Any]] = []
        new: list[EvalResult[Any]] = []
        for message in messages:
            result = self._result_of(message)
            (others if result is None else done).append(message)
            if result is not None and (counted := self._put(result)) is not None:
                new.append(counted)
        if others:
            await self._results.aside(partial(self._results.release_all, others, AGAIN))
        if done:
            await in_thread(self._store.flush)
            await self._results.aside(partial(self._results.acknowledge_all, done))
        for result in new:
            self._tally.add(result)
            self._on_result(result)
        if new:
            self._last, self._rounds = SYSTEM_CLOCK.monotonic(), 0
        self._waiting = await self._requests.aside(self._requests.approximate_count)
        if not messages and self.owed:
            await self._see_what_others_stored()
            await self._send_what_is_missing()
        return bool(messages)

    def _result_of(self, message: Message[Any]) -> EvalResult[Any] | None:
        """The result in a message, if it is one that this run owes."""
        try:
            result: EvalResult[Any] = serde.convert(message.body, EvalResult[Any])
            if result.run_id == self.submission.run_id and _key(result) in self._keys:
                return result
            problem = f"it is {result.sample_id!r} of the run {result.run_id!r}"
        except SerializationError as error:
            problem = str(error)
        if not self._unreadable:
            self._unreadable = True
            self._on_note(f"a message is no result of this run, and left there: {problem}")
        return None

    def _put(self, result: EvalResult[Any]) -> EvalResult[Any] | None:
        """Queue a result for the store; None where its key has one that stays."""
        key, state = _key(result), self._stored.get(_key(result))
        if state is not None:
            if key not in self.owed and not (state.error and result.error is None):
                return None
            result = replace(result, attempt=state.attempt + max(1, result.attempt))
        position = self._positions[result.sample_id]
        sample = self.submission.dataset[position]
        result = replace(result, sample=sample)
        self._store.put(
            StoredRow(result=result, position=position, sample_digest=sample_digest(sample))
        )
        self._stored[key] = KeyState(
            sample_digest="",
            criteria="",
            error=result.error is not None,
            attempt=result.attempt,
            error_source=result.error_source,
        )
        self.owed.discard(key)
        return result

    async def _see_what_others_stored(self) -> None:
        """Somebody else may collect the same run; what they have is not owed any more."""
        if (now := SYSTEM_CLOCK.monotonic()) - self._looked < QUIET:
            return
        self._looked = now
        for key, state in (await in_thread(self._store.keys, self.submission.run_id)).items():
            if key not in self._stored:
                self._stored[key] = state
                self.owed.discard(key)

    async def _send_what_is_missing(self) -> None:
        """Where nothing is queued and nothing comes, as after the loss of a server, send again."""
        quiet = SYSTEM_CLOCK.monotonic() - self._last
        patience = float("inf") if self._patience is None else self._patience
        if quiet < patience or self._waiting or self._unreadable or not self.owed:
            return
        self._last = SYSTEM_CLOCK.monotonic()
        if self._rounds == ROUNDS:
            self._rounds += 1
            self._on_note(f"sent {ROUNDS} times, and nothing came of it: see `wink dlq list`")
        if self._rounds > ROUNDS:
            return
        self._rounds += 1
        sent = await self._send(self.owed.__contains__)
        self._on_note(f"nothing is queued any more: sent {sent:,} missing again")

    async def _send(self, only: Callable[[Key], bool]) -> int:
        send = partial(self.submission.send, self._requests, reply_to=self._results.name, only=only)
        return await self._requests.aside(send)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def finish(self, *, interrupted: bool) -> int:
        """Write down how it ended; how many results are missing."""
        keys = self.submission.keys()
        missing = [key for key in keys if key not in self._stored]
        note = ""
        if missing and not interrupted:
            names = ", ".join(dict.fromkeys(key.sample_id for key in missing[:NAMED]))
            more = ", ..." if len(missing) > NAMED else ""
            note = f"{len(missing)} of {len(self.submission)} missing: {names}{more}"
        status = "interrupted" if interrupted else "stopped" if missing else "complete"
        if self._store.run(self.submission.run_id).status != "complete":  # and stays as it was
            self._store.finish(self.submission.run_id, status, note)
        self._results.close()
        self._requests.close()
        return len(missing)


def _key(result: EvalResult[Any]) -> Key:
    return Key(result.experiment_name, result.sample_id, result.epoch)
