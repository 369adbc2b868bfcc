"""Scripts that run inside the Redis server: one per operation, so that each is atomic.

    letters   hash    id -> `sent:length of the address:address, content`; one per message
    waiting   list    ids, the next one first
    leases    zset    id -> when its lease, or its delay after a nack, ends
    holders   hash    id -> `times.token`: its delivery count, and the token of the last call
    clock     string  `shift seen`: what is added to the server's time, and the latest sum seen
    bell      list    one entry if a message may have arrived; receivers block on it
    lanes     zset    lane, `priority:group` -> its turn; those that are not empty
    lanes:X   list    ids of the lane X, like `waiting`, which is the lane `0:`
    groups    hash    id -> lane; of the messages that name one
    cancelled zset    group -> when that is forgotten
    call:X    string  the response to the call X, for a minute

Rules of this file:
1. Every id of `letters` is in `waiting`, a `lanes:X` or `leases`. A delivery is held while
   `holders` names it and its lease has not ended.
2. Times are the server's, in whole microseconds; a test may pass its own. If that clock was set
   back, leases continue from the latest time that was seen.
3. A call that is retried because its response was lost changes nothing and gets the same response.
4. Nothing is written before everything is checked: a script that fails half-way is not rolled back.
5. Operations that free memory work on a server that is out of memory. Such a server refuses a
   script whose first write may need memory, and none after that; so the first write only removes.
6. A call costs the lanes that it delivers from, and not the others: `lanes` is in the order of
   delivery. Earlier releases read `waiting` only, so update workers before those who submit.
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
local letters, waiting, leases, holders, clock, bell, lanes, groups, cancelled, call = unpack(KEYS)
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

local function list_of(lane)
    return lane == '0:' and waiting or lanes .. ':' .. lane
end

-- Calls with all keys but `cancelled`.
local function with_keys(command, ...)
    for key = 1, 8 do redis.call(command, KEYS[key], ...) end
    for _, lane in ipairs(redis.call('ZRANGE', lanes, 0, -1)) do
        redis.call(command, list_of(lane), ...)
    end
end

-- All keys expire together: never, or some seconds after the last call.
local function expire(seconds)
    with_keys('EXPIRE', math.max(seconds, 1))
end

-- Lanes of one priority take turns: each gets a turn after all others when it has had its own.
local function next_turn(priority)
    local first = -priority * 2 ^ 42
    local last = redis.call('ZREVRANGEBYSCORE', lanes, first + 2 ^ 42 - 1, first,
        'WITHSCORES', 'LIMIT', 0, 1)[2]
    return (tonumber(last) or first) + 1
end

local function priority_of(lane)
    return tonumber(string.match(lane, '^%-?%d+'))
end

local function enqueue(ids)
    if redis.call('EXISTS', groups) == 0 then
        redis.call('RPUSH', waiting, unpack(ids))
        return
    end
    local by_lane = {}
    for n, lane in ipairs(redis.call('HMGET', groups, unpack(ids))) do
        lane = lane or '0:'
        by_lane[lane] = by_lane[lane] or {}
        table.insert(by_lane[lane], ids[n])
    end
    for lane, some in pairs(by_lane) do
        redis.call('RPUSH', list_of(lane), unpack(some))
        if not redis.call('ZSCORE', lanes, lane) then
            redis.call('ZADD', lanes, next_turn(priority_of(lane)), lane)
        end
    end
end
"""

# The last arguments of a call are its handles, two each: an id and a value. (`PUT` has messages,
# three each, with the lane.)
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
        if here + (#ARGV - 3) / 3 > most then
            local new, seen = 0, {}
            for at = 4, #ARGV, 3 do
                local id = ARGV[at]
                if not seen[id] and redis.call('HEXISTS', letters, id) == 0 then new = new + 1 end
                seen[id] = true
            end
            if new > 0 and here + new > most then return {here, new} end
        end
    end

    local left = redis.call('TTL', letters)
    local sent, new, named = string.format('%.0f:', server), {}, {}
    local some_cancelled, dropped = redis.call('EXISTS', cancelled) == 1, {}
    for at = 4, #ARGV, 3 do
        local id, lane = ARGV[at], ARGV[at + 2]
        if some_cancelled and dropped[lane] == nil then
            local group = string.match(lane, ':(.*)$')
            dropped[lane] = redis.call('ZSCORE', cancelled, group or '') ~= false
        end
        if not dropped[lane]
                and redis.call('HSETNX', letters, id, sent .. ARGV[at + 1]) == 1 then
            new[#new + 1] = id
            if lane ~= '' then
                named[#named + 1] = id
                named[#named + 1] = lane
            end
        end
    end
    if #named > 0 then redis.call('HSET', groups, unpack(named)) end
    if #new > 0 then
        enqueue(new)
        ring()
    end
    if ttl > 0 then
        if left ~= -1 then expire(math.max(ttl, left)) end
    elseif left >= 0 then -- one sender without a ttl keeps them all
        with_keys('PERSIST')
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
        enqueue(over)
    end

    -- Leases up to `most` ids of a list; returns whether more are left.
    local function take_from(list, most)
        local ids = redis.call('LPOP', list, most)
        if not ids or #ids == 0 then return false end
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
        return redis.call('EXISTS', list) == 1
    end

    if redis.call('EXISTS', lanes) == 0 then
        while #taken < count and take_from(waiting, count - #taken) do end
    else
        -- An earlier release may have sent without a lane.
        if redis.call('EXISTS', waiting) == 1 and not redis.call('ZSCORE', lanes, '0:') then
            redis.call('ZADD', lanes, next_turn(0), '0:')
        end
        while #taken < count do
            local first = redis.call('ZRANGE', lanes, 0, count - #taken - 1)
            if #first == 0 then break end
            local priority, turns = priority_of(first[1]), 0
            while first[turns + 1] and priority_of(first[turns + 1]) == priority do
                turns = turns + 1
            end
            local share = math.floor((count - #taken) / turns)
            for n = 1, turns do
                if take_from(list_of(first[n]), share) then
                    redis.call('ZADD', lanes, next_turn(priority), first[n])
                else
                    redis.call('ZREM', lanes, first[n])
                end
            end
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
        if redis.call('EXISTS', waiting, lanes) > 0 then ring() else redis.call('DEL', bell) end
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
        redis.call('HDEL', groups, unpack(good))
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
        enqueue(good)
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
    with_keys('UNLINK')
    remember(gone)
    return gone
    """,
)

CANCEL = Script.of(
    _START,
    """
    local before = redis.call('GET', call)
    if before then return tonumber(before) end
    local group, seconds, gone = ARGV[2], tonumber(ARGV[3]), 0

    local function discard(ids)
        gone = gone + redis.call('HDEL', letters, unpack(ids))
        redis.call('HDEL', holders, unpack(ids))
        redis.call('HDEL', groups, unpack(ids))
        redis.call('ZREM', leases, unpack(ids))
    end

    redis.call('ZREMRANGEBYSCORE', cancelled, '-inf', now) -- rule 5
    redis.call('ZADD', cancelled, now + seconds * 1000000, group)
    redis.call('EXPIRE', cancelled, seconds)
    for _, lane in ipairs(redis.call('ZRANGE', lanes, 0, -1)) do
        if string.match(lane, ':(.*)$') == group then
            local ids = redis.call('LPOP', list_of(lane), 5000)
            while ids and #ids > 0 do
                discard(ids)
                ids = redis.call('LPOP', list_of(lane), 5000)
            end
            redis.call('ZREM', lanes, lane)
        end
    end
    local leased = redis.call('ZRANGE', leases, 0, -1)
    for first = 1, #leased, 5000 do
        local ids = {unpack(leased, first, math.min(first + 4999, #leased))}
        local theirs = {}
        for n, lane in ipairs(redis.call('HMGET', groups, unpack(ids))) do
            if lane and string.match(lane, ':(.*)$') == group then table.insert(theirs, ids[n]) end
        end
        if #theirs > 0 then discard(theirs) end
    end
    remember(gone)
    return gone
    """,
)
