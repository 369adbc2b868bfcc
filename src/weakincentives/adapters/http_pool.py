"""Keep-alive HTTP/1.1 to one origin: h11 for the protocol, one connection pool per event loop.

Nearly all responses have a simple form; they are parsed without h11, in a third of the time.
`docs/benchmarks.md` compares this client with httpcore.

Rules of this file:
1. The cost of a request does not grow with the number of connections: the pool is a stack.
2. A connection is in the pool only while it is idle. It is returned after a complete response,
   and closed after anything else, cancellation included.
3. A request is repeated only if a kept-alive connection turns out to be closed before any byte of
   the response arrived, and then once, on a new connection.
4. Every failure is a `ProviderError`. No redirects, no proxies.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import anyio
from anyio.lowlevel import current_token

from ..clock import SYSTEM_CLOCK
from ..errors import MissingExtraError, ProviderError
from ..internal.frozen import fast_init
from .http_stream import ByteStream, DeadlineExceeded, connect

MAX_RESPONSE_BYTES = 64 * 1024 * 1024

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)  # and ssl.SSLError

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """A server's address, and the TLS context for https."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@fast_init
@dataclass(frozen=True, slots=True)
class Response:
    """A complete response, and its latency in seconds. Header names are in lower case."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes
    seconds: float


class _StaleConnection(Exception):
    """The connection was closed before any byte of the response arrived."""


class HTTPClient:
    """Send POST requests to one origin. `timeout` excludes the wait for a free connection."""

    def __init__(self, origin: Origin, *, timeout: float, max_connections: int) -> None:
        try:
            import h11
        except ImportError:
            raise MissingExtraError("h11", "http", "HTTPAdapter") from None
        self._h11: ModuleType = h11
        self._origin = origin
        self._timeout = timeout
        self._max_connections = max_connections
        self._pools: dict[Any, _Pool] = {}
        # Unclosed sockets cause warnings, and only their own event loop may close them.
        weakref.finalize(self, _close_soon, self._pools).atexit = False

    def head(self, target: bytes, headers: Headers) -> bytes:
        """Return the request head without its length, checked by h11. It is built once."""
        h11 = self._h11
        request = h11.Request(method=b"POST", target=target, headers=headers)
        return bytes(h11.Connection(our_role=h11.CLIENT).send(request)).removesuffix(b"\r\n")

    async def post(self, head: bytes, body: bytes, secret: bytes = b"") -> Response:
        """Send a request and return the response. `secret` is one more header line."""
        pool = await self._pool()
        sent = b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), secret, body)
        try:
            pool.slots.acquire_nowait()  # faster, and nearly always possible
        except anyio.WouldBlock:
            await pool.slots.acquire()
        try:
            return await self._send(pool, sent, SYSTEM_CLOCK.monotonic() + self._timeout)
        except DeadlineExceeded:
            raise ProviderError(
                f"timed out after {self._timeout:g} s without an answer from {self._origin}",
                retryable=True,
            ) from None
        finally:
            pool.slots.release()

    async def aclose(self) -> None:
        """Close the idle connections of this event loop; those in use are closed after use."""
        pool = self._pools.get(_loop_token())
        if pool is not None:
            await pool.closer.aclose()

    async def _pool(self) -> _Pool:
        token = _loop_token()
        pool = self._pools.get(token)
        if pool is None:
            slots = anyio.Semaphore(self._max_connections, fast_acquire=True)
            pool = self._pools[token] = _Pool(slots, token)
            pool.closer = _close_at_loop_exit(pool, self._pools, token)
            await pool.closer.__anext__()
        return pool

    async def _send(self, pool: _Pool, sent: bytes, deadline: float) -> Response:
        idle = await pool.take()
        if idle is not None:
            try:
                return await self._exchange(pool, idle, sent, deadline)
            except _StaleConnection:
                pass
        fresh = await self._connect(pool.loop, deadline)
        try:
            return await self._exchange(pool, fresh, sent, deadline)
        except _StaleConnection as error:
            raise self._lost(error) from error

    async def _exchange(
        self, pool: _Pool, connection: _Connection, sent: bytes, deadline: float
    ) -> Response:
        try:
            response = await connection.exchange(sent, deadline)
        except BaseException as error:
            await connection.aclose()
            if isinstance(error, (*_BROKEN, self._h11.RemoteProtocolError)):
                raise self._lost(error) from error
            raise
        if connection.reusable and not pool.closed:
            pool.idle.append(connection)
        else:
            await connection.aclose()
        return response

    async def _connect(self, loop: object, deadline: float) -> _Connection:
        origin = self._origin
        try:
            stream = await connect(origin.host, origin.port, origin.tls, loop, deadline)
        except ssl.SSLError as error:
            raise ProviderError(
                f"expected a TLS server that can be trusted at {origin}, got: {error}"
            ) from error
        except (*_BROKEN, anyio.EndOfStream) as error:
            raise ProviderError(
                f"could not connect to {origin}: {error or type(error).__name__}", retryable=True
            ) from error
        return _Connection(stream, self._h11)

    def _lost(self, error: BaseException) -> ProviderError:
        reason = str(error) or type(error).__name__
        return ProviderError(
            f"expected a complete answer from {self._origin}, got: {reason}", retryable=True
        )


@dataclass(slots=True, eq=False)
class _Pool:
    """The connections of one event loop."""

    slots: anyio.Semaphore
    loop: object
    idle: list[_Connection] = field(default_factory=list)
    closed: bool = False
    closer: AsyncGenerator[None, None] = field(init=False)

    async def take(self) -> _Connection | None:
        """Return the most recently used connection that is still open, or None."""
        while self.idle:
            connection = self.idle.pop()
            if connection.stream.is_idle:
                return connection
            await connection.aclose()
        return None

    async def aclose(self) -> None:
        self.closed = True
        while self.idle:
            await self.idle.pop().aclose()


@dataclass(slots=True, eq=False)
class _Connection:
    """One socket. `reusable` after an exchange: the response is complete and may be followed."""

    stream: ByteStream
    _h11: ModuleType
    reusable: bool = False

    async def exchange(self, sent: bytes, deadline: float) -> Response:
        """Send a request and return the complete response."""
        self.reusable = False
        start = SYSTEM_CLOCK.monotonic()
        with suppress(anyio.BrokenResourceError):  # there may be an early error response to read
            await self.stream.send(sent, deadline)
        data = await self._receive(deadline, started=False)
        simple = _parse_simple(data)
        if simple is None:
            parsed = await self._read_with_h11(data, deadline)
        else:
            status, headers, begin, length = simple
            parts, size = [data[begin:]], len(data) - begin
            while size < length:
                if not (more := await self._receive(deadline, started=True)):
                    raise self._h11.RemoteProtocolError("the connection was closed in mid-answer")
                parts.append(more)
                size += len(more)
            # More bytes than announced: the connection is out of step and must not be reused.
            keep_alive = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
            self.reusable = size == length and keep_alive
            parsed = status, headers, b"".join(parts)[:length]
        return Response(*parsed, SYSTEM_CLOCK.monotonic() - start)

    async def _read_with_h11(
        self, data: bytes, deadline: float
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        """Read chunked responses, those that end with the connection, and invalid HTTP."""
        h11 = self._h11
        http = h11.Connection(our_role=h11.CLIENT)
        http.send(h11.Request(method=b"POST", target=b"/", headers=[(b"host", b"-")]))
        http.send(h11.EndOfMessage())
        http.receive_data(data)
        parts, size = [], 0
        response: Any = None
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await self._receive(deadline, started=True))
            elif type(event) is h11.Data:
                parts.append(event.data)
                size += len(event.data)
                if size > MAX_RESPONSE_BYTES:
                    raise ProviderError(
                        f"expected an answer of at most {MAX_RESPONSE_BYTES} bytes, got more"
                    )
            elif type(event) is h11.Response:
                response = event
            elif type(event) is h11.EndOfMessage:
                done = (http.our_state, http.their_state) == (h11.DONE, h11.DONE)
                self.reusable = done and not http.trailing_data[0]
                return response.status_code, dict(response.headers), b"".join(parts)
            # Any other event is an informational response, such as `103 Early Hints`.

    async def _receive(self, deadline: float, *, started: bool) -> bytes:
        try:
            return await self.stream.receive(deadline)
        except anyio.EndOfStream:
            if started:
                return b""  # h11 knows whether the response may end here
            raise _StaleConnection("the connection was closed") from None
        except _BROKEN as error:
            if started:
                raise
            raise _StaleConnection(str(error) or "the connection was reset") from error

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True), suppress(*_BROKEN):
            await self.stream.aclose()


def _parse_simple(data: bytes) -> tuple[int, dict[bytes, bytes], int, int] | None:
    """Return the status, the headers, and the start and length of the body; None if not simple.

    A simple response has its complete head in the first read, a final status, each header once, a
    content length and no transfer coding.
    """
    end = data.find(b"\r\n\r\n")
    first, *lines = data[:end].split(b"\r\n")
    if end < 0 or _STATUS(first) is None:
        return None
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = _HEADER(line)
        if match is None or (name := match[1].lower()) in headers:
            return None
        headers[name] = match[2] or b""
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 8 or b"transfer-encoding" in headers:
        return None
    size = int(length)
    if size > MAX_RESPONSE_BYTES:
        return None
    return int(first[9:12]), headers, end + 4, size


_STATUS = re.compile(rb"HTTP/1\.1 [2-5]\d\d(?: [\x20-\x7e]*)?").fullmatch
_NAME, _VALUE = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
_HEADER = re.compile(rb"(%b):[ \t]*(%b)?[ \t]*" % (_NAME, _VALUE)).fullmatch


async def _close_at_loop_exit(
    pool: _Pool, pools: dict[Any, _Pool], token: object
) -> AsyncGenerator[None, None]:
    """Close the pool when its loop ends, which is when asyncio and trio close open generators."""
    try:
        yield
    finally:
        if pools.get(token) is pool:
            del pools[token]
        await pool.aclose()


def _close_soon(pools: dict[Any, _Pool]) -> None:
    """Schedule the closing of each pool on its own loop, after the client was garbage collected."""

    async def close(pool: _Pool) -> None:
        await pool.aclose()
        with suppress(RuntimeError):  # the loop is closing it already
            await pool.closer.aclose()

    for token, pool in tuple(pools.items()):
        with suppress(RuntimeError):  # the loop has ended
            if isinstance(token, asyncio.AbstractEventLoop):
                # In an empty context: the garbage collector may run in that of another back-end.
                token.call_soon_threadsafe(
                    lambda loop, p: loop.create_task(close(p)), token, pool, context=Context()
                )
            else:
                import trio

                token.run_sync_soon(trio.lowlevel.spawn_system_task, close, pool)


def _loop_token() -> Any:
    """Return the running event loop of asyncio, or Trio's token."""
    try:
        if asyncio.current_task() is not None:
            return asyncio.get_running_loop()
    except RuntimeError:  # not in asyncio
        pass
    token = current_token()
    return getattr(token, "native_token", token)  # anyio before 4.11 returns the native one
