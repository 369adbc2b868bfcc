"""Serve the OpenAI chat API on loopback, fast enough not to be what is measured.

`python model_server.py DELAY REFUSED`: answer "yes" after DELAY seconds. If REFUSED is 1, the
first request of each sample whose number ends in 0 gets a 429 with `retry-after: 1`. The URL
is the first line of its output. It ends when its input does, and prints how many requests it
answered and refused.
"""

from __future__ import annotations

import asyncio
import re
import sys

BODY = (
    b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"yes","refusal":null},"logprobs":null,'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}'
)
REFUSAL = (
    b'{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}'
)
HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
ANSWER = HEAD % (b"200 OK", b"", len(BODY)) + BODY
REFUSED = HEAD % (b"429 Too Many Requests", b"retry-after: 1\r\n", len(REFUSAL)) + REFUSAL
NUMBER = re.compile(rb"question (\d+)")


class Server:
    """Counters, and the samples that were refused once."""

    def __init__(self, delay: float, refusing: bool) -> None:
        self.delay = delay
        self.refusing = refusing
        self.refused: set[int] = set()
        self.answered = 0

    def reply(self, body: bytes) -> bytes:
        """Return the response to a request: a refusal once for every tenth sample, if enabled."""
        match = NUMBER.search(body)
        number = int(match[1]) if match else 1
        if self.refusing and number % 10 == 0 and number not in self.refused:
            self.refused.add(number)
            return REFUSED
        self.answered += 1
        return ANSWER


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, blank, rest = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if len(rest) < int(length or b"0"):
            return
        self.data = b""
        reply = self.server.reply(rest)
        if self.server.delay and reply is ANSWER:
            asyncio.get_running_loop().call_later(self.server.delay, self.write, reply)
        else:
            self.write(reply)

    def write(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(reply)


async def serve(delay: float, refusing: bool) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    state = Server(delay, refusing)
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(state.answered, len(state.refused), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), sys.argv[2] == "1"))
