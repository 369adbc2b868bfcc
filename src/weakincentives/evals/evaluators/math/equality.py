r"""Mathematical answers: extracted from a model's output, and compared.

extract_boxed_answer   the content of the last `\boxed{...}`
normalized_equal       equal apart from notation; exact and fast
symbolic_equal         mathematically equal, by math-verify, in another process
math_equal             all three as an evaluator
"""

from __future__ import annotations

import math
import re

from ....errors import EvaluatorError, UsageError, short_repr
from ..._types import Score
from ..criteria import built_in
from .parsed_answers import read, same

# Up to three backslashes: after a line break in TeX, or if it was escaped once too often.
_MARK = re.compile(r"(?P<box>\\{1,3}(?:boxed|fbox)(?![A-Za-z]))|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"\s*([^\s${}]\S{0,99}?)[.,;:]?(?=[\s$]|\Z)")


def extract_boxed_answer(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` or `\fbox{...}`; None if there is none.

    One that is never closed, as in a reply that was cut off, does not count.

    >>> extract_boxed_answer(r"Half of it, so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> extract_boxed_answer("It is 5.") is None
    True
    """
    last, answer = -1, None
    opened: list[int] = []  # offsets of the open braces; -1 for one that is not a box
    boxed_at = -1  # the end of the `\\boxed` that was just read
    for mark in _MARK.finditer(text):
        if mark["box"]:
            boxed_at = mark.end()
            if bare := _BARE.match(text, boxed_at):
                last, answer = boxed_at, bare[1]
        elif mark[0] == "{":
            is_box = boxed_at >= 0 and not text[boxed_at : mark.start()].strip()
            opened.append(mark.end() if is_box else -1)
            boxed_at = -1
        elif mark[0] == "}" and opened and (start := opened.pop()) > last:
            last, answer = start, text[start : mark.start()].strip()
    return answer


def normalized_equal(answer: object, expected: object) -> bool:
    r"""Return whether two answers are equal apart from notation.

    Numbers are compared exactly (`0.5` is `\frac12`; `0.33` is not `\frac13`), tuples, intervals
    and lists part by part, sets in any order. A unit or a name (`x =`) may be left out on one side.
    Nothing is simplified: use `symbolic_equal`. None, which means no answer, equals nothing.

    >>> normalized_equal(r"$\dfrac{1}{2}$", "0.50"), normalized_equal(None, "5")
    (True, False)
    """
    if answer is None or expected is None:
        return False
    return answer == expected or same(read(str(answer)), read(str(expected)))


async def symbolic_equal(answer: object, expected: object, *, timeout: float = 5.0) -> bool:
    r"""Return whether two answers are mathematically equal: `x(x+1)` and `x^2+x`.

    Math-verify compares what `normalized_equal` does not find equal, in another process, for at
    most `timeout` seconds from when it starts. A check that does not finish raises an
    `EvaluatorError`: an answer that could not be checked is not a wrong one. Needs the extra
    `math`.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise UsageError(
            f"expected a number of seconds > 0 for `timeout`, got {short_repr(timeout)}"
        )
    if answer is None or expected is None:
        return False
    from .sympy_process import verify  # here, since it is seldom needed

    return normalized_equal(answer, expected) or await verify(str(answer), str(expected), timeout)


@built_in("math_equal", 1, blocking=True)
async def math_equal(output: object, expected: object) -> Score:
    r"""Pass if the output's answer is equal to the expected one by `symbolic_equal`.

    The answer is the content of the last `\boxed{...}`, or else the whole output.
    """
    answer, reference = _answer(output, "output"), _answer(expected, "`expected`")
    equal = await symbolic_equal(answer, reference)
    reason = "" if equal else f"expected {short_repr(reference)}, got {short_repr(answer)}"
    return Score(float(equal), reason=reason)


def _answer(value: object, what: str) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise EvaluatorError(f"expected a text or a number as {what}, got {short_repr(value)}")
    boxed = extract_boxed_answer(value) if isinstance(value, str) else None
    return value if boxed is None else boxed
