"""Answers on disk: every part of a request is part of the key, and no wrong answer is returned."""

from __future__ import annotations

import dataclasses
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings, strategies as st

from tests import strategies as ours
from tests.soak import soak_size
from weakincentives.adapters import (
    ModelReply,
    ModelRequest,
    ModelSettings,
    ScriptedAdapter,
    ToolSpec,
    scripted_model,
)
from weakincentives.adapters.cache import ResponseCache, _key as key_of, cached
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.errors import ProviderError, UsageError

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "Why?"),))
REPLY = ModelReply(
    message=ChatMessage("assistant", "Because.", (ToolCall("1", "add", {"a": [1, None]}),)),
    usage=TokenUsage(3, 4),
    finish_reason="stop",
    model="m-2026",
    latency_ms=12.5,
)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    with ResponseCache(tmp_path / "new" / "cache.db") as opened:
        yield opened


def counts(cache: ResponseCache) -> tuple[int, int, int]:
    return cache.hits, cache.misses, cache.stored


async def test_the_same_request_is_asked_once(cache: ResponseCache) -> None:
    model = cache.around(scripted_model([REPLY]), provider="p")

    assert await model(REQUEST) is REPLY
    assert await model(REQUEST) == replace(REPLY, cached=True)
    assert counts(cache) == (1, 1, 1)
    assert str(cache) == "1 hit, 1 miss"


async def test_a_later_run_finds_a_stored_reply(tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "cache.db") as first:
        await first.around(scripted_model([REPLY]), provider="p")(REQUEST)
    with ResponseCache(str(tmp_path / "cache.db")) as second:
        reply = await second.around(scripted_model([]), provider="p")(REQUEST)

        assert reply == replace(REPLY, cached=True)
        assert str(second) == "1 hit, 0 misses"
        assert repr(second).endswith("cache.db': 1 hit, 0 misses>")


async def test_each_epoch_model_and_provider_is_cached_separately(
    cache: ResponseCache,
) -> None:
    model = scripted_model(["1", "2", "3", "4"])
    requests = [REQUEST, replace(REQUEST, epoch=2), replace(REQUEST, model="n")]
    answers = [
        (await cached(cache, provider="p")(model)(each)).message.content for each in requests
    ]
    answers.append((await cached(cache, provider="q")(model)(REQUEST)).message.content)

    assert answers == ["1", "2", "3", "4"]
    assert counts(cache) == (0, 4, 4)


async def test_an_adapter_can_be_wrapped_in_a_cache(cache: ResponseCache) -> None:
    adapter = ScriptedAdapter(["yes"]).around(cached(cache, provider="scripted"))

    assert not (await adapter.ask(REQUEST)).cached
    assert (await adapter.ask(REQUEST)).cached


async def test_an_error_is_not_stored(cache: ResponseCache) -> None:
    model = cache.around(scripted_model([ProviderError("down"), "yes"]), provider="p")

    with pytest.raises(ProviderError):
        await model(REQUEST)
    assert (await model(REQUEST)).message.content == "yes"
    assert counts(cache) == (0, 2, 1)


async def test_the_same_request_at_the_same_time_is_asked_once(cache: ResponseCache) -> None:
    replies: list[ModelReply] = []
    model = cache.around(scripted_model([REPLY]), provider="p")

    async def call() -> None:
        replies.append(await model(REQUEST))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(call)

    assert sorted(reply.cached for reply in replies) == [False] + [True] * 49
    assert counts(cache) == (49, 1, 1)


async def test_concurrent_callers_all_get_the_error(cache: ResponseCache) -> None:
    errors: list[str] = []
    model = cache.around(scripted_model([ProviderError("down")]), provider="p")

    async def call() -> None:
        try:
            await model(REQUEST)
        except ProviderError as error:
            errors.append(str(error))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)

    assert errors == ["down"] * 5


async def test_a_waiter_takes_over_when_the_caller_is_cancelled(cache: ResponseCache) -> None:
    calls, scope = 0, anyio.CancelScope()
    replies: list[ModelReply] = []

    async def first_hangs(request: ModelRequest) -> ModelReply:
        nonlocal calls
        calls += 1
        if calls == 1:
            started.set()
            await anyio.sleep_forever()
        return REPLY

    model, started = cache.around(first_hangs, provider="p"), anyio.Event()

    async def first_caller() -> None:
        with scope:
            await model(REQUEST)

    async def waiter() -> None:
        replies.append(await model(REQUEST))

    async with anyio.create_task_group() as group:
        group.start_soon(first_caller)
        await started.wait()
        for _ in range(3):
            group.start_soon(waiter)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    assert calls == 2
    assert [reply.message for reply in replies] == [REPLY.message] * 3
    assert cache.hits == 2


async def test_a_waiter_can_be_cancelled_alone(cache: ResponseCache) -> None:
    go, scope = anyio.Event(), anyio.CancelScope()

    async def slow(request: ModelRequest) -> ModelReply:
        scope.cancel()
        await go.wait()
        return REPLY

    model = cache.around(slow, provider="p")

    async def waiter() -> None:
        with scope:
            await model(REQUEST)
        go.set()

    async with anyio.create_task_group() as group:
        group.start_soon(model, REQUEST)
        await checkpoint()
        group.start_soon(waiter)

    assert scope.cancelled_caught
    assert (await model(REQUEST)).cached


async def test_a_reply_is_stored_even_if_the_caller_was_cancelled(
    cache: ResponseCache,
) -> None:
    async def answers_too_late(request: ModelRequest) -> ModelReply:
        scope.cancel()
        return REPLY

    with anyio.CancelScope() as scope:
        await cache.around(answers_too_late, provider="p")(REQUEST)

    assert cache.stored == 1


def damage(cache: ResponseCache, change: str) -> None:
    with sqlite3.connect(cache.path) as connection:
        connection.execute(change)
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE replies SET reply = replace(CAST(reply AS TEXT), 'Because', 'Perhaps')",
        "UPDATE replies SET reply = CAST(replace(reply, 'Because', 'Perhaps') AS BLOB)",
        "UPDATE replies SET reply = x'7b', digest = x'00'",
        "UPDATE replies SET reply = 7",
        "ALTER TABLE replies RENAME TO lost",
    ],
)
async def test_a_changed_row_is_a_miss_with_a_warning(
    cache: ResponseCache, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = cache.around(scripted_model([REPLY, "asked again"]), provider="p")
    await model(REQUEST)
    damage(cache, change)
    with caplog.at_level(logging.WARNING):
        reply = await model(REQUEST)

    assert reply.message.content == "asked again"
    assert "asking again" in caplog.text
    assert str(cache.path) in caplog.text


async def test_a_damaged_row_is_replaced(cache: ResponseCache) -> None:
    model = cache.around(scripted_model([REPLY, REPLY]), provider="p")
    await model(REQUEST)
    damage(cache, "UPDATE replies SET digest = x'00'")
    await model(REQUEST)

    assert (await model(REQUEST)).cached


async def test_a_reply_that_cannot_be_stored_is_passed_on(
    cache: ResponseCache, caplog: pytest.LogCaptureFixture
) -> None:
    awkward = [float("nan"), (1, 2)]
    replies = [
        replace(REPLY, message=ChatMessage("assistant", "", (ToolCall("1", "f", {"a": value}),)))
        for value in awkward
    ]
    model = cache.around(scripted_model(replies), provider="p")
    with caplog.at_level(logging.WARNING):
        assert [await model(REQUEST), await model(REQUEST)] == replies

    assert caplog.text.count("cannot store") == 2
    assert counts(cache) == (0, 2, 0)


async def test_a_reply_is_returned_but_not_stored_if_the_file_stays_locked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ResponseCache(tmp_path / "cache.db", busy_timeout=0.01) as cache:
        other = sqlite3.connect(cache.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with caplog.at_level(logging.WARNING):
            reply = await cache.around(scripted_model([REPLY]), provider="p")(REQUEST)
        other.close()

    assert reply is REPLY
    assert "database is locked" in caplog.text


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("my notes, which are no database at all " * 100)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = text.read_bytes(), database.read_bytes()

    for path in (text, database, tmp_path):
        with pytest.raises(UsageError, match="expected a file for cached replies") as raised:
            ResponseCache(path)
        assert str(path) in str(raised.value)
    assert (text.read_bytes(), database.read_bytes()) == before


async def test_a_closed_cache_raises(cache: ResponseCache) -> None:
    model = cache.around(scripted_model(["x"]), provider="p")
    cache.close()
    cache.close()

    with pytest.raises(UsageError, match="closed"):
        await model(REQUEST)


@pytest.mark.parametrize("provider", ["", None])
def test_a_provider_has_a_name(cache: ResponseCache, provider: Any) -> None:
    with pytest.raises(UsageError, match="provider"):
        cache.around(scripted_model(["x"]), provider=provider)


async def test_no_text_of_a_request_is_in_the_file(cache: ResponseCache) -> None:
    secret = "sk-very-secret"
    request = replace(
        REQUEST,
        messages=(ChatMessage("user", secret),),
        settings=ModelSettings(extra={"extra_headers": {"authorization": secret}}),
    )
    await cache.around(scripted_model([REPLY]), provider="p")(request)
    cache.close()

    for file in cache.path.parent.iterdir():
        assert secret.encode() not in file.read_bytes()


WRITER = """
import sys, anyio
from weakincentives.adapters import ModelRequest, scripted_model
from weakincentives.adapters.cache import ResponseCache
from weakincentives.chat import ChatMessage

async def main(path):
    with ResponseCache(path) as cache:
        model = cache.around(scripted_model(lambda r: r.messages[0].content), provider="p")
        for n in range(100):
            reply = await model(ModelRequest(model="m", messages=(ChatMessage("user", str(n)),)))
            assert reply.message.content == str(n)
        assert cache.stored == cache.misses, cache

anyio.run(main, sys.argv[1])
"""


def test_several_processes_may_begin_and_write_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, path],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(6)
    ]
    complaints = [process.communicate(timeout=300)[1] for process in running]

    assert complaints == [b""] * 6
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM replies").fetchone() == (100,)
    connection.close()


# Text that UTF-8 can carry: a pair of surrogates and the one character it stands for are the same
# text, also on the wire.
texts = st.text(max_size=6)
data = st.dictionaries(texts, st.none() | st.booleans() | st.integers(0, 9) | texts, max_size=3)
tools = st.builds(ToolSpec, name=texts, description=texts, schema=data)
all_settings = st.builds(
    ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    max_tokens=st.none() | st.integers(1, 9),
    top_p=st.none() | st.floats(0, 1),
    stop=st.lists(texts, max_size=2).map(tuple),
    seed=st.none() | st.integers(0, 9),
    extra=data,
)
parts: dict[str, st.SearchStrategy[Any]] = {
    "model": texts,
    "messages": st.lists(ours.messages, max_size=2).map(tuple),
    "tools": st.lists(tools, max_size=2).map(tuple),
    "output_name": texts,
    "output_schema": st.none() | data,
    "settings": all_settings,
    "epoch": st.integers(1, 9),
}
requests = st.builds(ModelRequest, **parts)


def test_the_properties_below_vary_every_field() -> None:
    assert list(parts) == [each.name for each in dataclasses.fields(ModelRequest)]


def canonical(request: ModelRequest) -> str:
    """Return the whole request as text, without our own encoder; True and 1 differ."""
    return json.dumps(dataclasses.asdict(request), sort_keys=True)


@pytest.mark.no_cover
@settings(max_examples=soak_size(30, 2000))
@given(request=requests, change=st.data())
def test_any_change_in_any_field_changes_the_key(request: ModelRequest, change: Any) -> None:
    name = change.draw(st.sampled_from(sorted(parts)))
    other = replace(request, **{name: change.draw(parts[name])})
    if name == "settings":  # one setting alone, too
        field = change.draw(st.sampled_from([f.name for f in dataclasses.fields(ModelSettings)]))
        other = replace(
            request, settings=replace(request.settings, **{field: getattr(other.settings, field)})
        )

    assert (key_of("p", request) == key_of("p", other)) == (canonical(request) == canonical(other))
    assert key_of("p", request) != key_of("q", request)


@given(request=requests)
def test_equal_requests_have_equal_keys(request: ModelRequest) -> None:
    def reversed_order(mapping: Any) -> Any:
        return None if mapping is None else dict(reversed(list(mapping.items())))

    twin = replace(
        request,
        output_schema=reversed_order(request.output_schema),
        settings=replace(request.settings, extra=reversed_order(request.settings.extra)),
    )
    assert twin == request
    assert key_of("p", twin) == key_of("p", request)


@pytest.mark.parametrize(("one", "same"), [(1, 1.0), (0, -0.0)])
def test_a_temperature_is_a_number_however_it_is_written(one: float, same: float) -> None:
    first, second = (
        replace(REQUEST, settings=ModelSettings(temperature=each, top_p=each))
        for each in (one, same)
    )
    assert key_of("p", first) == key_of("p", second)


@given(message=ours.messages, usage=st.none() | ours.usages, latency=st.none() | ours.numbers)
@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_cached_reply_equals_the_original(
    cache: ResponseCache, message: ChatMessage, usage: TokenUsage | None, latency: float | None
) -> None:
    reply = ModelReply(message=message, usage=usage, latency_ms=latency)
    cache._store(b"key", reply)

    assert cache._load(b"key") == replace(reply, cached=True)
