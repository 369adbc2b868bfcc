"""Keep-alive HTTP/1.1 to one origin: h11 for the protocol, one pool per event loop.

The plain answer, which nearly all are, is read without h11, in a third of the time.

Rules of this file:
1. What a request costs does not grow with the number of connections: the idle connection that
   was used last is used next.
2. A connection is in the pool only while it is idle. Whoever took it gives it back after a whole
   answer, and closes it after anything else, cancellation included.
3. A request is sent again only if a kept-alive connection turns out dead before any byte of the
   answer came, and then once, on a new connection.
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
from ._http_stream import ByteStream, LateError, connect

__all__ = ["LARGEST_ANSWER", "Answer", "HTTPClient", "Origin"]

LARGEST_ANSWER = 64 * 1024 * 1024

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)  # ssl.SSLError as well

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to connect, and with `tls` who is trusted there."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, and the seconds from the request to its end. Header names: lower case."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes
    seconds: float


class _Dead(Exception):
    """The connection ended before any byte of the answer came."""


class HTTPClient:
    """Posts to one origin. `timeout` is for one post, without waiting for a free connection."""

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
        # Sockets that are dropped and not closed warn; and only their own loop may close them.
        weakref.finalize(self, _close_soon, self._pools).atexit = False

    def head(self, target: bytes, headers: Headers) -> bytes:
        """The head of a post but for its length; h11 sees to it that it is one. Made once."""
        h11 = self._h11
        request = h11.Request(method=b"POST", target=target, headers=headers)
        return bytes(h11.Connection(our_role=h11.CLIENT).send(request)).removesuffix(b"\r\n")

    async def post(self, head: bytes, body: bytes, secret: bytes = b"") -> Answer:
        """Send the request and wait for the whole answer. `secret` is one more line of its head."""
        pool = await self._pool()
        sent = b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), secret, body)
        try:
            pool.slots.acquire_nowait()  # which nearly always goes, and in fewer steps
        except anyio.WouldBlock:
            await pool.slots.acquire()
        try:
            return await self._answer(pool, sent, SYSTEM_CLOCK.monotonic() + self._timeout)
        except LateError:
            raise ProviderError(
                f"expected an answer of {self._origin} within {self._timeout:g} s, and none came",
                retryable=True,
            ) from None
        finally:
            pool.slots.release()

    async def aclose(self) -> None:
        """Close what is idle on this event loop; what is in use is closed when it is done."""
        pool = self._pools.get(_token())
        if pool is not None:
            await pool.life.aclose()

    async def _pool(self) -> _Pool:
        token = _token()
        pool = self._pools.get(token)
        if pool is None:
            pool = self._pools[token] = _Pool(self._max_connections, token)
            pool.life = _life(pool, self._pools, token)
            await pool.life.__anext__()
        return pool

    async def _answer(self, pool: _Pool, sent: bytes, deadline: float) -> Answer:
        kept = await pool.take()
        if kept is not None:
            try:
                return await self._exchange(pool, kept, sent, deadline)
            except _Dead:
                pass
        fresh = await self._connect(pool.loop, deadline)
        try:
            return await self._exchange(pool, fresh, sent, deadline)
        except _Dead as dead:
            raise self._lost(dead) from dead

    async def _exchange(
        self, pool: _Pool, connection: _Connection, sent: bytes, deadline: float
    ) -> Answer:
        try:
            answer = await connection.exchange(sent, deadline)
        except BaseException as error:
            await connection.aclose()
            if isinstance(error, (*_BROKEN, self._h11.RemoteProtocolError)):
                raise self._lost(error) from error
            raise
        if connection.ready_for_next() and not pool.closed:
            pool.idle.append(connection)
        else:
            await connection.aclose()
        return answer

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
            f"expected a whole answer of {self._origin}, got: {reason}", retryable=True
        )


@dataclass(slots=True, eq=False)
class _Pool:
    """The connections of one event loop."""

    limit: int
    loop: object
    slots: anyio.Semaphore = field(init=False)
    idle: list[_Connection] = field(default_factory=list)
    closed: bool = False
    life: AsyncGenerator[None, None] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = anyio.Semaphore(self.limit, fast_acquire=True)

    async def take(self) -> _Connection | None:
        """The connection that was used last, leaving out those that died meanwhile."""
        while self.idle:
            connection = self.idle.pop()
            if connection.looks_alive():
                return connection
            await connection.aclose()
        return None

    async def aclose(self) -> None:
        self.closed = True
        while self.idle:
            await self.idle.pop().aclose()


class _Connection:
    """One socket. The usual answer is read here; whatever is unusual about one, h11 reads."""

    __slots__ = ("_h11", "_reusable", "_stream")

    def __init__(self, stream: ByteStream, h11: ModuleType) -> None:
        self._stream = stream
        self._h11 = h11
        self._reusable = False

    def looks_alive(self) -> bool:
        """False where the peer has closed it, or has spoken without being asked."""
        return self._stream.quiet

    async def exchange(self, sent: bytes, deadline: float) -> Answer:
        """Send and wait for the whole answer."""
        self._reusable = False
        start = SYSTEM_CLOCK.monotonic()
        with suppress(anyio.BrokenResourceError):  # an early refusal may still be there to read
            await self._stream.send(sent, deadline)
        data = await self._receive(deadline, heard=False)
        usual = _usual(data)
        if usual is None:
            answer = await self._unusual(data, deadline)
        else:
            status, headers, begin, length = usual
            parts, size = [data[begin:]], len(data) - begin
            while size < length:
                if not (more := await self._receive(deadline, heard=True)):
                    raise self._h11.RemoteProtocolError("the connection ended in mid-answer")
                parts.append(more)
                size += len(more)
            # More than was announced is nobody's: such a connection cannot be trusted again.
            goes_on = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
            self._reusable = size == length and goes_on
            answer = status, headers, b"".join(parts)[:length]
        return Answer(*answer, SYSTEM_CLOCK.monotonic() - start)

    async def _unusual(
        self, data: bytes, deadline: float
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        """Chunks, hints, answers that end with the connection, and what is no HTTP at all."""
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
                http.receive_data(await self._receive(deadline, heard=True))
            elif type(event) is h11.Data:
                parts.append(event.data)
                size += len(event.data)
                if size > LARGEST_ANSWER:
                    raise ProviderError(
                        f"expected an answer of at most {LARGEST_ANSWER} bytes, got more"
                    )
            elif type(event) is h11.Response:
                response = event
            elif type(event) is h11.EndOfMessage:
                done = (http.our_state, http.their_state) == (h11.DONE, h11.DONE)
                self._reusable = done and not http.trailing_data[0]
                return response.status_code, dict(response.headers), b"".join(parts)
            # what is left is informational, as `103 Early Hints`

    async def _receive(self, deadline: float, *, heard: bool) -> bytes:
        try:
            return await self._stream.receive(deadline)
        except anyio.EndOfStream:
            if heard:
                return b""  # h11 knows whether the answer may end here
            raise _Dead("the connection was closed") from None
        except _BROKEN as error:
            if heard:
                raise
            raise _Dead(str(error) or "the connection was reset") from error

    def ready_for_next(self) -> bool:
        """Whether both sides are done, agree to go on, and nothing more was sent."""
        return self._reusable

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True), suppress(*_BROKEN):
            await self._stream.aclose()


def _usual(data: bytes) -> tuple[int, dict[bytes, bytes], int, int] | None:
    """Status, headers, where the body begins, and its length; None for anything but plain.

    Plain is: a whole head in one piece, a final status, each header once, a length and no coding.
    """
    end = data.find(b"\r\n\r\n")
    first, *lines = data[:end].split(b"\r\n")
    if end < 0 or _STATUS(first) is None:
        return None
    headers: dict[bytes, bytes] = {}
    for line in lines:
        found = _HEADER(line)
        if found is None or (name := found[1].lower()) in headers:
            return None
        headers[name] = found[2] or b""
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 8 or b"transfer-encoding" in headers:
        return None
    size = int(length)
    if size > LARGEST_ANSWER:
        return None
    return int(first[9:12]), headers, end + 4, size


_STATUS = re.compile(rb"HTTP/1\.1 [2-5]\d\d(?: [\x20-\x7e]*)?").fullmatch
_NAME, _VALUE = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
_HEADER = re.compile(rb"(%b):[ \t]*(%b)?[ \t]*" % (_NAME, _VALUE)).fullmatch


async def _life(pool: _Pool, pools: dict[Any, _Pool], token: object) -> AsyncGenerator[None, None]:
    """Ends with its event loop: both back-ends close the generators that are left then."""
    try:
        yield
    finally:
        if pools.get(token) is pool:
            del pools[token]
        await pool.aclose()


def _close_soon(pools: dict[Any, _Pool]) -> None:
    """Close every pool on its own loop, for a client that nobody has any more."""

    async def close(pool: _Pool) -> None:
        await pool.aclose()
        with suppress(RuntimeError):  # the loop is ending it already
            await pool.life.aclose()

    for token, pool in tuple(pools.items()):
        with suppress(RuntimeError):  # the loop has ended
            if isinstance(token, asyncio.AbstractEventLoop):
                # In no context: that of a collector may say that this is another back-end's loop.
                token.call_soon_threadsafe(
                    lambda loop, p: loop.create_task(close(p)), token, pool, context=Context()
                )
            else:
                import trio

                token.run_sync_soon(trio.lowlevel.spawn_system_task, close, pool)


def _token() -> Any:
    """The running event loop: asyncio's own, or Trio's token."""
    try:
        if asyncio.current_task() is not None:  # as it is for whoever waits on asyncio
            return asyncio.get_running_loop()
    except RuntimeError:  # no loop of asyncio's
        pass
    token = current_token()
    return getattr(token, "native_token", token)  # before anyio 4.11 it is that itself
