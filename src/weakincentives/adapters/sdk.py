"""Adapters on a provider's SDK: clients, keys, timeouts, and errors as `ProviderError`.

Rules of this file:
1. The SDK is imported when an adapter is constructed, not before.
2. A key is read from the environment for each call: no adapter stores it, no error contains it.
3. Every failure of a call is a `ProviderError`; cancellation passes through.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import anyio
from anyio.lowlevel import RunVar

from ..clock import SYSTEM_CLOCK
from ..errors import MissingExtraError, ProviderError, UsageError
from ..internal.checks import check_number
from ..internal.typevars import OutputT
from ..secrets import keep_secret, redact_message, shorten
from .adapter import ModelAdapter
from .answer_limits import NO_COMPRESSION, RefusedAnswerError, limited_client
from .model import Model, ModelReply, ModelSettings, check_model_name
from .prices import PRICES, Price, price_of
from .provider_retry import DEFAULT_RETRIES, with_retries
from .wire import is_transient, retry_after

_NO_KEY = "no-key-set"  # the SDKs demand a key, even for a local server that needs none
_TRANSPORTS = {"anyio", "httpcore", "httpcore2", "httpx", "httpx2"}
_PERMANENT = re.compile(r"invalid|authentication|permission|billing|not_found|too_large|quota")
_ADVICE = {
    **dict.fromkeys((400, 422), "change the request"),
    403: "use a key that may use this model",
    404: "check the model's name and the base URL",
    413: "send a shorter request",
    429: "send fewer requests, or wait",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider's specifics: the names in its SDK, and how to make a model.

    `hints` maps a word of an error message to advice; `unsupported` are settings that it lacks.
    """

    name: str
    title: str
    client: str
    create: str
    make_model: Callable[[Service, bool], Model]
    hints: Mapping[str, str]
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A provider at an address, with the SDK that calls it."""

    provider: Provider
    sdk: Any
    base_url: str | None
    timeout: float | None

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name

    def key(self) -> str:
        """Return the key in the environment; a placeholder if `base_url` is set and no key is."""
        key = os.environ.get(f"{self.name.upper()}_API_KEY", "").strip()
        return key or (_NO_KEY if self.base_url else "")

    def check_key(self) -> None:
        """Raise UsageError if a key is needed and there is none."""
        if not self.key():
            raise UsageError(self.no_key)

    @property
    def no_key(self) -> str:
        """The error message for a missing key."""
        return (
            f"expected a key for {self.name}, got none - "
            f"set the environment variable {self.name.upper()}_API_KEY"
        )


class SDKAdapter(ModelAdapter[OutputT]):
    """The base of adapters on an SDK: subclasses set `provider`."""

    provider: ClassVar[Provider]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
        max_turns: int = 20,
        timeout: float | None = 600.0,
        retries: int = DEFAULT_RETRIES,
        stream: bool = False,
        prices: Mapping[str, Price] = PRICES,
    ) -> None:
        provider, settings = self.provider, settings or ModelSettings()
        for name in provider.unsupported:
            if getattr(settings, name) is not None:
                raise UsageError(
                    f"expected no `{name}` in the settings, which {provider.title} does not have"
                )
        check_model_name(model)
        service = _service(provider, base_url, timeout)
        super().__init__(
            ask=with_retries(provider.make_model(service, stream), retries),
            model=model,
            name=provider.name,
            settings=settings,
            max_turns=max_turns,
            price=partial(price_of, prices=prices),
            check=service.check_key,
        )


def _service(provider: Provider, base_url: str | None, timeout: float | None) -> Service:
    """Check the arguments, and import the SDK."""
    name = provider.name
    if timeout is not None:
        check_number(timeout, "timeout", unit="seconds")
    base_url = base_url or os.environ.get(f"{name.upper()}_BASE_URL") or None
    if base_url is not None and not re.match(r"https?://[^/]", str(base_url)):
        got = redact_message(str(base_url))
        raise UsageError(f"expected `http://...` or `https://...` for `base_url`, got {got!r}")
    if password := urlsplit(base_url or "").password:
        keep_secret(unquote(password))
    try:
        sdk = importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name, name, f"a model of `{name}`") from None
    return Service(provider=provider, sdk=sdk, base_url=base_url, timeout=timeout)


_Clients = dict[tuple[str, str | None, str], Any]
_loop_clients: RunVar[tuple[_Clients, Any] | None] = RunVar("weakincentives.clients", None)
_clients_by_loop: dict[asyncio.AbstractEventLoop, _Clients] = {}


async def client_of(service: Service) -> Any:
    """Return the SDK's client for this service and event loop: connections belong to a loop."""
    key = service.key()
    if not key:
        raise ProviderError(service.no_key)
    clients, _ = _loop_clients.get() or await _open_clients()
    mine = service.name, service.base_url, key
    if mine not in clients:
        keep_secret(key)  # it stays secret after the variable has changed
        make = getattr(service.sdk, service.provider.client)
        # The timeout of a call is a cancel scope, and retries are a wrapper around the model.
        limits = service.sdk.Timeout(None, connect=10.0)
        clients[mine] = make(
            base_url=service.base_url,
            api_key=key,
            timeout=limits,
            max_retries=0,
            default_headers=NO_COMPRESSION,
            http_client=limited_client(service.sdk),
        )
    return clients[mine]


async def _open_clients() -> tuple[_Clients, Any]:
    clients: _Clients = {}
    opened = clients, _close_at_loop_exit(clients)
    await anext(opened[1])
    _loop_clients.set(opened)
    for loop in tuple(_clients_by_loop):
        if loop.is_closed():  # perhaps without closing its generators
            _clients_by_loop.pop(loop, {}).clear()
    with suppress(RuntimeError):  # not asyncio; trio always closes its generators
        _clients_by_loop[asyncio.get_running_loop()] = clients
    return opened


async def _close_at_loop_exit(clients: _Clients) -> AsyncGenerator[None, None]:
    """Close the clients when the loop ends, which is when asyncio and trio close generators."""
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
    """Return the reply with its latency; raise ProviderError if the call fails."""
    client = await client_of(service)
    create = attrgetter(service.provider.create)(client)  # the first time, this imports modules
    start = SYSTEM_CLOCK.monotonic()
    try:
        with anyio.fail_after(service.timeout):
            reply = await call(create)
    except Exception as error:
        # Without its cause: that holds the request, and so the key.
        raise failure(error, service, model) from None
    return replace(reply, latency_ms=(SYSTEM_CLOCK.monotonic() - start) * 1000)


class MalformedError(Exception):
    """A reply that differs from the provider's documentation."""


@contextmanager
def reading() -> Iterator[None]:
    """Raise MalformedError for a reply of the wrong form, which the SDKs do not check."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, UsageError) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from None


def failure(error: Exception, service: Service, model: str) -> ProviderError:
    """Return the error of an SDK as a ProviderError, without the key."""
    failed = _classify(error, service)
    text = (
        f"expected an answer from {service.name} for `{model}`, got {failed.what} - {failed.advice}"
    )
    key = service.key()
    text = text.replace(key, "***") if key and key != _NO_KEY else text
    text = re.sub(r"\bsk-[\w*-]+", "***", text)  # OpenAI quotes a part of a wrong key
    return ProviderError(
        text, retryable=failed.retryable, retry_after=failed.retry_after, status=failed.status
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    advice: str = "try again"
    retryable: bool = True
    retry_after: float | None = None
    status: int | None = None


def _classify(error: Exception, service: Service) -> _Failure:
    sdk = service.sdk
    unreadable = MalformedError, json.JSONDecodeError, UnicodeDecodeError, RecursionError
    for cause in _causes(error):
        if isinstance(cause, RefusedAnswerError):
            again = is_transient(cause.status or 200)
            return _Failure(str(cause), cause.advice, retryable=again, status=cause.status)
    if isinstance(error, sdk.APIStatusError) and error.status_code >= 400:
        return _status_failure(error, service)
    if isinstance(error, TimeoutError) and service.timeout is not None:
        return _Failure(f"none within {service.timeout:g} s", "try again, or raise `timeout`")
    if isinstance(error, (*unreadable, sdk.APIResponseValidationError)):
        return _Failure(f"one that cannot be read ({_line(error)})")
    package = type(error).__module__.partition(".")[0]
    if isinstance(error, sdk.APIConnectionError | OSError) or package in _TRANSPORTS:
        host = urlsplit(service.base_url or "").hostname or service.name
        return _Failure(
            f"no connection, or a lost one ({_reason(error)})",
            f"try again, and check that {host} is reachable",
        )
    if isinstance(error, sdk.APIError):
        kind, text = _error_body(error.body)
        again = not _PERMANENT.search(kind)
        return _Failure(f"an error while it was received ({text})", retryable=again)
    return _Failure(
        f"{type(error).__name__} ({_line(error)})",
        f"check that {service.name}'s SDK accepts the settings",
        retryable=False,
    )


def _status_failure(error: Any, service: Service) -> _Failure:
    """Return the failure for an HTTP status of 400 or more."""
    kind, text = _error_body(error.body)
    status, headers = error.status_code, error.response.headers
    transient = is_transient(status) and kind != "insufficient_quota"
    advice = _ADVICE.get(status, "try again")
    if status == 401:
        advice = f"set the environment variable {service.name.upper()}_API_KEY to a valid key"
    elif status in (400, 422):
        hints = service.provider.hints.items()
        advice = next((hint for word, hint in hints if word in text), advice)
    return _Failure(
        f"status {status} ({text or 'without a message'})",
        advice,
        retryable={"true": True, "false": False}.get(headers.get("x-should-retry"), transient),
        retry_after=retry_after(headers),
        status=status,
    )


def _error_body(body: Any) -> tuple[str, str]:
    """Return the kind and the message of a provider's error."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        kind = str(inner.get("code") or inner.get("type") or "")
        return kind, _line(inner.get("message") or kind)
    return "", _line(inner or "")


def _line(text: object) -> str:
    return shorten(redact_message(" ".join(str(text).split())), 300)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str:
    """Return the message of the innermost cause: the SDKs only say `Connection error.`"""
    *_, error = _causes(error)
    return _line(error) or type(error).__name__
