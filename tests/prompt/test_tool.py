"""Tools: handlers are recognised once, arguments parsed strictly, and errors returned."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from weakincentives.errors import PromptError, SerializationError, UsageError
from weakincentives.prompt import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]


@dataclass(frozen=True)
class Sum:
    """Two numbers to add."""

    a: int
    b: int = 0


def add(params: Sum) -> int:
    return params.a + params.b


async def add_async(params: Sum) -> int:
    await anyio.lowlevel.checkpoint()
    return params.a + params.b


def add_with_context(params: Sum, *, context: ToolContext) -> ToolResult[int]:
    return ToolResult.ok(params.a + params.b, f"for {context.prompt_name}")


def add_for_checkers(params: Sum) -> Unknown:
    return params.a + params.b


class Adder:
    def __call__(self, params: Sum) -> int:
        return params.a + params.b

    def method(self, params: Sum) -> int:
        return params.a + params.b


class AsyncAdder:
    async def __call__(self, params: Sum, context: ToolContext) -> int:
        return params.a + params.b


def scaled(factor: int, params: Sum) -> int:
    return factor * (params.a + params.b)


@functools.wraps(add)
def wrapped(*args: Any, **kwargs: Any) -> int:
    return add(*args, **kwargs)


HANDLERS: list[Callable[..., Any]] = [
    add,
    add_async,
    add_with_context,
    add_for_checkers,
    Adder(),
    Adder().method,
    AsyncAdder(),
    functools.partial(scaled, 1),
    wrapped,
]


@pytest.mark.anyio
@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_handler_of_any_shape_is_called(handler: Callable[..., Any]) -> None:
    tool = Tool("add", "Adds.", handler)

    result = await tool.call({"a": 1, "b": 2}, ToolContext(prompt_name="test"))

    assert tool.params_type is Sum
    assert (result.value, result.success, result.error) == (3, True, None)
    assert result.text == ("for test" if handler is add_with_context else "3")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "tool",
    [
        Tool[Sum, int]("add", "Adds.", lambda params: params.a + params.b),
        Tool("add", "Adds.", lambda params: params.a + params.b, params_type=Sum),
        Tool[Sum, int]("add", "Adds.", lambda params, extra=0: params.a + params.b + extra),
        Tool[Sum, int]("add", "Adds.", lambda params: add_async(params)),
    ],
)
async def test_the_parameters_can_be_named_beside_the_handler(tool: Tool[Sum, int]) -> None:
    assert (await tool.call({"a": 1, "b": 2})).value == 3
    assert replace(tool, name="other").params_type is Sum


@pytest.mark.anyio
@pytest.mark.parametrize(
    "tool",
    [
        Tool("now", "Tells.", lambda: "noon"),
        Tool[None, str]("now", "Tells.", lambda *, context: "noon"),
        Tool("now", "Tells.", lambda context: "noon"),
        Tool("now", "Tells.", lambda hour="noon": hour),
    ],
)
async def test_a_tool_may_have_no_parameters(tool: Tool[Any, str]) -> None:
    assert tool.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool.parse({}) is None
    assert (await tool.call({})).text == "noon"
    assert "expected no arguments, got {'x': 1}" in (await tool.call({"x": 1})).text


def test_the_schema_comes_from_the_types() -> None:
    tool = Tool("add", "Adds.", add)

    assert tool.schema == {
        "title": "Sum",
        "description": "Two numbers to add.",
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    }
    tool.schema.clear()
    assert tool.schema


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": "1"}, "expected `int`, got `str` - at `$.a` (arguments of tool `add`)"),
        ({}, "object missing required field `a` (arguments of tool `add`)"),
        ({"a": 1, "c": 2}, "expected no other keys than `a`, `b`, got `c` - at `$`"),
        ([1], "expected an object, got [1]"),
        ({"a": object()}, "expected a value that JSON can carry, got `object`"),
        ({"a": float("nan")}, "expected a finite number"),
    ],
)
def test_arguments_are_parsed_strictly(arguments: Any, message: str) -> None:
    tool = Tool("add", "Adds.", add)

    with pytest.raises(SerializationError) as caught:
        tool.parse(arguments)

    assert message in str(caught.value)
    result = anyio.run(tool.call, arguments)
    assert (result.success, result.error, result.text) == (False, *[str(caught.value)] * 2)


@given(arguments=our.metadata | st.dictionaries(st.sampled_from("abc"), our.json_values))
def test_parsed_arguments_have_the_type(arguments: dict[str, Any]) -> None:
    try:
        params = Tool("add", "Adds.", add).parse(arguments)
    except SerializationError:
        assert set(arguments) not in ({"a"}, {"a", "b"}) or not all(
            type(value) is int for value in arguments.values()
        )
    else:
        assert (type(params.a), type(params.b)) == (int, int)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raising(error: Exception) -> Callable[[], Any]:
    def handler() -> Any:
        raise error

    return handler


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (raising(ValueError("too big")), "ValueError: too big"),
        (raising(UnprintableError()), "UnprintableError"),
        (raising(StopIteration()), "StopIteration"),
        (lambda: object(), "SerializationError: expected a value that JSON can carry"),
        (lambda: ToolResult(object(), "fine"), "SerializationError: expected a value"),
        (lambda: ToolResult(error="x"), "PromptError: expected no `error` with success"),
        (lambda: ToolResult.failed("no luck"), "no luck"),
    ],
)
async def test_a_failing_handler_returns_a_failed_result(
    handler: Callable[[], Any], error: str
) -> None:
    result = await Tool("t", "Fails.", handler).call({})

    assert result.success is False
    assert error in str(result.error)
    assert result.text == result.error


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False])
async def test_cancellation_passes_through(is_async: bool) -> None:
    begun, done = threading.Event(), threading.Event()

    async def sleep() -> None:
        begun.set()
        await anyio.sleep_forever()

    def block() -> None:
        begun.set()
        done.wait(60)

    async def cancel_once_begun() -> None:
        await anyio.to_thread.run_sync(begun.wait)
        scope.cancel()

    tool = Tool("wait", "Waits.", sleep if is_async else block)
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_once_begun)
        with anyio.CancelScope() as scope:
            await tool.call({})
    done.set()

    assert scope.cancelled_caught


def needs_more(params: Sum, other: int) -> None: ...


def plain_parameter(a: int) -> None: ...


def unreadable_annotation(params: Unknown) -> None: ...


def unannotated(params) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "no spaces"}, "expected a tool name of 1 to 64 letters.*got 'no spaces'"),
        ({"name": "x" * 65}, "expected a tool name"),
        ({"name": 3}, "expected `str` for `Tool.name`"),
        ({"description": " "}, "expected a description of tool `add`"),
        ({"handler": Sum}, "expected a function as handler"),
        ({"handler": 3}, "expected a function as handler, got 3 - for tool `add`"),
        ({"handler": dict.pop}, "dataclass|signature"),
        ({"handler": max}, "expected a handler with a signature"),
        ({"handler": needs_more}, "got .params: 'Sum', other: 'int'.* - for tool `add`"),
        (
            {"handler": plain_parameter},
            "expected a dataclass for the parameters of tool `add`, got `int`",
        ),
        ({"handler": unannotated}, "got no annotation - write Tool"),
        (
            {"handler": unreadable_annotation},
            "that can be read here, got 'Unknown'.*for `params` of tool `add`",
        ),
        ({"handler": lambda: 1, "params_type": Sum}, "expected a handler that takes `Sum`"),
        ({"params_type": int}, "expected a dataclass .* got `int`"),
    ],
)
def test_a_wrong_tool_is_refused_at_construction(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Tool(**{"name": "add", "description": "Adds.", "handler": add, **wrong})


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(), ""),
        (ToolResult("plain"), "plain"),
        (ToolResult(Sum(1)), '{"a":1,"b":0}'),
        (ToolResult.ok([1], "one"), "one"),
        (ToolResult[int].failed("why"), "why"),
        (ToolResult(success=False), "failed"),
        (ToolResult(message="m", success=False), "m"),
        (ToolResult(message="m", success=False, error="e"), "m"),
    ],
)
def test_the_model_sees_the_message_or_the_value(result: ToolResult[Any], text: str) -> None:
    assert result.text == text
    assert (result.error is None) is result.success


def test_two_types_for_the_parameters_are_refused() -> None:
    with pytest.raises(PromptError, match=r"`Tool\[Sum\]` with `params_type="):
        Tool[Sum, int]("add", "Adds.", add, params_type=ToolContext)
