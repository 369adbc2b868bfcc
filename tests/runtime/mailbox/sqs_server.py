"""An SQS API on loopback: moto's server in a thread, with faults between it and the client.

What it takes for the time can be a test's own clock. Long polls wait in real time, or less.
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
Fault = Callable[[Any, Forward], tuple[int, Any]]  # the request and how it goes on: the answer


class Time:
    """What moto takes for the time, for all its servers alike: they share their queues."""

    clock: Clock = SYSTEM_CLOCK
    looks = count()

    @classmethod
    def seconds(cls) -> float:
        """A microsecond more at each look: for moto, a lease is over after its end, not at it."""
        return cls.clock.now().timestamp() + next(cls.looks) / 1_000_000

    @classmethod
    def milliseconds(cls) -> float:
        return cls.seconds() * 1000


models.unix_time, models.unix_time_millis = Time.seconds, Time.milliseconds


class SqsServer:
    """Answers as moto does, but for calls for which a fault is waiting."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for every request
        Time.clock = SYSTEM_CLOCK
        self.faults: dict[str, deque[Fault]] = {}
        self.calls: list[str] = []
        self.second = 1.0  # how long a second of a long poll takes
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
        """A client as users have it, but that it tries once."""
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
        """As if it had just started; from now on its leases and delays go by this clock."""
        Time.clock, Time.looks = clock, count()
        self.second = 1.0
        self.faults.clear()
        self.calls.clear()
        with urlopen(Request(f"{self.endpoint}/moto-api/reset", method="POST")) as answer:
            answer.read()

    def fail(self, call: str, fault: Fault, times: int = 1) -> None:
        """Let the next calls of this name end so."""
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

            code, said = waiting.popleft()(json.loads(data), forward)
            status, headers = f"{code} said", [("Content-Type", "application/x-amz-json-1.0")]
            answer = json.dumps(said).encode()
        start(status, headers)
        return [answer]

    def _from_moto(self, environ: Any, data: bytes) -> tuple[str, Any, bytes]:
        """One call at a time: moto gives two at once the same message. A long poll is many."""
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
    """A call that is refused as a whole."""
    return lambda request, forward: (status, {"__type": f"sqs#{code}", "message": "said no"})


def entry_fails(number: int, code: str, *, sender: bool = False) -> Fault:
    """A batch that is well but for one entry."""

    def fault(request: Any, forward: Forward) -> tuple[int, Any]:
        entries = request["Entries"]
        bad = entries.pop(number)
        answer = forward(request) if entries else {}
        failed = {"Id": bad["Id"], "Code": code, "Message": "said no", "SenderFault": sender}
        return 200, {**answer, "Failed": [*answer.get("Failed", ()), failed]}

    return fault


@cache
def running() -> SqsServer:
    """One for all tests; it ends with the process."""
    return SqsServer()
