"""Exact arithmetic in text: numbers, + - * / and parentheses."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate_arithmetic(expression: str) -> Fraction:
    """Return the value; raise ValueError for anything else, or ZeroDivisionError."""
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None


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
    raise ValueError("not arithmetic")


def format_fraction(value: Fraction) -> str:
    """Return whole numbers exactly, others to 15 digits: `105`, `0.125`."""
    return str(value) if value.denominator == 1 else f"{float(value):.15g}"
