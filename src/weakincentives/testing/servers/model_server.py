"""A local model provider: a real HTTP server with scripted replies.

It listens on 127.0.0.1 only, in a background thread. The script is called on that thread, once per
valid request, in the order in which requests arrive.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Any, Protocol, Self

import msgspec

from ...errors import UsageError, short_repr
from ...internal.closing import Closing
from . import wire_anthropic, wire_openai, wire_openai_responses
from .http_base import BadRequest, Connection, HttpAnswer, Request, chunked, response
from .script import Fault, Reply, Script, ServedRequest, next_reply_of

SECRET_HEADERS = {"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"}
# Both SDKs obey it, so a mistake in the test fails at once instead of after their retries.
DO_NOT_RETRY = {"x-should-retry": "false"}


class Wire(Protocol):
    """A provider's wire format: the modules `wire_openai…` and `wire_anthropic`."""

    @property
    def PATH(self) -> str: ...
    @property
    def REQUEST_ID(self) -> str: ...
    def key(self, headers: Mapping[str, str]) -> str: ...
    def problem(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None: ...
    def error(self, status: int, message: str) -> dict[str, Any]: ...
    def response_body(self, request: ServedRequest, reply: Reply) -> dict[str, Any]: ...
    def events(self, request: ServedRequest, reply: Reply) -> Iterable[bytes]: ...


_WIRES: tuple[Wire, ...] = (wire_openai, wire_openai_responses, wire_anthropic)
WIRES = {wire.PATH: wire for wire in _WIRES}


class ModelServer(Closing):
    """Serves OpenAI's Chat Completions and Responses, and Anthropic's Messages, on loopback.

    Each is streamed if the client asks for it.

    `script` is a sequence of replies (with `repeat=True` it starts again at its end) or a function
    of the request, which must not block. A request after the end of the script gets status 500.
    Chat Completions that ask for `logprobs` or `return_token_ids` get them, the same for the same
    text.

    >>> with ModelServer(["Paris"]) as server:
    ...     server.openai_base_url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        script: Script,
        *,
        repeat: bool = False,
        require_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if tls is not None and (
            not isinstance(tls, ssl.SSLContext) or tls.protocol == ssl.PROTOCOL_TLS_CLIENT
        ):
            raise UsageError(
                f"expected a server's `ssl.SSLContext` as `tls`, got {short_repr(tls)} - "
                "pass ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) with a certificate"
            )
        self._next_reply = next_reply_of(script, repeat=repeat)
        self._require_key = require_key
        self._tls = tls
        self._requests: list[ServedRequest] = []
        self.connections = 0
        """The number of connections so far."""
        self._open: set[Connection] = set()
        self._url: str | None = None
        self._stop: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        if self._url is not None:
            raise UsageError("a ModelServer starts only once - make a new one")
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self._url = f"http{'s' if self._tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
        loop, stopped = asyncio.SelectorEventLoop(), asyncio.Event()
        thread = Thread(
            target=self._run, args=(loop, listener, stopped), name="wink-model-server", daemon=True
        )
        thread.start()

        def stop() -> None:
            loop.call_soon_threadsafe(stopped.set)
            thread.join()

        self._stop = stop
        return self

    def close(self) -> None:
        """Close all connections and end the thread. Calling it twice is harmless."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    @property
    def url(self) -> str:
        """The server's address, as `http://127.0.0.1:PORT`."""
        if self._url is None:
            raise UsageError("not started yet - use `with ModelServer(...) as server:`")
        return self._url

    @property
    def openai_base_url(self) -> str:
        """The URL for `OpenAI(base_url=...)`."""
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The URL for `Anthropic(base_url=...)`."""
        return self.url

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """Every request so far, refused ones included."""
        return tuple(self._requests)

    def _run(
        self, loop: asyncio.AbstractEventLoop, listener: socket.socket, stopped: asyncio.Event
    ) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._listen(listener, stopped))

    async def _listen(self, listener: socket.socket, stopped: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connect, sock=listener, ssl=self._tls, backlog=2048)
        await stopped.wait()
        # asyncio (seen in 3.11) leaks a connection accepted just before `server.close()`: so stop
        # accepting, and yield until every accepted connection can be aborted.
        loop.remove_reader(listener)
        for _ in range(8):
            for connection in tuple(self._open):
                connection.abort()
            await asyncio.sleep(0)
        server.close()

    def _connect(self) -> Connection:
        self.connections += 1
        return Connection(self._answer, _refusal, self._open)

    def _answer(self, request: Request) -> HttpAnswer:
        wire = WIRES.get(request.path)
        served = ServedRequest(
            len(self._requests) + 1, request.path, _masked(request.headers), _json(request.body)
        )
        self._requests.append(served)
        if wire is None or request.method != "POST":
            client: Wire = wire_anthropic if "anthropic-version" in served.headers else wire_openai
            status = 404 if wire is None else 405
            return _error(client, served, status, f"Invalid URL ({request.method} {request.path})")
        if self._require_key is not None and wire.key(request.headers) != self._require_key:
            return _error(wire, served, 401, "Incorrect API key provided")
        if not isinstance(served.body, dict):
            return _error(wire, served, 400, "The body of the request is not a JSON object")
        if (problem := wire.problem(served.body, served.headers)) is not None:
            return _error(wire, served, 400, problem)
        try:
            return self._scripted(wire, served)
        except Exception as error:  # the test's script failed: the client reports it
            reason = f"the script of ModelServer failed: {type(error).__name__}: {error}"
            return _error(wire, served, 500, reason, DO_NOT_RETRY)

    def _scripted(self, wire: Wire, served: ServedRequest) -> HttpAnswer:
        reply = self._next_reply(served)
        if reply is None:
            reason = f"the script of ModelServer is used up at request {served.number}"
            return _error(wire, served, 500, reason, DO_NOT_RETRY)
        if isinstance(reply, Fault):
            return _fault(wire, served, reply)
        headers = {wire.REQUEST_ID: f"req_{served.number}"}
        if served.body.get("stream") is True:
            return HttpAnswer(chunked(wire.events(served, reply), headers), delay=reply.delay)
        body = msgspec.json.encode(wire.response_body(served, reply))
        return HttpAnswer(response(200, body, headers), delay=reply.delay)


def _fault(wire: Wire, served: ServedRequest, fault: Fault) -> HttpAnswer:
    match fault.kind:
        case "status":
            wait = fault.retry_after
            headers = {} if wait is None else {"retry-after": f"{wait:g}"}
            return _error(wire, served, fault.status, fault.message, headers)
        case "hang" | "reset" | "close":
            return HttpAnswer(then=fault.kind)
        case "garbage":
            return HttpAnswer(b"\x00\xffthis is not HTTP\r\n\r\n", "close")
        case _:
            return _broken(wire, served, fault)


def _broken(wire: Wire, served: ServedRequest, fault: Fault) -> HttpAnswer:
    """Return a response whose JSON, or whose transport, ends in the middle."""
    reply, headers = Reply(fault.message), {wire.REQUEST_ID: f"req_{served.number}"}
    if served.body.get("stream") is True:
        events = list(wire.events(served, reply))
        if fault.kind == "malformed":
            return HttpAnswer(chunked([_half(events[0]) + b"\n\n"], headers))
        return HttpAnswer(_half(chunked(events, headers)), "close")
    body = msgspec.json.encode(wire.response_body(served, reply))
    if fault.kind == "malformed":
        return HttpAnswer(response(200, _half(body), headers))
    return HttpAnswer(response(200, body, headers).removesuffix(body[len(body) // 2 :]), "close")


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _error(
    wire: Wire,
    served: ServedRequest,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> HttpAnswer:
    body = msgspec.json.encode(wire.error(status, message))
    with_id = {wire.REQUEST_ID: f"req_{served.number}", **(headers or {})}
    return HttpAnswer(response(status, body, with_id))


def _refusal(refused: BadRequest) -> bytes:
    body = msgspec.json.encode(wire_openai.error(refused.status, str(refused)))
    return response(refused.status, body, {"connection": "close"})


def _masked(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if name in SECRET_HEADERS else value for name, value in headers.items()}


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
