"""Short answers in text: the letter of a multiple choice question, a number, and DROP's F1.

An output without an answer fails: the form of the answer is part of these tasks. DROP's figures are
those of simple-evals. Letters and numbers are found in more replies than there; for the same
verdicts, use the graders of `extraction`.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from unicodedata import normalize

from ...errors import EvaluatorError, short_repr
from ...internal.text_differences import excerpt
from .._types import Metric, Score
from ..evaluators.criteria import built_in

# "Answer" in the languages of the public translations of MMLU and MGSM.
_WORDS = (
    *("answer", "antwort", "respuesta", "réponse", "risposta", "resposta", "ответ", "jawaban"),
    *("jibu", "cevap", "odpowiedź", "উত্তর", "उत्तर", "సమాధానం", "คำตอบ"),
    *("답변", "정답", "답", "答案", "答え", "回答", "解答", "答复", "答"),
    *("الإجابة", "الجواب", "إجابة", "جواب", "答曰"),
    *("idahun", "ìdáhùn", "idáhùn", "àdáhùn", "àmọ̀nà", "ànúgọ", "àṣàyàn"),
)
_FORMS = {normalize(form, word) for word in _WORDS for form in ("NFC", "NFD")}
_AFTER = r"(?:\s|[\u115f\u1160]|is|lautet|es|est|è|é|هي|هو|النهائية|النهائي|الصحيحة)*+[:：ঃ]"
_ANSWER = re.compile(rf"(?:{'|'.join(sorted(_FORMS, key=len, reverse=True))}){_AFTER}", re.I)
_MARKUP = re.compile(r"\\(?:boxed|text|mathrm|mathbf|textbf)\b|[*_$`{}()\[\]\\\"'“”]")
# The letters that stand for A, B, C, D in other scripts.
_LETTERS = str.maketrans("أبجدঅবডঢকখগঘकखगघＡＢＣＤ", "ABCDABCDABCDABCDABCD")
_LETTER = re.compile(r"\s*([A-J])(?![\w'])")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u202f](?=\d{3}(?!\d))")


def checked_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise EvaluatorError(f"expected text as {what}, got {short_repr(value)}")
    return value


def answer_line(text: str) -> str | None:
    """Return what follows the last "Answer:", in any of the languages; None if there is none.

    >>> answer_line("It is A. No: Answer: B\\nDone."), answer_line("It is B.")
    ('B', None)
    """
    parts = _ANSWER.split(text)
    return parts[-1].strip().partition("\n")[0].strip() if len(parts) > 1 else None


@built_in("multiple_choice", 2)
def multiple_choice(output: str, expected: str) -> Score:
    """Pass if the output ends in the letter of the expected choice: `Answer: C`, `Antwort: C`."""
    wanted = checked_text(expected, "`expected`").strip().upper()
    if not re.fullmatch("[A-J]", wanted):
        raise EvaluatorError(f"expected a letter from A to J as `expected`, got {expected!r}")
    text = _MARKUP.sub("", checked_text(output, "output"))
    letters = [
        letter[1]
        for found in _ANSWER.finditer(text)
        if (letter := _LETTER.match(text[found.end() :][:50].upper().translate(_LETTERS)))
    ]
    if not letters:
        return Score(0.0, reason=f"no line `Answer: LETTER` in {excerpt(output)}")
    right = letters[-1] == wanted
    return Score(float(right), reason="" if right else f"got {letters[-1]}, expected {wanted}")


@built_in("final_number", 2)
def final_number(output: str, expected: Any) -> Score:
    """Pass if the last number after `Answer:`, in any of MGSM's languages, is the expected one."""
    wanted = _last_number(str(expected))
    if wanted is None:
        raise EvaluatorError(f"expected a number as `expected`, got {short_repr(expected)}")
    line = answer_line(_MARKUP.sub("", checked_text(output, "output")))
    got = None if line is None else _last_number(line)
    if got is None:
        return Score(0.0, reason=f"no line `Answer: NUMBER` in {excerpt(output)}")
    return Score(float(got == wanted), reason="" if got == wanted else f"got {got}, not {wanted}")


def _last_number(text: str) -> Decimal | None:
    numbers = _NUMBER.findall(_THOUSANDS.sub("", text))
    try:
        return Decimal(numbers[-1].replace("−", "-")) if numbers else None
    except InvalidOperation:  # digits that are not decimal, such as a superscript
        return None


# ── DROP ────────────────────────────────────────────────────────────────────────────────────────


@built_in("drop_f1", 1)
def drop_f1(output: Any, expected: Any) -> Score:
    """Score the output by DROP's F1, and pass it if it matches exactly (EM).

    `expected` is an answer, or a list of alternatives; an alternative that is a list has several
    spans. An output is one span, or several as a list or a JSON list. Spans are matched one to one,
    in the best way. The metrics `em` and `f1` are those of the best alternative.
    """
    alternatives = expected if isinstance(expected, list | tuple) else [expected]
    spans = [_spans(each) for each in alternatives if each not in (None, "", [], ())]
    if not spans or not all(map(all, spans)):
        raise EvaluatorError(
            f"expected one answer or a list of them as `expected`, got {short_repr(expected)}"
        )
    line = answer_line(output) if isinstance(output, str) else None
    given = _spans(output if line is None else line)
    figures = [drop_metrics(given, gold) for gold in spans]
    em, f1 = max(em for em, _ in figures), max(f1 for _, f1 in figures)
    reason = "" if em else f"got {short_repr(given)}, expected {short_repr(expected)}: F1 {f1:.2f}"
    return Score(f1, bool(em), reason, (Metric("em", em), Metric("f1", f1)))


def _spans(value: Any) -> list[str]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    spans = value if isinstance(value, list | tuple) else [value]
    return [str(span) for span in spans]


def drop_metrics(given: Sequence[str], gold: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 of the spans of an answer.

    >>> drop_metrics(["the Bears", "12"], ["12", "Bears"])
    (1.0, 1.0)
    >>> drop_metrics(["Chicago Bears"], ["Bears"])
    (0.0, 0.6667)
    """
    mine, theirs = list(map(_normalized, given)), list(map(_normalized, gold))
    em = float(set(mine) == set(theirs) and len(mine) == len(theirs))
    bags, gold_bags = [set(span.split()) for span in mine], [set(span.split()) for span in theirs]
    values = [[_bag_f1(bag, gold_bag) for bag in bags] for gold_bag in gold_bags]
    total = _best_assignment(values)
    return em, round(total / max(len(bags), len(gold_bags), 1), 4)


def _normalized(text: str) -> str:
    """Return words in lower case, without articles and punctuation, with numbers as floats."""
    words = []
    for token in re.split("[ -]", text.lower()):
        if _float(token) is None:
            token = "".join(letter for letter in token if letter not in string.punctuation)
        number = _float(token)
        word = str(number) if number is not None else re.sub(r"\b(a|an|the)\b", " ", token)
        words += word.split()
    return " ".join(words)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bag_f1(given: set[str], gold: set[str]) -> float:
    numbers = {word for word in gold if _float(word) is not None}
    if numbers and not numbers & given:
        return 0.0
    common = len(given & gold)
    precision = common / len(given) if given else 1.0
    recall = common / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _best_assignment(values: Sequence[Sequence[float]]) -> float:
    """Return the greatest total of values, one for each row and at most one for each column.

    By augmenting paths with potentials (the Hungarian algorithm), which takes cubic time.
    """
    rows = list(values)
    if not rows or not rows[0]:
        return 0.0
    if len(rows) > len(rows[0]):
        rows = list(zip(*rows, strict=True))
    width = len(rows[0])
    row_of: list[int | None] = [None] * width
    row_price, column_price = [0.0] * len(rows), [0.0] * width
    for start in range(len(rows)):
        _assign_row(start, rows, row_of, row_price, column_price)
    return sum(rows[row][column] for column, row in enumerate(row_of) if row is not None)


def _assign_row(
    start: int,
    rows: Sequence[Sequence[float]],
    row_of: list[int | None],
    row_price: list[float],
    column_price: list[float],
) -> None:
    """Assign one more row to a column, moving others if that is better."""
    width = len(row_of)
    slack, previous_column = [float("inf")] * width, [-1] * width
    visited: list[int] = []
    row: int | None = start
    column = -1
    while row is not None:
        for other in range(width):
            if other in visited:
                continue
            cost = -rows[row][other] - row_price[row] - column_price[other]
            if cost < slack[other]:
                slack[other], previous_column[other] = cost, column
        previous = visited[:]
        column = min((c for c in range(width) if c not in visited), key=slack.__getitem__)
        delta = slack[column]
        row_price[start] += delta
        for each in previous:
            column_price[each] -= delta
            row_price[row_of[each]] += delta  # type: ignore[index]  # visited ones have a row
        for other in range(width):
            if other not in visited:
                slack[other] -= delta
        visited.append(column)
        row = row_of[column]
    while column != -1:
        before = previous_column[column]
        row_of[column] = start if before == -1 else row_of[before]
        column = before
