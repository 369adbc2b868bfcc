"""A byte stream for one connection: anyio's on trio, our own protocol on asyncio.

On asyncio, anyio's streams yield to the event loop before each send, and pause and resume reading
around each receive. That costs as much as the rest of a short call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import select
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from anyio.abc import AnyByteStream, SocketAttribute

from ..clock import SYSTEM_CLOCK

_BUFFER_BYTES = 16 * 1024
_HAPPY_EYEBALLS_SECONDS = 0.25  # until the next address of a host is tried in parallel


class DeadlineExceeded(Exception):
    """The deadline has passed."""


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None, loop: object, deadline: float
) -> ByteStream:
    """Open a connection. `loop` is the running event loop, or Trio's token.

    The stream raises the errors of anyio's streams. A deadline is a time of the monotonic system
    clock, after which `DeadlineExceeded` is raised.
    """
    name = None if tls is None else host
    with _until(deadline):
        if isinstance(loop, asyncio.AbstractEventLoop):
            # Racing addresses costs time, so it is off for a single one.
            delay = None if _is_address(host) else _HAPPY_EYEBALLS_SECONDS
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
        # Not `standard_compatible`: few servers send a TLS close_notify, and HTTP itself says
        # whether a response is complete.
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
        raise DeadlineExceeded


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:  # a name
        return False
    return True


class _AnyioStream:
    """A stream of anyio's."""

    __slots__ = ("_socket", "_stream", "aclose")

    def __init__(self, stream: AnyByteStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self.aclose = stream.aclose

    @property
    def is_idle(self) -> bool:
        """False if the peer has closed the connection, or has sent unexpected data."""
        number = self._socket.fileno()
        return number >= 0 and not _readable(number)

    async def send(self, data: bytes, deadline: float) -> None:
        with _until(deadline):
            await self._stream.send(data)

    async def receive(self, deadline: float) -> bytes:
        with _until(deadline):
            return await self._stream.receive()


class _AsyncioStream(asyncio.BufferedProtocol):
    """A stream that always reads, so that it notices at once when the peer closes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        # A small buffer: asyncio's default is so large that allocating it needs system calls.
        self._buffer = bytearray(_BUFFER_BYTES)
        self._received: list[bytes] = []
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        # For this deadline or an earlier one: to re-arm a timer that fires early is cheaper than
        # to make a new one for each response.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received.append(bytes(memoryview(self._buffer)[:nbytes]))
        if self._waiter is None:  # data without a request
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
    def is_idle(self) -> bool:
        return not self._transport.is_closing()

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is not None and not self._waiter.done():
            remaining = self._deadline - SYSTEM_CLOCK.monotonic()
            if remaining > 0:
                self._timer = self._loop.call_later(remaining, self._check_deadline)
            else:
                self._waiter.set_exception(DeadlineExceeded())

    async def send(self, data: bytes, deadline: float) -> None:
        self._transport.write(data)  # never blocks: the transport buffers

    async def receive(self, deadline: float) -> bytes:
        self._deadline = deadline
        while not self._received:
            if self._ended:
                if self._error is None:
                    raise anyio.EndOfStream
                raise anyio.BrokenResourceError(str(self._error)) from self._error
            self._waiter = self._loop.create_future()
            if self._timer is None:
                self._check_deadline()
            await self._waiter
            self._waiter = None
        data = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        return data

    async def aclose(self) -> None:
        self._transport.abort()
        await anyio.lowlevel.checkpoint()  # lets the loop close the socket


ByteStream = _AnyioStream | _AsyncioStream


def _readable(number: int) -> bool:
    if hasattr(select, "poll"):  # not on Windows; `select` accepts no high numbers
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])
