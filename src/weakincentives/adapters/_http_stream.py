"""One connection as bytes that go out and come in: anyio's on trio, and asyncio's own on asyncio.

On asyncio, anyio's streams give the loop a turn before they send, and stop and start listening
around every read. That costs as much as the rest of a short call, so there is one of our own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import select
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import anyio
from anyio.abc import AnyByteStream, SocketAttribute

from ..clock import SYSTEM_CLOCK

__all__ = ["ByteStream", "LateError", "connect"]

_BUFFER = 16 * 1024  # bytes that are read at once
_EYEBALLS = 0.25  # seconds until the next address of a host is tried as well


class LateError(Exception):
    """The deadline has passed."""


class ByteStream(Protocol):
    """What a connection needs of a stream; it fails as anyio's streams do.

    A deadline is a time of the system clock's `monotonic`, after which a `LateError` comes.
    """

    @property
    def quiet(self) -> bool:
        """False where the peer has closed it, or has spoken without being asked."""
        ...

    async def send(self, data: bytes, deadline: float) -> None:
        """Send it all."""
        ...

    async def receive(self, deadline: float) -> bytes:
        """What has come; waits for at least one byte."""
        ...

    async def aclose(self) -> None:
        """Close it at once."""
        ...


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None, loop: object, deadline: float
) -> ByteStream:
    """A stream to that place. `loop` is the event loop that runs, or Trio's token."""
    name = None if tls is None else host
    with _until(deadline):
        if isinstance(loop, asyncio.AbstractEventLoop):
            delay = None if _is_address(host) else _EYEBALLS  # a race of one costs time as well
            _, stream = await loop.create_connection(
                lambda: _AsyncioStream(loop),
                host,
                port,
                ssl=tls,
                server_hostname=name,
                happy_eyeballs_delay=delay,
            )
            return stream
        if tls is None:
            return _AnyioStream(await anyio.connect_tcp(host, port))
        # Not `standard_compatible`: few servers say goodbye in TLS, and HTTP itself tells whether
        # an answer is whole.
        return _AnyioStream(
            await anyio.connect_tcp(
                host, port, ssl_context=tls, tls_hostname=name, tls_standard_compatible=False
            )
        )


@contextmanager
def _until(deadline: float) -> Iterator[None]:
    with anyio.move_on_after(deadline - SYSTEM_CLOCK.monotonic()) as scope:
        yield
    if scope.cancelled_caught:
        raise LateError


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:  # a name
        return False
    return True


class _AnyioStream:
    """A stream of anyio's, which leaves what was not asked for unread."""

    __slots__ = ("_socket", "_stream", "aclose")

    def __init__(self, stream: AnyByteStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self.aclose = stream.aclose

    @property
    def quiet(self) -> bool:
        number = self._socket.fileno()
        return number >= 0 and not _readable(number)

    async def send(self, data: bytes, deadline: float) -> None:
        with _until(deadline):
            await self._stream.send(data)

    async def receive(self, deadline: float) -> bytes:
        with _until(deadline):
            return await self._stream.receive()


class _AsyncioStream(asyncio.BufferedProtocol):
    """A stream that listens all the time, so that it knows by itself what became of the peer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        # One of our own: asyncio's is so large that to take and return it costs system calls.
        self._buffer = bytearray(_BUFFER)
        self._come: list[bytes] = []
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        # Of the deadline, or of an earlier one: a timer for each answer costs more than to look
        # again at the end of the first.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._come.append(bytes(memoryview(self._buffer)[:nbytes]))
        if self._waiter is None:  # nobody asked
            self._transport.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended, self._error = True, error
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def quiet(self) -> bool:
        return not self._transport.is_closing()

    def _look(self) -> None:
        self._timer = None
        if self._waiter is not None and not self._waiter.done():
            left = self._deadline - SYSTEM_CLOCK.monotonic()
            if left > 0:
                self._timer = self._loop.call_later(left, self._look)
            else:
                self._waiter.set_exception(LateError())

    async def send(self, data: bytes, deadline: float) -> None:
        self._transport.write(data)  # all that it cannot send now, it keeps; so it never waits

    async def receive(self, deadline: float) -> bytes:
        self._deadline = deadline
        while not self._come:
            if self._ended:
                if self._error is None:
                    raise anyio.EndOfStream
                raise anyio.BrokenResourceError(str(self._error)) from self._error
            self._waiter = self._loop.create_future()
            if self._timer is None:
                self._look()
            await self._waiter
            self._waiter = None
        data = self._come[0] if len(self._come) == 1 else b"".join(self._come)
        self._come.clear()
        return data

    async def aclose(self) -> None:
        self._transport.abort()
        await anyio.lowlevel.checkpoint()  # in which the loop closes the socket


def _readable(number: int) -> bool:
    if hasattr(select, "poll"):  # not on Windows; `select` in turn takes no high numbers
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])
