r"""Normalize short mathematical answers.

`0.50`, `\frac12` and `$\dfrac{1}{2}$` are one number; `\{1, 2\}` and `\{2,1\}` one set. Only exact
numbers are evaluated: `x + x` and `2x` stay different.

Rules of this file:
1. No text makes it raise, and its time is linear in the length of the text.
2. An ambiguous text stays as it is written: no guess makes two answers equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Union

Value = Union[Fraction, str, tuple[str, tuple["MathAnswer", ...]]]  # noqa: UP007  # names itself

_MAX_CHARACTERS = 10_000  # a longer answer is compared as it is
_MAX_NESTING = 20
_MAX_DIGITS = 400


@dataclass(frozen=True, slots=True)
class MathAnswer:
    """A parsed answer: a number, an expression, or several answers in brackets of a kind."""

    value: Value
    unit: str = ""
    name: str = ""  # the `x` of `x = 5`


def same(a: MathAnswer, b: MathAnswer) -> bool:
    """Return whether values are equal; a name or a unit may be missing, but not differ."""
    if (a.name and b.name and a.name != b.name) or (a.unit and b.unit and a.unit != b.unit):
        return False
    if isinstance(a.value, tuple) and isinstance(b.value, tuple):
        (kind, left), (other, right) = a.value, b.value
        return kind == other and len(left) == len(right) and all(map(same, left, right))
    return a.value == b.value or a.value == _share(b, a) or b.value == _share(a, b)


def _share(a: MathAnswer, b: MathAnswer) -> Fraction | None:
    """Return the number of a percentage, to be compared with an answer without a unit."""
    if a.unit == "%" and not b.unit and isinstance(a.value, Fraction):
        return a.value / 100
    return None


def read(text: str) -> MathAnswer:
    """Return the answer that the text gives."""
    if len(text) > _MAX_CHARACTERS:
        return MathAnswer(" ".join(text.split()))
    return _answer(_tokens(text), 0)


# ── from text to tokens ─────────────────────────────────────────────────────────────────────────


def _each(spellings: str, meaning: str) -> dict[str, str]:
    return dict.fromkeys(spellings.split(), meaning)


_SIGNS = str.maketrans(
    {
        **_each("− – ﹣ -", "-"),
        **_each("× · ⋅ ∗", "*"),
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        "÷": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "°": r"^\circ ",
        "√": r"\sqrt ",
        "∪": r"\cup ",
        "≤": r"\leq ",
        "≥": r"\geq ",
        "≠": r"\neq ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
    }
)
_SPELLINGS = {
    **_each(r"\dfrac \tfrac \cfrac", r"\frac"),
    **_each(r"\mathrm \mathbf \mbox \operatorname \textbf \textit \textrm \boxed \fbox", r"\text"),
    **_each(r"\cdot \times \ast", "*"),
    **_each(r"\circ \degree", "°"),
    **_each(r"\{ \lbrace", r"\{"),
    **_each(r"\} \rbrace", r"\}"),
    r"\%": "%",
    r"\div": "/",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\ne": r"\neq",
    r"\lt": "<",
    r"\gt": ">",
    r"\varnothing": r"\emptyset",
    # What only changes the appearance of an answer:
    **_each(r"$ ~ \ \( \) \[ \] \left \right \displaystyle \limits \quad \qquad", ""),
    **_each(r"\, \! \; \: \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr", ""),
    "\\ ": "",
    "\\\n": "",
}
_OPEN, _CLOSE = {"(", "[", r"\{", r"\langle"}, {")", "]", r"\}", r"\rangle"}

_SEPARATOR = re.compile(r"(?<=\d)(?:\{,\}|\\!,|,\\!|\\,| )(?=\d{3}(?!\d))")
_AND = re.compile(r",?\s{0,9}(?:\\(?:text|mbox)\{\s{0,9}(?:and|or)\s{0,9}\}|\b(?:and|or)\b)")
_PART = r"\s*(?:\{([^{}]*)\}|(\d))"
_FRACTION = re.compile(rf"\\[dtc]?frac{_PART}{_PART}")
_TOKEN = re.compile(
    r"""(?P<thousands>\d{1,3}(?:,\d{3}){1,9}(?!\d|,\d)(?:\.\d+)?)
    | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?!\w))?
    | \\[A-Za-z]+ | \\. | \S""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(text: str) -> list[str]:
    text = _SEPARATOR.sub("", text.translate(_SIGNS))
    text = _FRACTION.sub(_in_braces, _AND.sub(",", text))
    tokens: list[str] = []
    groups: list[int] = []  # where in the tokens a brace was opened
    depth = 0
    for match in _TOKEN.finditer(text):
        token = _SPELLINGS.get(match[0], match[0])
        if not token:
            continue
        depth += (token in _OPEN) - (token in _CLOSE)
        if match["thousands"]:  # in brackets, `1,234` is two numbers
            tokens += re.split("(,)", token) if depth > 0 else [token.replace(",", "")]
        elif token == "}" and groups and len(tokens) - (start := groups.pop()) == 2:
            del tokens[start]  # braces around one thing group nothing
        else:
            if token == "{":
                groups.append(len(tokens))
            tokens.append(token)
    return tokens


def _in_braces(fraction: re.Match[str]) -> str:
    r"""`\frac12` as `\frac{1}{2}`."""
    a, b, c, d = fraction.groups("")
    return rf"\frac{{{a or b}}}{{{c or d}}}"


# ── from tokens to an answer ────────────────────────────────────────────────────────────────────


def _answer(tokens: list[str], depth: int) -> MathAnswer:
    name, tokens = _name(_bare(tokens))
    if several := _several(tokens, depth):
        return replace(several, name=name or several.name)
    unit, tokens = _unit(tokens)
    number = _number(tokens)
    return MathAnswer(_expression(tokens) if number is None else number, unit, name)


def _bare(tokens: list[str]) -> list[str]:
    r"""Return the tokens without outer braces, `\text`, a final point, a leading plus."""
    start, end = 0, len(tokens)
    for _ in range(_MAX_NESTING):
        if start < end and tokens[end - 1] == "." and tokens[end - 2 : end - 1] != ["."]:
            end -= 1  # `0.3...` goes on
        while start < end and tokens[start] == "+":
            start += 1
        if end - start < 2:
            break
        if tokens[start] == r"\text" and _spans(tokens, start + 1, end):
            start += 1
        elif tokens[start] == "{" and _spans(tokens, start, end):
            start, end = start + 1, end - 1
        else:
            break
    return tokens[start:end]


def _spans(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether one token, or one group in braces, spans the range."""
    depth = 0
    for at in range(start, end):
        depth += (tokens[at] == "{") - (tokens[at] == "}")
        if depth <= 0:
            return at == end - 1
    return False


_NAME = re.compile(r"([A-Za-z](?: _ \w+)?(?: \( [A-Za-z] \))?) (?:=|\\in) ")


def _name(tokens: list[str]) -> tuple[str, list[str]]:
    """Split `x = 5` or `f(x) = 5` into the name and the rest."""
    match = _NAME.match(" ".join(tokens[:8]))
    if not match or tokens.count("=") > 1:
        return "", tokens
    return match[1], _bare(tokens[len(match[0].split()) :])


def _several(tokens: list[str], depth: int) -> MathAnswer | None:
    """Return a union, a tuple, an interval, a set or a list, with its parts parsed."""
    if depth >= _MAX_NESTING:
        return None
    if len(parts := _split(tokens, {r"\cup"})) > 1:
        return MathAnswer((r"\cup", _in_any_order([_answer(part, depth + 1) for part in parts])))
    kind = ","
    if _encloses(tokens):
        kind, tokens = tokens[0] + tokens[-1], tokens[1:-1]
    parts = _split(tokens, {",", ";"})
    if len(parts) == 1 and kind in (",", "()"):
        return None if kind == "," else _answer(tokens, depth + 1)
    answers = [_answer(part, depth + 1) for part in parts]
    return MathAnswer((kind, _in_any_order(answers) if kind == r"\{\}" else tuple(answers)))


def _in_any_order(answers: list[MathAnswer]) -> tuple[MathAnswer, ...]:
    distinct = {repr(answer.value): answer for answer in answers}
    return tuple(distinct[key] for key in sorted(distinct))


def _encloses(tokens: list[str]) -> bool:
    """Return whether the last token closes the first bracket; those of an interval may differ."""
    if len(tokens) < 2 or tokens[0] not in _OPEN or tokens[-1] not in _CLOSE:
        return False
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth <= 0:
            return at == len(tokens) - 1
    return False


def _split(tokens: list[str], separators: set[str]) -> list[list[str]]:
    """Split at separators outside of brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _OPEN or token == "{") - (token in _CLOSE or token == "}")
        if depth == 0 and token in separators:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


_UNITS = {
    **_each("percent", "%"),
    **_each("degree degrees", "°"),
    **_each("dollar dollars", "$"),
    **_each("cent cents", "cent"),
    **_each("unit units", "unit"),
    **_each("mm millimeter millimeters", "mm"),
    **_each("cm centimeter centimeters", "cm"),
    **_each("m meter meters", "m"),
    **_each("km kilometer kilometers", "km"),
    **_each("in inch inches", "inch"),
    **_each("ft foot feet", "foot"),
    **_each("yd yard yards", "yard"),
    **_each("mi mile miles", "mile"),
    **_each("g gram grams", "g"),
    **_each("kg kilogram kilograms", "kg"),
    **_each("l liter liters", "liter"),
    **_each("s sec second seconds", "second"),
    **_each("min minute minutes", "minute"),
    **_each("h hour hours", "hour"),
    **_each("day days", "day"),
    **_each("year years", "year"),
}
_POWERS = {"square": "2", "sq": "2", "cubic": "3"}
_POWER = re.compile(r"(square|sq|cubic)?(.+?)(?:\^([23]))?", re.DOTALL)
# Words after a number that change its value.
_NO_UNIT = re.compile(r"hundred|thousand|illion|dozen|half|halves|more|less|base")
# These need no `\text` around them; a single letter could be a variable.
_WORDS = {f"{power}{word}" for word in _UNITS if len(word) > 1 for power in ("", *_POWERS)}


def _unit(tokens: list[str]) -> tuple[str, list[str]]:
    """Split an answer that has a number into its unit and the rest."""
    if tokens[:1] == [r"\$"]:
        return "$", _bare(tokens[1:])
    if tokens[-1:] in (["%"], ["°"]) and len(tokens) > 1:
        return tokens[-1], _bare(tokens[: -2 if tokens[-2] == "^" else -1])
    end = len(tokens) - 2 if tokens[-2:-1] == ["^"] else len(tokens)
    start = _word_before(tokens, end)
    number = tokens[:start]
    if start == end or all(_decimal(token) is None for token in number):
        return "", tokens
    word = "".join(token for token in tokens[start:] if token not in (r"\text", "{", "}"))
    if _NO_UNIT.search(word.lower()):
        return "", tokens
    match = _POWER.fullmatch(word.lower())
    power, base, exponent = match.groups("") if match else ("", word.lower(), "")
    return _UNITS.get(base, base) + (_POWERS.get(power) or exponent), _bare(number)


def _word_before(tokens: list[str], end: int) -> int:
    r"""Return the start of the last `\text{...}` or known unit before `end`; `end` if none."""
    last_text = max((at for at in range(end) if tokens[at] == r"\text"), default=-1)
    if last_text >= 0 and _spans(tokens, last_text + 1, end):
        return last_text
    start = end
    while start and tokens[start - 1].isalpha():
        start -= 1
    return start if "".join(tokens[start:end]).lower() in _WORDS else end


def _number(tokens: list[str]) -> Fraction | None:
    """Return the exact value of a decimal, a fraction, a mixed number or a power of ten."""
    match tokens:
        case ["-", first, *rest] if first != "-":
            value = _number([first, *rest])
            return None if value is None else -value
        case [r"\frac", "{", "-", top, "}", bottom]:
            return _number(["-", r"\frac", top, bottom])
        case [only]:
            return _decimal(only)
        case [top, "/", bottom] | [r"\frac", top, bottom]:
            a, b = _decimal(top), _decimal(bottom)
            return a / b if a is not None and b else None
        case [whole, r"\frac", top, bottom] | [whole, top, "/", bottom] if whole.isdecimal():
            a, b = _decimal(whole), _number([top, "/", bottom])
            return a + b if a is not None and b is not None else None
        case [*before, "10", "^", "{", "-", power, "}"]:
            return _shifted(before, power, -1)
        case [*before, "10", "^", power]:
            return _shifted(before, power, 1)
    return None


def _decimal(token: str) -> Fraction | None:
    try:
        return Fraction(token) if len(token) <= _MAX_DIGITS else None
    except ValueError:
        return None


def _shifted(before: list[str], power: str, sign: int) -> Fraction | None:
    """Return the value of `1.5 * 10 ^ 3`, with the tokens before the ten."""
    if "^" in before:
        return None
    factor = _number(before[:-1]) if before[-1:] == ["*"] else None if before else Fraction(1)
    if factor is None or not power.isdecimal() or len(power) > 3:
        return None
    return factor * Fraction(10) ** (sign * int(power))


def _expression(tokens: list[str]) -> str:
    """Return the tokens of anything else, with normalized numbers and a lower-case first letter."""
    words = [token for token in tokens if token not in (r"\text", "{", "}")]
    if len(words) > 1 and all(map(str.isalpha, words)):
        return words[0].lower() + "".join(words[1:])
    values = map(_decimal, tokens)
    return " ".join(t if v is None else str(v) for t, v in zip(tokens, values, strict=True))
