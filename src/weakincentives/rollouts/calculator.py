"""An example of an environment: a calculator with a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import serde
from ..errors import short_repr
from ..internal.arithmetic import evaluate_arithmetic, format_fraction
from ..internal.wire_names import wire_name
from ..prompt import Tool, ToolResult
from .environment import check_envelope

_MAX_EXPRESSION = 200  # characters
_MAX_VALUE = 10**100


@dataclass(frozen=True, slots=True)
class Expression:
    """The parameters of the tool: numbers, `+`, `-`, `*`, `/` and parentheses."""

    expression: str


@wire_name("wink:Calculation", "weakincentives.rollouts._calculator:Calculation")
@dataclass(frozen=True, slots=True)
class Calculation:
    """One successful calculation."""

    expression: str
    result: str


class CalculatorEnvironment:
    """A calculator as a tool, with a history that is part of its state.

    >>> import asyncio
    >>> env = CalculatorEnvironment()
    >>> asyncio.run(env.tools[0].call({"expression": "6 * 7"})).value
    '42'
    >>> asyncio.run(env.serialize())["history"]
    [{'expression': '6 * 7', 'result': '42'}]
    """

    ENV_KIND = "calculator"
    VERSION = "1.0.0"

    def __init__(self, history: Sequence[Calculation] = ()) -> None:
        self._history = list(history)
        self._open = True
        about = "Calculate an expression of numbers, + - * / and parentheses."
        self.tools = (Tool[Expression, str]("calculate", about, self._calculate),)

    @property
    def history(self) -> tuple[Calculation, ...]:
        """The calculations, oldest first."""
        return tuple(self._history)

    async def _calculate(self, params: Expression) -> ToolResult[str]:
        if not self._open:
            return ToolResult.failed("the calculator is closed")
        result = _calculate(params.expression)
        if result.value is not None:
            self._history.append(Calculation(params.expression, result.value))
        return result

    async def serialize(self) -> dict[str, Any]:
        """Return the history, with kind and version."""
        return {
            "env_kind": self.ENV_KIND,
            "version": self.VERSION,
            "history": serde.plain(self._history),
        }

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> CalculatorEnvironment:
        """Return an open calculator with that history."""
        check_envelope(data, CalculatorEnvironment.ENV_KIND, CalculatorEnvironment.VERSION)
        return CalculatorEnvironment(serde.convert(data.get("history"), list[Calculation]))

    async def close(self) -> None:
        """Make every further call of the tool fail."""
        self._open = False


def _calculate(expression: str) -> ToolResult[str]:
    """Return the value as text, or an error for the model to read."""
    if len(expression) > _MAX_EXPRESSION:
        return ToolResult.failed(
            f"expected at most {_MAX_EXPRESSION} characters, got {len(expression)}"
        )
    try:
        value = evaluate_arithmetic(expression)
    except ZeroDivisionError:
        return ToolResult.failed(f"division by zero in {short_repr(expression)}")
    except ValueError:
        return ToolResult.failed(
            f"expected numbers, + - * / and parentheses, got {short_repr(expression)}"
        )
    if abs(value) > _MAX_VALUE:
        return ToolResult.failed(f"the value of {short_repr(expression)} is too large")
    return ToolResult.ok(format_fraction(value))
