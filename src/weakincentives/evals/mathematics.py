r"""Mathematical answers: found in a model's words, and compared.

extract_boxed_answer   what the last `\boxed{...}` holds
normalized_equal       the same but for the way of writing; exact, and at once
symbolic_equal         the same mathematics, by math-verify, in a process of its own
math_equal             all three as an evaluator
"""

from __future__ import annotations

import math
import re

from ..errors import EvaluatorError, UsageError, shown
from ._criterion import criterion
from ._math_answer import read, same
from ._score import Score

__all__ = ["extract_boxed_answer", "math_equal", "normalized_equal", "symbolic_equal"]

# Up to three backslashes: after a line break of TeX's, or as one that was escaped once too often.
_MARK = re.compile(r"(?P<box>\\{1,3}(?:boxed|fbox)(?![A-Za-z]))|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"\s*([^\s${}]\S{0,99}?)[.,;:]?(?=[\s$]|\Z)")


def extract_boxed_answer(text: str) -> str | None:
    r"""What the last `\boxed{...}` or `\fbox{...}` holds; None where there is none.

    One that is never closed, as in a reply that was cut off, is none.

    >>> extract_boxed_answer(r"Half of it, so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> extract_boxed_answer("It is 5.") is None
    True
    """
    last, answer = -1, None
    opened: list[int] = []  # where the boxes and other braces around this place begin; -1: no box
    boxed_at = -1  # the end of a box's name that has just been read
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
    r"""Whether two answers say the same, whatever the way of writing.

    Numbers are compared exactly (`0.5` is `\frac12`; `0.33` is not `\frac13`), tuples, intervals
    and lists part by part, sets in any order. A unit or a name (`x =`) may be left out on one side.
    Nothing is simplified: that is `symbolic_equal`. None, which is no answer, equals nothing.

    >>> normalized_equal(r"$\dfrac{1}{2}$", "0.50"), normalized_equal(None, "5")
    (True, False)
    """
    if answer is None or expected is None:
        return False
    return answer == expected or same(read(str(answer)), read(str(expected)))


async def symbolic_equal(answer: object, expected: object, *, timeout: float = 5.0) -> bool:
    r"""Whether two answers are the same mathematics: `x(x+1)` and `x^2+x`.

    Math-verify judges what `normalized_equal` does not find equal, in a process of its own, for at
    most `timeout` seconds from when it begins. A check that does not come to its end raises an
    `EvaluatorError`: an answer that nobody could check is not a wrong one. Needs the extra `math`.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise UsageError(f"expected a number of seconds > 0 for `timeout`, got {shown(timeout)}")
    if answer is None or expected is None:
        return False
    from ._math_process import checked  # here, since most never start one

    return normalized_equal(answer, expected) or await checked(str(answer), str(expected), timeout)


@criterion
async def math_equal(output: object, expected: object) -> Score:
    r"""The output's answer is the expected one, as `symbolic_equal` sees it.

    The answer is what the last `\boxed{...}` holds, or else the whole output.
    """
    answer, reference = _answer(output, "output"), _answer(expected, "`expected`")
    equal = await symbolic_equal(answer, reference)
    said = "" if equal else f"expected {shown(reference)}, got {shown(answer)}"
    return Score(float(equal), reason=said)


def _answer(value: object, what: str) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise EvaluatorError(f"expected a text or a number as {what}, got {shown(value)}")
    boxed = extract_boxed_answer(value) if isinstance(value, str) else None
    return value if boxed is None else boxed
