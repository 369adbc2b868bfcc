"""A provider's own SDK as a service: clients, keys, time limits, and errors made ours.

Rules of this file:
1. The SDK is imported when an adapter is made, never before.
2. A key is read from the environment when a model is asked: no adapter holds it, no error says it.
3. Whatever goes wrong in a call is a `ProviderError`; cancellation passes through.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
from anyio.lowlevel import RunVar

from ..clock import SYSTEM_CLOCK
from ..errors import MissingExtraError, ProviderError, UsageError, shown
from ..secrets import keep_secret, scrub_message
from ._model import ModelReply
from ._wire import retry_after

__all__ = ["MalformedError", "Service", "reading", "service_for", "timed"]

_NO_KEY = "no-key-set"  # a server of one's own asks for none, and the SDKs insist on some text
_TRANSPORTS = {"anyio", "httpcore", "httpcore2", "httpx", "httpx2"}
_FOR_GOOD = re.compile(r"invalid|authentication|permission|billing|not_found|too_large|quota")
_ADVICE = {
    **dict.fromkeys((400, 422), "change what is asked for"),
    403: "use a key that may use this model",
    404: "check the model's name and the base URL",
    413: "send less",
    429: "ask less often, or wait",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A provider as its SDK reaches it. `hints`: what to do, by a word of the refusal."""

    name: str
    client: str
    create: str
    sdk: Any
    base_url: str | None
    timeout: float | None
    hints: Mapping[str, str]

    def key(self) -> str:
        """The key in the environment; a placeholder for a server of one's own."""
        found = os.environ.get(f"{self.name.upper()}_API_KEY", "").strip()
        return found or (_NO_KEY if self.base_url else "")


def service_for(
    name: str, model: str, base_url: str | None, timeout: float | None, **more: Any
) -> Service:
    """The service, if the SDK is installed and the arguments make sense."""
    if not isinstance(model, str) or not model.strip():
        raise UsageError(f"expected a model's name for `model`, got {shown(model)}")
    if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise UsageError(f"expected seconds > 0 or None for `timeout`, got {shown(timeout)}")
    base_url = base_url or os.environ.get(f"{name.upper()}_BASE_URL") or None
    if base_url is not None and not re.match(r"https?://[^/]", str(base_url)):
        said = scrub_message(str(base_url))
        raise UsageError(f"expected `http://...` or `https://...` for `base_url`, got {said!r}")
    if password := urlsplit(base_url or "").password:
        keep_secret(unquote(password))
    try:
        sdk = importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name, name, f"a model of `{name}`") from None
    return Service(name=name, sdk=sdk, base_url=base_url, timeout=timeout, **more)


_Clients = dict[tuple[str, str | None, str], Any]
_here: RunVar[tuple[_Clients, Any] | None] = RunVar("weakincentives.clients", None)
_everywhere: dict[asyncio.AbstractEventLoop, _Clients] = {}


async def client_of(service: Service) -> Any:
    """The SDK's client for this service and event loop: connections belong to a loop."""
    key = service.key()
    if not key:
        raise ProviderError(
            f"expected a key for {service.name}, got none - "
            f"set the environment variable {service.name.upper()}_API_KEY"
        )
    clients, _ = _here.get() or await _arrive()
    mine = service.name, service.base_url, key
    if mine not in clients:
        keep_secret(key)  # whatever becomes of the variable
        make = getattr(service.sdk, service.client)
        # A call has its time limit as a scope, and its retries from what is around the model.
        limits = service.sdk.Timeout(None, connect=10.0)
        clients[mine] = make(base_url=service.base_url, api_key=key, timeout=limits, max_retries=0)
    return clients[mine]


async def _arrive() -> tuple[_Clients, Any]:
    clients: _Clients = {}
    here = clients, _until_the_loop_ends(clients)
    await anext(here[1])
    _here.set(here)
    for loop in tuple(_everywhere):
        if loop.is_closed():  # perhaps without the end of its generators
            _everywhere.pop(loop, {}).clear()
    with suppress(RuntimeError):  # trio always ends them
        _everywhere[asyncio.get_running_loop()] = clients
    return here


async def _until_the_loop_ends(clients: _Clients) -> AsyncGenerator[None, None]:
    """Closes the clients: open generators are what asyncio and trio finish when a loop ends."""
    try:
        yield
    finally:
        while clients:
            _, client = clients.popitem()
            with anyio.CancelScope(shield=True), suppress(Exception):
                await client.close()


async def timed(
    service: Service, model: str, call: Callable[[Callable[..., Any]], Awaitable[ModelReply]]
) -> ModelReply:
    """The call's reply with the time that it took, or a `ProviderError`."""
    create = attrgetter(service.create)(await client_of(service))  # imports, the first time
    start = SYSTEM_CLOCK.monotonic()
    try:
        with anyio.fail_after(service.timeout):
            reply = await call(create)
    except Exception as error:
        # Without its cause, which holds the request, which holds the key.
        raise failure(error, service, model) from None
    return ModelReply(
        message=reply.message,
        usage=reply.usage,
        finish_reason=reply.finish_reason,
        model=reply.model,
        latency_ms=(SYSTEM_CLOCK.monotonic() - start) * 1000,
        tokens=reply.tokens,
    )


class MalformedError(Exception):
    """An answer that is not what the provider's documentation says it is."""


@contextmanager
def reading() -> Iterator[None]:
    """The SDKs do not check the form of an answer: here is where a wrong one is noticed."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, UsageError) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from None


def failure(error: Exception, service: Service, model: str) -> ProviderError:
    """What went wrong, as our error."""
    found = _understood(error, service)
    text = (
        f"expected an answer from {service.name} for `{model}`, got {found.what} - {found.advice}"
    )
    key = service.key()
    text = text.replace(key, "***") if key and key != _NO_KEY else text
    text = re.sub(r"\bsk-[\w*-]+", "***", text)  # OpenAI quotes a part of a wrong key
    return ProviderError(
        text, retryable=found.retryable, retry_after=found.wait, status=found.status
    )


@dataclass(frozen=True, slots=True)
class _Understood:
    what: str
    advice: str = "try again"
    retryable: bool = True
    wait: float | None = None
    status: int | None = None


def _understood(error: Exception, service: Service) -> _Understood:
    sdk = service.sdk
    unreadable = MalformedError, json.JSONDecodeError, UnicodeDecodeError
    if isinstance(error, sdk.APIStatusError) and error.status_code >= 400:
        return _refused(error, service)
    if isinstance(error, TimeoutError) and service.timeout is not None:
        return _Understood(f"none within {service.timeout:g} s", "try again, or raise `timeout`")
    if isinstance(error, (*unreadable, sdk.APIResponseValidationError)):
        return _Understood(f"one that cannot be read ({_line(error)})")
    package = type(error).__module__.partition(".")[0]
    if isinstance(error, sdk.APIConnectionError | OSError) or package in _TRANSPORTS:
        host = urlsplit(service.base_url or "").hostname or service.name
        return _Understood(
            f"no connection, or one that broke ({_reason(error)})",
            f"try again, and see that {host} can be reached",
        )
    if isinstance(error, sdk.APIError):
        kind, text = _refusal(error.body)
        again = not _FOR_GOOD.search(kind)
        return _Understood(f"an error while it came ({text})", retryable=again)
    return _Understood(
        f"{type(error).__name__} ({_line(error)})",
        f"see whether the settings are what {service.name}'s SDK takes",
        retryable=False,
    )


def _refused(error: Any, service: Service) -> _Understood:
    """A status that says no, for now or for good."""
    kind, text = _refusal(error.body)
    status, headers = error.status_code, error.response.headers
    usual = (status in (408, 409, 429) or status >= 500) and kind != "insufficient_quota"
    advice = _ADVICE.get(status, "try again")
    if status == 401:
        advice = f"set the environment variable {service.name.upper()}_API_KEY to a valid key"
    elif status in (400, 422):
        advice = next((hint for word, hint in service.hints.items() if word in text), advice)
    return _Understood(
        f"status {status} ({text or 'without a message'})",
        advice,
        retryable={"true": True, "false": False}.get(headers.get("x-should-retry"), usual),
        wait=retry_after(headers),
        status=status,
    )


def _refusal(body: Any) -> tuple[str, str]:
    """The kind of a provider's error, and what it says."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        kind = str(inner.get("code") or inner.get("type") or "")
        return kind, _line(inner.get("message") or kind)
    return "", _line(inner or "")


def _line(text: object) -> str:
    words = scrub_message(" ".join(str(text).split()))  # before it is cut
    return words if len(words) <= 300 else f"{words[:299]}…"


def _reason(error: BaseException) -> str:
    """What the innermost cause says: the SDKs only say `Connection error.`"""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return _line(error) or type(error).__name__
