"""Trace runs as LangSmith experiments: `configure_wink(project="my-evals")`.

A run becomes an experiment on a dataset with an example for each sample. A sample is a trace of
prompts, model calls and tool calls with their latencies. Scores are feedback. Traces of judges are
in LangSmith's project `evaluators`, so that their tokens do not count as the agent's.

Traces are sent in the background. If LangSmith is slow, broken or unavailable, no verdict changes
and no sample waits; traces that were not sent are counted and reported once.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ...errors import UsageError, short_repr
from ...internal.closing import Closing
from ...runtime import tracing
from .langsmith_client import OwnClient, checked_key, environment, imported
from .sender import Sender
from .tracer import SpanTracer

PROJECT = "wink-evals"

_current: LangSmithTracing | None = None


class LangSmithTracing(Closing):
    """Active tracing to LangSmith, until `close`; it can be used in a `with` statement.

    `sent`, `failed` and `dropped` count traces: accepted by LangSmith; in a batch that failed, at
    least in part; not sent because the queue was full or the time was up.
    """

    def __init__(
        self, project: str, connect: Callable[..., Any] | None, queue_size: int, timeout: float
    ) -> None:
        self.project = project
        self._timeout = timeout
        self._own: OwnClient | None = None
        self._sender = sender = Sender(project, queue_size)
        if connect is None:
            sender.closed = True
            return
        new_id = imported("langsmith").uuid7_from_datetime
        client = connect(sender.record_error)
        if isinstance(client, OwnClient):
            self._own, client = client, client.client
        sender.start(client)
        self._tracer = SpanTracer(project, sender.put, sender.flush_soon, new_id)
        tracing.add_tracer(self._tracer)

    def __repr__(self) -> str:
        counts = f"{self.sent} sent, {self.failed} failed, {self.dropped} dropped"
        return f"<LangSmithTracing {self.project}: {counts}>"

    @property
    def sent(self) -> int:
        """Traces that LangSmith accepted."""
        return self._sender.sent

    @property
    def failed(self) -> int:
        """Traces of batches that failed, at least in part."""
        return self._sender.failed

    @property
    def dropped(self) -> int:
        """Traces that were not sent: the queue was full, or the time was up."""
        return self._sender.dropped

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until pending traces are sent; return False after `timeout` seconds.

        The default is `flush_timeout`. It blocks: in async code, call it in a thread.
        """
        return self._sender.flush(self._timeout if timeout is None else timeout)

    def close(self, timeout: float | None = None) -> None:
        """Stop tracing; wait up to `timeout` seconds for pending traces. Idempotent."""
        if self._sender.closed:
            return
        tracing.remove_tracer(self._tracer)
        self._sender.close(self._timeout if timeout is None else timeout)
        if self._own is not None:
            self._own.close()


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

    Defaults come from the environment, as for LangSmith's own tools: `LANGSMITH_API_KEY`,
    `LANGSMITH_ENDPOINT`, `LANGSMITH_PROJECT`, `LANGSMITH_HIDE_INPUTS` and so on. A `client` that
    you pass keeps its settings and its logging. Up to `queue_size` samples are queued; at exit,
    the process waits for them for up to `flush_timeout` seconds.
    """
    global _current
    project = project or environment("PROJECT") or PROJECT
    if not isinstance(project, str):
        raise UsageError(f"expected the name of a `project`, got {short_repr(project)}")
    if not isinstance(queue_size, int) or queue_size < 1:
        raise UsageError(f"expected a `queue_size` of at least 1, got {short_repr(queue_size)}")
    if not isinstance(flush_timeout, int | float) or not 0 <= flush_timeout < math.inf:
        raise UsageError(f"expected seconds for `flush_timeout`, got {short_repr(flush_timeout)}")
    if client is not None and (api_url or api_key):
        raise UsageError("expected a `client`, or an `api_url` and an `api_key` for one, got both")
    if client is not None and not hasattr(client, "create_run"):
        raise UsageError(f"expected a `langsmith.Client` for `client`, got {short_repr(client)}")
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
    """Register, once, that pending traces are sent at exit.

    If possible before Python waits for threads, since the client's threads have ended after that.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(lambda: None if _current is None else _current.close())
