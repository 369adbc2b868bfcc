"""Models behind an OpenAI-compatible server, without an SDK: for vLLM, Ollama and llama.cpp.

An SDK uses more time per call than a local server needs for a short reply, and more so the more
calls are in flight. This adapter sends the same requests at a fraction of the cost.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import msgspec

from .. import serde
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..errors import ProviderError, UsageError, short_repr
from ..internal.checks import check_number, check_whole
from ..internal.typevars import OutputT
from ..secrets import keep_secret, redact_message, shorten
from .adapter import ModelAdapter
from .http_pool import Headers, HTTPClient, Origin, Response
from .model import Model, ModelReply, ModelRequest, ModelSettings, check_model_name
from .prices import Price, price_of
from .provider_retry import DEFAULT_RETRIES, with_retries
from .wire import (
    call_id,
    completion_body,
    is_transient,
    retry_after,
    schema_or_words,
    token_trace,
    tool_arguments,
)

_MAX_QUOTED = 300  # characters of a server's response in an error message


class HTTPAdapter(ModelAdapter[OutputT]):
    """An adapter for any server that speaks OpenAI's Chat Completions over HTTP/1.1.

    Without `base_url` it is OPENAI_BASE_URL. Connections are kept alive, at most `max_connections`
    per event loop; `timeout` is in seconds for one call, not counting the wait for a connection.
    The key is read from the environment variable `key_variable` for each call and sent if it is
    set; with None no key is sent. Over plain http it is sent only to this machine, unless
    `allow_plain` is set. `verify` is how an https server is verified: by the system's certificates
    (True), by those of an `SSLContext`, or not at all (False).

    Redirects are refused, and proxies are not used, whatever the environment says.
    After rate limits, overload, timeouts and lost connections a call is retried, `retries` times.
    It is sent again at once if a kept-alive connection turns out to be closed before any byte of
    the response arrived.

    A server that supports it (vLLM, SGLang) also returns the tokens of each reply, for training,
    with `extra={"return_token_ids": True, "logprobs": True}` in the settings.

    >>> from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
    >>> from weakincentives.testing import ModelServer
    >>> section = MarkdownSection(title="Q", template="Capital of France?", key="q")
    >>> prompt = Prompt(PromptTemplate[str](ns="demo", key="qa", sections=[section]))
    >>> with ModelServer(["Paris"]) as server:
    ...     HTTPAdapter("llama-3", base_url=server.openai_base_url).evaluate(prompt).output
    'Paris'
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
        max_turns: int = 20,
        timeout: float = 600.0,
        retries: int = DEFAULT_RETRIES,
        max_connections: int = 1000,
        key_variable: str | None = "OPENAI_API_KEY",
        verify: ssl.SSLContext | bool = True,
        allow_plain: bool = False,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        settings = settings or ModelSettings()
        check_model_name(model)
        if timeout != float("inf"):
            check_number(timeout, "timeout", unit="seconds")
        check_whole(max_connections, 1, "max_connections")
        if settings.extra.get("stream"):
            raise UsageError("expected no `stream` in `settings.extra`: streaming is not supported")
        origin, target, host = _parse_url(base_url or os.environ.get("OPENAI_BASE_URL", ""), verify)
        client = HTTPClient(origin, timeout=timeout, max_connections=max_connections)
        safe = origin.tls is not None or allow_plain or _is_loopback(origin.host)
        super().__init__(
            ask=with_retries(_model(client, target, host, key_variable, safe), retries),
            model=model,
            name="http",
            settings=settings,
            max_turns=max_turns,
            price=partial(price_of, prices=prices or {}),
        )
        object.__setattr__(self, "_client", client)

    async def aclose(self) -> None:
        """Close this event loop's idle connections now, rather than when the loop ends."""
        await cast("Any", self)._client.aclose()


def _model(
    client: HTTPClient, target: bytes, host: str, key_variable: str | None, safe: bool
) -> Model:
    fixed: Headers = (
        (b"host", host.encode()),
        (b"user-agent", b"weakincentives-evals"),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"content-type", b"application/json"),
    )
    head = client.head(target, fixed)

    async def ask(request: ModelRequest, by_schema: bool) -> ModelReply:
        key = os.environ.get(key_variable, "").strip() if key_variable else ""
        secret = b""
        if key:
            keep_secret(key)
            if not safe:
                raise ProviderError(
                    f"expected https to send the key in ${key_variable} to {host}, got plain http "
                    "- pass allow_plain=True to send it anyway, or key_variable=None"
                )
            if not key.isascii() or not key.isprintable():
                raise ProviderError(f"expected printable ASCII as the key in ${key_variable}")
            secret = b"authorization: Bearer %b\r\n" % key.encode()
        body = completion_body(request, by_schema=by_schema, limit="max_tokens")
        sent = serde.encode({**body, **request.settings.extra})
        response = await client.post(head, sent, secret)
        if response.status != 200:
            raise _status_error(response, host, key, key_variable)
        return _reply(response, host, request, key)

    return schema_or_words(ask)


# --- the response --------------------------------------------------------------------------------

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    # Of any type, since a reply is usable without them.
    prompt_token_ids: Any = None
    token_ids: Any = None
    logprobs: Any = None


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None
    usage: _Usage | None = None
    prompt_token_ids: Any = None


_completion = serde.decoder(_Completion)
_anything = serde.decoder()


def _reply(response: Response, host: str, request: ModelRequest, key: str) -> ModelReply:
    try:
        completion = _completion(response.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        body = response.body.replace(key.encode(), b"***") if key else response.body
        raise ProviderError(
            f"expected a chat completion from {host}, got {short_repr(body, _MAX_QUOTED)}: {error}",
            retryable=True,
            status=response.status,
        ) from error
    choice: _Choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    calls = tuple(
        ToolCall(
            call_id(call.id, request, index),
            call.function.name,
            tool_arguments(call.function.arguments),
        )
        for index, call in enumerate(message.tool_calls or ())
    )
    return ModelReply(
        message=ChatMessage("assistant", message.content or message.refusal or "", calls),
        usage=usage and _tokens(usage),
        finish_reason=choice.finish_reason,
        model=completion.model or request.model,
        latency_ms=response.seconds * 1000,
        tokens=token_trace(
            choice.prompt_token_ids or completion.prompt_token_ids,
            choice.token_ids,
            _logprobs(choice.logprobs),
        ),
    )


def _tokens(usage: _Usage) -> TokenUsage:
    details = usage.prompt_tokens_details or _Details()
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, details.cached_tokens)


def _logprobs(logprobs: Any) -> list[Any]:
    """Return the log-probability of each token, if the server sends them as OpenAI does."""
    match logprobs:
        case {"content": [*tokens]}:
            return [each.get("logprob") if isinstance(each, dict) else None for each in tokens]
    return []


def _status_error(response: Response, host: str, key: str, variable: str | None) -> ProviderError:
    status = response.status
    if 300 <= status < 400:
        return ProviderError(
            f"expected an answer from {host}, got a redirect ({status}), which is never followed - "
            "give the final address as `base_url`",
            status=status,
        )
    again = is_transient(status)
    headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in response.headers.items()}
    reason = redact_message(_reason(response.body))
    if key:
        reason = reason.replace(key, "***")  # servers may quote it, and it may be a short one
    advice = f" - set the environment variable {variable}" if status == 401 and variable else ""
    return ProviderError(
        f"expected status 200 from {host}, got {status}: {shorten(reason, _MAX_QUOTED)}{advice}",
        retryable=again,
        retry_after=retry_after(headers) if again else None,
        status=status,
    )


def _reason(body: bytes) -> str:
    """Return the server's error message, which OpenAI, Ollama and vLLM put in different fields."""
    try:
        data = _anything(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    for _ in range(2):
        if isinstance(data, dict):
            data = data.get("error") or data.get("message") or data.get("detail") or data
    return data if isinstance(data, str) else body.decode("utf-8", "replace")


# --- the URL -------------------------------------------------------------------------------------


def _parse_url(base_url: str, verify: ssl.SSLContext | bool) -> tuple[Origin, bytes, str]:
    """Return the origin, the request target, and the `Host` header."""
    got = redact_message(short_repr(base_url))
    bad = (
        f"expected a URL such as `http://localhost:8000/v1` for `base_url`, got {got} - "
        "pass `base_url`, or set the environment variable OPENAI_BASE_URL"
    )
    if not isinstance(base_url, str) or not re.fullmatch(r"https?://[\x21-\x7e]+", base_url):
        raise UsageError(bad)
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{bad}: {error}") from None
    if "@" in parts.netloc:
        raise UsageError("expected no user or password in `base_url` - set the key's variable")
    if not parts.hostname or parts.fragment:
        raise UsageError(bad)
    target = f"{parts.path.rstrip('/')}/chat/completions"
    if parts.query:
        target = f"{target}?{parts.query}"
    secure = parts.scheme == "https"
    port = port or (443 if secure else 80)
    tls = _ssl_context(verify) if secure else None
    return Origin(parts.hostname, port, tls), target.encode(), parts.netloc


def _ssl_context(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not isinstance(verify, bool):
        raise UsageError(
            f"expected `ssl.SSLContext` or bool for `verify`, got {short_repr(verify)}"
        )
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
