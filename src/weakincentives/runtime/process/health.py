"""Health checks and metrics of a worker over HTTP.

Rules of this file:
1. No client can keep another one waiting: each has a thread, a timeout and a size limit, and if
   there are too many, the oldest connection is closed.
2. A response holds a status or numbers, and nothing about the machine, the code or an error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from ...errors import UsageError
from ...internal.http_server import HttpRequest, HttpResponse, HttpServer
from ...secrets import logger_for

logger = logger_for(__name__)

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HealthMetric(NamedTuple):
    """One number for Prometheus. A name that ends in `_total` is a counter, others are gauges."""

    name: str
    value: float
    labels: Mapping[str, str] = MappingProxyType({})
    help: str = ""


def as_prometheus(measures: Iterable[HealthMetric]) -> str:
    """Return the measures in the text format of Prometheus, grouped by name."""
    by_name: dict[str, list[HealthMetric]] = {}
    for measure in measures:
        by_name.setdefault(_valid_name(measure.name), []).append(measure)
    lines: list[str] = []
    for name, group in by_name.items():
        help = next((each.help for each in group if each.help), name.replace("_", " "))
        lines.append(f"# HELP {name} {_escaped(help)}")
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [f"{name}{_labels(each.labels)} {_number(each.value)}" for each in group]
    return "".join(f"{line}\n" for line in lines)


def _valid_name(name: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"_{name}" if not name or name[0].isdigit() else name


def _labels(labels: Mapping[str, str]) -> str:
    pairs = []
    for key, value in labels.items():
        text = _escaped(str(value)).replace('"', '\\"')
        pairs.append(f'{_valid_name(key)}="{text}"')
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class HealthServer(HttpServer):
    """Serves `/health/live`, `/health/ready` and `/metrics` from a background thread.

    `readiness_check` returns whether the process accepts work; `metrics` returns the measures.
    Port 0 takes any free port: see `address`.
    """

    request_timeout = 5.0
    max_connections = 64
    max_body_bytes = 0

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        readiness_check: Callable[[], bool] | None = None,
        metrics: Callable[[], Iterable[HealthMetric]] | None = None,
    ) -> None:
        super().__init__(host, port)
        self._ready = readiness_check
        self._metrics = metrics

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Listen from now on."""
        try:
            super().start()
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"expected a free address for the health server, got {self._host}:{self._port}: "
                f"{error} - pass another port, or 0 for any"
            ) from None

    def stop(self) -> None:
        """Stop listening and free the port. Calling it twice is harmless."""
        self.close()

    def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return self._refuse(405)
        try:
            match request.path:
                case "/health/live":
                    return _status(200, "healthy")
                case "/health/ready":
                    ready = self._ready is None or self._ready()
                    return _status(200, "healthy") if ready else _status(503, "unhealthy")
                case "/metrics" if self._metrics is not None:
                    text = as_prometheus(self._metrics())
                    return HttpResponse(200, _PROMETHEUS, text.encode("utf-8", "replace"))
        except Exception:
            logger.exception("could not answer %r", request.path)
            return _status(503 if request.path == "/health/ready" else 500, "unhealthy")
        return _status(404, "not found")

    def _refuse(self, status: int) -> HttpResponse:
        return _status(status, "refused", {"Allow": "GET, HEAD"} if status == 405 else None)


def _status(code: int, word: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    body = json.dumps({"status": word}).encode("ascii")
    headers = {"Cache-Control": "no-store", **(headers or {})}
    return HttpResponse(code, "application/json", body, headers)
