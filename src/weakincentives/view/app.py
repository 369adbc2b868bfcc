"""The server of `wink view`: its routes, and how it runs."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .. import serde
from ..errors import MissingExtraError, StoreError, UsageError, WinkError
from ..evals import RunStore
from ..internal.threads import in_thread
from ..secrets import redact_message

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "starlette", "view", "`wink view`") from None

from .api import Api
from .live import changes
from .queries import Query
from .review_api import ReviewApi
from .security import LOOPBACK, Guard, is_loopback
from .sharing import share, static_files

_MAX_BODY = 1_000_000  # bytes of a write
_MAX_SHARED = 500  # answers in a shared view
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}


def create_app(
    store: RunStore, *, hosts: tuple[str, ...] = LOOPBACK, token: str = ""
) -> Callable[..., Any]:
    """Return the application over a run store; `hosts` are the names that it answers to."""
    csrf_token = new_token()
    pages = _Pages(store, csrf_token)
    app = Starlette(routes=pages.routes(), lifespan=pages.lifespan)
    return Guard(app, frozenset(name.lower() for name in hosts), token, csrf_token)


def serve(
    store: RunStore,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    on_ready: Callable[[str], object] = print,
) -> None:
    """Serve the page until the process is interrupted; `on_ready` gets its address.

    Any address but loopback needs a token. Port 0 takes a free one.
    """
    server = Server(store, host=host, port=port, token=token)
    on_ready(server.address)
    with suppress(KeyboardInterrupt):
        server.run()


class Server:
    """The page on its own address: bound in the constructor, served by `run` until `stop`."""

    def __init__(
        self, store: RunStore, *, host: str = "127.0.0.1", port: int = 0, token: str = ""
    ) -> None:
        if not is_loopback(host) and not token:
            raise UsageError(
                f"expected --auth-token with the address {host}: everyone who reaches it could "
                "read the runs - pass one, or omit --host"
            )
        config = uvicorn.Config(
            create_app(store, hosts=(host, *LOOPBACK), token=token),
            host=host,
            port=port,
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
        self._socket.listen()  # connections wait from here on
        self._server = uvicorn.Server(config)
        name = f"[{host}]" if ":" in host else host
        query = f"?token={token}" if token else ""
        self.address = f"http://{name}:{self._socket.getsockname()[1]}/{query}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, Ctrl-C is pressed."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run` return; another thread may call it."""
        self._server.should_exit = True


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


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
        answers = await in_thread(self._answered, addresses[:_MAX_SHARED])
        html = share(view, answers, str(asked.get("title", "WINK Evals")))
        headers = {"Content-Disposition": 'attachment; filename="wink-view.html"'}
        return Response(html.encode("utf-8", "replace"), media_type="text/html", headers=headers)

    async def _export(self, request: Request) -> Response:
        try:
            name, content = await in_thread(self._review.export, _query(request))
        except WinkError as error:
            return PlainTextResponse(f"404: {error}\n", 404)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _answered(self, addresses: list[str]) -> dict[str, Any]:
        """Answer addresses of the API again; those that fail are left out."""
        answers = {}
        for address in addresses:
            parts = urlsplit(address)
            query = parse_qs(parts.query, keep_blank_values=True)
            name = parts.path.removeprefix("/api/")
            if name in Api.ANSWERS:
                with suppress(WinkError):
                    answers[address] = getattr(self._api, name)(query)
        return answers


def _query(request: Request) -> Query:
    return parse_qs(request.url.query, keep_blank_values=True)


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
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > _MAX_BODY:
            return None
    return b"".join(parts)


def _too_long() -> Response:
    return PlainTextResponse(f"413: expected at most {_MAX_BODY:,} bytes\n", 413)


def _failure(error: WinkError) -> Response:
    status = 404 if isinstance(error, UsageError) else 500 if isinstance(error, StoreError) else 400
    body = serde.encode({"error": redact_message(str(error))})
    return Response(body, status, media_type="application/json")
