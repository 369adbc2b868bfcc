"""Read the answers of MMLU, GPQA and MGSM exactly as simple-evals does, odd cases included.

So the same reply has the same score there. For evals of your own, `multiple_choice` and
`final_number` understand more replies.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ...errors import EvaluatorError, short_repr
from ...internal.text_differences import excerpt
from ...rollouts import Trajectory
from .._types import Sample, Score
from ..evaluators.criteria import built_in
from .answers import checked_text
from .benchmark_formats import ANSWER_WORDS

# `~` stands for white space. The first of them that a letter follows decides, wherever it is.
_MARKS = (
    *("Answer~:", "Answer~:" + 6 * "\u200b", "উত্তর~:", "उत्तर~:", "উত্তরঃ", "Antwort~:"),
    *("답변~:", "정답~:", "답~:", "答案~：", "答案~:", "答~：", "答~:", "答复~：", "答曰~："),
    *("الإجابة:", "الجواب:", "إجابة:", "الإجابة النهائية:", "الإجابة الصحيحة:"),
    *("الإجابة الصحيحة هي:", "الإجابة هي:", "الجواب النهائي:", "Respuesta~:", "Risposta~:"),
    *("答え~:", "答え~：", "回答~:", "回答~：", "解答~:", "Jawaban~:", "Réponse~:", "Resposta~:"),
    *("Jibu~:", "Idahun~:", "Ìdáhùn~:", "Idáhùn~:", "A\u0300m\u1ecd\u0300na\u0300~:", "Àdáhùn~:"),
    *("A\u0300nu\u0301go\u0323~:", "Àṣàyàn~:"),
)
_MARKUP = re.compile(r"\\boxed|\\text|\\math(?:rm|bf)\{|\\[$({]|\}\$|[${]")
# A letter of these ranges that stands for none of A to D is a wrong answer, as is a lower case one.
_LETTER = "([A-Dأ-دঅবডঢＡ-Ｄ])"
_LATIN = str.maketrans("أبجدঅবডঢＡＢＣＤ", "ABCDABCDABCD")
_GPQA = re.compile(r"Answer[ \t]*:[ \t]*\$?([A-D])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+\.?\d*")


@cache
def _patterns() -> list[re.Pattern[str]]:
    marks = (mark.replace("~", r"\s*") for mark in _MARKS)
    return [re.compile(rf"{mark}[ \t]*{_LETTER}", re.IGNORECASE) for mark in marks]


@built_in("mmlu", 1)
def mmlu(output: str, expected: str) -> Score:
    """Pass if the first letter after `Answer:`, in one of 15 languages, is the expected one.

    `Answer: Apple` is an A, and `Answer: (A)` and `Answer: a` are none.
    """
    text = _MARKUP.sub("", checked_text(output, "output").replace("**", ""))
    found = next((match for each in _patterns() if (match := each.search(text))), None)
    return _score(found[1].translate(_LATIN) if found else "", _letter(expected), output)


@built_in("gpqa", 1)
def gpqa(output: str, expected: str) -> Score:
    """Pass if the first letter after `Answer:` is the expected one, as for `mmlu`."""
    found = _GPQA.search(checked_text(output, "output"))
    return _score(found[1] if found else "", _letter(expected), output)


@built_in("mgsm", 1)
def mgsm(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Pass if the last number after the word for "Answer" is the expected one, digit for digit.

    The word is that of the sample's `language`, in its metadata; English without one. A minus sign
    is not part of a number, and a number on a later line counts, too.
    """
    output = checked_text(trajectory.output, "output")
    language = sample.metadata.get("language", "en")
    if language not in ANSWER_WORDS:
        known = ", ".join(ANSWER_WORDS)
        raise EvaluatorError(f"expected a language of {known}, got {short_repr(language)}")
    _, found, rest = output.rpartition(ANSWER_WORDS[language])
    numbers = _NUMBER.findall(rest.replace(",", "")) if found else []
    got = numbers[-1].rstrip(".") if numbers else ""
    got = got.rstrip("0").rstrip(".") if "." in got else got
    return _score(got, str(sample.expected).replace(",", ""), output)


def _letter(expected: Any) -> str:
    if expected not in ("A", "B", "C", "D"):
        raise EvaluatorError(f"expected a letter from A to D as `expected`, got {expected!r}")
    return str(expected)


def _score(got: str, wanted: str, output: str) -> Score:
    if got == wanted:
        return Score(1.0)
    return Score(0.0, reason=f"got {got or f'no answer in {excerpt(output)}'}, expected {wanted}")
