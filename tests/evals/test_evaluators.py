"""Evaluators of the output, and their combinations."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weakincentives.errors import EvaluatorError, MissingExtraError, UsageError
from weakincentives.evals import (
    Criterion,
    Metric,
    Score,
    adapt,
    all_of,
    any_of,
    contains,
    criterion,
    exact_match,
    ignoring,
    json_schema,
    json_subset,
    matches,
    negate,
    numeric,
    one_of,
    similar,
    weighted,
    within_tolerance,
)
from weakincentives.evals.evaluators import is_session_aware
from weakincentives.evals.evaluators.text import edit_distance
from weakincentives.testing import session_with


@dataclass(frozen=True)
class Invoice:
    total: float
    lines: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("evaluator", "output", "expected", "passed"),
    [
        (exact_match, "a", "a", True),
        (exact_match, "a", "A", False),
        (exact_match, Invoice(1.0), Invoice(1.0), True),
        (exact_match, None, None, True),
        (contains, "The answer is 42.", "42", True),
        (contains, "The answer is 42.", "43", False),
        (contains, "anything", "", True),
        (one_of, "b", ["a", "b"], True),
        (one_of, "c", {"a", "b"}, False),
        (one_of, "a", [], False),
        (matches(r"\d+"), "abc 12", None, True),
        (matches(r"\d+", whole=True), "abc 12", None, False),
        (matches(re.compile("ABC", re.IGNORECASE)), "abc", None, True),
        (matches(r"answer:\s*{expected}"), "answer: 1+1", "1+1", True),
        (matches(r"answer:\s*{expected}"), "answer: 11", "1+1", False),
        (matches("^{expected}{2}$"), "abab", "ab", True),
        (numeric(), "-$5.50", -5.5, True),
        (numeric(), "12 %", 0.12, True),
        (json_subset, {"a": True}, {"a": 1}, False),
        (json_subset, {"a": [1, {"b": True}]}, {"a": [1.0, {"b": True}]}, True),
        (json_subset, {"a": [1, {"b": True}]}, {"a": [1, {"b": 1}]}, False),
        (json_subset, {"a": [1]}, {"a": [1, 2]}, False),
        (within_tolerance(0.1), 1.1, 1.0, True),
        (numeric(), "The total is 1,234.50.", 1234.5, True),
        (numeric(), "3 apples, 4 pears", "4", True),
        (numeric(), "x = -2", -2, True),
        (numeric(), "x = −2", -2, True),
        (numeric(), "1.5e3", 1500, True),
        (numeric(), ".5", 0.5, True),
        (numeric(), "12%", 0.12, True),
        (numeric(), "no number here", 1, False),
        (numeric(), "3.14", 3.1416, False),
        (numeric(tolerance=0.01), "3.14", 3.1416, True),
        (numeric(relative=0.1), 109, 100, True),
        (numeric(relative=0.1), 111, 100, False),
        (numeric(), 7, 7, True),
        (similar(0.5), "kitten", "sitting", True),
        (similar(0.6), "kitten", "sitting", False),
        (similar(1.0), "", "", True),
        (json_subset, {"a": 1, "b": 2}, {"a": 1}, True),
        (json_subset, {"a": 1}, {"a": 2}, False),
        (json_subset, {"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, True),
        (json_subset, {"a": [1, 2]}, {"a": [1]}, False),
        (json_subset, '{"a": {"x": 1}}', {"a": {"x": 1}}, True),
        (json_subset, Invoice(2.0), {"total": 2.0}, True),
        (json_subset, "not json", {"a": 1}, False),
        (json_subset, [1], {"a": 1}, False),
        (json_subset, {"a": 3}, {"a": {"x": 1}}, False),
        (json_subset, {}, {}, True),
        (json_schema(Invoice), '{"total": 3}', None, True),
        (json_schema(Invoice), '{"total": "3"}', None, False),
        (json_schema(Invoice), {"total": 3, "lines": ["a"]}, None, True),
        (json_schema(list[int]), [1, "2"], None, False),
        (json_schema({"type": "object", "required": ["a"]}), {"a": 1}, None, True),
        (json_schema({"type": "object", "required": ["a"]}), "{}", None, False),
        (
            json_schema({"properties": {"a": {"items": {"type": "integer"}}}}),
            {"a": ["x"]},
            0,
            False,
        ),
        (json_schema({}), "{", None, False),
    ],
)
def test_evaluators_pass_and_fail_as_documented(
    evaluator: Criterion, output: Any, expected: Any, passed: bool
) -> None:
    score = evaluator(output, expected)

    assert score.passed is passed
    assert 0.0 <= score.value <= 1.0


@pytest.mark.parametrize(
    ("evaluator", "output", "expected", "reason"),
    [
        (json_subset, {"a": {"x": 2}}, {"a": {"x": 1}}, "missing or wrong: a.x"),
        (json_subset, {}, {"a": 1}, "missing or wrong: a"),
        (json_subset, "{", {"a": 1}, "the output is not JSON"),
        (json_schema(Invoice), {"total": "3"}, None, "Expected `float`, got `str` - at `$.total`"),
        (json_schema({"items": {"type": "string"}}), ["a", 1], None, "at `$[1]`"),
        (json_schema({"properties": {"a": {"type": "null"}}}), {"a": 1}, None, "at `$.a`"),
        (numeric(), "it is 3", 4, "got 3, expected 4"),
        (within_tolerance(0.5), 1.0, 1.25, "diff=0.2500"),
        (matches("a+"), "b", None, "no match: a+"),
        (exact_match, "Lyon", "Paris", "got 'Lyon', expected 'Paris'"),
        (exact_match, None, "Paris", "got None, expected 'Paris'"),
        (
            exact_match,
            Invoice(3.0),
            "3",
            "expected '3': `Invoice` never equals `str`",
        ),
        (exact_match, ("a",), ["a"], "`tuple` never equals `list`"),
        (contains, "Lyon", "Paris", "got 'Lyon', expected it to contain 'Paris'"),
        (one_of, "c", ["a", "b"], "got 'c', expected one of 'a', 'b'"),
        (one_of, 0, range(1, 10), "expected one of 1, 2, 3, 4, 5 or 4 more"),
        (one_of, 1, ["a", "b"], "`int` never equals `str`"),
        (
            matches("is {expected}"),
            "b",
            "4",
            "no match: is {expected}, where the expected",
        ),
        (numeric(), "no idea", 4, "no number in the output: got 'no idea', expected 4"),
        (within_tolerance(0.5), 1.0, 3.0, "diff=2.0000"),
        (similar(), "Lyon", "Paris", "similarity 0.00, expected 0.8 or more: got 'Lyon', expe"),
        (json_subset, [1], {"a": 1}, "missing or wrong: the output is not an object: got [1]"),
        (json_schema(Invoice), {"total": "3"}, None, "{'total': '3'}"),
        (negate(contains), "Paris", "Par", "contains passed"),
        (negate(within_tolerance(1)), 1.0, 1.0, "within_tolerance passed: diff=0.0000"),
    ],
)
def test_a_failure_has_a_reason(
    evaluator: Criterion, output: Any, expected: Any, reason: str
) -> None:
    assert reason in evaluator(output, expected).reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "evaluator",
    [exact_match, contains, one_of, matches("z{expected}"), similar(1), numeric(), json_subset],
)
def test_a_reason_is_short_and_fast_for_long_outputs(evaluator: Criterion) -> None:
    size = {"similar": 2_000, "matches": 500_000}.get(evaluator.name, 5_000_000)
    output, expected = "x" * size + "1", "x" * size + "2"
    expected_values: Any = {"one_of": [expected], "numeric": 3, "json_subset": {"a": 1}}
    output = f'"{output}"' if evaluator is json_subset else output

    score = evaluator(output, expected_values.get(evaluator.name, expected))

    assert not score.passed
    assert 20 < len(score.reason) < 500


@pytest.mark.parametrize("equal", [("4", "4"), (1, 1.0), (True, 1), (Decimal(1), 1)])
def test_equal_values_have_no_reason(equal: tuple[Any, Any]) -> None:
    assert exact_match(*equal) == Score(1.0, criterion="exact_match")


@pytest.mark.parametrize(
    ("output", "expected"), [(1, 2.5), (Decimal(1), 2), ("a", "b"), (None, "a"), (object(), "a")]
)
def test_types_that_can_be_equal_are_not_reported_as_unequal(output: Any, expected: Any) -> None:
    assert "never equals" not in exact_match(output, expected).reason


@pytest.mark.parametrize(
    ("evaluator", "output", "expected", "message"),
    [
        (contains, 3, "3", "expected text as output, got `int`"),
        (contains, "3", 3, "expected text as `expected`, got `int`"),
        (similar(), None, "a", "expected text as output"),
        (matches("a"), None, None, "expected text as output"),
        (matches("{expected}"), "None", None, "expected text as `expected`"),
        (one_of, "a", "abc", "expected a collection as `expected`"),
        (one_of, "a", 3, "expected a collection as `expected`"),
        (within_tolerance(1), "1", 1.0, "expected a finite number for `output`"),
        (numeric(), "1", "none", "expected a number as `expected`"),
        (numeric(), None, 1, "expected a finite number"),
        (json_subset, {}, [1], "expected a mapping as `expected`"),
    ],
)
def test_an_input_that_cannot_be_judged_is_an_error_and_not_a_failure(
    evaluator: Criterion, output: Any, expected: Any, message: str
) -> None:
    with pytest.raises(EvaluatorError, match=message):
        evaluator(output, expected)


@pytest.mark.parametrize(
    "build",
    [
        lambda: all_of(),
        lambda: any_of(),
        lambda: weighted(),
        lambda: weighted((exact_match, -1)),
        lambda: weighted((exact_match, 0)),
        lambda: weighted((exact_match, float("nan"))),
        lambda: weighted((exact_match, 1), pass_mark=float("inf")),
        lambda: within_tolerance(-1),
        lambda: numeric(tolerance=-1),
        lambda: numeric(relative=float("nan")),
        lambda: similar(1.5),
        lambda: matches("("),
        lambda: matches(None),
        lambda: matches(re.compile(b"x")),
        lambda: weighted(exact_match),
        lambda: weighted([(exact_match, 1)]),
        lambda: json_schema(None),
        lambda: json_schema("object"),
        lambda: json_schema({"$ref": "http://127.0.0.1:9/x.json"}),
        lambda: ignoring(exact_match),
        lambda: ignoring(exact_match, "spelling"),  # type: ignore[arg-type]
        lambda: json_schema({"type": 3}),
    ],
)
def test_misuse_is_refused_at_construction(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()


def test_a_missing_package_for_schemas_is_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)  # as if it were not installed

    with pytest.raises(MissingExtraError, match=r"pip install 'weakincentives-evals\[schema\]'"):
        json_schema({"type": "object"})


def test_within_tolerance_decreases_linearly() -> None:
    near = within_tolerance(2.0)

    assert [near(x, 0.0).value for x in (0, 1, 2, 3)] == [1.0, 0.5, 0.0, 0.0]
    assert [near(x, 0.0).passed for x in (0, 1, 2, 3)] == [True, True, True, False]
    assert [within_tolerance(0)(x, 0).value for x in (0, 1)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("ignored", "output", "expected", "passed"),
    [
        (("case",), "PARIS", "paris", True),
        (("case",), "Straße", "STRASSE", True),
        (("whitespace",), "  a \n b ", "a b", True),
        (("punctuation",), "“Paris!”", "Paris", True),
        (("accents",), "Café", "Cafe", True),
        (("accents",), "각", "가", False),
        (("punctuation",), "3.14", "314", False),
        (("punctuation",), "-5", "5", False),
        (("punctuation",), "well-known.", "wellknown", True),
        (("punctuation",), "東京。", "東京", True),
        (("punctuation",), "yes 👍", "yes ", False),
        (("articles",), "the cat", "cat", True),
        (("articles",), "theatre", "atre", False),
        (("case", "articles", "punctuation"), "The Eiffel Tower.", "eiffel tower", True),
        (("case",), "a b", "a  b", False),
        (("case",), 3, 3, True),
    ],
)
def test_ignoring_normalizes_text(ignored: Any, output: Any, expected: Any, passed: bool) -> None:
    assert ignoring(exact_match, *ignored)(output, expected).passed is passed


def test_ignoring_works_inside_collections_and_for_other_evaluators() -> None:
    assert ignoring(one_of, "case")("PARIS", ["Paris", "London"]).passed
    assert ignoring(exact_match, "case")({"A", "B"}, {"a", "b"}).passed
    assert ignoring(exact_match, "case")(("A", ["B"]), ("a", ["b"])).passed
    assert ignoring(exact_match, "case").name == "ignoring(exact_match, case)"
    assert ignoring(exact_match, "case")("A", "a").criterion == "ignoring(exact_match, case)"
    assert is_session_aware(ignoring(lambda output, expected, session: True, "case"))


@given(st.text("ab", max_size=8), st.text("abc", max_size=8))
def test_edit_distance_agrees_with_the_textbook_algorithm(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (x != y)))

    assert edit_distance(a, b) == row[-1]


@given(st.text(max_size=80), st.text(max_size=80))
def test_edit_distance_is_a_metric(a: str, b: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) <= max(len(a), len(b))
    assert (edit_distance(a, b) == 0) is (a == b)


# ── combinations ────────────────────────────────────────────────────────────────────────────────


def fixed(score: Score) -> Criterion:
    return criterion(lambda output, expected: score, name="fixed")


verdicts = st.lists(
    st.builds(Score, st.floats(0, 1), st.booleans(), st.sampled_from(["", "why", "so"])),
    min_size=1,
    max_size=5,
)


@given(verdicts)
def test_all_of_is_the_conjunction_and_the_mean(scores: list[Score]) -> None:
    score = all_of(*map(fixed, scores))("o", "e")

    assert score.passed is all(s.passed for s in scores)
    assert score.value == pytest.approx(sum(s.value for s in scores) / len(scores))
    decided = [s for s in scores if s.passed is score.passed]
    assert [part.partition(": ")[2] for part in score.reason.split("; ") if part] == [
        s.reason or f"failed with {s.value:g}" for s in decided if s.reason or not s.passed
    ]
    assert [(m.value, m.metadata["passed"]) for m in score.metrics] == [
        (s.value, s.passed) for s in scores
    ]


@given(verdicts)
def test_any_of_is_the_disjunction_and_the_maximum(scores: list[Score]) -> None:
    score = any_of(*map(fixed, scores))("o", "e")

    assert score.passed is any(s.passed for s in scores)
    assert score.value == max(s.value for s in scores)
    assert all(metric.weight == 0 for metric in score.metrics)
    assert len(score.parts) == len(scores)


@given(verdicts, st.randoms(use_true_random=False))
def test_the_order_of_criteria_does_not_change_the_verdict(
    scores: list[Score], random: Any
) -> None:
    shuffled = random.sample(scores, len(scores))
    for combine in (all_of, any_of):
        before, after = (combine(*map(fixed, s))("o", "e") for s in (scores, shuffled))

        assert (before.passed, before.value) == (after.passed, pytest.approx(after.value))


@given(verdicts)
def test_de_morgan(scores: list[Score]) -> None:
    criteria = [fixed(score) for score in scores]

    left = negate(all_of(*criteria))("o", "e")
    right = any_of(*map(negate, criteria))("o", "e")
    assert left.passed is right.passed
    assert negate(negate(criteria[0]))("o", "e").value == pytest.approx(scores[0].value)


@given(verdicts, st.data())
def test_weighted_is_a_mean_with_a_pass_mark(scores: list[Score], data: Any) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 9), min_size=len(scores), max_size=len(scores)))
    pairs = [(fixed(s), w) for s, w in zip(scores, weights, strict=True)]

    score = weighted(*pairs, pass_mark=0.7)("o", "e")

    mean = sum(s.value * w for s, w in zip(scores, weights, strict=True)) / sum(weights)
    assert score.value == pytest.approx(mean)
    assert score.passed is (score.value >= 0.7)


def test_nested_parts_are_kept_and_count_once() -> None:
    score = all_of(any_of(exact_match, contains), all_of(exact_match, contains))("ab", "a")

    assert score.value == pytest.approx((1.0 + 0.5) / 2)
    assert [(m.name, m.weight) for m in score.metrics] == [
        ("any_of", 1.0),
        ("all_of", 1.0),
        ("exact_match", 0.0),
        ("contains", 0.0),
        ("all_of/exact_match", 0.0),
        ("all_of/contains", 0.0),
    ]


def test_weighted_metrics_are_kept_inside_a_combination() -> None:
    def score_fn(output: str, expected: str) -> Score:
        return Score(metrics=[Metric("correct", 1.0, 1.0), Metric("turns", 3)])

    score = all_of(score_fn, exact_match)("a", "a")

    assert [part.criterion for part in score.parts] == ["score_fn", "exact_match", "correct"]
    assert {m.name: m.weight for m in score.metrics}["turns"] == 0.0


def test_equal_names_are_numbered() -> None:
    score = all_of(exact_match, exact_match, exact_match)("a", "a")

    assert [m.name for m in score.metrics] == ["exact_match", "exact_match_2", "exact_match_3"]


def test_a_combination_with_a_session_evaluator_is_session_aware() -> None:
    aware = criterion(lambda output, expected, session: True)

    assert is_session_aware(all_of(exact_match, aware))
    assert not is_session_aware(all_of(exact_match, contains))
    assert all_of(exact_match, aware)("a", "a", session_with()).passed


def test_adapt_accepts_a_session_and_ignores_it() -> None:
    adapted = adapt(exact_match)

    assert is_session_aware(adapted)
    assert adapted("a", "a", session_with()).passed
    assert adapted("a", "a").passed
