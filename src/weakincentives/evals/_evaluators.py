"""Evaluators of the output alone, and the ways to combine evaluators.

Every name here is a criterion or a function that returns one. Values are in 0..1. An output of the
wrong type (a number where text was expected) is an `EvaluatorError`, not a failed sample. The
reason of a failure says what was found and what was expected, in a few words however long they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, get_args

from .. import serde
from ..errors import EvaluatorError, SerializationError, UsageError, short_repr
from ..internal.checks import finite
from ..internal.public_module import set_public_module
from ..internal.text_differences import excerpt, got_and_expected, show_value
from ._types import PASS_MARK, EvalContext, Score
from .evaluators.combine import combine_scores
from .evaluators.criteria import Criterion, EvaluatorFunction, built_in, combined, criterion
from .evaluators.schemas import schema_checker
from .evaluators.text import Normalization, edit_distance, normalize
from .model.explain import never_equal

__all__ = [
    "adapt",
    "all_of",
    "any_of",
    "composite",
    "contains",
    "exact_match",
    "ignoring",
    "json_schema",
    "json_subset",
    "matches",
    "negate",
    "numeric",
    "one_of",
    "similar",
    "weighted",
    "within_tolerance",
]


_MAX_LISTED = 5  # expected answers in a reason


def _checked_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        kind = type(value).__name__
        raise EvaluatorError(f"expected text as {what}, got `{kind}`: {short_repr(value)}")
    return value


# ── output and expected output ──────────────────────────────────────────────────────────────────


@built_in("exact_match", 1)
def exact_match(output: Any, expected: Any) -> Score:
    """Pass if the output equals the expected one."""
    value = float(output == expected)
    return Score(value, reason="" if value >= PASS_MARK else _unequal(output, expected))


def _unequal(output: Any, expected: Any) -> str:
    reason, mismatch = got_and_expected(output, expected), never_equal(output, expected)
    return f"{reason}: {mismatch}" if mismatch else reason


@built_in("contains", 1)
def contains(output: str, expected: str) -> Score:
    """Pass if the output contains the expected text. Every text contains the empty one."""
    if _checked_text(expected, "`expected`") in _checked_text(output, "output"):
        return Score(1.0)
    return Score(0.0, reason=f"got {excerpt(output)}, expected it to contain {excerpt(expected)}")


@built_in("one_of", 1)
def one_of(output: Any, expected: Collection[Any]) -> Score:
    """Pass if the output equals one of several expected answers."""
    if isinstance(expected, (str, bytes)) or not isinstance(expected, Collection):
        raise EvaluatorError(f"expected a collection as `expected`, got {expected!r}")
    if any(output == answer for answer in expected):
        return Score(1.0)
    answers = ", ".join(map(show_value, islice(expected, _MAX_LISTED)))
    more = len(expected) - _MAX_LISTED
    listed = f"{answers} or {more:,} more" if more > 0 else answers or "nothing"
    mismatches = {never_equal(output, answer) for answer in expected}
    mismatch = f": {mismatches.pop()}" if len(mismatches) == 1 and "" not in mismatches else ""
    return Score(0.0, reason=f"got {show_value(output)}, expected one of {listed}{mismatch}")


def matches(pattern: str | re.Pattern[str], *, whole: bool = False) -> Criterion:
    """Pass if the output matches a regular expression, somewhere or as a whole.

    `{expected}` in the pattern stands for the sample's expected text, taken literally:
    `matches(r"answer:\\s*{expected}")`. A pattern is code: one that backtracks without end on
    some output does so here too.
    """
    source: Any = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
    if not isinstance(source, str):
        raise UsageError(f"expected a regular expression of text, got {short_repr(source)}")
    per_sample = "{expected}" in source

    def compiled(expected: str) -> re.Pattern[str]:
        return re.compile(source.replace("{expected}", f"(?:{re.escape(expected)})"), flags)

    try:
        fixed = compiled("x")
    except re.error as error:
        raise UsageError(f"expected a regular expression, got {source!r}: {error}") from None

    def evaluate(output: str, expected: Any) -> Score:
        regex = compiled(_checked_text(expected, "`expected`")) if per_sample else fixed
        if (regex.fullmatch if whole else regex.search)(_checked_text(output, "output")):
            return Score(1.0)
        of = f", where the expected text is {excerpt(expected)}" if per_sample else ""
        how = "no match as a whole" if whole else "no match"
        return Score(0.0, reason=f"got {excerpt(output)}, {how}: {source}{of}")

    return built_in("matches", 1, source, flags, whole)(evaluate)


def within_tolerance(tolerance: float) -> Criterion:
    """Pass if the output is a number at most `tolerance` from the expected one.

    The value falls linearly, from 1.0 if they are equal to 0.0 at the tolerance, which passes.
    """
    if finite(tolerance, "tolerance") < 0:
        raise UsageError(f"expected `tolerance` >= 0, got {tolerance}")

    def evaluate(output: float, expected: float) -> Score:
        distance = abs(_number(output, "output") - _number(expected, "expected"))
        # In floating point, 1.1 - 1.0 is a little more than 0.1.
        passed = distance <= tolerance or math.isclose(distance, tolerance)
        value = max(0.0, 1.0 - distance / tolerance) if tolerance else float(passed)
        return Score(value, passed, f"diff={distance:.4f}")

    return built_in("within_tolerance", 1, tolerance)(evaluate)


_NUMBER = re.compile(
    r"(?:(?<![\d.])[-+−])?[$€£¥]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+)?(?:\s?%)?"
)


def numeric(*, tolerance: float = 0.0, relative: float = 0.0) -> Criterion:
    """Pass if the last number in the output equals the expected one.

    Equal means within `tolerance`, or within the fraction `relative` of the expected number.
    `"about 1,234.50 in all"` is 1234.5, `12%` is 0.12. An output without a number fails.
    """
    for name, bound in (("tolerance", tolerance), ("relative", relative)):
        if finite(bound, name) < 0:
            raise UsageError(f"expected `{name}` >= 0, got {bound}")

    def evaluate(output: Any, expected: Any) -> Score:
        wanted = _read_number(expected)
        if wanted is None or math.isinf(wanted):
            raise EvaluatorError(f"expected a number as `expected`, got {expected!r}")
        got = _read_number(output)
        if got is None:
            return Score(
                0.0, reason=f"no number in the output: got {excerpt(output)}, expected {wanted:g}"
            )
        passed = math.isclose(got, wanted, abs_tol=tolerance, rel_tol=0.0) or (
            abs(got - wanted) <= relative * abs(wanted)
        )
        if passed:
            return Score(1.0)
        text = f" in {excerpt(output, len(output))}" if isinstance(output, str) else ""
        return Score(0.0, reason=f"got {got:.12g}, expected {wanted:.12g}{text}")

    return built_in("numeric", 1, tolerance, relative)(evaluate)


def _read_number(value: Any) -> float | None:
    """Return a number as it is, or the last one in a text."""
    if not isinstance(value, str):
        return _number(value, "output or expected")
    numbers = _NUMBER.findall(value)
    if not numbers:
        return None
    text = numbers[-1].replace("−", "-").translate(_NOT_DIGITS)
    return float(text) / (100 if numbers[-1].endswith("%") else 1)


_NOT_DIGITS = dict.fromkeys(map(ord, ",$€£¥% "))


def _number(value: Any, what: str) -> float:
    try:
        return finite(value, what)
    except UsageError as error:
        raise EvaluatorError(str(error)) from None


def similar(threshold: float = 0.8) -> Criterion:
    """Pass if the output is similar to the expected text, from `threshold` on.

    The value is 1 minus the edit distance divided by the greater length; of two empty texts, 1.
    Texts of more than 100,000 characters between the first and the last difference are an
    `EvaluatorError`.
    """
    if not 0 <= finite(threshold, "threshold") <= 1:
        raise UsageError(f"expected `threshold` in 0..1, got {threshold}")

    def evaluate(output: str, expected: str) -> Score:
        a, b = _checked_text(output, "output"), _checked_text(expected, "`expected`")
        value = 1.0 - edit_distance(a, b) / (max(len(a), len(b)) or 1)
        reason = f"similarity {value:.2f}"
        if value < threshold:
            reason += f", expected {threshold:g} or more: {got_and_expected(a, b)}"
        return Score(value, value >= threshold, reason)

    # In a thread: of long texts, it takes seconds.
    return built_in("similar", 1, threshold, blocking=True)(evaluate)


# ── structured output ───────────────────────────────────────────────────────────────────────────


def _structure(output: Any) -> Any:
    """Return the output as plain data: text is parsed as JSON, everything else is converted."""
    return serde.decode(output) if isinstance(output, (str, bytes)) else serde.plain(output)


@built_in("json_subset", 1)
def json_subset(output: Any, expected: Any) -> Score:
    """Pass if every key and value of `expected` is in the output, at any depth.

    Lists must be equal. The output may be a mapping, a dataclass, or JSON text.
    """
    wanted = serde.plain(expected)
    if not isinstance(wanted, dict):
        raise EvaluatorError(f"expected a mapping as `expected`, got {expected!r}")
    try:
        got = _structure(output)
    except SerializationError as error:
        return Score(0.0, reason=_not_json(output, error))
    wrong = _missing(got, wanted, "")
    return Score(float(not wrong), reason=f"missing or wrong: {wrong}" if wrong else "")


def _not_json(output: Any, error: Exception) -> str:
    return f"the output is not JSON: {error} - got {show_value(output)}"


def _missing(got: Any, wanted: Any, path: str) -> str:
    """Return the first path at which `wanted` is not in `got`; empty if there is none."""
    if not isinstance(wanted, dict):
        return "" if _same(got, wanted) else path
    if not isinstance(got, dict):
        return path or f"the output is not an object: {got_and_expected(got, wanted)}"
    for key, value in wanted.items():
        below = f"{path}.{key}" if path else str(key)
        if wrong := _missing(got[key], value, below) if key in got else below:
            return wrong
    return ""


def _same(a: Any, b: Any) -> bool:
    """Return whether JSON data are equal: 1 equals 1.0, but not true."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)


def json_schema(schema: Mapping[str, Any] | type[Any]) -> Criterion:
    """Pass if the output fits a JSON schema, or a Python type: `json_schema(Invoice)`.

    The output may be plain data, a dataclass, or JSON text. A schema given as a mapping needs
    the extra `schema`.
    """
    if isinstance(schema, Mapping):
        problem = schema_checker(dict(schema))
    elif schema is None or isinstance(schema, (str, bytes, list)):
        raise UsageError(f"expected a JSON schema or a type, got {short_repr(schema)}")
    else:
        serde.decoder(schema)  # an unusable type is refused here, not on the first sample

        def problem(value: Any) -> str:
            try:
                serde.convert(value, schema)
            except SerializationError as error:
                return str(error)
            return ""

    def evaluate(output: Any, expected: Any) -> Score:
        try:
            wrong = problem(_structure(output))
        except SerializationError as error:
            return Score(0.0, reason=_not_json(output, error))
        return Score(float(not wrong), reason=f"{wrong}: {show_value(output)}" if wrong else "")

    return built_in("json_schema", 1, schema)(evaluate)


# ── normalized text ─────────────────────────────────────────────────────────────────────────────


def ignoring(evaluator: EvaluatorFunction, *aspects: Normalization) -> Criterion:
    """Apply an evaluator to texts without `"case"`, `"whitespace"`, `"punctuation"`, …

    >>> ignoring(exact_match, "case", "punctuation")("Paris!", "paris").passed
    True

    Output and expected output are normalized, also inside lists. Whitespace is not removed: runs
    become one blank, and the ends are trimmed.
    """
    if not aspects or not set(aspects) <= set(get_args(Normalization)):
        raise UsageError(
            f"expected some of {', '.join(get_args(Normalization))} to ignore, got {aspects!r}"
        )
    inner = criterion(evaluator)

    def normalized(value: Any) -> Any:
        if value.__class__ in (list, tuple, set, frozenset):
            return value.__class__(normalized(item) for item in value)
        return normalize(value, aspects) if isinstance(value, str) else value

    def evaluate(context: EvalContext) -> Any:
        sample = replace(context.sample, expected=normalized(context.sample.expected))
        trajectory = replace(context.trajectory, output=normalized(context.trajectory.output))
        return inner.evaluate(replace(context, sample=sample, trajectory=trajectory))

    name = f"ignoring({inner.name}, {', '.join(aspects)})"
    identity = ("ignoring", 1, sorted(set(aspects)), inner)
    return criterion(replace(inner, evaluate=evaluate, identity=identity), name=name)


# ── combinations ────────────────────────────────────────────────────────────────────────────────


def all_of(*evaluators: EvaluatorFunction) -> Criterion:
    """Pass if all evaluators pass; the value is their mean, and each is a metric."""
    return combined(
        evaluators, "all_of", lambda scores: combine_scores(scores, "all_of"), version=1
    )


def any_of(*evaluators: EvaluatorFunction) -> Criterion:
    """Pass if one evaluator passes; the value is the greatest, and each is a metric."""
    return combined(
        evaluators,
        "any_of",
        lambda scores: combine_scores(scores, "any_of", value=max, passed=any),
        version=1,
    )


def composite(*evaluators: EvaluatorFunction) -> Criterion:
    """Combine like `all_of`; but a call with `context=` returns the score of each."""
    return combined(
        evaluators,
        "composite",
        lambda scores: combine_scores(scores, "composite"),
        version=1,
        multi_score=True,
    )


def weighted(*weights: tuple[EvaluatorFunction, float], pass_mark: float = PASS_MARK) -> Criterion:
    """Pass if the weighted mean reaches `pass_mark`: `weighted((exact_match, 3), (brief, 1))`.

    With weight 0 an evaluator is tracked without counting.
    """
    for pair in weights:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UsageError(f"expected pairs (evaluator, weight), got {short_repr(pair)}")
    numbers = [finite(weight, "weight") for _, weight in weights]
    if any(number < 0 for number in numbers) or not any(numbers):
        raise UsageError(f"expected weights >= 0 and one above 0, got {numbers}")
    finite(pass_mark, "pass_mark")

    def combine(scores: Sequence[Score]) -> Score:
        return combine_scores(scores, "weighted", weights=numbers, pass_mark=pass_mark)

    return combined(
        [evaluator for evaluator, _ in weights],
        "weighted",
        combine,
        version=1,
        parameters=(numbers, pass_mark),
    )


def negate(evaluator: EvaluatorFunction) -> Criterion:
    """Pass if the evaluator fails; the value is 1 minus its value."""
    inner = criterion(evaluator)
    name = f"not_{inner.name}"

    def combine(scores: Sequence[Score]) -> Score:
        (score,) = scores
        reason = score.reason
        if score.passed:
            reason = f"{inner.name} passed: {reason}" if reason else f"{inner.name} passed"
        return Score(1.0 - score.value, not score.passed, reason, criterion=name)

    return combined([inner], name, combine, version=1)


def adapt(evaluator: EvaluatorFunction) -> Criterion:
    """Return an evaluator of the output alone as one that takes a session, and ignores it."""
    inner = criterion(evaluator)
    return replace(inner, session_aware=True, identity=("adapt", 1, inner))


set_public_module("weakincentives.evals", globals(), __all__)
