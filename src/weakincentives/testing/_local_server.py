"""What our HTTP servers for tests share: a port on loopback, a thread for each connection, an end.

A server says what it answers in `_respond`, which may take its time: nobody else waits for it.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from ..errors import UsageError

__all__ = ["Asked", "LocalServer", "Said"]


class Asked(NamedTuple):
    """A request, its body unpacked."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    content_type: str
    body: bytes


class Said(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


class LocalServer:
    """Listens on 127.0.0.1 from the beginning of a `with` block to its end, or to `close`."""

    def __init__(self) -> None:
        self._listener: ThreadingHTTPServer | None = None
        self._stopped = Event()

    def _respond(self, asked: Asked) -> Said | bytes | None:
        """The answer. Bytes go out as they are; after them, or after None, the connection ends."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._listener is not None:
            raise UsageError(f"`{type(self).__name__}` starts only once - make a new one")
        self._listener = _Listener(("127.0.0.1", 0), partial(_Handler, self))
        serve = self._listener.serve_forever
        Thread(target=serve, args=(0.05,), name=f"wink-{type(self).__name__}", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer nothing more. What came stays readable."""
        if self._listener is not None and not self._stopped.is_set():
            self._stopped.set()
            self._listener.shutdown()
            self._listener.server_close()

    @property
    def url(self) -> str:
        """Where it listens, as `http://127.0.0.1:PORT`."""
        if self._listener is None:
            raise UsageError(f"not started yet - use `with {type(self).__name__}() as server:`")
        return f"http://127.0.0.1:{self._listener.server_address[1]}"


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, local: LocalServer, *args: Any) -> None:
        self._local = local
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None: ...

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url, kind = urlsplit(self.path), self.headers.get("content-type", "")
        body = _unpacked(body, self.headers.get("content-encoding"))
        asked = Asked(self.command, url.path, parse_qs(url.query), kind, body)
        said = None if self._local._stopped.is_set() else self._local._respond(asked)
        if isinstance(said, Said) and not self._local._stopped.is_set():
            self._say(said)
            return
        self.close_connection = True
        if isinstance(said, bytes):
            self.wfile.write(said)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle

    def _say(self, said: Said) -> None:
        self.send_response(said.status)
        self.send_header("content-type", said.content_type)
        self.send_header("content-length", str(len(said.body)))
        for name, value in said.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said.body)


def _unpacked(body: bytes, encoding: str | None) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        from zstandard import ZstdDecompressor

        return bytes(ZstdDecompressor().decompressobj().decompress(body))
    return body
