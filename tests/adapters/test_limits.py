"""Limits on concurrency and rate: fair, cancellable, and not held while a retry waits."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from weakincentives.adapters import (
    Model,
    ModelReply,
    ModelRequest,
    ModelSettings,
    ScriptedAdapter,
    scripted_model,
)
from weakincentives.adapters.limits import Limiter, LimiterState, estimated_tokens
from weakincentives.adapters.provider_retry import retrying
from weakincentives.chat import ChatMessage, TokenUsage
from weakincentives.errors import ProviderError, UsageError
from weakincentives.testing import FakeClock

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "Why?"),))
REPLY = ModelReply(message=ChatMessage("assistant", "x"), latency_ms=5.0)
THROTTLED = ProviderError("slow down", retryable=True, status=429)


class Gate:
    """A model that answers when its gate is opened, and records which calls are in flight."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.open: dict[str, anyio.Event] = {}
        self.error: Exception | None = None
        self.reply = REPLY

    async def __call__(self, request: ModelRequest) -> ModelReply:
        name = request.messages[0].content
        self.inside.append(name)
        self.open[name] = anyio.Event()
        await self.open[name].wait()
        if self.error is not None:
            raise self.error
        return self.reply


def request_named(name: str) -> ModelRequest:
    return ModelRequest(model="m", messages=(ChatMessage("user", name),))


def sleep_on(clock: FakeClock) -> Callable[[float], Awaitable[None]]:
    """Return a sleep function on that clock, which takes no real time."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await checkpoint()

    return sleep


async def call_many(model: Model, count: int, request: ModelRequest = REQUEST) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(model, request)


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_no_more_than_the_limit_at_once_and_first_come_first_served() -> None:
    gate, limiter = Gate(), Limiter(2)
    model = limiter.around(gate)
    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(model, request_named(name))
            await settle()
        assert gate.inside == ["a", "b"]
        assert limiter.state == LimiterState(
            limit=2, in_flight=2, waiting=2, requests=2, throttled=0
        )
        for name in "bacd":
            gate.open[name].set()
            await settle()

    assert gate.inside == ["a", "b", "c", "d"]
    assert limiter.state == LimiterState(limit=2, in_flight=0, waiting=0, requests=4, throttled=0)


async def test_an_adapter_takes_a_limiter_and_the_reply_is_untouched() -> None:
    adapter = ScriptedAdapter([REPLY]).around(Limiter(1))

    assert await adapter.ask(REQUEST) is REPLY


async def test_a_retry_outside_waits_without_a_slot() -> None:
    limiter, free = Limiter(1), list[int]()

    async def sleep(seconds: float) -> None:
        free.append(limiter.state.in_flight)
        await limiter(scripted_model(["another call"]))(REQUEST)

    model = retrying(sleep=sleep)(limiter(scripted_model([THROTTLED, "yes"])))

    assert (await model(REQUEST)).message.content == "yes"
    assert free == [0]
    assert (limiter.state.requests, limiter.state.throttled) == (3, 1)


async def test_an_error_of_any_kind_frees_the_slot() -> None:
    limiter = Limiter(1)
    model = limiter(scripted_model([ProviderError("no"), KeyError("bug"), "yes"]))
    for error in (ProviderError, KeyError):
        with pytest.raises(error):
            await model(REQUEST)

    assert (await model(REQUEST)).message.content == "yes"
    assert limiter.state.throttled == 0


async def test_a_call_cancelled_while_waiting_or_running_leaks_nothing() -> None:
    gate, limiter = Gate(), Limiter(1)
    model = limiter(gate)
    scopes = {name: anyio.CancelScope() for name in "abc"}

    async def call(name: str) -> None:
        with scopes[name]:
            await model(request_named(name))

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(call, name)
            await settle()
        scopes["b"].cancel()
        await settle()
        assert limiter.state.waiting == 1
        scopes["a"].cancel()
        await settle()
        assert gate.inside == ["a", "c"]
        gate.open["c"].set()

    assert (limiter.state.in_flight, limiter.state.waiting) == (0, 0)


async def test_a_call_cancelled_when_it_gets_its_slot_leaks_nothing() -> None:
    gate, limiter, scope = Gate(), Limiter(1), anyio.CancelScope()

    async def cancel_b_and_answer(request: ModelRequest) -> ModelReply:
        await settle()
        scope.cancel()  # b gets its slot at the end of this call, before it notices
        return REPLY

    async def call_b() -> None:
        with scope:
            await limiter(gate)(request_named("b"))

    async with anyio.create_task_group() as group:
        group.start_soon(limiter(cancel_b_and_answer), REQUEST)
        await checkpoint()
        group.start_soon(call_b)

    assert scope.cancelled_caught
    assert gate.inside == []
    assert limiter.state == LimiterState(limit=1, in_flight=0, waiting=0, requests=1, throttled=0)


@pytest.mark.parametrize("seed", range(5))
async def test_random_cancellations_leak_nothing(seed: int) -> None:
    dice, clock = Random(seed), FakeClock()
    limiter = Limiter(3, requests_per_minute=600, adaptive=True, clock=clock, sleep=sleep_on(clock))
    active = 0

    async def busy(request: ModelRequest) -> ModelReply:
        nonlocal active
        active += 1
        assert active <= 3
        try:
            for _ in range(dice.randrange(4)):
                await checkpoint()
            if dice.random() < 0.2:
                raise THROTTLED
            return REPLY
        finally:
            active -= 1

    async def call(scope: anyio.CancelScope) -> None:
        with scope, suppress(ProviderError):
            await limiter(busy)(REQUEST)

    async with anyio.create_task_group() as group:
        for _ in range(200):
            scope = anyio.CancelScope()
            group.start_soon(call, scope)
            if dice.random() < 0.5:
                group.start_soon(cancel_later, scope, dice.randrange(30))

    assert (limiter.state.in_flight, limiter.state.waiting) == (0, 0)
    assert (await limiter(scripted_model(["still open"]))(REQUEST)).message.content == "still open"


async def cancel_later(scope: anyio.CancelScope, turns: int) -> None:
    for _ in range(turns):
        await checkpoint()
    scope.cancel()


async def test_requests_are_spread_over_the_minute() -> None:
    clock, times = FakeClock(), list[float]()
    limiter = Limiter(100, requests_per_minute=120, clock=clock, sleep=sleep_on(clock))

    async def note(request: ModelRequest) -> ModelReply:
        times.append(clock.monotonic())
        return REPLY

    await call_many(limiter(note), 242)

    assert len([at for at in times if at < 60]) <= 122
    assert times[-1] == pytest.approx(120, abs=1)
    assert times == sorted(times)


async def test_less_than_one_request_a_second_still_passes() -> None:
    clock = FakeClock()
    limiter = Limiter(1, requests_per_minute=2, clock=clock, sleep=sleep_on(clock))
    await call_many(limiter(scripted_model(["x"] * 3)), 3)

    assert clock.monotonic() == pytest.approx(60, abs=0.01)


async def test_tokens_are_estimated_before_and_corrected_after() -> None:
    clock = FakeClock()
    limiter = Limiter(
        1,
        tokens_per_minute=6000,
        estimate=lambda request: 100.0,
        clock=clock,
        sleep=sleep_on(clock),
    )
    used = [TokenUsage(700, 300), TokenUsage(0, 100), TokenUsage(10, 0), None]
    model = limiter(scripted_model([ModelReply(message=REPLY.message, usage=u) for u in used]))
    starts = []
    for _ in used:
        await model(REQUEST)
        starts.append(clock.monotonic())

    # 100 per second: the first took 1,000, so the second waits 10 s; the third took 90 less
    assert starts == pytest.approx([0, 10, 11, 11.1], abs=0.02)


async def test_a_call_above_the_whole_limit_is_sent_and_delays_the_next() -> None:
    clock = FakeClock()
    limiter = Limiter(
        1, tokens_per_minute=60, estimate=lambda request: 500.0, clock=clock, sleep=sleep_on(clock)
    )
    await call_many(limiter(scripted_model(lambda request: REPLY)), 2)

    assert clock.monotonic() == pytest.approx(500, abs=0.1)


def test_the_estimate_counts_words_and_the_answer() -> None:
    messages = (ChatMessage("system", "one two"), ChatMessage("user", "three"))
    request = ModelRequest(model="m", messages=messages)
    short = ModelRequest(model="m", messages=messages, settings=ModelSettings(max_tokens=10))

    assert estimated_tokens(request) == 260
    assert estimated_tokens(short) == 14


async def test_a_call_that_waits_for_time_is_not_overtaken_and_frees_its_turn_when_cancelled() -> (
    None
):
    clock, order = FakeClock(), list[str]()
    sleeping, scope = anyio.Event(), anyio.CancelScope()

    async def sleep(seconds: float) -> None:
        if not sleeping.is_set():
            sleeping.set()
            await anyio.sleep_forever()
        await sleep_on(clock)(seconds)

    limiter = Limiter(9, requests_per_minute=60, clock=clock, sleep=sleep)

    async def note(request: ModelRequest) -> ModelReply:
        order.append(request.messages[0].content)
        return REPLY

    model = limiter(note)

    async def cancelled_caller() -> None:
        with scope:
            await model(request_named("impatient"))

    await model(request_named("first"))
    async with anyio.create_task_group() as group:
        group.start_soon(cancelled_caller)
        await sleeping.wait()
        group.start_soon(model, request_named("second"))
        group.start_soon(model, request_named("third"))
        await settle()
        clock.advance(60)
        assert order == ["first"]
        scope.cancel()

    assert order[0] == "first"
    assert sorted(order[1:]) == ["second", "third"]


async def test_a_slot_that_comes_before_its_time_starts_the_wait() -> None:
    clock = FakeClock()
    limiter = Limiter(1, requests_per_minute=60, clock=clock, sleep=sleep_on(clock))
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(limiter(gate), request_named("a"))
        await settle()
        group.start_soon(limiter(gate), request_named("b"))
        await settle()
        assert clock.monotonic() == 0
        gate.open["a"].set()
        await settle()
        assert clock.monotonic() == pytest.approx(1)
        gate.open["b"].set()


async def test_a_call_that_waits_for_time_holds_no_slot_even_if_tokens_are_returned() -> None:
    clock, gate, states = FakeClock(), Gate(), list[tuple[int, int]]()

    async def sleep(seconds: float) -> None:
        gate.open["a"].set()  # its reply used no tokens, so all are returned
        while limiter.state.in_flight:
            await checkpoint()
        states.append((limiter.state.in_flight, limiter.state.waiting))
        clock.advance(seconds)

    limiter = Limiter(
        2, tokens_per_minute=60, estimate=lambda request: 50.0, clock=clock, sleep=sleep
    )
    gate.reply = ModelReply(message=REPLY.message, usage=TokenUsage(0, 0))
    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(limiter(gate), request_named(name))
            await settle()
        gate.open["b"].set()

    assert states == [(0, 1)]
    assert clock.monotonic() == 0.25


async def test_a_lower_limit_makes_a_call_that_waits_for_time_wait_for_a_slot() -> None:
    clock, gate = FakeClock(), Gate()
    gate.error = THROTTLED

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        gate.open["a"].set()
        while limiter.state.limit > 1:
            await checkpoint()

    limiter = Limiter(3, requests_per_minute=120, adaptive=True, clock=clock, sleep=sleep)
    outcome: list[str] = []

    async def call(name: str) -> None:
        try:
            await limiter(gate)(request_named(name))
        except ProviderError:
            outcome.append(name)

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(call, name)
            await settle()
        assert limiter.state.limit == 1
        assert gate.inside == ["a", "b"]
        gate.open["b"].set()
        await settle()
        gate.open["c"].set()

    assert outcome == ["a", "b", "c"]


async def test_a_429_halves_the_limit_and_successes_raise_it_by_one() -> None:
    limiter = Limiter(8, adaptive=True, floor=2, ceiling=9)
    throttled = limiter(scripted_model(lambda request: THROTTLED))
    limits = []
    for _ in range(3):
        with pytest.raises(ProviderError):
            await throttled(REQUEST)
        limits.append(limiter.state.limit)
    assert limits == [4, 2, 2]
    assert limiter.state.throttled == 3

    async def slow(request: ModelRequest) -> ModelReply:
        await checkpoint()
        return REPLY

    await call_many(limiter(slow), 6)
    assert 3 <= limiter.state.limit <= 4
    await call_many(limiter(slow), 500)
    assert limiter.state.limit == 9


async def test_concurrent_calls_halve_the_limit_once() -> None:
    limiter, gate = Limiter(8, adaptive=True), Gate()
    gate.error = THROTTLED

    async def call(name: str) -> None:
        with pytest.raises(ProviderError):
            await limiter(gate)(request_named(name))

    async with anyio.create_task_group() as group:
        for name in "abcdefgh":
            group.start_soon(call, name)
        await settle()
        for opened in gate.open.values():
            opened.set()

    assert limiter.state.limit == 4
    assert limiter.state.throttled == 8


async def test_a_limit_that_is_not_reached_does_not_grow() -> None:
    limiter = Limiter(2, adaptive=True, ceiling=9)
    for _ in range(20):
        await limiter(scripted_model(["x"]))(REQUEST)

    assert limiter.state.limit == 2


async def test_without_adaptive_a_429_is_only_counted() -> None:
    limiter = Limiter(8)
    with pytest.raises(ProviderError):
        await limiter(scripted_model([THROTTLED]))(REQUEST)

    assert (limiter.state.limit, limiter.state.throttled) == (8, 1)


async def test_a_second_loop_at_the_same_time_is_refused() -> None:
    limiter, gate = Limiter(5), Gate()
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            anyio.run(limiter(scripted_model(["x"])), REQUEST)
        except UsageError as error:
            refused.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(limiter(gate), request_named("a"))
        await settle()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        gate.open["a"].set()

    assert len(refused) == 1
    assert "one event loop at a time" in refused[0]


def test_one_loop_after_another_is_fine() -> None:
    limiter = Limiter(1)
    for _ in range(3):
        anyio.run(limiter(scripted_model(["x"])), REQUEST)

    assert limiter.state.requests == 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"max_concurrent": 2.5}, "max_concurrent"),
        ({"max_concurrent": 2, "adaptive": True, "floor": 0}, "floor"),
        ({"max_concurrent": 2, "adaptive": True, "floor": 3}, "floor"),
        ({"max_concurrent": 2, "adaptive": True, "ceiling": 1}, "ceiling"),
        ({"max_concurrent": 2, "ceiling": 4}, "adaptive=True"),
        ({"max_concurrent": 2, "requests_per_minute": 0}, "requests_per_minute"),
        ({"max_concurrent": 2, "tokens_per_minute": float("nan")}, "tokens_per_minute"),
        ({"max_concurrent": 2, "tokens_per_minute": "9"}, "tokens_per_minute"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        Limiter(**wrong)
