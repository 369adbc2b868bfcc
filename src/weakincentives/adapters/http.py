"""Models behind an OpenAI-compatible server, without an SDK: for vLLM, Ollama and llama.cpp.

An SDK takes more time for a call than a local server takes for a short answer, and more so the
more calls there are at once. This adapter says the same on the wire at a fraction of that.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import msgspec

from .. import serde
from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..errors import ProviderError, UsageError, shown
from ..secrets import keep_secret, scrub_message
from ._adapter import ModelAdapter
from ._http_pool import Answer, Headers, HTTPClient, Origin
from ._model import Model, ModelReply, ModelRequest, ModelSettings
from ._prices import Price, price_of
from ._wire import (
    call_id,
    completion_body,
    retry_after,
    schema_or_words,
    token_trace,
    tool_arguments,
)

__all__ = ["HTTPAdapter"]

_SHOWN = 300  # characters of a server's own words in a message
_TRY_AGAIN = {408, 409, 429}  # and every 5xx


class HTTPAdapter(ModelAdapter[OutputT]):
    """An adapter for any server that speaks OpenAI's Chat Completions over HTTP/1.1.

    Without `base_url` it is OPENAI_BASE_URL. Connections are kept alive, at most `max_connections`
    per event loop; `timeout` is in seconds for one call, once it has a connection or may open one.
    The key is read from the environment variable `key_variable` at every call and sent if it is
    set; None sends none. It goes over plain http only to this machine, unless `allow_plain`.
    `verify` is who may vouch for an https server: the system's authorities, those of a context, or
    with False nobody.

    Redirects are refused, and proxies are not used, whatever the environment says.
    A call is sent again by itself only if a kept-alive connection turns out dead before any byte
    of the answer came: for retries put `retrying` around the model.

    A server that knows it (vLLM, SGLang) also gives the tokens of each reply, for training:
    `extra={"return_token_ids": True, "logprobs": True}` in the settings asks for them.

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
        max_connections: int = 1000,
        key_variable: str | None = "OPENAI_API_KEY",
        verify: ssl.SSLContext | bool = True,
        allow_plain: bool = False,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        settings = settings or ModelSettings()
        if not isinstance(model, str) or not model:
            raise UsageError(f"expected the name of a model for `model`, got {shown(model)}")
        if not isinstance(timeout, int | float) or not 0 < timeout <= math.inf:
            raise UsageError(f"expected seconds > 0 for `timeout`, got {shown(timeout)}")
        if not isinstance(max_connections, int) or max_connections < 1:
            raise UsageError(f"expected at least 1 for `max_connections`, got {max_connections!r}")
        if settings.extra.get("stream"):
            raise UsageError("expected no `stream` in `settings.extra`: answers come whole")
        origin, target, host = _place(base_url or os.environ.get("OPENAI_BASE_URL", ""), verify)
        client = HTTPClient(origin, timeout=timeout, max_connections=max_connections)
        safe = origin.tls is not None or allow_plain or _is_loopback(origin.host)
        super().__init__(
            ask=_model(client, target, host, key_variable, safe),
            model=model,
            name="http",
            settings=settings,
            max_turns=max_turns,
            price=partial(price_of, prices=prices or {}),
        )
        object.__setattr__(self, "_client", client)

    async def aclose(self) -> None:
        """Close this event loop's idle connections now; they are closed at its end anyway."""
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
                    "- pass allow_plain=True to send it all the same, or key_variable=None"
                )
            if not key.isascii() or not key.isprintable():
                raise ProviderError(f"expected printable ASCII as the key in ${key_variable}")
            secret = b"authorization: Bearer %b\r\n" % key.encode()
        body = completion_body(request, by_schema=by_schema, limit="max_tokens")
        sent = serde.encode({**body, **request.settings.extra})
        answer = await client.post(head, sent, secret)
        if answer.status != 200:
            raise _refused(answer, host, key, key_variable)
        return _reply(answer, host, request, key)

    return schema_or_words(ask)


# --- the answer ----------------------------------------------------------------------------------

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
    # Of any type: a reply is good without them.
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


def _reply(answer: Answer, host: str, request: ModelRequest, key: str) -> ModelReply:
    try:
        completion = _completion(answer.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        body = answer.body.replace(key.encode(), b"***") if key else answer.body
        raise ProviderError(
            f"expected a chat completion of {host}, got {shown(body, _SHOWN)}: {error}",
            retryable=True,
            status=answer.status,
        ) from error
    choice: _Choice = completion.choices[0]
    said, usage = choice.message, completion.usage
    calls = tuple(
        ToolCall(
            call_id(call.id, request, index),
            call.function.name,
            tool_arguments(call.function.arguments),
        )
        for index, call in enumerate(said.tool_calls or ())
    )
    return ModelReply(
        message=ChatMessage("assistant", said.content or said.refusal or "", calls),
        usage=usage and _tokens(usage),
        finish_reason=choice.finish_reason,
        model=completion.model or request.model,
        latency_ms=answer.seconds * 1000,
        tokens=token_trace(
            choice.prompt_token_ids or completion.prompt_token_ids,
            choice.token_ids,
            _logprobs(choice.logprobs),
        ),
    )


def _tokens(usage: _Usage) -> TokenUsage:
    details = usage.prompt_tokens_details or _Details()
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, details.cached_tokens)


def _logprobs(given: Any) -> list[Any]:
    """One for each token of the reply, where the server says them as OpenAI does."""
    match given:
        case {"content": [*tokens]}:
            return [each.get("logprob") if isinstance(each, dict) else None for each in tokens]
    return []


def _refused(answer: Answer, host: str, key: str, variable: str | None) -> ProviderError:
    status = answer.status
    if 300 <= status < 400:
        return ProviderError(
            f"expected an answer of {host}, got a redirect ({status}), which is never followed - "
            "give the final address as `base_url`",
            status=status,
        )
    again = status in _TRY_AGAIN or status >= 500
    reason = _reason(answer.body)
    if key:
        reason = reason.replace(key, "***")  # servers like to quote it
    advice = f" - set the environment variable {variable}" if status == 401 and variable else ""
    return ProviderError(
        f"expected status 200 of {host}, got {status}: {reason[:_SHOWN]}{advice}",
        retryable=again,
        retry_after=retry_after(_texts(answer.headers)) if again else None,
        status=status,
    )


def _reason(body: bytes) -> str:
    """The server's own words: OpenAI, Ollama and vLLM each have a place of their own for them."""
    try:
        said = _anything(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    for _ in range(2):
        if isinstance(said, dict):
            said = said.get("error") or said.get("message") or said.get("detail") or said
    return said if isinstance(said, str) else body.decode("utf-8", "replace")


def _texts(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


# --- where -----------------------------------------------------------------------------------


def _place(base_url: str, verify: ssl.SSLContext | bool) -> tuple[Origin, bytes, str]:
    """Where to connect, what to ask for there, and the `Host` header."""
    said = scrub_message(shown(base_url))
    bad = f"expected a URL such as `http://localhost:8000/v1` for `base_url`, got {said}"
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
    tls = _trust(verify) if secure else None
    return Origin(parts.hostname, port, tls), target.encode(), parts.netloc


def _trust(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not isinstance(verify, bool):
        raise UsageError(f"expected `ssl.SSLContext` or bool for `verify`, got {shown(verify)}")
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
