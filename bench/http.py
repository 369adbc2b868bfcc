"""The fast path beside the SDK: requests a second through each, in one run.

`python -m bench http [calls]`. The server is a process of its own, so that only clients are
measured; each client's best of three rounds counts, after one that opens its connections. With few
calls, there are two rounds, at half the concurrency.
"""

from __future__ import annotations

import gc
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from weakincentives.adapters import HTTPAdapter, ModelRequest, OpenAIAdapter
from weakincentives.chat import ChatMessage

__all__ = ["run"]

FEW, MANY = 200, 1_000  # calls at once
DELAY = 0.02  # seconds that the server takes for an answer
FAST, SDK, ADAPTER = "HTTPAdapter", "openai SDK", "OpenAIAdapter"
FASTER = 4.0  # bar: the fast path's rate to the SDK's
STEADY = 0.8  # bar: its rate with many calls at once to that with few; under 1 only for noise
DEARER = 1.15  # bar: the OpenAI adapter's CPU time to that of its SDK
ROUNDS = 3
WHOLE = 2_000  # with fewer calls, rounds are fewer and smaller, and slow clients skip the second
TEXT = "What is the capital of France? Answer in one word."
SERVER = """
import asyncio, ssl, sys
BODY = b'''{"id": "1", "object": "chat.completion", "created": 1, "model": "m",
"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes", "refusal": null},
"logprobs": null, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 1,
"total_tokens": 10}}'''
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"
ANSWER = ANSWER % len(BODY) + BODY
DELAY = float(sys.argv[1])

class Peer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def data_received(self, data):
        self.data += data
        head, _, body = self.data.partition(b"\\r\\n\\r\\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\\r\\n")[0]
        if length and len(body) >= int(length):
            self.data = b""
            asyncio.get_running_loop().call_later(DELAY, self.transport.write, ANSWER)

async def main():
    tls = None
    if sys.argv[2:]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[2])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Peer, "127.0.0.1", 0, ssl=tls, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    print(f"http{'s' if tls else ''}://127.0.0.1:{port}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

Call = Callable[[], Awaitable[Any]]
Client = Callable[[str, ssl.SSLContext | None], Any]


@asynccontextmanager
async def fast(url: str, trusting: ssl.SSLContext | None) -> AsyncIterator[Call]:
    adapter: HTTPAdapter[str] = HTTPAdapter("m", base_url=url, verify=trusting or True)
    request = ModelRequest(model="m", messages=(ChatMessage("user", TEXT),))
    yield lambda: adapter.ask(request)
    await adapter.aclose()


@asynccontextmanager
async def sdk(url: str, trusting: ssl.SSLContext | None) -> AsyncIterator[Call]:
    import httpx2
    import openai

    limits = httpx2.Limits(max_connections=MANY, max_keepalive_connections=MANY)
    http = openai.DefaultAsyncHttpxClient(verify=trusting or True, limits=limits)
    messages: Any = [{"role": "user", "content": TEXT}]
    async with openai.AsyncOpenAI(base_url=url, api_key="k", http_client=http) as client:
        yield lambda: client.chat.completions.create(model="m", messages=messages)


@asynccontextmanager
async def on_sdk(url: str, trusting: ssl.SSLContext | None) -> AsyncIterator[Call]:
    adapter: OpenAIAdapter[str] = OpenAIAdapter("m", base_url=url)
    request = ModelRequest(model="m", messages=(ChatMessage("user", TEXT),))
    yield lambda: adapter.ask(request)


@contextmanager
def serving(certificate: Path | None, delay: float = DELAY) -> Iterator[str]:
    arguments = [str(delay), *([str(certificate)] if certificate else [])]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate("")  # it exits at the end of its input


def concurrencies(calls: int) -> tuple[int, int]:
    """Return how many calls are made at once: few and many."""
    return (FEW, MANY) if calls >= WHOLE else (FEW // 2, MANY // 2)


async def rates(
    clients: dict[str, Client], url: str, trusting: ssl.SSLContext | None, calls: int
) -> dict[tuple[str, int], tuple[float, float]]:
    """Return requests per second and CPU milliseconds per request, by client and concurrency.

    The clients take turns, so that other load on the machine affects all of them.
    """
    few, many = concurrencies(calls)
    done: dict[tuple[str, int], list[tuple[float, float]]] = {}
    async with AsyncExitStack() as stack:
        calls_by_client = {
            (name, at_once): await stack.enter_async_context(client(url, trusting))
            for name, client in clients.items()
            for at_once in (few, many)
            if name == FAST or at_once == few or calls >= WHOLE
        }
        for turn in range(1 + (ROUNDS if calls >= WHOLE else 2)):
            for (name, at_once), call in calls_by_client.items():
                # A slower client needs fewer calls for an equally stable figure.
                count = max(calls, 3 * at_once) if name == FAST else max(at_once, calls // 10)
                figures = await shared(call, at_once, count if turn else at_once)
                if turn:  # the first opens connections
                    done.setdefault((name, at_once), []).append(figures)
    return {
        which: (max(rate for rate, _ in each), min(cpu for _, cpu in each))
        for which, each in done.items()
    }


async def shared(call: Call, at_once: int, calls: int) -> tuple[float, float]:
    """Make the calls from concurrent workers; return the rate and the CPU time per call."""
    remaining = calls

    async def worker() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            await call()

    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(worker)
    seconds = time.perf_counter() - start
    return calls / seconds, (time.process_time() - cpu) / calls * 1000


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the path of a new server certificate with its key, and a context that trusts it."""
    import trustme

    authority, path = trustme.CA(), folder / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return path, trusting


def measure(calls: int) -> dict[tuple[str, bool], dict[tuple[str, int], tuple[float, float]]]:
    """Return the figures of `rates` by backend and TLS."""
    os.environ["OPENAI_API_KEY"] = "k"
    clients: dict[str, Client] = {FAST: fast, SDK: sdk, ADAPTER: on_sdk}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        certificate_path, trusting = certificate(Path(folder))
        for tls in (False, True):
            if tls:
                del clients[ADAPTER]  # it cannot be given a certificate authority
            with serving(certificate_path if tls else None) as url:
                for backend in ("asyncio", "trio"):
                    trust = trusting if tls else None
                    results[backend, tls] = anyio.run(
                        rates, clients, url, trust, calls, backend=backend
                    )
    return results


def missed(figures: dict[tuple[str, int], tuple[float, float]], few: int, many: int) -> list[str]:
    """Return the bars that these figures do not reach."""
    wrong = []
    if figures[FAST, few][0] < FASTER * figures[SDK, few][0]:
        wrong.append(f"{FAST} under {FASTER:g} x the SDK's rate at {few}")
    if figures[FAST, many][0] < STEADY * figures[FAST, few][0]:
        wrong.append(f"{FAST} slower at {many} than at {few}")
    if (ADAPTER, few) in figures and figures[ADAPTER, few][1] > DEARER * figures[SDK, few][1]:
        wrong.append(f"{ADAPTER} over {DEARER:g} x the SDK's own time")
    return wrong


def run(calls: int) -> int:
    """Print the table; return how many bars were missed."""
    few, many = concurrencies(calls)
    print(
        f"HTTP, {calls:,} calls, {DELAY * 1000:g} ms server delay: rate, CPU a call, to the SDK\n"
    )
    print(f"{'':<31}{f'{few} at once':>30}{f'{many} at once':>30}")
    wrong: list[str] = []
    for (backend, tls), figures in measure(calls).items():
        for name in dict.fromkeys(name for name, _ in figures):
            row = f"{name:<15}{backend:<9}{'TLS' if tls else 'plain':<7}"
            for at_once in (n for n in (few, many) if (name, n) in figures):
                rate, cpu = figures[name, at_once]
                floor, _ = figures.get((SDK, at_once), figures[SDK, few])
                row += f"{rate:>9,.0f}/s {cpu:>7.2f} ms {rate / floor:>6.2f} x"
            print(row)
        wrong += [
            f"{backend}{', TLS' if tls else ''}: {each}" for each in missed(figures, few, many)
        ]
    print(*(f"\nmissed: {each}" for each in wrong), sep="")
    return len(wrong)
