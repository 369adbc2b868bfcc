r"""A stand-in for a model, to run the example without one: a few rules from school.

It takes the first rule whose pattern is in the problem, computes, and boxes the result. It has no
rule for some problems, and the wrong rule for others, so that its score is neither 0 nor 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from weakincentives.chat import ChatMessage

NUMBER = r"(-?\d+)"
FRACTION = r"\\frac\{(\d+)\}\{(\d+)\}"
POINT = rf"\({NUMBER}, {NUMBER}\)"
LINEAR = r"(\d*)x ([+-]) (\d+)"


def solve(messages: Sequence[ChatMessage]) -> str:
    """Answer the last message, as an endpoint."""
    problem = messages[-1].content
    for pattern, rule in RULES.items():
        if match := re.search(pattern, problem):
            return rf"The answer is \boxed{{{rule(*match.groups())}}}."
    return "I have no rule for this."


def calculate(a: str, sign: str, b: str) -> str:
    left, right = Fraction(a), Fraction(b)
    if sign in ("+", "-"):
        return to_latex(left + right if sign == "+" else left - right)
    return to_latex(left * right if sign == r"\cdot" else left / right)


def calculate_fractions(a: str, b: str, sign: str, c: str, d: str) -> str:
    return calculate(f"{a}/{b}", sign, f"{c}/{d}")


def to_latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value)
    return rf"\dfrac{{{value.numerator}}}{{{value.denominator}}}"


def mean(text: str) -> str:
    numbers = [int(each) for each in re.findall(r"\d+", text)]
    return to_latex(Fraction(sum(numbers), len(numbers)))


def linear(a: str, sign: str, b: str, right: str) -> str:
    """Solve a x + b = c x + d, or = d."""
    c, d = 0, int(re.findall(r"\d+", right)[-1])
    if match := re.match(LINEAR, right):
        c, d = int(match[1] or 1), int(match[2] + match[3])
    return f"x = {to_latex(Fraction(d - int(sign + b), int(a or 1) - c))}"


def quadratic(sign: str, b: str, second: str, c: str) -> str:
    """Return the roots of x^2 + bx + c = 0."""
    p, q = int(sign + b), int(second + c)
    root = math.sqrt(p * p - 4 * q)
    return rf"\{{{(-p - root) / 2:g}, {(-p + root) / 2:g}\}}"


def simplified_root(n: str) -> str:
    side = max(each for each in range(1, int(n)) if int(n) % each**2 == 0)
    return rf"{side}\sqrt{{{int(n) // side**2}}}"


def distance(*at: str) -> str:
    x, y, u, v = map(int, at)
    return f"{math.hypot(x - u, y - v):.2f}"


def slope(*at: str) -> str:
    x, y, u, v = map(int, at)
    return to_latex(Fraction(v - y, u - x))


def divisors(n: str) -> str:
    return str(sum(int(n) % each == 0 for each in range(1, int(n) + 1)))


def heads(tosses: str, k: str) -> str:
    return to_latex(Fraction(math.comb(int(tosses), int(k)), 2 ** int(tosses)))


RULES: dict[str, Callable[..., object]] = {
    r"x\^2 ([+-]) (\d+)x ([+-]) (\d+) = 0": quadratic,
    rf"{LINEAR} = ([^$]+)": linear,
    rf"{FRACTION} (\+|-|\\cdot|\\div) {FRACTION}": calculate_fractions,
    rf"{NUMBER} (\+|-|\\cdot|\\div) {NUMBER}": calculate,
    rf"{NUMBER}\\%\$ of \${NUMBER}": lambda a, b: to_latex(Fraction(a) * int(b) / 100),
    rf"{NUMBER}\^\{{(\d+)\}}\$ is divided by (\d+)": lambda a, n, m: pow(int(a), int(n), int(m)),
    rf"{NUMBER}\^\{{(\d+)\}}": lambda a, n: int(a) ** int(n),
    rf"common divisor of {NUMBER} and {NUMBER}": lambda a, b: math.gcd(int(a), int(b)),
    rf"common multiple of {NUMBER} and {NUMBER}": lambda a, b: math.lcm(int(a), int(b)),
    r"mean of (.*)\?": mean,
    rf"slope .*{POINT}.*{POINT}": slope,
    rf"distance .*{POINT}.*{POINT}": distance,
    rf"{NUMBER} of {NUMBER} .* chosen": lambda k, n: math.comb(int(n), int(k)),
    rf"divisors does {NUMBER} have": divisors,
    r"\\sqrt\{(\d+)\}": simplified_root,
    r"first (\d+) positive odd integers": lambda n: int(n) ** 2,
    r"binary number ([01]+)": lambda digits: int(digits, 2),
    r"zeros are at the end of \$(\d+)!": lambda n: int(n) // 5,
    r"coin is tossed (\d+) times.* exactly (\d+) heads": heads,
    r"rectangle is (\d+) cm long and (\d+) cm wide": lambda a, b: int(a) * int(b),
}
"""Patterns of problems, and how to solve each."""
