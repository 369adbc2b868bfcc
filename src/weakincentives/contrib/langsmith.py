"""Runs as LangSmith experiments: `configure_wink(project="my-evals")`, and every eval is traced.

A run becomes an experiment on a dataset with an example for each sample. A sample is a trace: what
the agent asked, which tools it called, what came back, how long each took. Scores are feedback.
What judges do is in LangSmith's project `evaluators`, so that their tokens are not the agent's.

Sending happens on the side. LangSmith may be slow, wrong or away: no verdict changes, no sample
waits, and what did not arrive is counted and told once.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable
from functools import cache, partial
from types import TracebackType
from typing import Any

from ..errors import UsageError, shown
from ..runtime import tracing
from ._langsmith_client import OwnClient, checked_key, environment, imported
from ._langsmith_sender import Sender
from ._langsmith_tracer import SpanTracer

__all__ = ["LangSmithTracing", "configure_wink"]

PROJECT = "wink-evals"

_current: LangSmithTracing | None = None


class LangSmithTracing:
    """What `configure_wink` gives: how much was sent, and an end to it. It can be a `with` block.

    `sent`, `failed` and `dropped` count traces: those that LangSmith took, those of a batch that
    did not arrive whole, and those that found the queue full or the time over.
    """

    def __init__(
        self, project: str, connect: Callable[..., Any] | None, queue_size: int, timeout: float
    ) -> None:
        self.project = project
        self._timeout = timeout
        self._own: OwnClient | None = None
        self._sender: Sender | None = None
        if connect is None:
            return
        new_id = imported("langsmith").uuid7_from_datetime
        self._sender = sender = Sender(project, queue_size)
        connected = connect(sender.failing)
        if isinstance(connected, OwnClient):
            self._own, connected = connected, connected.client
        sender.start(connected)
        self._tracer = SpanTracer(project, sender.put, sender.hasten, new_id)
        tracing.watch(self._tracer)

    def __repr__(self) -> str:
        counts = f"{self.sent} sent, {self.failed} failed, {self.dropped} dropped"
        return f"<LangSmithTracing {self.project}: {counts}>"

    def __enter__(self) -> LangSmithTracing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sent(self) -> int:
        """Traces that LangSmith took."""
        return self._sender.sent if self._sender else 0

    @property
    def failed(self) -> int:
        """Traces of batches that did not arrive, or not whole."""
        return self._sender.failed if self._sender else 0

    @property
    def dropped(self) -> int:
        """Traces that were never tried: the queue was full, or the time over."""
        return self._sender.dropped if self._sender else 0

    def flush(self, timeout: float | None = None) -> bool:
        """Wait for what is on its way, `flush_timeout` seconds if not told; whether it was enough.

        It blocks: in async code, call it in a thread.
        """
        seconds = self._timeout if timeout is None else timeout
        return self._sender is None or self._sender.flush(seconds)

    def close(self, timeout: float | None = None) -> None:
        """Trace no more; what is on its way has `timeout` seconds. A second time does nothing."""
        sender, own = self._sender, self._own
        if sender is None or sender.closed:
            return
        tracing.unwatch(self._tracer)
        sender.close(self._timeout if timeout is None else timeout)
        if own is not None:
            own.close()


def configure_wink(
    project: str | None = None,
    tracing_enabled: bool = True,
    *,
    client: Any = None,
    api_url: str | None = None,
    api_key: str | None = None,
    queue_size: int = 1000,
    flush_timeout: float = 3.0,
) -> LangSmithTracing:
    """Trace evals to LangSmith from now on, in this process; a second call replaces the first.

    What is not given comes from the environment, as for LangSmith's own tools: `LANGSMITH_API_KEY`,
    `LANGSMITH_ENDPOINT`, `LANGSMITH_PROJECT`, `LANGSMITH_HIDE_INPUTS` and so on. A `client` of your
    own keeps its settings and its logging. Up to `queue_size` samples wait to be sent; the end of
    the process waits for them, up to `flush_timeout` seconds.
    """
    global _current
    project = project or environment("PROJECT") or PROJECT
    if not isinstance(project, str):
        raise UsageError(f"expected the name of a `project`, got {shown(project)}")
    if not isinstance(queue_size, int) or queue_size < 1:
        raise UsageError(f"expected a `queue_size` of at least 1, got {shown(queue_size)}")
    if not isinstance(flush_timeout, int | float) or not 0 <= flush_timeout < math.inf:
        raise UsageError(f"expected seconds for `flush_timeout`, got {shown(flush_timeout)}")
    if client is not None and (api_url or api_key):
        raise UsageError("expected a `client`, or an `api_url` and an `api_key` for one, got both")
    if client is not None and not hasattr(client, "create_run"):
        raise UsageError(f"expected a `langsmith.Client` for `client`, got {shown(client)}")
    connect: Callable[..., Any] | None = None
    if tracing_enabled:
        imported("langsmith")
        if client is None:
            checked_key(api_url, api_key)
        connect = partial(OwnClient, api_url, api_key) if client is None else lambda _: client
    if _current is not None:
        _current.close()
    _current = LangSmithTracing(project, connect, queue_size, flush_timeout)
    _close_at_exit()
    return _current


@cache
def _close_at_exit() -> None:
    """Once: what was not sent gets its time when the process ends.

    Before threads are waited for, where Python can do that: the client's have ended after it.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(lambda: None if _current is None else _current.close())
