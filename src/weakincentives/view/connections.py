"""Connections that cannot be held open without end.

uvicorn waits without limit for the rest of a request, and for a client that does not read. Here
each has a time limit, and the number of connections of clients without access is limited: a new one
ends the oldest, so that a client that opens very many cannot keep others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ACCEPTED = "wink.accepted"  # in the scope of a request that was not refused
REQUEST_SECONDS = 20.0  # for a whole request, and for the next one of a connection
_READ_SECONDS = 120.0  # in which a client must read some of an answer
_MAX_UNACCEPTED = 200  # connections that have not sent a request that was accepted


class TimedConnection(H11Protocol):
    """Ends a connection whose client does not send a whole request, or does not read, in time."""

    def __init__(
        self,
        *args: Any,
        request_seconds: float,
        unaccepted: dict[TimedConnection, None],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._request_seconds = request_seconds
        self._unaccepted = unaccepted  # of this server, the oldest first
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start("request", self._request_seconds)
        self._unaccepted[self] = None
        while len(self._unaccepted) > _MAX_UNACCEPTED:
            oldest = next(iter(self._unaccepted))
            del self._unaccepted[oldest]
            if not (oldest.scope or {}).get(ACCEPTED):
                oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._stop_if_whole()

    def on_response_complete(self) -> None:
        self._start("request", self._request_seconds)
        super().on_response_complete()  # it begins with a request that came in the meantime
        self._stop_if_whole()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("read", _READ_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("read")

    def connection_lost(self, exc: Exception | None) -> None:
        self._unaccepted.pop(self, None)
        for name in [*self._timers]:
            self._stop(name)
        super().connection_lost(exc)

    def _stop_if_whole(self) -> None:
        """End the time limit if all of a request is there."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop("request")

    def _start(self, name: str, seconds: float) -> None:
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


def timed_connections(request_seconds: float) -> Callable[..., asyncio.Protocol]:
    """Return what makes the connections of a server, for the option `http` of uvicorn."""
    return partial(TimedConnection, request_seconds=request_seconds, unaccepted={})
