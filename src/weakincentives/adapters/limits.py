"""How many calls at once, and how many a minute: one object that several adapters may share.

Rules of this file:
1. A slot is held only while the call is under way. So a retry goes outside and waits without one:
   the last `around` is the outermost, `adapter.around(limiter).around(retrying())`.
2. First come, first served, whatever a call may cost.
3. However a call ends (reply, error, cancelled while it waits or after), its slot is free again.
4. Waiting is not the model's time: the reply, and so its `latency_ms`, is passed on untouched.
5. One event loop at a time. A call from a second loop while the first is in use is refused.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from anyio.lowlevel import RunVar

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ProviderError, UsageError, shown
from ._model import Model, ModelReply, ModelRequest

__all__ = ["Limiter", "LimiterState", "estimated_tokens"]

_loop: RunVar[object] = RunVar("weakincentives.adapters.limits")
_LOOK_AGAIN = 0.25  # seconds; tokens given back in the meantime shorten a wait
_SHORTEST = 0.001  # seconds; below that, rounding could make a wait of no time at all


def estimated_tokens(request: ModelRequest) -> float:
    """Tokens that a call may take, before anybody has counted: 4/3 a word, and the answer."""
    words = sum(len(message.content.split()) for message in request.messages)
    return words * 4 / 3 + (request.settings.max_tokens or 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterState:
    """A limiter at one moment; `requests` and `throttled` (429s) count from its beginning."""

    limit: int
    in_flight: int
    waiting: int
    requests: int
    throttled: int


class Limiter:
    """A limit around models: `adapter.around(Limiter(16, requests_per_minute=500))`.

    With `adaptive`, the number of calls at once is halved by a 429 (once for all calls that were
    under way together) and grows by one after as many successes as it allows, while it is fully
    used: from `floor` up to `ceiling`, which is `max_concurrent` if not given. A minute's limits
    are spread evenly over the minute. Tokens are estimated before a call and corrected by the usage
    of its reply.
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
        most = max_concurrent if ceiling is None else ceiling
        counts = {"max_concurrent": max_concurrent, "floor": floor, "ceiling": most}
        for name, count in counts.items():
            if type(count) is not int or count < 1:
                raise UsageError(f"expected a whole number >= 1 for `{name}`, got {shown(count)}")
        if not floor <= max_concurrent <= most:
            raise UsageError(
                "expected `floor` <= `max_concurrent` <= `ceiling`, "
                f"got {floor}, {max_concurrent} and {most}"
            )
        if not adaptive and (floor, ceiling) != (1, None):
            raise UsageError("`floor` and `ceiling` are for `adaptive=True` - set it, or drop them")
        self._limit, self._floor, self._ceiling = max_concurrent, floor, most
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
        """What it is doing now."""
        return LimiterState(
            limit=self._limit,
            in_flight=self._in_flight,
            waiting=len(self._queue),
            requests=self._sent,
            throttled=self._throttled,
        )

    def around(self, model: Model) -> Model:
        """The model within these limits; `limiter(model)` is the same."""

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
                    await self._sleep(min(self._pause(ticket), _LOOK_AGAIN))
                    ticket.on_timer = False
                    self._grant()
                else:
                    ticket.wake = anyio.Event()
                    await ticket.wake.wait()
        except BaseException:
            if ticket in self._queue:
                del self._queue[ticket]
                self._grant()
            else:  # it was let in at the moment when it was cancelled
                self._leave()
            raise

    def _grant(self) -> None:
        """Let in whoever may go now. The first in the queue is woken where only time is missing."""
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
        # A limit that nobody reaches says nothing about what the service would bear.
        if self._adaptive and self._in_flight >= self._limit:
            self._successes += 1
            if self._successes >= self._limit and self._limit < self._ceiling:
                self._limit += 1
                self._successes = 0

    def _cut(self, ticket: _Ticket) -> None:
        self._throttled += 1
        # Calls that were sent before the last cut answer for the limit before it.
        if self._adaptive and ticket.cuts == self._cuts:
            self._limit = max(self._floor, self._limit // 2)
            self._successes = 0
            self._cuts += 1

    def _enter_loop(self) -> None:
        here = _loop.get(None)
        if here is None:
            _loop.set(here := object())
        with self._claim:
            if self._users and self._owner is not here:
                raise UsageError(
                    "expected one event loop at a time for a `Limiter`, got a call from a second "
                    "one (synchronous `evaluate` has its own) - make a `Limiter` for each"
                )
            self._owner = here
            self._users += 1


class _Ticket:
    """One call's place in the queue."""

    __slots__ = ("cuts", "on_timer", "tokens", "wake")

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        self.cuts = 0
        self.on_timer = False
        self.wake: anyio.Event | None = None


class _Bucket:
    """Fills by `rate` a second up to one second's worth (at least 1); a big call leaves a debt."""

    __slots__ = ("at", "clock", "level", "limited", "rate", "size")

    def __init__(self, name: str, per_minute: float | None, clock: Clock) -> None:
        self.limited = per_minute is not None
        wanted = 60.0 if per_minute is None else per_minute
        if type(wanted) not in (int, float) or not 0 < wanted < math.inf:
            raise UsageError(f"expected a number > 0 for `{name}`, got {shown(per_minute)}")
        self.rate = wanted / 60
        self.size = self.level = max(1.0, self.rate)
        self.clock, self.at = clock, clock.monotonic()

    def pause(self, amount: float) -> float:
        """Seconds until that much may be taken."""
        if not self.limited:
            return 0.0
        now = self.clock.monotonic()
        self.level = min(self.size, self.level + (now - self.at) * self.rate)
        self.at = now
        missing = min(amount, self.size) - self.level
        return max(_SHORTEST, missing / self.rate) if missing > 1e-6 else 0.0

    def take(self, amount: float) -> None:
        self.level = min(self.size, self.level - amount)
