"""Call any adapter, ours or a user's, and complete what it returns and records.

Rules of this file:
1. A user's adapter needs `evaluate(prompt)` and nothing else. Keyword arguments that it does not
   accept are not passed; what cannot be called at all is refused before the first call.
2. A response may be any object with `output` or `text`. Attributes of another type, such as those
   that a `Mock` makes up, count as unknown.
3. Usage counts once, whether the adapter returns it or records it in a `PromptExecuted` event: the
   response and the session agree afterwards.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...chat import ChatMessage, TokenTrace, TokenUsage
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import UsageError, short_repr
from ...internal.threads import in_thread
from ..events import PromptExecuted
from ..session import Session
from .provider import PromptResponse

OPTIONS = frozenset({"session", "deadline", "budget_tracker"})


def adapter_call(adapter: Any, purpose: str = "") -> AdapterCall:
    """Return how to call an adapter; raise `UsageError` if it cannot be called."""
    if not callable(getattr(adapter, "evaluate", None)):
        hint = f" - use adapter_for({adapter!r})" if isinstance(adapter, str) else ""
        raise UsageError(
            f"expected an adapter with `evaluate`{purpose}, got {short_repr(adapter)}{hint}"
        )
    call: Any = getattr(adapter, "evaluate_async", None)
    is_async = inspect.iscoroutinefunction(call) or hasattr(type(adapter), "evaluate_async")
    if not is_async:  # or the attribute of a `Mock`, which has every attribute
        call = adapter.evaluate
        is_async = inspect.iscoroutinefunction(call)
    return AdapterCall(
        adapter,
        call,
        is_async,
        getattr(call, "records_prompts", False) is True,
        _accepted(adapter, call),
        _accepted(adapter, adapter.evaluate),
    )


def records_prompts(evaluate: Callable[..., Any]) -> None:
    """Mark an async `evaluate` that takes all options, and completes response and session itself.

    Checking that again takes 4 µs, which is 3 % of the engine's time for a prompt.
    """
    vars(evaluate)["records_prompts"] = True


@dataclass(frozen=True, slots=True)
class AdapterCall:
    """How to call one adapter, from synchronous and from async code."""

    adapter: Any
    _call: Callable[..., Any]
    _is_async: bool
    _is_complete: bool
    _options: frozenset[str]
    sync_options: frozenset[str]

    async def ask(
        self, prompt: Any, options: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
    ) -> PromptResponse[Any]:
        """Return the response to a prompt; a synchronous adapter runs in a thread."""
        if self._is_complete:
            return await self._call(prompt, **options)  # type: ignore[no-any-return]
        call = partial(self._call, prompt, **_pick(options, self._options))
        session, start = options.get("session"), clock.monotonic()
        recorded = _count(session)
        response = call() if self._is_async else await in_thread(call)
        if self._is_async or inspect.isawaitable(response):
            response = await response
        return self._completed(response, prompt, session, recorded, (clock, start))

    def ask_sync(
        self, prompt: Any, options: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
    ) -> PromptResponse[Any]:
        """Return the response to a prompt, from `evaluate`."""
        session, start = options.get("session"), clock.monotonic()
        recorded = _count(session)
        response = self.adapter.evaluate(prompt, **_pick(options, self.sync_options))
        return self._completed(response, prompt, session, recorded, (clock, start))

    def _completed(
        self, given: Any, prompt: Any, session: Any, recorded: int, began: tuple[Clock, float]
    ) -> PromptResponse[Any]:
        response = given if isinstance(given, PromptResponse) else self._read(given, prompt)
        output_type = getattr(getattr(prompt, "template", None), "output_type", None)
        if response.output is None and response.text is not None and output_type is str:
            response = replace(response, output=response.text)
        if not isinstance(session, Session):
            return response
        if _count(session) == recorded:
            took_ms = (began[0].monotonic() - began[1]) * 1000
            session.dispatch(_executed(response, type(self.adapter).__name__, took_ms))
        elif response.usage is None or response.cost is None:
            events = session[PromptExecuted].all()[recorded:]
            response = _with_recorded_usage(response, events)
        return response

    def _read(self, given: Any, prompt: Any) -> PromptResponse[Any]:
        """Return an object that is not a `PromptResponse` as one."""
        name = str(getattr(prompt, "name", ""))
        if isinstance(given, str):
            return PromptResponse(name, text=given)
        if not hasattr(given, "output") and not hasattr(given, "text"):
            raise UsageError(
                f"expected a `PromptResponse` from `{type(self.adapter).__qualname__}.evaluate`, "
                f"or an object with `output` or `text`, got {short_repr(given)}"
            )
        return PromptResponse(
            name,
            text=_attribute(given, "text", str),
            output=getattr(given, "output", None),
            usage=_usage(getattr(given, "usage", None)),
            messages=_all_of(given, "messages", ChatMessage),
            finish_reason=_attribute(given, "finish_reason", str),
            model=_attribute(given, "model", str),
            latency_ms=_finite(given, "latency_ms"),
            cost=_finite(given, "cost"),
            waited_ms=_finite(given, "waited_ms") or 0.0,
            tokens=_all_of(given, "tokens", TokenTrace),
        )


def _accepted(adapter: Any, call: Callable[..., Any]) -> frozenset[str]:
    """Return which of our keyword arguments a user's `evaluate` accepts."""
    try:
        signature = inspect.signature(call)
    except ValueError:  # written in C
        return OPTIONS
    parameters = signature.parameters
    any_keyword = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    # An adapter that caches replies takes the epoch, so that each epoch asks the model again.
    named = (OPTIONS | {"epoch"}) & parameters.keys()
    accepted = OPTIONS | named if any_keyword else named
    try:
        signature.bind(None, **dict.fromkeys(accepted))
    except TypeError as error:
        raise UsageError(
            f"expected `{type(adapter).__qualname__}.{getattr(call, '__name__', 'evaluate')}` to "
            f"take a prompt and optional keyword arguments, got {signature}: {error}"
        ) from None
    return frozenset(accepted)


def _pick(options: Mapping[str, Any], accepted: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in accepted}


def _count(session: Any) -> int:
    return len(session[PromptExecuted]) if isinstance(session, Session) else 0


def _executed(response: PromptResponse[Any], adapter: str, took_ms: float) -> PromptExecuted:
    """Return the event of a prompt for an adapter that recorded none."""
    return PromptExecuted(
        prompt_name=response.prompt_name,
        adapter=adapter,
        result={"text": response.text, "output": response.output},
        model=response.model,
        usage=response.usage,
        cost=response.cost,
        latency_ms=took_ms if response.latency_ms is None else response.latency_ms,
    )


def _with_recorded_usage(
    response: PromptResponse[Any], events: tuple[PromptExecuted, ...]
) -> PromptResponse[Any]:
    """Return the response with the usage and cost of the events, if it has none itself."""
    usages = [event.usage for event in events if event.usage is not None]
    costs = [event.cost for event in events if event.cost is not None]
    usage = sum(usages[1:], usages[0]) if usages else None
    return replace(
        response,
        usage=usage if response.usage is None else response.usage,
        cost=sum(costs) if response.cost is None and costs else response.cost,
    )


def _usage(given: Any) -> TokenUsage | None:
    if given is None or isinstance(given, TokenUsage):
        return given
    names = ("input_tokens", "output_tokens", "cached_tokens")
    counts = [_attribute(given, name, int) for name in names]
    if counts[:2] == [None, None]:
        # How a total is divided is unknown; only the total counts.
        counts[0] = _attribute(given, "total_tokens", int)
    return None if counts == [None, None, None] else TokenUsage(*counts)


def _attribute(given: Any, name: str, *types: type) -> Any:
    """Return an attribute if it has one of these types, else None."""
    value = getattr(given, name, None)
    return value if isinstance(value, types) and not isinstance(value, bool) else None


def _finite(given: Any, name: str) -> float | None:
    """Return an attribute if it is a number that can be counted, else None."""
    value = _attribute(given, name, int, float)
    return value if value is not None and 0 <= value < math.inf else None


def _all_of(given: Any, name: str, wanted: type) -> tuple[Any, ...]:
    """Return an attribute as a tuple if all its items have this type, else an empty one."""
    items = getattr(given, name, ())
    is_sequence = isinstance(items, list | tuple)
    return tuple(items) if is_sequence and all(isinstance(i, wanted) for i in items) else ()
