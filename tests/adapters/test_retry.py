"""Retries: which errors are retried, after which delay, and what is never sent twice."""

from __future__ import annotations

import ssl
from collections import Counter
from random import Random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, strategies as st

from tests.soak import soak_size
from weakincentives.adapters import ModelReply, ModelRequest, ScriptedAdapter, scripted_model
from weakincentives.adapters.limits import Limiter
from weakincentives.adapters.provider_retry import Retry, RetryPolicy, retrying
from weakincentives.chat import ChatMessage
from weakincentives.errors import DeadlineExceededError, ProviderError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "Why?"),))
BUSY = {"retryable": True, "status": 429}


class Sleeps(list[float]):
    """A sleep that takes no time and records its durations."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await checkpoint()


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("busy", retryable=True),
        TimeoutError("slow"),
        ConnectionResetError("gone"),
        OSError("no route to host"),
    ],
)
async def test_a_transient_error_is_retried(error: Exception) -> None:
    sleeps = Sleeps()
    model = retrying(sleep=sleeps)(scripted_model([error, error, "yes"]))

    assert (await model(REQUEST)).message.content == "yes"
    assert len(sleeps) == 2


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("no such model", status=404),
        DeadlineExceededError("too late"),
        ssl.SSLCertVerificationError("not trusted"),
        FileNotFoundError("ca.pem"),
        PermissionError("not allowed"),
        KeyError("a bug"),
    ],
)
async def test_a_permanent_error_is_raised_immediately(error: Exception) -> None:
    sleeps = Sleeps()
    model = retrying(sleep=sleeps)(scripted_model([error, "never asked for"]))

    with pytest.raises(type(error)) as raised:
        await model(REQUEST)
    assert raised.value is error
    assert sleeps == []
    assert not hasattr(error, "__notes__")


async def test_the_last_error_is_raised_with_a_note_of_the_attempts() -> None:
    errors = [ProviderError(f"busy {n}", **BUSY) for n in (1, 2, 3)]
    policy = RetryPolicy(max_attempts=3, base_delay=2)
    model = retrying(policy, sleep=Sleeps(), random=lambda: 0.5)(scripted_model(errors))

    with pytest.raises(ProviderError, match="busy 3") as raised:
        await model(REQUEST)
    assert raised.value.__notes__ == [
        "after 3 attempts and 3.0 s of waiting; the next would have begun 4.0 s later"
    ]
    assert raised.value.__context__ is None


async def test_a_permanent_error_after_others_has_a_note_too() -> None:
    errors = [ProviderError("busy", **BUSY), ProviderError("wrong key", status=401)]
    model = retrying(sleep=Sleeps(), random=lambda: 0.0)(scripted_model(errors))

    with pytest.raises(ProviderError, match="wrong key") as raised:
        await model(REQUEST)
    assert raised.value.__notes__ == ["after 2 attempts and 0.0 s of waiting"]


async def test_the_delays_double_up_to_the_maximum_with_jitter() -> None:
    sleeps, policy = Sleeps(), RetryPolicy(base_delay=1, max_delay=5)
    errors = [ProviderError("busy", **BUSY)] * 5
    await retrying(policy, sleep=sleeps, random=lambda: 0.5)(scripted_model([*errors, "yes"]))(
        REQUEST
    )

    assert sleeps == [0.5, 1.0, 2.0, 2.5, 2.5]


async def test_a_wait_is_never_shorter_than_the_service_asked_for() -> None:
    sleeps = Sleeps()
    replies = [ProviderError("busy", retry_after=40.0, **BUSY), "yes"]
    await retrying(sleep=sleeps)(scripted_model(replies))(REQUEST)

    assert sleeps == [40.0]


@pytest.mark.parametrize("asked_for", [121.0, float("inf")])
async def test_a_wait_above_the_total_is_not_started(asked_for: float) -> None:
    sleeps = Sleeps()
    model = retrying(sleep=sleeps)(
        scripted_model([ProviderError("busy", retry_after=asked_for, **BUSY)])
    )

    with pytest.raises(ProviderError) as raised:
        await model(REQUEST)
    assert sleeps == []
    assert raised.value.__notes__[0].startswith("after 1 attempt and 0.0 s of waiting; the next")


async def test_on_retry_is_called_for_every_retry() -> None:
    retries: list[Retry] = []
    error = ProviderError("busy", **BUSY)
    model = retrying(sleep=Sleeps(), random=lambda: 1.0, on_retry=retries.append)(
        scripted_model([error, "yes"])
    )
    await model(REQUEST)

    assert retries == [Retry(request=REQUEST, attempt=1, delay=0.5, error=error)]


async def test_the_latency_is_that_of_the_successful_try() -> None:
    reply = ModelReply(message=ChatMessage("assistant", "x"), latency_ms=7.0)
    model = retrying(sleep=Sleeps())(scripted_model([TimeoutError(), reply]))

    assert await model(REQUEST) is reply


async def test_cancellation_passes_through_the_call_and_the_wait() -> None:
    calls = 0

    async def hang(request: ModelRequest) -> Any:
        nonlocal calls
        calls += 1
        await anyio.sleep_forever()

    async def forever(seconds: float) -> None:
        scope.cancel()
        await checkpoint()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await retrying()(hang)(REQUEST)
    with anyio.CancelScope() as scope:
        await retrying(sleep=forever)(scripted_model([TimeoutError(), "never"]))(REQUEST)
    assert calls == 1
    assert scope.cancelled_caught


async def test_an_adapter_can_be_wrapped_in_retries() -> None:
    section = MarkdownSection(title="Q", template="Why?", key="q")
    prompt = Prompt(PromptTemplate[str](ns="tests", key="qa", sections=[section]))
    adapter = ScriptedAdapter[str]([TimeoutError(), "yes"]).around(retrying(sleep=Sleeps()))

    assert (await adapter.evaluate_async(prompt)).output == "yes"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"base_delay": -1}, "base_delay"),
        ({"max_delay": float("nan")}, "max_delay"),
        ({"max_total_delay": "9"}, "max_total_delay"),
        ({"base_delay": 9, "max_delay": 3}, "base_delay"),
    ],
)
def test_a_wrong_policy_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        RetryPolicy(**wrong)


def test_a_missing_call_of_retrying_is_refused() -> None:
    with pytest.raises(UsageError, match=r"retrying\(\)"):
        ScriptedAdapter(["x"]).around(retrying)  # type: ignore[arg-type]


@given(
    attempt=st.integers(1, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
    asked_for=st.none() | st.floats(),
)
def test_a_delay_is_within_its_bounds(attempt: int, chance: float, asked_for: float | None) -> None:
    delay = RetryPolicy().delay(attempt, ProviderError("", retry_after=asked_for), chance)

    assert delay >= 0
    assert delay <= 30 or delay == asked_for
    assert asked_for is None or not asked_for > delay


@pytest.mark.no_cover
@pytest.mark.soak
async def test_thousands_of_calls_to_a_flaky_service_none_lost_and_none_sent_twice() -> None:
    calls = soak_size(2_000, 10_000)
    sent, succeeded = Counter[str](), Counter[str]()
    answers: dict[str, str] = {}
    active = max_active = resets = throttled = 0

    async def flaky(request: ModelRequest) -> ModelReply:
        nonlocal active, max_active, resets, throttled
        name = request.messages[0].content
        sent[name] += 1
        active += 1
        max_active = max(max_active, active)
        try:
            await checkpoint()
            dice = Random(f"{name}, try {sent[name]}").random()
            if dice < 0.10:
                throttled += 1
                raise ProviderError("slow down", retry_after=1.0, **BUSY)
            if dice < 0.12:
                resets += 1
                raise ConnectionResetError("reset by peer")
            succeeded[name] += 1
            return ModelReply(message=ChatMessage("assistant", f"re: {name}"))
        finally:
            active -= 1

    limiter = Limiter(50)
    model = retrying(RetryPolicy(max_attempts=10), sleep=Sleeps())(limiter(flaky))

    async def call(name: str) -> None:
        reply = await model(ModelRequest(model="m", messages=(ChatMessage("user", name),)))
        answers[name] = reply.message.content

    async with anyio.create_task_group() as group:
        for number in range(calls):
            group.start_soon(call, str(number))

    assert answers == {str(n): f"re: {n}" for n in range(calls)}
    assert set(succeeded.values()) == {1}
    assert sent.total() == calls + throttled + resets == limiter.state.requests
    assert calls * 0.09 < throttled == limiter.state.throttled
    assert resets > calls * 0.015
    assert max_active == 50
    assert (limiter.state.in_flight, limiter.state.waiting) == (0, 0)
