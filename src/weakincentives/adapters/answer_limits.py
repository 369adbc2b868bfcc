"""Limits for the responses of an SDK's HTTP client: size, compression and redirects.

The SDKs read a response of any size into memory, and decompress it. So their client gets a hook
that checks each response before its body is read, and counts the bytes of the body as they arrive.
It works with httpx and httpx2, whichever the SDK uses.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from .http_pool import MAX_RESPONSE_BYTES

# Larger, since most bytes of a stream are the JSON around the text, which is not kept.
MAX_STREAM_BYTES = 4 * MAX_RESPONSE_BYTES
MAX_EVENT_BYTES = 8 * 1024 * 1024  # the SDKs join the pieces of an event in quadratic time

NO_COMPRESSION = {"Accept-Encoding": "identity"}
ACCEPT_EVENTS = {"Accept": "text/event-stream"}  # marks a response that is read as a stream


class RefusedAnswerError(Exception):
    """A response that is not read, or not to its end. `advice`: what the user can do."""

    def __init__(self, what: str, advice: str, status: int | None = None) -> None:
        super().__init__(what)
        self.advice = advice
        self.status = status


def limited_client(sdk: Any) -> Any:
    """Return the SDK's own HTTP client with these limits."""
    return sdk.DefaultAsyncHttpxClient(
        follow_redirects=False, event_hooks={"response": [_limit_answer]}
    )


async def _limit_answer(response: Any) -> None:
    status = response.status_code
    if 300 <= status < 400:
        raise RefusedAnswerError(
            f"a redirect ({status}), which is never followed",
            "give the final address as `base_url`",
            status,
        )
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise RefusedAnswerError(
            f"a compressed answer ({coding[:40]}, status {status}), which was not requested",
            "turn compression off in that server, or in the proxy before it",
            status,
        )
    library = importlib.import_module(type(response).__module__.partition(".")[0])
    is_stream = response.request.headers.get("accept") == ACCEPT_EVENTS["Accept"]
    response.stream = _limited_stream(library.AsyncByteStream)(response.stream, is_stream)


@cache
def _limited_stream(base: Any) -> Any:
    """Return a stream class that the HTTP library accepts: a subclass of the library's class."""

    class LimitedStream(base):  # type: ignore[misc]
        def __init__(self, stream: Any, is_stream: bool) -> None:
            self._stream, self._is_stream = stream, is_stream

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _limit_size(self._stream, self._is_stream)

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream


async def _limit_size(pieces: AsyncIterator[bytes], is_stream: bool) -> AsyncIterator[bytes]:
    limit = MAX_STREAM_BYTES if is_stream else MAX_RESPONSE_BYTES
    total = event = 0
    async for piece in pieces:
        total += len(piece)
        if total > limit:
            raise _too_large(f"more than {limit:,} bytes")
        if is_stream:
            end = max(map(piece.rfind, (b"\n\n", b"\r\n\r\n", b"\r\r")))
            event = event + len(piece) if end < 0 else len(piece) - end
            if event > MAX_EVENT_BYTES:
                raise _too_large(f"an event of more than {MAX_EVENT_BYTES:,} bytes")
        yield piece


def _too_large(what: str) -> RefusedAnswerError:
    return RefusedAnswerError(what, "check what that server sends")
