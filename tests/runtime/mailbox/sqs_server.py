"""An SQS API on loopback: moto's server in a thread, with faults between it and the client.

Its clock can be replaced by a test. Long polls wait in real time, or less.
"""

from __future__ import annotations

import io
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from itertools import count
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.sqs import models
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app

from weakincentives.clock import SYSTEM_CLOCK, Clock

__all__ = ["SqsServer", "entry_fails", "error", "running"]

Forward = Callable[[Any], Any]
Fault = Callable[[Any, Forward], tuple[int, Any]]  # (request, forward) -> (status, reply)


class Time:
    """The clock of moto, for all its servers: they share their queues."""

    clock: Clock = SYSTEM_CLOCK
    looks = count()

    @classmethod
    def seconds(cls) -> float:
        """Return the time plus a microsecond per call: in moto, a lease expires after its end."""
        return cls.clock.now().timestamp() + next(cls.looks) / 1_000_000

    @classmethod
    def milliseconds(cls) -> float:
        return cls.seconds() * 1000


models.unix_time, models.unix_time_millis = Time.seconds, Time.milliseconds


class SqsServer:
    """Answers as moto does, except for calls with an injected fault."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for every request
        Time.clock = SYSTEM_CLOCK
        self.faults: dict[str, deque[Fault]] = {}
        self.calls: list[str] = []
        self.second = 1.0  # real seconds per second of a long poll
        self._lock = Lock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler
        )
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @cached_property
    def client(self) -> Any:
        """Return an ordinary client, but without retries."""
        options: Any = {"retries": {"total_max_attempts": 1}, "max_pool_connections": 50}
        return boto3.session.Session().client(
            "sqs",
            region_name="eu-west-1",
            endpoint_url=self.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(**options),
        )

    def reset(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Reset all state, and use this clock for leases and delays."""
        Time.clock, Time.looks = clock, count()
        self.second = 1.0
        self.faults.clear()
        self.calls.clear()
        with urlopen(Request(f"{self.endpoint}/moto-api/reset", method="POST")) as answer:
            answer.read()

    def fail(self, call: str, fault: Fault, times: int = 1) -> None:
        """Inject a fault into the next calls of this name."""
        self.faults.setdefault(call, deque()).extend([fault] * times)

    def _answer(self, environ: Any, start: Any) -> Iterable[bytes]:
        call = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        self.calls.append(call)
        data = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        waiting = self.faults.get(call)
        if not waiting:
            status, headers, answer = self._from_moto(environ, data)
        else:

            def forward(changed: Any) -> Any:
                return json.loads(self._from_moto(environ, json.dumps(changed).encode())[2])

            code, reply = waiting.popleft()(json.loads(data), forward)
            status, headers = f"{code} fault", [("Content-Type", "application/x-amz-json-1.0")]
            answer = json.dumps(reply).encode()
        start(status, headers)
        return [answer]

    def _from_moto(self, environ: Any, data: bytes) -> tuple[str, Any, bytes]:
        """Forward one call at a time: moto gives two concurrent calls the same message."""
        request = json.loads(data or b"{}")
        end = time.monotonic() + request.pop("WaitTimeSeconds", 0) * self.second
        data = json.dumps(request).encode()
        while True:
            body = {"wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
            with self._lock:
                chunks, status, headers = run_wsgi_app(self._moto, {**environ, **body})
                answer = b"".join(chunks)
            if b'"Messages"' in answer or time.monotonic() >= end:
                return status, list(headers), answer
            time.sleep(0.02)


def error(code: str, status: int = 400) -> Fault:
    """Return a fault that refuses the whole call."""
    return lambda request, forward: (status, {"__type": f"sqs#{code}", "message": "refused"})


def entry_fails(number: int, code: str, *, sender: bool = False) -> Fault:
    """Return a fault that refuses one entry of a batch."""

    def fault(request: Any, forward: Forward) -> tuple[int, Any]:
        entries = request["Entries"]
        bad = entries.pop(number)
        answer = forward(request) if entries else {}
        failed = {"Id": bad["Id"], "Code": code, "Message": "refused", "SenderFault": sender}
        return 200, {**answer, "Failed": [*answer.get("Failed", ()), failed]}

    return fault


@cache
def running() -> SqsServer:
    """Return the server that all tests share; it ends with the process."""
    return SqsServer()
