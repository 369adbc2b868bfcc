"""Tools that a model may call: a name, a description, and a handler with typed parameters.

Rules of this file:
1. The handler's signature, its parameters and their schema are determined at construction.
2. Arguments are parsed strictly: nothing is coerced, and unknown keys are refused.
3. A call returns a `ToolResult`. Wrong arguments and exceptions of the handler become failures that
   the model reads; only cancellation passes through.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache, partial
from types import NoneType, SimpleNamespace
from typing import Any, ClassVar, Generic, get_origin, get_type_hints

from .. import serde
from ..errors import PromptError, SerializationError, short_repr
from ..internal.checks import plain_texts
from ..internal.frozen import frozen_generic
from ..internal.threads import in_thread
from .output import decode_strict, error_line, schema_of
from .typed import ParamsT, ResultT, Typed, type_label

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_SIGNATURES = "(params), (params, *, context), (*, context) or ()"
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Information about the call, for a handler that takes `context`.

    A handler that takes long calls `beat()` now and then: without progress, a watchdog ends the
    worker.
    """

    session: Any = None
    prompt_name: str = ""
    adapter: str = ""
    call_id: str | None = None
    deadline: Any = None
    heartbeat: Any = None

    def beat(self) -> None:
        """Show the worker that runs this tool that it makes progress."""
        if self.heartbeat is not None:
            self.heartbeat.beat()


@frozen_generic
@dataclass(frozen=True, slots=True)
class ToolResult(Generic[ResultT]):
    """The result of a call. A failure has an `error`; a success has none.

    >>> ToolResult.ok({"sum": 4}).text
    '{"sum":4}'
    """

    value: ResultT | None = None
    message: str = ""
    success: bool = True
    error: str | None = None

    def __post_init__(self) -> None:
        plain_texts(self, "message", or_none=("error",))
        if self.success and self.error is not None:
            raise PromptError(f"expected no `error` with success, got {short_repr(self.error)}")
        if not self.success and self.error is None:
            _set(self, "error", self.message or "failed")

    @classmethod
    def ok(cls, value: ResultT, message: str = "") -> ToolResult[ResultT]:
        """Return a success; without a message, the model reads the value."""
        return cls(value, message)

    @classmethod
    def failed(cls, message: str) -> ToolResult[ResultT]:
        """Return a failure with the reason for the model."""
        return cls(None, message, success=False, error=message)

    @property
    def text(self) -> str:
        """The text for the model: the message, or else the error, or the value as text or JSON."""
        if self.message or self.error is not None:
            return self.message or str(self.error)
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        return serde.encode(self.value).decode()


@dataclass(frozen=True)
class Tool(Typed, Generic[ParamsT, ResultT]):
    """A function that a model may call, with a dataclass for its parameters.

    The handler is `(params)` or `(params, *, context: ToolContext)`, sync (it runs in a thread) or
    async, and returns a value or a `ToolResult`. Its parameters are those of the subscript, of
    `params_type=` or of its own annotation; it may have none.
    """

    subscript: ClassVar = ("params_type", "result_type")

    name: str
    description: str
    handler: Callable[..., Any]
    params_type: Any = field(default=None, kw_only=True)
    result_type: Any = field(default=None, kw_only=True, repr=False)
    _schema: dict[str, Any] = field(init=False, repr=False, compare=False)
    _call: Callable[[Any, ToolContext], Any] = field(init=False, repr=False, compare=False)
    _async: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain_texts(self, "name", "description")
        if not _NAME.fullmatch(self.name):
            raise PromptError(
                f"expected a tool name of 1 to 64 letters, digits, `_` and `-`, got {self.name!r}"
            )
        if not self.description.strip():
            raise PromptError(f"expected a description of tool `{self.name}`, got none")
        given = None if self.params_type in (None, NoneType) else self.params_type
        wanted, call = _match_signature(self.handler, given, f"tool `{self.name}`")
        _set(self, "params_type", wanted)
        _set(self, "_schema", _schema_of(wanted))
        _set(self, "_call", call)
        _set(self, "_async", _is_async(self.handler))

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the parameters: always an object."""
        return deepcopy(self._schema)

    def parse(self, arguments: Mapping[str, Any]) -> ParamsT:
        """Return the arguments as the handler's parameters; None if it has none.

        Raises SerializationError if they do not fit.
        """
        if not isinstance(arguments, Mapping):
            raise self._wrong(f"expected an object, got {short_repr(arguments)}")
        wanted = dict[str, Any] if self.params_type is None else self.params_type
        try:
            parsed: Any = decode_strict(serde.encode(arguments), wanted)
        except SerializationError as error:
            raise self._wrong(str(error)) from None
        if self.params_type is None:
            if parsed:
                raise self._wrong(f"expected no arguments, got {short_repr(parsed)}")
            parsed = None
        return parsed  # type: ignore[no-any-return]

    def _wrong(self, problem: str) -> SerializationError:
        return SerializationError(f"{problem} (arguments of tool `{self.name}`)")

    async def call(
        self, arguments: Mapping[str, Any], context: ToolContext | None = None
    ) -> ToolResult[ResultT]:
        """Parse the arguments, run the handler, return the result. Only cancellation is raised."""
        try:
            params, context = self.parse(arguments), context or ToolContext()
        except SerializationError as error:
            return ToolResult.failed(str(error))
        try:
            if self._async:
                value = await self._call(params, context)
            else:
                value = await in_thread(self._call, params, context)
                if inspect.isawaitable(value):
                    value = await value
            result = value if isinstance(value, ToolResult) else ToolResult(value)
            serde.encode(result.value)  # fails now if the value has no JSON form
        except Exception as error:
            return ToolResult.failed(error_line(error))
        return result


# An environment creates its tools again for every attempt.
_schema_of_class = lru_cache(maxsize=256)(schema_of)


def _schema_of(wanted: Any) -> dict[str, Any]:
    if wanted is None:
        return _NO_PARAMETERS
    return _schema_of_class(wanted) if isinstance(wanted, type) else schema_of(wanted)


def is_params_type(wanted: Any) -> bool:
    """Return whether this is a dataclass, also a generic one with type arguments."""
    cls = get_origin(wanted) or wanted
    return isinstance(cls, type) and is_dataclass(cls)


def _match_signature(
    handler: Callable[..., Any], given: Any, where: str
) -> tuple[Any, Callable[[Any, ToolContext], Any]]:
    """Return the type of the handler's parameters, and a function that calls it."""
    if isinstance(handler, type) or not callable(handler):
        raise PromptError(
            f"expected a function as handler, got {short_repr(handler)} - for {where}"
        )
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except ValueError:
        raise PromptError(f"expected a handler with a signature, got none - for {where}") from None
    by_name = [p for p in parameters if p.name == "context" and p.kind is not p.POSITIONAL_ONLY]
    by_place = [p for p in parameters if p.kind in _PLACES and p not in by_name]
    others = [p for p in parameters if p.default is p.empty and p.kind in _NEEDED]
    first = by_place[0] if by_place else None
    if [p for p in others if p not in by_name and p is not first]:
        took = ", ".join(map(str, parameters))
        raise PromptError(
            f"expected a handler of {_SIGNATURES}, got ({took}) - for {where}; "
            "put its parameters into one dataclass"
        )

    wanted = given
    if first is None and given is not None:
        raise PromptError(
            f"expected a handler that takes `{type_label(given)}`, got one without - for {where}"
        )
    if first is not None and given is None:
        wanted = _annotation(handler, first, where)
        if first.default is not first.empty and not is_params_type(wanted):
            first = wanted = None  # an optional parameter that is not a dataclass
    if first is not None and not is_params_type(wanted):
        raise PromptError(
            f"expected a dataclass for the parameters of {where}, got "
            f"{'no annotation' if wanted is first.empty else f'`{type_label(wanted)}`'} - "
            "write Tool[Params, Result](...), or annotate the handler"
        )

    def call(params: Any, context: ToolContext) -> Any:
        place = () if first is None else (params,)
        return handler(*place, context=context) if by_name else handler(*place)

    return wanted, call


_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NEEDED = (*_PLACES, inspect.Parameter.KEYWORD_ONLY)


def _annotation(handler: Callable[..., Any], first: inspect.Parameter, where: str) -> Any:
    """Return the first parameter's annotation, resolved in the handler's module."""
    fn: Any = handler
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    names = getattr(fn if hasattr(fn, "__globals__") else type(fn).__call__, "__globals__", {})
    try:
        # Only this one: another annotation may exist only for the type checker.
        alone = SimpleNamespace(__annotations__={first.name: first.annotation})
        return get_type_hints(alone, globalns=names)[first.name]
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise PromptError(
            f"expected an annotation that can be read here, got {first.annotation!r} ({error}) - "
            f"for `{first.name}` of {where}; write Tool[Params, Result](...)"
        ) from None


def _is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        type(handler).__call__
    )
