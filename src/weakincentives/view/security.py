"""Which requests the server accepts, and what its answers allow a browser to do.

1. A request needs the token of the server, in the cookie or in a header. The address that was
   printed has it; the answer to it sets the cookie and leads to the same address without the token.
   The cookie is HttpOnly: scripts cannot read it. The comparison takes constant time.
2. Without a token, `Host` must be one of the names that the server was started for. A foreign page
   that points its own name at this machine (DNS rebinding) sends another one. With a token it may
   be any name, as a proxy or a forwarded port has them: such a page has no cookie.
3. A write must come from our own page: `Origin` is ours, and the header `X-Wink` has the token that
   only the page has. No other site can read it.
4. A browser that says a request comes from another site (`Sec-Fetch-Site`) is refused.
5. Every answer has a policy that allows scripts and styles of our own only, and no other origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Access
from .connections import ACCEPTED
from .sharing import hash_of, static_files

LOOPBACK = ("127.0.0.1", "localhost", "::1")
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
_INLINE = re.compile(r"<(?:style|script)>(.*?)</", re.DOTALL)
_CREDENTIALS = ("token", "code", "again")  # parameters of the query; `again`: see login.html
_OWN_SITE = ("", "same-origin", "none")  # none: typed, or a bookmark


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Checks every request before the application sees it, and adds the headers to its answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], access: Access) -> None:
        self._app = app
        self._hosts = hosts
        self._access = access
        self._login_page = static_files()["login.html"]
        style, script = map(hash_of, _INLINE.findall(self._login_page))
        self._login_policy = (
            f"default-src 'none'; style-src {style}; script-src {script}; img-src data:; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )

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

        answer = self._refusal(scope)
        scope[ACCEPTED] = answer is None
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that does not reach the application."""
        headers, is_page = Headers(scope=scope), scope["path"] == "/" and scope["method"] in _SAFE
        host = _name_of(headers.get("host", ""))
        if not self._access.is_required and host not in self._hosts:
            return _refused(f"this server does not answer to the host {host!r}")
        if self._access.is_required:
            cookie = f"wink-token-{_port_of(scope, headers)}"
            has_access = self._has_access(headers, cookie)
            if is_page and (answer := self._logged_in(scope, cookie, has_access=has_access)):
                return answer
            if not has_access:
                return self._without_token(headers)
        if not is_page and headers.get("sec-fetch-site", "") not in _OWN_SITE:
            return _refused("only the page of this server may send requests")
        if scope["method"] not in _SAFE and not self._is_own(headers):
            return _refused("a write must come from the page of this server - reload the page")
        return None

    def _has_access(self, headers: Headers, cookie: str) -> bool:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._access.is_token(value)
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(cookie)
        except CookieError:
            return False
        return morsel is not None and self._access.is_cookie(morsel.value)

    def _logged_in(self, scope: Scope, cookie: str, *, has_access: bool) -> Response | None:
        """Return the answer to an address with a token or a code: a cookie, and the same address
        without them. None if there is none, or if it is wrong.
        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = {name: value for name, value in query if name in _CREDENTIALS}
        if not given:
            return None
        has_access |= self._access.is_token(given.get("token", ""))
        if not (self._access.take_code(given.get("code", ""), scope) or has_access):
            return None
        rest = urlencode([(name, value) for name, value in query if name not in _CREDENTIALS])
        answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        answer.set_cookie(cookie, self._access.cookie, httponly=True, samesite="strict", path="/")
        return answer

    def _without_token(self, headers: Headers) -> Response:
        challenge = {"WWW-Authenticate": "Bearer"}
        if "text/html" not in headers.get("accept", ""):
            error = "this server needs a token: open the address that `wink view` printed"
            return JSONResponse({"error": error}, 401, challenge)
        policy = {"Content-Security-Policy": self._login_policy}
        return Response(self._login_page, 401, challenge | policy, "text/html")

    def _is_own(self, headers: Headers) -> bool:
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json" or not self._access.is_csrf_token(headers.get("x-wink", "")):
            return False
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        # A proxy may replace `Host`; what the browser says of the site is as good.
        return (
            origin is None
            or site == "same-origin"
            or origin.partition("://")[2] == headers.get("host", "")
        )


def _name_of(host: str) -> str:
    """Return a host without its port, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _port_of(scope: Scope, headers: Headers) -> int:
    """Return the port that the browser sees: it sends the cookies of a host to all its ports."""
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    return port or scope["server"][1]


def _refused(why: str) -> Response:
    return PlainTextResponse(f"403: {why}\n", 403)
