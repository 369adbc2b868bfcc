"""A worked example of an environment: a calculator that remembers what it was asked."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .. import serde
from ..errors import shown
from ..prompt import Tool, ToolResult
from ._environment import check_envelope

__all__ = ["Calculation", "CalculatorEnvironment", "Expression"]

_LONGEST = 200
_LARGEST = 10**100
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """What the tool takes: numbers, `+`, `-`, `*`, `/` and parentheses."""

    expression: str


@dataclass(frozen=True, slots=True)
class Calculation:
    """One that was done."""

    expression: str
    result: str


class CalculatorEnvironment:
    """A calculator as a tool, with a history that goes where its state goes.

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
        """What was calculated, oldest first."""
        return tuple(self._history)

    async def _calculate(self, params: Expression) -> ToolResult[str]:
        if not self._open:
            return ToolResult.failed("the calculator is closed")
        told = _calculated(params.expression)
        if told.value is not None:
            self._history.append(Calculation(params.expression, told.value))
        return told

    async def serialize(self) -> dict[str, Any]:
        """The history, in an envelope."""
        return {
            "env_kind": self.ENV_KIND,
            "version": self.VERSION,
            "history": serde.plain(self._history),
        }

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> CalculatorEnvironment:
        """A calculator with that history; one that was closed is open again."""
        check_envelope(data, CalculatorEnvironment.ENV_KIND, CalculatorEnvironment.VERSION)
        return CalculatorEnvironment(serde.convert(data.get("history"), list[Calculation]))

    async def close(self) -> None:
        """From now on, every call of the tool fails."""
        self._open = False


def _calculated(expression: str) -> ToolResult[str]:
    """The value as text, exact where it is whole; or what is wrong, for the model to read."""
    if len(expression) > _LONGEST:
        return ToolResult.failed(f"expected at most {_LONGEST} characters, got {len(expression)}")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError:
        return ToolResult.failed(f"division by zero in {shown(expression)}")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ToolResult.failed(
            f"expected numbers, + - * / and parentheses, got {shown(expression)}"
        )
    if abs(value) > _LARGEST:
        return ToolResult.failed(f"the value of {shown(expression)} is too large")
    return ToolResult.ok(str(value) if value.denominator == 1 else f"{float(value):.15g}")


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(ast.UAdd(), operand):
            return _value(operand)
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
    raise ValueError("no arithmetic")
