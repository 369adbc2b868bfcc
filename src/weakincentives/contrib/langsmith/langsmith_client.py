"""A LangSmith client with short timeouts, daemon threads and without its own log output."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from importlib import import_module
from threading import Thread, Timer, current_thread
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from ...errors import MissingExtraError, UsageError, short_repr
from ...secrets import keep_secret

HOSTED = "https://api.smith.langchain.com"
LOCAL = {"localhost", "127.0.0.1", "0.0.0.0", "::1"}
TIMEOUT_MS = (3_000, 10_000)  # connect and read timeouts


def imported(name: str) -> Any:
    """Import a module of the optional package."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "langsmith":
            raise
        raise MissingExtraError("langsmith", "langsmith", "tracing to LangSmith") from None


def environment(name: str) -> str:
    """Return a setting from the variables that LangSmith's own tools read."""
    prefixes = ("LANGSMITH", "LANGCHAIN")
    values = (os.environ.get(f"{prefix}_{name}", "").strip() for prefix in prefixes)
    return next(filter(None, values), "")


def checked_key(api_url: str | None, api_key: str | None) -> None:
    """Refuse an invalid address, and a remote server without a key; a local one needs none."""
    url = api_url or environment("ENDPOINT") or HOSTED
    if not re.match(r"https?://[^/]", str(url), re.IGNORECASE):
        raise UsageError(
            f"expected an address with http:// or https:// for LangSmith, got {short_repr(url)} - "
            "set LANGSMITH_ENDPOINT, or pass `api_url`"
        )
    login = environment("PROFILE") or environment("CONFIG_FILE") or environment("RUNS_ENDPOINTS")
    if api_key or environment("API_KEY") or login or urlsplit(url).hostname in LOCAL:
        return
    raise UsageError(
        f"expected an API key for {url}, got none - set LANGSMITH_API_KEY, pass `api_key`, or pass "
        "a `client` that has another way to log in"
    )


class OwnClient:
    """A client whose requests can be stopped at once."""

    def __init__(
        self, api_url: str | None, api_key: str | None, failing: Callable[[Exception], None]
    ) -> None:
        library, requests = imported("langsmith"), import_module("requests")
        if api_key:
            keep_secret(api_key)
        session = requests.Session()
        self._request, session.request = session.request, self._tracked_request
        self._threads: WeakSet[Thread] = WeakSet()
        self._busy: list[Thread] = []
        self._closed = False
        self._log = logging.getLogger("langsmith.client")
        self._log.addFilter(self._is_not_ours)
        # Non-daemon threads would delay the exit for as long as a server hangs.
        daemon = property(lambda client: True, lambda client, value: None)
        kind = type("Client", (library.Client,), {"_use_daemon_threads": daemon})
        try:
            self.client: Any = kind(
                api_url,
                api_key=api_key,
                session=session,
                timeout_ms=TIMEOUT_MS,
                tracing_error_callback=failing,
                disable_prompt_cache=True,
            )
        except BaseException:
            self._log.removeFilter(self._is_not_ours)
            raise

    def close(self) -> None:
        """Stop sending, including retries."""
        self._closed = True
        self.client.close(timeout=0)
        if not self._busy:
            self._log.removeFilter(self._is_not_ours)

    def _tracked_request(self, *args: Any, **kwargs: Any) -> Any:
        thread = current_thread()
        self._threads.add(thread)
        if self._closed:
            raise ConnectionError("tracing to LangSmith was closed")
        self._busy.append(thread)
        try:
            return self._request(*args, **kwargs)
        finally:
            self._busy.remove(thread)
            if self._closed and not self._busy:
                # Later, since the client still logs the request that it gives up now.
                timer = Timer(1.0, self._log.removeFilter, [self._is_not_ours])
                timer.daemon = True
                timer.start()

    def _is_not_ours(self, record: logging.LogRecord) -> bool:
        """Return whether another client logs this; our own failures are in our own warning."""
        return record.levelno < logging.WARNING or current_thread() not in self._threads
