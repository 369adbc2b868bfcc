"""The base of local servers for tests: a free port on loopback, a thread per connection."""

from __future__ import annotations

import gzip
from threading import Event
from typing import Self

from ...errors import UsageError
from ...internal.http_server import HttpRequest, HttpResponse, HttpServer


class LocalServer(HttpServer):
    """Listens on 127.0.0.1 from the start of a `with` block to its end, or to `close`.

    A subclass returns its response from `_reply`, which may block: each connection has a thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._address: tuple[str, int] | None = None  # also after the end
        self._stopped = Event()

    def _reply(self, request: HttpRequest) -> HttpResponse | bytes | None:
        """Return the response to a request, whose body is decompressed."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._address is not None:
            raise UsageError(f"`{type(self).__name__}` starts only once - make a new one")
        self.start()
        self._address = self.address
        return self

    def close(self) -> None:
        """Stop answering. Received data stays readable."""
        self._stopped.set()
        super().close()

    @property
    def url(self) -> str:
        """The server's address, as `http://127.0.0.1:PORT`."""
        if self._address is None:
            raise UsageError(f"not started yet - use `with {type(self).__name__}() as server:`")
        return f"http://127.0.0.1:{self._address[1]}"

    def _respond(self, request: HttpRequest) -> HttpResponse | bytes | None:
        if self._stopped.is_set():
            return None
        body = _decompressed(request.body, request.headers.get("content-encoding"))
        response = self._reply(request._replace(body=body))
        stopped = isinstance(response, HttpResponse) and self._stopped.is_set()
        return None if stopped else response


def _decompressed(body: bytes, encoding: str | None) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        from zstandard import ZstdDecompressor

        return bytes(ZstdDecompressor().decompressobj().decompress(body))
    return body
