"""Which requests the server accepts, and what its answers allow a browser to do.

1. `Host` must be one of the names that this server was started for. A foreign page that points its
   own name at this machine (DNS rebinding) sends another one.
2. A write must come from our own page: `Origin` is ours, and the header `X-Wink` has the token that
   only the page has, which is new each time the server starts. No other site can read it.
3. A browser that says a request comes from another site (`Sec-Fetch-Site`) is refused.
4. With a token (needed on every address but loopback), the cookie or the header must have it. The
   cookie is HttpOnly: scripts cannot read it. The comparison takes constant time.
5. Every answer has a policy that allows scripts and styles of our own only, and no other origin.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "wink-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SAFE = ("GET", "HEAD")
_OWN_SITE = ("", "same-origin", "none")  # none: typed, or a bookmark


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own loopback address."""
    return host in LOOPBACK or host.startswith("127.")


class Guard:
    """Checks every request before the application sees it, and adds the headers to its answer."""

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str], token: str = "", csrf_token: str = ""
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._csrf_token = csrf_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = _name_of(headers.get("host", ""))
        if host not in self._hosts:
            return _refused(f"this server does not answer to the host {host!r}")
        is_page = scope["path"] == "/" and scope["method"] == "GET"
        if not is_page and headers.get("sec-fetch-site", "") not in _OWN_SITE:
            return _refused("only the page of this server may send requests")
        if scope["method"] not in _SAFE and not self._is_own(headers):
            return _refused("a write must come from the page of this server")
        if not self._token:
            return None
        given = _token_of(headers)
        if given and hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if is_page and hmac.compare_digest(asked.encode(), self._token.encode()):
            answer = RedirectResponse("/", 303)  # remove the token from the address
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", path="/")
            return answer
        return PlainTextResponse(
            "401: this server needs a token: open the address that `wink view` printed\n", 401
        )

    def _is_own(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        given, kind = headers.get("x-wink", ""), headers.get("content-type", "")
        if not hmac.compare_digest(given.encode(), self._csrf_token.encode()):
            return False
        if kind.partition(";")[0].strip() != "application/json":
            return False
        return origin is None or (
            urlsplit(origin).netloc == headers.get("host", "")
            and _name_of(urlsplit(origin).netloc) in self._hosts
        )


def _name_of(host: str) -> str:
    """Return a host without its port, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _token_of(headers: Headers) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _refused(why: str) -> Response:
    return PlainTextResponse(f"403: {why}\n", 403)
