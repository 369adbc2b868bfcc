"""A model server that changes its responses: wrong shapes, streams that end early."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from .http_base import HttpAnswer
from .model_server import ModelServer, Wire
from .script import Reply, Script, ServedRequest

BROKEN = '{"a": 2, "b"'


class EditedServer(ModelServer):
    """A server that changes a response before sending it, to send what no `Reply` can express.

    `whole` gets the JSON of a response, `events` the wire format and the events of a stream.
    """

    def __init__(
        self, script: Script, *, whole: Any = None, events: Any = None, **more: Any
    ) -> None:
        super().__init__(script, **more)
        self._edits = whole, events

    def _scripted(self, wire: Wire, served: ServedRequest) -> HttpAnswer:
        return super()._scripted(cast("Wire", _EditedWire(wire, *self._edits)), served)


class _EditedWire:
    def __init__(self, wire: Wire, whole: Any, events: Any) -> None:
        self._wire, self._whole, self._events = wire, whole, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def response_body(self, request: ServedRequest, reply: Reply) -> Any:
        body = self._wire.response_body(request, reply)
        return self._whole(body) if self._whole else body

    def events(self, request: ServedRequest, reply: Reply) -> Any:
        events = [*self._wire.events(request, reply)]
        return self._events(self._wire, events) if self._events else events


def broken_arguments(body: Any) -> Any:
    """Return the response with every tool's arguments cut off."""
    if isinstance(body, list):
        return [broken_arguments(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {
        name: BROKEN if name in ("arguments", "input") else broken_arguments(value)
        for name, value in body.items()
    }


def broken_argument_events(wire: Wire, events: list[bytes]) -> list[bytes]:
    """Return the stream with a tool's arguments cut off."""
    of_arguments = [each for each in events if b'"arguments"' in each or b'"partial_json"' in each]
    return [each for each in events if each not in of_arguments[-1:]]


def half(wire: Wire, events: list[bytes]) -> list[bytes]:
    """Return a stream that ends in the middle of the response."""
    return events[: len(events) // 2]


def half_and_an_error(wire: Wire, events: list[bytes]) -> list[bytes]:
    """Return a stream that ends with the service's error event."""
    error = msgspec.json.encode(wire.error(529, "too busy to go on"))
    return [*half(wire, events), b"event: error\ndata: %b\n\n" % error]
