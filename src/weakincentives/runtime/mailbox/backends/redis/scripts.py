"""Scripts that run inside the Redis server: one per operation, so that each is atomic.

    letters   hash    id -> `sent:length of the address:address, content`; one per message
    waiting   list    ids, the next one first
    leases    zset    id -> when its lease, or its delay after a nack, ends
    holders   hash    id -> `times.token`: its delivery count, and the token of the last call
    clock     string  `shift seen`: what is added to the server's time, and the latest sum seen
    bell      list    one entry if a message may have arrived; receivers block on it
    call:X    string  the response to the call X, for a minute

Rules of this file:
1. Every id of `letters` is in `waiting` or in `leases`. A delivery is held while `holders` names it
   and its lease has not ended.
2. Times are the server's, in whole microseconds; a test may pass its own. If that clock was set
   back, leases continue from the latest time that was seen.
3. A call that is retried because its response was lost changes nothing and gets the same response.
4. Nothing is written before everything is checked: a script that fails half-way is not rolled back.
5. Operations that free memory work on a server that is out of memory. Such a server refuses a
   script whose first write may need memory, and none after that; so the first write only removes.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Any, NamedTuple


class Script(NamedTuple):
    """A Lua script; once it has run, the server finds it by its digest."""

    text: str
    digest: str

    @classmethod
    def of(cls, *parts: str) -> Script:
        text = "\n".join(parts)
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest())

    def run(self, client: Any, keys: tuple[Any, ...], *arguments: Any) -> Any:
        """Run it and return the response as bytes, whatever the client would decode them to."""
        from redis.exceptions import NoScriptError

        rest = (len(keys), *keys, *arguments)
        try:
            return client.execute_command("EVALSHA", self.digest, *rest, NEVER_DECODE=True)
        except NoScriptError:  # the server is new or was restarted
            return client.execute_command("EVAL", self.text, *rest, NEVER_DECODE=True)


_START = """
local letters, waiting, leases, holders, clock, bell, call = unpack(KEYS)
local server = tonumber(ARGV[1])
if not server then
    local time = redis.call('TIME')
    server = time[1] * 1000000 + time[2]
end
local shift, seen = string.match(redis.call('GET', clock) or '', '^(%d+) (%d+)$')
shift, seen = tonumber(shift or 0), tonumber(seen or 0)
local now = math.max(server + shift, seen)

local function remember(answer)
    redis.call('SET', call, answer, 'EX', 60)
end

local function ring()
    if redis.call('LLEN', bell) == 0 then redis.call('RPUSH', bell, 1) end
end

-- All keys expire together: never, or some seconds after the last call.
local function expire(seconds)
    for key = 1, 6 do redis.call('EXPIRE', KEYS[key], math.max(seconds, 1)) end
end
"""

# The last arguments of a call are its messages or handles, two each: an id and a value.
_HELD = """
local function held(first)
    local ids, good, answer = {}, {}, {}
    for at = first, #ARGV, 2 do ids[#ids + 1] = ARGV[at] end
    local names = redis.call('HMGET', holders, unpack(ids))
    local ends = redis.call('ZMSCORE', leases, unpack(ids))
    for n, id in ipairs(ids) do
        local holds = names[n] == ARGV[first + 2 * n - 1] and ends[n] and tonumber(ends[n]) > now
        if holds then good[#good + 1] = id end
        answer[n] = holds and '1' or '0'
    end
    return good, table.concat(answer)
end
"""

PUT = Script.of(
    _START,
    """
    local ttl, most = tonumber(ARGV[2]), tonumber(ARGV[3])
    if redis.call('EXISTS', call) == 1 then return false end
    if most > 0 then
        local here = redis.call('HLEN', letters)
        if here + (#ARGV - 3) / 2 > most then
            local new, seen = 0, {}
            for at = 4, #ARGV, 2 do
                local id = ARGV[at]
                if not seen[id] and redis.call('HEXISTS', letters, id) == 0 then new = new + 1 end
                seen[id] = true
            end
            if new > 0 and here + new > most then return {here, new} end
        end
    end

    local left = redis.call('TTL', letters)
    local sent, new = string.format('%.0f:', server), {}
    for at = 4, #ARGV, 2 do
        if redis.call('HSETNX', letters, ARGV[at], sent .. ARGV[at + 1]) == 1 then
            new[#new + 1] = ARGV[at]
        end
    end
    if #new > 0 then
        redis.call('RPUSH', waiting, unpack(new))
        ring()
    end
    if ttl > 0 then
        if left ~= -1 then expire(math.max(ttl, left)) end
    elseif left >= 0 then -- one sender without a ttl keeps them all
        for key = 1, 6 do redis.call('PERSIST', KEYS[key]) end
    end
    remember('')
    return false
    """,
)

TAKE = Script.of(
    _START,
    """
    local ttl, token, count = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
    local lease, longest = tonumber(ARGV[5]), tonumber(ARGV[6])
    local answer, taken = {-1}, {}

    local function deliver(id, times, letter)
        taken[#taken + 1] = id
        answer[#answer + 1] = id
        answer[#answer + 1] = times
        answer[#answer + 1] = letter
    end

    local before = redis.call('GET', call)
    if before then
        local ids = cmsgpack.unpack(before)
        local texts = redis.call('HMGET', letters, unpack(ids))
        local names = redis.call('HMGET', holders, unpack(ids))
        for n, id in ipairs(ids) do
            local times, by = string.match(names[n] or '', '^(%d+)%.(.*)$')
            if by == token and texts[n] then deliver(id, tonumber(times), texts[n]) end
        end
        return answer
    end

    local over = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 1000)
    if #over > 0 then
        redis.call('ZREM', leases, unpack(over))
        redis.call('RPUSH', waiting, unpack(over))
    end
    while #taken < count do
        local ids = redis.call('LPOP', waiting, count - #taken)
        if not ids or #ids == 0 then break end
        local texts = redis.call('HMGET', letters, unpack(ids))
        local names = redis.call('HMGET', holders, unpack(ids))
        local named, leased = {}, {}
        for n, id in ipairs(ids) do
            if texts[n] then
                local times = 1
                if names[n] then times = tonumber(string.match(names[n], '^%d+') or 0) + 1 end
                deliver(id, times, texts[n])
                named[#named + 1] = id
                named[#named + 1] = times .. '.' .. token
                leased[#leased + 1] = now + lease
                leased[#leased + 1] = id
            end
        end
        if #named > 0 then
            redis.call('HSET', holders, unpack(named))
            redis.call('ZADD', leases, unpack(leased))
        end
    end

    -- No lease is that long: the server's clock was set back.
    local far = now + longest + 1000000
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, far, '+inf', 'LIMIT', 0, 1000)) do
        redis.call('ZADD', leases, now + lease, id)
    end
    local set_back = now > server + shift
    if (set_back or now >= seen + 1000000) and redis.call('EXISTS', leases) == 1 then
        -- A server that is out of memory may refuse it; the next call retries.
        redis.pcall('SET', clock, string.format('%.0f %.0f', now - server, now))
        local left = redis.call('TTL', letters)
        if left >= 0 then redis.call('EXPIRE', clock, math.max(left, 1)) end
    end
    if #taken > 0 then
        remember(cmsgpack.pack(taken))
        if redis.call('LLEN', waiting) > 0 then ring() else redis.call('DEL', bell) end
        local left = redis.call('TTL', letters)
        if left >= 0 then expire(math.max(ttl, left)) end
    else
        local first = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
        if first then answer[1] = tonumber(first) - now end
    end
    return answer
    """,
)

REMOVE = Script.of(
    _START,
    _HELD,
    """
    local before = redis.call('GET', call)
    if before then return before end
    local good, answer = held(2)
    redis.call('DEL', call) -- rule 5
    if #good > 0 then
        redis.call('HDEL', letters, unpack(good))
        redis.call('HDEL', holders, unpack(good))
        redis.call('ZREM', leases, unpack(good))
        if redis.call('EXISTS', letters) == 0 then redis.call('DEL', clock) end
    end
    remember(answer)
    return answer
    """,
)

RELEASE = Script.of(
    _START,
    _HELD,
    """
    local ttl, delay, untried = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
    local before = redis.call('GET', call)
    if before then return before end
    local good, answer = held(5)
    redis.call('DEL', call) -- rule 5
    for _, id in ipairs(good) do
        local times = string.match(redis.call('HGET', holders, id), '^%d+')
        redis.call('HSET', holders, id, string.format('%d.', times - untried))
        if delay > 0 then redis.call('ZADD', leases, now + delay, id) end
    end
    if #good > 0 and delay == 0 then
        redis.call('ZREM', leases, unpack(good))
        redis.call('RPUSH', waiting, unpack(good))
    end
    if #good > 0 then
        ring() -- with a delay too: the next lease may end earlier than a receiver expects
        local left = redis.call('TTL', letters)
        if left >= 0 then expire(math.max(ttl, left)) end
    end
    remember(answer)
    return answer
    """,
)

# A repeated extension is harmless, so its response is not remembered.
EXTEND = Script.of(
    _START,
    _HELD,
    """
    local until_then = now + tonumber(ARGV[2])
    local good, answer = held(3)
    redis.call('DEL', call) -- rule 5
    for _, id in ipairs(good) do
        redis.call('ZADD', leases, 'XX', 'GT', until_then, id)
    end
    return answer
    """,
)

PURGE = Script.of(
    _START,
    """
    local before = redis.call('GET', call)
    if before then return tonumber(before) end
    local gone = redis.call('HLEN', letters)
    redis.call('UNLINK', letters, waiting, leases, holders, bell, clock)
    remember(gone)
    return gone
    """,
)
