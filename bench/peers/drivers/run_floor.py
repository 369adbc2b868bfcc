"""The floor: loops that ask, compare and append one JSON line, and nothing else.

Over HTTP it writes to raw asyncio connections, or (variant `sdk`) calls the OpenAI SDK, which is
what most tools go through.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from harness import MODEL, Clock, Job, answer_or_interrupt, expected, question, run, stop_at
from sdk import import_sdk, sdk_client

Ask = Callable[[str], Awaitable[str]]
ROWS = "rows.jsonl"


async def loop(ask: Callable[[], Awaitable[Ask]], file: TextIO, todo: Any, at_once: int) -> int:
    """Let `at_once` workers share the samples; return how many passed."""
    passed = 0

    async def worker() -> None:
        nonlocal passed
        ask_model = await ask()
        for index in todo:
            output = await ask_model(question(index))
            row = {"id": index, "output": output, "passed": output == expected(index)}
            file.write(json.dumps(row) + "\n")
            passed += row["passed"]

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())
    return passed


async def in_place() -> Ask:
    return answer_or_interrupt


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    with clock, (job.path / ROWS).open("w") as file:
        passed = asyncio.run(loop(in_place, file, iter(range(job.count)), job.concurrency))
    return {"passed": passed, "errors": 0}


def body(text: str) -> bytes:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]}).encode()


async def over_connection(url: str) -> Ask:
    """Return a function that asks over one keep-alive connection, and waits out a 429."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"

    async def exchange(data: bytes) -> tuple[bytes, bytes]:
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        reply_head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(reply_head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return reply_head, await reader.readexactly(length)

    async def ask(text: str) -> str:
        data = body(text)
        for _ in range(5):
            reply_head, answer = await exchange(data)
            if b" 429 " not in reply_head[:16]:
                return str(json.loads(answer)["choices"][0]["message"]["content"])
            await asyncio.sleep(
                float(reply_head.partition(b"retry-after: ")[2].partition(b"\r\n")[0])
            )
        raise RuntimeError("refused five times")

    return ask


async def with_sdk(job: Job, file: TextIO) -> int:
    async with sdk_client(job.url) as ask:

        async def shared() -> Ask:
            return ask

        return await loop(shared, file, iter(range(job.count)), job.concurrency)


def http(job: Job, clock: Clock) -> dict[str, Any]:
    if job.variant == "sdk":
        import_sdk()
    with clock, (job.path / ROWS).open("w") as file:
        if job.variant == "sdk":
            passed = asyncio.run(with_sdk(job, file))
        else:
            todo = iter(range(job.count))
            connect = lambda: over_connection(job.url)  # noqa: E731
            passed = asyncio.run(loop(connect, file, todo, job.concurrency))
    return {"passed": passed, "errors": 0}


def read(path: Path) -> dict[int, bool]:
    """Return the verdict of each stored sample."""
    with path.open() as file:
        rows = map(json.loads, file)
        return {row["id"]: row["passed"] for row in rows}


def load(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        passed = sum(read(job.path / ROWS).values())
    return {"passed": passed, "errors": 0}


def interrupt(job: Job, clock: Clock) -> dict[str, Any]:
    with stop_at(job.done), contextlib.suppress(KeyboardInterrupt):
        in_process(job, clock)
    return {}


def resume(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        done = read(job.path / ROWS)
        todo = (index for index in range(job.count) if index not in done)
        with (job.path / ROWS).open("a") as file:
            passed = asyncio.run(loop(in_place, file, todo, job.concurrency))
    return {"passed": passed + sum(done.values()), "errors": 0}


if __name__ == "__main__":
    run(
        {
            "in_process": in_process,
            "http": http,
            "store": in_process,
            "load": load,
            "interrupt": interrupt,
            "resume": resume,
        },
        {},
    )
