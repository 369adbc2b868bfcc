"""The server of `wink view`: its routes, and how it runs."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from urllib.parse import parse_qs, quote

from .. import serde
from ..errors import MissingExtraError, StoreError, UsageError, WinkError
from ..evals import RunStore
from ..internal.threads import in_thread
from ..secrets import redact_message

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "starlette", "view", "`wink view`") from None

from .access import Access, check_token, new_token
from .address_queries import Query
from .api import Api
from .connections import REQUEST_SECONDS, timed_connections
from .live import changes
from .review_api import ReviewApi
from .security import LOOPBACK, Guard, is_loopback
from .sharing import Answer, PageFile, static_files

_MAX_BODY = 1_000_000  # bytes of a write
_MAX_SHARED = 500  # answers in a shared view
_GONE_MS = 30_000  # without a sign of a client that was sent something
# Loopback, and an address that is reserved for documentation: the route to it leads through the
# address by which other machines reach this one.
_EVERY_ADDRESS = {
    "0.0.0.0": ("127.0.0.1", socket.AF_INET, "192.0.2.1"),
    "::": ("::1", socket.AF_INET6, "2001:db8::1"),
}
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}


def create_app(
    store: RunStore, *, hosts: tuple[str, ...] = LOOPBACK, token: str = ""
) -> Callable[..., Any]:
    """Return the application over a run store.

    It answers requests with the token, to any host name; without one, to the names in `hosts`.
    """
    return _application(store, hosts, Access(token and check_token(token, "`token`")))


def _application(store: RunStore, hosts: tuple[str, ...], access: Access) -> Guard:
    pages = _Pages(store, access.csrf_token)
    app = Starlette(routes=pages.routes(), lifespan=pages.lifespan)
    app.router.redirect_slashes = False  # it would lead to whatever `Host` says
    return Guard(app, frozenset(name.lower() for name in hosts), access)


def serve(
    store: RunStore,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    on_ready: Callable[[str], object] = print,
) -> None:
    """Serve the page until the process is interrupted; `on_ready` gets its address.

    The address contains the token: a new one, unless `token` is given. With an empty one, everyone
    on this machine can read and change the runs; any address but loopback needs one. Port 0 takes
    a free one.
    """
    server = Server(store, host=host, port=port, token=token)
    on_ready(server.address)
    server.run()


class Server:
    """The page on its own address: bound in the constructor, served by `run` until `stop`.

    `urls` are its addresses without the token, on this machine first; `address` is the first one
    with it. `request_seconds` is the time limit for a client to send a request.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        if token == "" and not is_loopback(host):
            raise UsageError(
                f"expected a token with the address {host}, got none: everyone who reaches it "
                "could read and change the runs - omit --no-token, or --host"
            )
        token = new_token() if token is None else token and check_token(token, "`token`")
        self._access = Access(token)
        config = uvicorn.Config(
            _application(store, (host, *LOOPBACK), self._access),
            host=host,
            port=port,
            http=cast("Any", timed_connections(request_seconds)),
            ws="none",
            proxy_headers=False,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        try:
            self._socket = config.bind_socket()
        except SystemExit:
            raise UsageError(
                f"expected an address and a port that are free, got {host} and {port} - choose "
                "another --port"
            ) from None
        # asyncio does this only for sockets that name their protocol, which uvicorn's do not.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":  # for event streams whose client is gone without a word
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
        self._socket.listen()  # connections wait from here on
        self._server = uvicorn.Server(config)
        port = self._socket.getsockname()[1]
        self.urls = tuple(
            f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
            for name in _names_of(host)
        )
        self.query = f"?token={quote(token, safe='')}" if token else ""
        self.address = self.urls[0] + self.query

    def address_for_browser(self) -> str:
        """Return an address that opens the page once, soon, for a browser of this user.

        A browser gets it as an argument, which other users of the machine can read.
        """
        return f"{self.urls[0]}?code={self._access.new_code()}" if self.query else self.address

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, Ctrl-C is pressed."""
        try:
            with suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run` return; another thread may call it."""
        self._server.should_exit = True


def _names_of(host: str) -> tuple[str, ...]:
    """Return the names that lead to a server with this address, the one on this machine first."""
    if host not in _EVERY_ADDRESS:
        return (host,)
    loopback, family, elsewhere = _EVERY_ADDRESS[host]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))  # sends nothing: it only looks up the route
            own = probe.getsockname()[0]
        except OSError:
            own = socket.gethostname()
    return loopback, own


class _Pages:
    def __init__(self, store: RunStore, csrf_token: str) -> None:
        self._store = store
        self._api = Api(store)
        self._review = ReviewApi(store, self._api.sample)
        self._static = {name: text.encode() for name, text in static_files().items()}
        meta = f'<meta name="csrf-token" content="{csrf_token}">\n</head>'
        self._index = self._static["index.html"].replace(b"</head>", meta.encode(), 1)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self._page),
            Route("/static/{name}", self._file),
            Route("/favicon.ico", self._icon),
            Route("/api/events", self._events),
            Route("/api/text", self._text),
            Route("/api/share", self._share, methods=["POST"]),
            Route("/api/review_export", self._export),
            Route("/api/tags", _write(self._api.tags), methods=["POST"]),
            *(
                Route(f"/api/{name}", _json(getattr(api, name)))
                for api in (self._api, self._review)
                for name in api.ANSWERS
            ),
            *(
                Route(f"/api/{name}", _write(getattr(self._review, name)), methods=["POST"])
                for name in ReviewApi.WRITES
            ),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Close the search index when the server stops."""
        try:
            yield
        finally:
            self._api.close()

    async def _page(self, request: Request) -> Response:
        return Response(self._index, media_type="text/html")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._static.get(name)
        if content is None:
            return PlainTextResponse("404: no such file\n", 404)
        return Response(content, media_type=_TYPES[name[name.rindex(".") :]])

    async def _icon(self, request: Request) -> Response:
        return Response(self._static["icon.svg"], media_type="image/svg+xml")

    async def _events(self, request: Request) -> Response:
        events = changes(self._store, self._api, request.is_disconnected)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _text(self, request: Request) -> Response:
        query = _query(request)
        try:
            text = await in_thread(self._api.text, query)
        except WinkError as error:
            return _failure(error)
        return PlainTextResponse(text.encode("utf-8", "replace"))

    async def _share(self, request: Request) -> Response:
        if (body := await _body(request)) is None:
            return _too_long()
        try:
            asked = serde.decode(body, dict[str, Any])
            view, addresses = str(asked["view"]), [str(each) for each in asked["addresses"]]
        except (WinkError, KeyError, TypeError) as error:
            return PlainTextResponse(f"400: expected a view and addresses, got {error}\n", 400)
        answers = self._answered(addresses[:_MAX_SHARED])
        parts = PageFile().parts(view, str(asked.get("title", "WINK Evals")), answers)
        html = await in_thread(b"".join, parts)
        headers = {"Content-Disposition": 'attachment; filename="wink-view.html"'}
        return Response(html, media_type="text/html", headers=headers)

    async def _export(self, request: Request) -> Response:
        try:
            name, content = await in_thread(self._review.export, _query(request))
        except WinkError as error:
            return PlainTextResponse(f"404: {error}\n", 404)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _answered(self, addresses: list[str]) -> Iterator[Answer]:
        """Answer addresses of the API again; those that fail are left out."""
        for address in addresses:
            path, _, query = address.partition("?")
            name = path.removeprefix("/api/")
            if name in (*Api.ANSWERS, "text"):
                with suppress(WinkError):
                    yield (address,), getattr(self._api, name)(_parsed(query))


def _query(request: Request) -> Query:
    return _parsed(request.scope["query_string"].decode("latin-1"))


def _parsed(query: str) -> Query:
    return parse_qs(query, keep_blank_values=True)


def _json(answer: Callable[[Query], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return await _answer(answer, _query(request))

    return endpoint


def _write(write: Callable[[bytes], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        if (body := await _body(request)) is None:
            return _too_long()
        return await _answer(write, body)

    return endpoint


async def _answer(function: Callable[[Any], Any], value: Any) -> Response:
    """Call a function in a thread; return what it returns as JSON, or its error."""
    try:
        data = await in_thread(function, value)
        body = await in_thread(serde.encode, data)
    except WinkError as error:
        return _failure(error)
    return Response(body, media_type="application/json")


async def _body(request: Request) -> bytes | None:
    """Return the body of a write; None if it is too long, without reading all of it."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > _MAX_BODY:
                return None
    except ClientDisconnect:
        raise HTTPException(400) from None  # nobody reads it
    return b"".join(parts)


def _too_long() -> Response:
    return PlainTextResponse(f"413: expected at most {_MAX_BODY:,} bytes\n", 413)


def _failure(error: WinkError) -> Response:
    status = 404 if isinstance(error, UsageError) else 500 if isinstance(error, StoreError) else 400
    body = serde.encode({"error": redact_message(str(error))})
    return Response(body, status, media_type="application/json")
