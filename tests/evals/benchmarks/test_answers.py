"""Letters, numbers and DROP's metrics, extracted from typical replies of models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import linear_sum_assignment

from weakincentives.errors import EvaluatorError
from weakincentives.evals import Sample, Trajectory
from weakincentives.evals.benchmarks import (
    answer_line,
    drop_f1,
    drop_metrics,
    final_number,
    gpqa,
    mgsm,
    mmlu,
    multiple_choice,
)
from weakincentives.evals.benchmarks.answers import _best_assignment


@pytest.mark.parametrize(
    "output",
    [
        "It must be this one.\nAnswer: C",
        "**Answer:** C",
        "answer : $C$",
        "Answer: (C) because of the second law",
        r"Answer: $\boxed{C}$",
        "The answer is: C",
        "Answer: A. No, that is wrong.\nAnswer: C",
        "Antwort: C",
        "Respuesta: C",
        "Réponse : C",
        "答案：Ｃ",
        "答え: C",
        "정답: C",
        "উত্তর: ড",
        "उत्तर: C",
        "الإجابة: ج",
        "الإجابة الصحيحة هي: ج",
        "Jibu: C",
        "Jawaban: C",
        "Àṣàyàn: C",
        "Àmọ̀nà: C",
        "Ànúgọ: C",
    ],
)
def test_the_letter_is_found_in_many_languages(output: str) -> None:
    assert multiple_choice(output, "C").passed


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Answer: B", "got B, expected C"),
        ("Carbon", "no line `Answer: LETTER`"),
        ("Answer: Carbon", "no line `Answer: LETTER`"),
        ("", "no line `Answer: LETTER`"),
    ],
)
def test_a_wrong_or_missing_letter_fails(output: str, reason: str) -> None:
    score = multiple_choice(output, "C")

    assert (score.value, score.passed) == (0.0, False)
    assert reason in score.reason


def test_a_sample_without_a_letter_is_an_error() -> None:
    with pytest.raises(EvaluatorError, match="a letter from A to J"):
        multiple_choice("Answer: C", "carbon")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("So 7 * 12.\nAnswer: 84", "84"),
        ("Answer: 84.0", "84"),
        ("Answer: $1,000$", "1,000"),
        ("Antwort: 1,200", 1200),
        ("উত্তর: ৮৪", "84"),
        ("คำตอบ: 84", "84"),
        ("Answer: -5", "-5"),
        ("答案：84", "84"),
    ],
)
def test_the_number_on_the_answer_line_counts(output: str, expected: object) -> None:
    assert final_number(output, expected).passed


@pytest.mark.parametrize("output", ["84", "Answer: none", "Answer: 85", "Antwort: 8.4"])
def test_a_wrong_or_missing_number_fails(output: str) -> None:
    assert not final_number(output, "84").passed


# The verdicts of simple-evals' own code on these replies; the expected letter is C.
LIKE_SIMPLE_EVALS = [
    ("Answer: C", True, True),
    ("Answer: C. No, that is wrong.\nAnswer: A", True, True),
    ("Answer: A. No, that is wrong.\nAnswer: C", False, False),
    ("Answer: Carbon", True, True),
    ("answer : $C$", True, True),
    ("Answer: c", False, False),
    ("Answer: (C)", False, False),
    ("The answer is: C", False, False),
    ("**Answer:** C", True, False),
    (r"Answer: $\boxed{C}$", True, False),
    ("Antwort: A\nAnswer: C", True, True),
    ("Antwort: C", True, False),
    ("答案：Ｃ", True, False),
    ("Antwort：C", False, False),
    ("উত্তর: ড", True, False),
    ("الإجابة: ج", True, False),
    ("الإجابة : ج", False, False),
    ("الإجابة: ت\nJibu: C", False, False),
    ("Àṣàyàn: C", True, False),
    ("A\u0300nu\u0301go\u0323: C", True, False),
    ("", False, False),
]


@pytest.mark.parametrize(("output", "in_mmlu", "in_gpqa"), LIKE_SIMPLE_EVALS)
def test_the_letters_of_mmlu_and_gpqa_are_those_of_simple_evals(
    output: str, in_mmlu: bool, in_gpqa: bool
) -> None:
    assert (mmlu(output, "C").passed, gpqa(output, "C").passed) == (in_mmlu, in_gpqa)


# The verdicts of simple-evals' own code, likewise.
@pytest.mark.parametrize(
    ("output", "expected", "language", "passed"),
    [
        ("7 * 12\nAnswer: 84", "84", "en", True),
        ("Answer 84.0", "84", "en", True),
        ("Answer: 80\nCheck: 84", "84", "en", True),
        ("Answer: -84", "84", "en", True),
        ("answer: 84", "84", "en", False),
        ("Answer: 84", "84", "de", False),
        ("Antwort: 1,200", "1200", "de", True),
        ("উত্তর: ৮৪", "84", "bn", False),
        ("Answer: none", "84", "en", False),
    ],
)
def test_the_numbers_of_mgsm_are_those_of_simple_evals(
    output: str, expected: str, language: str, passed: bool
) -> None:
    sample = Sample("1", "7 * 12?", expected, {"language": language})

    assert mgsm(Trajectory(output=output), sample).passed is passed


def test_what_the_graders_of_simple_evals_cannot_read_is_an_error() -> None:
    for expected in ("E", "c", None):
        with pytest.raises(EvaluatorError, match="a letter from A to D"):
            mmlu("Answer: C", expected)
    with pytest.raises(EvaluatorError, match="expected a language of bn, de, en"):
        mgsm(Trajectory(output="Answer: 84"), Sample("1", "?", "84", {"language": "xx"}))


def test_the_last_answer_line_counts() -> None:
    assert answer_line("Answer: 1\nAnswer: 2\nmore") == "2"


# Computed by hand from the definition: bags of normalized words; numbers must be equal.
@pytest.mark.parametrize(
    ("spans", "gold", "em", "f1"),
    [
        (["The Bears"], ["bears"], 1.0, 1.0),
        (["Chicago Bears"], ["Bears"], 0.0, 0.6667),
        (["12,000"], ["12000"], 1.0, 1.0),
        (["12.0"], ["12"], 1.0, 1.0),
        (["13 years"], ["12 years"], 0.0, 0.0),
        (["12 years old"], ["12 years"], 0.0, 0.8),
        (["Ada", "Paul"], ["Paul", "Ada"], 1.0, 1.0),
        (["Ada"], ["Paul", "Ada"], 0.0, 0.5),
        (["Ada", "Ada"], ["Ada"], 0.0, 0.5),
        (["blue-green"], ["blue green"], 1.0, 1.0),
        ([""], ["x"], 0.0, 0.0),
    ],
)
def test_drop_em_and_f1(spans: list[str], gold: list[str], em: float, f1: float) -> None:
    assert drop_metrics(spans, gold) == (em, f1)


def test_drop_uses_the_best_alternative_and_several_spans() -> None:
    score = drop_f1(
        'Two people.\nAnswer: ["Paul Sommer", "Ada Winter"]', [["Ada Winter", "Paul Sommer"]]
    )
    partial = drop_f1("Answer: Ada", ["Ada Winter", "Ada W."])

    assert (score.value, score.passed) == (1.0, True)
    assert (partial.passed, partial.value) == (False, 0.6667)
    assert {metric.name: metric.value for metric in partial.metrics} == {"em": 0.0, "f1": 0.6667}


@pytest.mark.parametrize("expected", [None, [], ""])
def test_drop_without_an_answer_is_an_error(expected: object) -> None:
    with pytest.raises(EvaluatorError, match="one answer or a list of them"):
        drop_f1("x", expected)


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_assignment_of_spans_agrees_with_scipy(values: list[list[int]]) -> None:
    matrix = np.array(values, dtype=float)
    rows, columns = linear_sum_assignment(-matrix)

    assert _best_assignment(matrix.tolist()) == matrix[rows, columns].sum()


def test_a_text_that_starts_like_a_list_is_text() -> None:
    assert drop_f1("[1", "[1").passed
