"""Limits that workers on many machines share, through Redis.

Rules of this file:
1. The clock is the server's, and each operation is one atomic script.
2. If the server cannot be reached, the call fails with a retryable error; it is never let through.
3. A waiting call releases its concurrency slot, and the wait does not count as the model's latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from ..errors import ProviderError, UsageError, short_repr
from ..internal.checks import check_number
from ..internal.ids import new_uuid
from ..internal.slots import slot_released
from ..internal.threads import in_thread
from .limits import estimated_tokens
from .model import Model, ModelReply, ModelRequest

# Virtual scheduling (GCRA): `KEYS[n]` holds the time until which rate n is used up. Each call moves
# these times on by its cost, and waits until its own start time. One second's worth is the burst.
# `KEYS[3]` makes a repeated script idempotent: it returns its first result.
_RESERVE = """
local earlier = redis.call('GET', KEYS[3])
if earlier then return earlier end
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
local result = string.format('%.6f', wait)
redis.call('SET', KEYS[3], result, 'EX', 60)
return result
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
    """Limit calls and tokens per minute across all processes that use the same name and server.

    `adapter.around(SharedLimiter(redis, "openai", requests_per_minute=500)).around(retrying())`.
    It does not limit concurrency: put a `Limiter` inside for that.
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
        _check_limits(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self._keys = [f"{{wink-limit:{name}}}:{line}" for line in ("requests", "tokens")]
        self._request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._estimate = estimate
        self._ask = client.register_script(_RESERVE)

    def around(self, model: Model) -> Model:
        """Return the model within these limits; `limiter(model)` is the same."""

        async def ask(request: ModelRequest) -> ModelReply:
            tokens = self._estimate(request) if self._token else 0.0
            if wait := await self._reserve(self._request, tokens * self._token):
                async with slot_released():
                    await anyio.sleep(wait)
            reply = await model(request)
            if self._token and reply.usage is not None:
                await self._reserve(0.0, (reply.usage.total_tokens - tokens) * self._token)
            return reply

        return ask

    __call__ = around

    async def _reserve(self, requests: float, tokens: float) -> float:
        """Reserve that many seconds of each rate; return the seconds to wait."""
        keys = [*self._keys, f"{self._keys[0]}:{new_uuid().hex}"]
        cost = [f"{seconds:.9f}" for seconds in (requests, 1.0, tokens, 1.0)]
        return float(await _run_script(lambda: self._ask(keys=keys, args=cost)))


class SharedBudget:
    """A token and cost budget that all workers with the same name share.

    Pass it to each loop: `EvalLoopConfig(budget=...)`. When it is used up, no further sample is
    started, the workers stop, and the rest stays queued. Samples in flight may then exceed it.
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
        _check_limits(max_total_tokens=max_total_tokens, max_total_cost=max_total_cost)
        self._limits = {"tokens": max_total_tokens, "cost": max_total_cost}
        self._key = f"{{wink-budget:{name}}}"
        self._ttl = ttl_seconds
        self._client = client
        self._script = client.register_script(_SPEND)

    async def spend(self, tokens: float, cost: float) -> str:
        """Add the usage of a sample; return which limit is reached, or "" if none is."""
        keys = [self._key, f"{self._key}:{new_uuid().hex}"]
        used = await _run_script(lambda: self._script(keys=keys, args=[tokens, cost, self._ttl]))
        for (name, limit), spent in zip(self._limits.items(), used, strict=True):
            if limit is not None and float(spent) >= limit:
                return f"{float(spent):g} of {limit:g} {name} used"
        return ""

    def reset(self) -> None:
        """Set the usage to zero."""
        self._client.delete(self._key)


async def _run_script(call: Callable[[], Any]) -> Any:
    try:
        return await in_thread(call, abandon=False)
    except Exception as error:
        raise ProviderError(
            f"expected an answer from the server of a shared limit, got {type(error).__name__}: "
            f"{error}",
            retryable=True,
        ) from error


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or "{" in name or "}" in name:
        raise UsageError(
            f"expected a name without braces for a shared limit, got {short_repr(name)}"
        )


def _check_limits(**limits: float | None) -> None:
    for name, limit in limits.items():
        if limit is not None:
            check_number(limit, name)
    if all(limit is None for limit in limits.values()):
        raise UsageError(f"expected {' or '.join(f'`{name}`' for name in limits)}, got neither")
