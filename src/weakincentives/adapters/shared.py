"""Limits that workers on many machines keep together, through Redis.

Rules of this file:
1. The time is the server's, and each question to it is one atomic script.
2. A limit that cannot be asked is not a limit that is met: the call fails, and may be tried again.
3. Waiting is not the model's time, and who waits holds no place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyio
from anyio import to_thread

from .._ids import new_uuid
from .._slots import away
from ..errors import ProviderError, UsageError, shown
from ._model import Model, ModelReply, ModelRequest
from .limits import estimated_tokens

__all__ = ["SharedBudget", "SharedLimiter"]

# A place in line: `KEYS[n]` holds, in seconds, until when line n is taken. Each call moves the end
# of its lines by what it costs, and waits until its own place comes up. The first second's worth
# need not wait. A call that was repeated because its answer got lost finds its first answer.
_RESERVE = """
local told = redis.call('GET', KEYS[3])
if told then return told end
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local wait = 0
for line = 1, 2 do
  local cost, burst = tonumber(ARGV[line * 2 - 1]), tonumber(ARGV[line * 2])
  if cost ~= 0 then
    local start = math.max(now - burst, tonumber(redis.call('GET', KEYS[line]) or 0))
    redis.call('SET', KEYS[line], string.format('%.6f', start + cost), 'EX', 3600)
    if start > now and start - now > wait then wait = start - now end
  end
end
local said = string.format('%.6f', wait)
redis.call('SET', KEYS[3], said, 'EX', 60)
return said
"""

_SPEND = """
if redis.call('SET', KEYS[2], 1, 'NX', 'EX', 60) then
  redis.call('HINCRBYFLOAT', KEYS[1], 'tokens', ARGV[1])
  redis.call('HINCRBYFLOAT', KEYS[1], 'cost', ARGV[2])
  redis.call('EXPIRE', KEYS[1], ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'tokens', 'cost')
"""


class SharedLimiter:
    """So many calls and tokens a minute for all who use the same name on the same server.

    `adapter.around(SharedLimiter(redis, "openai", requests_per_minute=500)).around(retrying())`.
    How many calls are under way at once is each worker's own matter: put a `Limiter` inside.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        estimate: Callable[[ModelRequest], float] = estimated_tokens,
    ) -> None:
        _check_name(name)
        rates = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for what, rate in rates.items():
            if rate is not None:
                _check_positive(rate, what)
        if requests_per_minute is None and tokens_per_minute is None:
            raise UsageError("expected `requests_per_minute` or `tokens_per_minute`, got neither")
        self._keys = [f"{{wink-limit:{name}}}:{line}" for line in ("requests", "tokens")]
        self._request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._estimate = estimate
        self._ask = client.register_script(_RESERVE)

    def around(self, model: Model) -> Model:
        """The model within these limits; `limiter(model)` is the same."""

        async def ask(request: ModelRequest) -> ModelReply:
            tokens = self._estimate(request) if self._token else 0.0
            if wait := await self._reserve(self._request, tokens * self._token):
                async with away():
                    await anyio.sleep(wait)
            reply = await model(request)
            if self._token and reply.usage is not None:
                await self._reserve(0.0, (reply.usage.total_tokens - tokens) * self._token)
            return reply

        return ask

    __call__ = around

    async def _reserve(self, requests: float, tokens: float) -> float:
        """Seconds to wait, for a call that takes so many seconds of each line."""
        keys = [*self._keys, f"{self._keys[0]}:{new_uuid().hex}"]
        cost = [f"{seconds:.9f}" for seconds in (requests, 1.0, tokens, 1.0)]
        return float(await _asked(lambda: self._ask(keys=keys, args=cost)))


class SharedBudget:
    """What all workers of the same name may use up together, in tokens and in money.

    Give it to each `EvalLoop(budget=...)`. Once it is used up, no further sample is begun, the
    workers stop, and what is left stays queued. What was under way then is over the limit.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        max_total_tokens: float | None = None,
        max_total_cost: float | None = None,
        ttl_seconds: int = 7 * 86_400,
    ) -> None:
        _check_name(name)
        self._limits = {"tokens": max_total_tokens, "cost": max_total_cost}
        for what, limit in self._limits.items():
            if limit is not None:
                _check_positive(limit, f"max_total_{what}")
        if max_total_tokens is None and max_total_cost is None:
            raise UsageError("expected `max_total_tokens` or `max_total_cost`, got neither")
        self._key = f"{{wink-budget:{name}}}"
        self._ttl = ttl_seconds
        self._client = client
        self._script = client.register_script(_SPEND)

    async def spend(self, tokens: float, cost: float) -> str:
        """Count what a sample used, and say what is used up by now: empty where nothing is."""
        keys = [self._key, f"{self._key}:{new_uuid().hex}"]
        used = await _asked(lambda: self._script(keys=keys, args=[tokens, cost, self._ttl]))
        for (what, limit), spent in zip(self._limits.items(), used, strict=True):
            if limit is not None and float(spent) >= limit:
                return f"{float(spent):g} of {limit:g} {what} used"
        return ""

    def reset(self) -> None:
        """Begin again at nothing used."""
        self._client.delete(self._key)


async def _asked(call: Callable[[], Any]) -> Any:
    try:
        return await to_thread.run_sync(call)
    except Exception as error:
        raise ProviderError(
            f"expected an answer from the server of a shared limit, got {type(error).__name__}: "
            f"{error}",
            retryable=True,
        ) from error


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or "{" in name or "}" in name:
        raise UsageError(f"expected a name without braces for a shared limit, got {shown(name)}")


def _check_positive(value: Any, what: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise UsageError(f"expected a number > 0 for `{what}`, got {shown(value)}")
