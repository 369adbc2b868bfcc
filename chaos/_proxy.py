"""A proxy between clients and a server on this machine that fails on command.

Every fault is one of real networks. The worst is a lost reply: the server has executed the request,
and the client cannot know it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

__all__ = ["Proxy"]

SIZE = 65_536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, with a timeout of 0: closing resets


class _Link:
    """A client's connection, and its connection to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._ends = client, server
        self.script = False  # the last request is an operation of a mailbox

    def cut(self, *, reset: bool = False) -> None:
        for end in self._ends:
            raw = end.get_extra_info("socket")
            if reset and raw is not None:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.transport.abort()


class Proxy:
    """Forwards to a port, in its own thread. Its methods are thread-safe."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.counts: Counter[str] = Counter()
        self._target = target
        self._links: set[_Link] = set()
        self._losing = {"request": 0, "reply": 0}
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # ── faults ────────────────────────────────────────────────────────────────────────────────────

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection, even in the middle of a request."""
        self._soon(lambda: self._cut(reset))

    def lose_requests(self, many: int) -> None:
        """Drop the next `many` requests, and cut their connections."""
        self._soon(lambda: self._lose("request", many))

    def lose_replies(self, many: int) -> None:
        """Drop the replies to the next `many` requests, and cut their connections."""
        self._soon(lambda: self._lose("reply", many))

    def delay(self, seconds: float, lasting: float) -> None:
        """Delay everything by `seconds`, each way, for a while."""
        self._soon(lambda: self._slow(seconds, lasting))

    def black_hole(self, lasting: float) -> None:
        """Forward nothing for a while, then cut all connections."""

        def begin() -> None:
            self._open.clear()
            self._loop.call_later(lasting, end)

        def end() -> None:
            self._cut(reset=False)
            self._open.set()

        self._soon(begin)

    def heal(self) -> None:
        """End all faults."""

        def heal() -> None:
            self._losing = dict.fromkeys(self._losing, 0)
            self._delay = 0.0
            self._open.set()

        self._soon(heal)

    def _soon(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)

    def _cut(self, reset: bool) -> None:
        self.counts["connections cut"] += len(self._links)
        for link in tuple(self._links):
            link.cut(reset=reset)

    def _lose(self, what: str, many: int) -> None:
        self._losing[what] += many

    def _slow(self, seconds: float, lasting: float) -> None:
        self._delay = seconds
        self._loop.call_later(lasting, self._slow_ends)

    def _slow_ends(self) -> None:
        self._delay = 0.0

    # ── forwarding ────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open = asyncio.Event()
        self._open.set()
        listening = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=SIZE)
        )
        self.port = listening.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        listening.close()
        for link in self._links:
            link.cut()
        remaining = asyncio.all_tasks(self._loop)
        self._loop.run_until_complete(
            asyncio.wait(remaining, timeout=2) if remaining else asyncio.sleep(0)
        )
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._target, limit=SIZE)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        link = _Link(writer, upstream[1])
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump(link, reader, upstream[1], "request")),
            asyncio.ensure_future(self._pump(link, upstream[0], writer, "reply")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            link.cut()
            self._links.discard(link)

    async def _pump(
        self,
        link: _Link,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        what: str,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(SIZE):
                await self._open.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                if what == "request":
                    link.script = b"EVAL" in data[:64]
                if link.script and self._losing[what]:
                    self._losing[what] -= 1
                    self.counts[f"{what} lost"] += 1
                    return
                target.write(data)
                await target.drain()
