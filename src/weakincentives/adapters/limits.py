"""A limiter for concurrency and rates, which several adapters may share.

Rules of this file:
1. A slot is held only while a call is in flight. So put retries outside, where they wait without
   one: the last `around` is the outermost, `adapter.around(limiter).around(retrying())`.
2. Calls are served in order of arrival, whatever they cost.
3. However a call ends (reply, error, cancelled while waiting or in flight), its slot is released.
4. The wait is not part of the model's latency: the reply is passed on unchanged.
5. One event loop at a time. A call from a second loop while the first is in use is refused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ProviderError, UsageError
from ..internal.checks import check_number, check_whole
from ..internal.slots import loop_token
from .model import Model, ModelReply, ModelRequest

_RECHECK_SECONDS = 0.25  # tokens returned in the meantime shorten a wait
_MIN_WAIT_SECONDS = 0.001  # a shorter wait could be rounded to none


def estimated_tokens(request: ModelRequest) -> float:
    """Estimate the tokens of a call before it is made: 4/3 per word, and the reply."""
    words = sum(len(message.content.split()) for message in request.messages)
    return words * 4 / 3 + (request.settings.max_tokens or 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterState:
    """A snapshot of a limiter; `requests` and `throttled` (429s) are totals."""

    limit: int
    in_flight: int
    waiting: int
    requests: int
    throttled: int


class Limiter:
    """Limit the calls of a model: `adapter.around(Limiter(16, requests_per_minute=500))`.

    With `adaptive`, a 429 halves the concurrency (once for all calls in flight at that time), and
    it grows by one after as many successes as it allows, while it is fully used: between `floor`
    and `ceiling`, which defaults to `max_concurrent`. Limits per minute are spread evenly over the
    minute. Tokens are estimated before a call and corrected by the usage of its reply.
    """

    def __init__(
        self,
        max_concurrent: int,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        adaptive: bool = False,
        floor: int = 1,
        ceiling: int | None = None,
        estimate: Callable[[ModelRequest], float] = estimated_tokens,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        highest = max_concurrent if ceiling is None else ceiling
        counts = {"max_concurrent": max_concurrent, "floor": floor, "ceiling": highest}
        for name, count in counts.items():
            check_whole(count, 1, name)
        if not floor <= max_concurrent <= highest:
            raise UsageError(
                "expected `floor` <= `max_concurrent` <= `ceiling`, "
                f"got {floor}, {max_concurrent} and {highest}"
            )
        if not adaptive and (floor, ceiling) != (1, None):
            raise UsageError("`floor` and `ceiling` are for `adaptive=True` - set it, or drop them")
        self._limit, self._floor, self._ceiling = max_concurrent, floor, highest
        self._adaptive, self._estimate, self._sleep = adaptive, estimate, sleep
        self._requests = _Bucket("requests_per_minute", requests_per_minute, clock)
        self._tokens = _Bucket("tokens_per_minute", tokens_per_minute, clock)
        self._queue: OrderedDict[_Ticket, None] = OrderedDict()
        self._in_flight = self._sent = self._throttled = 0
        self._successes = self._cuts = 0
        self._claim = threading.Lock()
        self._owner: object = None
        self._users = 0

    @property
    def state(self) -> LimiterState:
        """The current state."""
        return LimiterState(
            limit=self._limit,
            in_flight=self._in_flight,
            waiting=len(self._queue),
            requests=self._sent,
            throttled=self._throttled,
        )

    def around(self, model: Model) -> Model:
        """Return the model within these limits; `limiter(model)` is the same."""

        async def ask(request: ModelRequest) -> ModelReply:
            ticket = _Ticket(self._estimate(request) if self._tokens.limited else 0.0)
            self._enter_loop()
            try:
                await self._wait(ticket)
                try:
                    self._sent += 1
                    reply = await model(request)
                except ProviderError as error:
                    if error.status == 429:
                        self._cut(ticket)
                    raise
                else:
                    self._succeeded(ticket, reply)
                    return reply
                finally:
                    self._leave()
            finally:
                with self._claim:
                    self._users -= 1

        return ask

    __call__ = around

    async def _wait(self, ticket: _Ticket) -> None:
        self._queue[ticket] = None
        self._grant()
        try:
            while ticket in self._queue:
                if ticket is self._first() and self._in_flight < self._limit:
                    ticket.on_timer = True
                    await self._sleep(min(self._pause(ticket), _RECHECK_SECONDS))
                    ticket.on_timer = False
                    self._grant()
                else:
                    ticket.wake = anyio.Event()
                    await ticket.wake.wait()
        except BaseException:
            if ticket in self._queue:
                del self._queue[ticket]
                self._grant()
            else:  # it was admitted while it was being cancelled
                self._leave()
            raise

    def _grant(self) -> None:
        """Admit the calls that may start; wake the first if it only has to wait for its rate."""
        while self._queue and self._in_flight < self._limit:
            ticket = self._first()
            if ticket.on_timer:
                return
            if ticket.wake is not None:
                ticket.wake.set()
            if self._pause(ticket):
                return
            del self._queue[ticket]
            self._in_flight += 1
            ticket.cuts = self._cuts
            self._requests.take(1)
            self._tokens.take(ticket.tokens)

    def _first(self) -> _Ticket:
        return next(iter(self._queue))

    def _pause(self, ticket: _Ticket) -> float:
        return max(self._requests.pause(1), self._tokens.pause(ticket.tokens))

    def _leave(self) -> None:
        self._in_flight -= 1
        self._grant()

    def _succeeded(self, ticket: _Ticket, reply: ModelReply) -> None:
        if reply.usage is not None:
            self._tokens.take(reply.usage.total_tokens - ticket.tokens)
        # Successes below the limit do not show that the service can take more.
        if self._adaptive and self._in_flight >= self._limit:
            self._successes += 1
            if self._successes >= self._limit and self._limit < self._ceiling:
                self._limit += 1
                self._successes = 0

    def _cut(self, ticket: _Ticket) -> None:
        self._throttled += 1
        # A 429 of a call that was sent before the last cut is due to the limit before it.
        if self._adaptive and ticket.cuts == self._cuts:
            self._limit = max(self._floor, self._limit // 2)
            self._successes = 0
            self._cuts += 1

    def _enter_loop(self) -> None:
        token = loop_token()
        with self._claim:
            if self._users and self._owner is not token:
                raise UsageError(
                    "expected one event loop at a time for a `Limiter`, got a call from a second "
                    "one (synchronous `evaluate` has its own) - make a `Limiter` for each"
                )
            self._owner = token
            self._users += 1


@dataclass(slots=True, eq=False)
class _Ticket:
    """A call in the queue."""

    tokens: float
    cuts: int = 0
    on_timer: bool = False
    wake: anyio.Event | None = None


class _Bucket:
    """A token bucket with a burst of one second (at least 1); a large call leaves a debt."""

    __slots__ = ("at", "clock", "level", "limited", "rate", "size")

    def __init__(self, name: str, per_minute: float | None, clock: Clock) -> None:
        self.limited = per_minute is not None
        limit = 60.0 if per_minute is None else per_minute
        check_number(limit, name)
        self.rate = limit / 60
        self.size = self.level = max(1.0, self.rate)
        self.clock, self.at = clock, clock.monotonic()

    def pause(self, amount: float) -> float:
        """Return the seconds until that much may be taken."""
        if not self.limited:
            return 0.0
        now = self.clock.monotonic()
        self.level = min(self.size, self.level + (now - self.at) * self.rate)
        self.at = now
        missing = min(amount, self.size) - self.level
        return max(_MIN_WAIT_SECONDS, missing / self.rate) if missing > 1e-6 else 0.0

    def take(self, amount: float) -> None:
        self.level = min(self.size, self.level - amount)
