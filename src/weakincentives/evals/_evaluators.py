"""Evaluators of the output alone, and the ways to combine evaluators.

Every name here is a criterion or makes one. Values stay in 0..1. An output of the wrong kind (a
number where text was expected) is an `EvaluatorError` that says so, not a failed sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from .. import serde
from ..errors import EvaluatorError, MissingExtraError, SerializationError, UsageError, shown
from ._criterion import Criterion, combined, criterion
from ._fold import fold
from ._score import PASS_MARK, Score, finite
from ._text import Accident, edit_distance, without
from ._types import EvalContext

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


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        kind = type(value).__name__
        raise EvaluatorError(f"expected text as {what}, got `{kind}`: {shown(value)}")
    return value


# ── the output against what was expected ────────────────────────────────────────────────────────


@criterion
def exact_match(output: Any, expected: Any) -> Score:
    """The output equals what was expected."""
    return Score(float(output == expected))


@criterion
def contains(output: str, expected: str) -> Score:
    """The expected text stands somewhere in the output. Every text contains the empty one."""
    return Score(float(_text(expected, "`expected`") in _text(output, "output")))


@criterion
def one_of(output: Any, expected: Collection[Any]) -> Score:
    """The output equals one of several expected answers; of none, it equals none."""
    if isinstance(expected, (str, bytes)) or not isinstance(expected, Collection):
        raise EvaluatorError(f"expected a collection as `expected`, got {expected!r}")
    return Score(float(any(output == answer for answer in expected)))


def matches(pattern: str | re.Pattern[str], *, whole: bool = False) -> Criterion:
    """The output matches a regular expression, somewhere or as a whole.

    `{expected}` in the pattern stands for the sample's expected text, taken literally:
    `matches(r"answer:\\s*{expected}")`. A pattern is code: one that backtracks without end on
    some output will do so here as well.
    """
    source: Any = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
    if not isinstance(source, str):
        raise UsageError(f"expected a regular expression of text, got {shown(source)}")
    per_sample = "{expected}" in source

    def compiled(expected: str) -> re.Pattern[str]:
        return re.compile(source.replace("{expected}", f"(?:{re.escape(expected)})"), flags)

    try:
        fixed = compiled("x")
    except re.error as error:
        raise UsageError(f"expected a regular expression, got {source!r}: {error}") from None

    def evaluate(output: str, expected: Any) -> Score:
        regex = compiled(_text(expected, "`expected`")) if per_sample else fixed
        found = (regex.fullmatch if whole else regex.search)(_text(output, "output"))
        return Score(float(found is not None), reason="" if found else f"no match: {source}")

    return criterion(evaluate, name="matches")


def within_tolerance(tolerance: float) -> Criterion:
    """The output is a number at most `tolerance` from the expected one; the value falls linearly.

    The value is 1.0 when they are equal and 0.0 at the edge and beyond; the edge itself passes.
    """
    if finite(tolerance, "tolerance") < 0:
        raise UsageError(f"expected `tolerance` >= 0, got {tolerance}")

    def evaluate(output: float, expected: float) -> Score:
        distance = abs(_number(output, "output") - _number(expected, "expected"))
        # 1.1 - 1.0 is a little more than 0.1, and is not meant to be.
        passed = distance <= tolerance or math.isclose(distance, tolerance)
        value = max(0.0, 1.0 - distance / tolerance) if tolerance else float(passed)
        return Score(value, passed, f"diff={distance:.4f}")

    return criterion(evaluate)


_NUMBER = re.compile(
    r"(?:(?<![\d.])[-+−])?[$€£¥]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+)?(?:\s?%)?"
)


def numeric(*, tolerance: float = 0.0, relative: float = 0.0) -> Criterion:
    """The last number in the output equals the expected one: `"about 1,234.50 in all"` is 1234.5.

    Equal means within `tolerance`, or within the fraction `relative` of the expected number.
    `12%` is 0.12. An output with no number fails.
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
            return Score(0.0, reason="no number in the output")
        passed = math.isclose(got, wanted, abs_tol=tolerance, rel_tol=0.0) or (
            abs(got - wanted) <= relative * abs(wanted)
        )
        return Score(float(passed), reason="" if passed else f"got {got:g}, expected {wanted:g}")

    return criterion(evaluate)


def _read_number(value: Any) -> float | None:
    """A number as it is, or the last one in a text."""
    if not isinstance(value, str):
        return _number(value, "output or expected")
    found = _NUMBER.findall(value)
    if not found:
        return None
    text = found[-1].replace("−", "-").translate(_NOT_OF_THE_NUMBER)
    return float(text) / (100 if found[-1].endswith("%") else 1)


_NOT_OF_THE_NUMBER = dict.fromkeys(map(ord, ",$€£¥% "))


def _number(value: Any, what: str) -> float:
    try:
        return finite(value, what)
    except UsageError as error:
        raise EvaluatorError(str(error)) from None


def similar(threshold: float = 0.8) -> Criterion:
    """The output is close to the expected text: 1 minus the edit distance by the longer length.

    The value is the likeness itself; it passes from `threshold` on. Two empty texts are alike.
    """
    if not 0 <= finite(threshold, "threshold") <= 1:
        raise UsageError(f"expected `threshold` in 0..1, got {threshold}")

    def evaluate(output: str, expected: str) -> Score:
        a, b = _text(output, "output"), _text(expected, "`expected`")
        value = 1.0 - edit_distance(a, b) / (max(len(a), len(b)) or 1)
        return Score(value, value >= threshold, f"likeness {value:.2f}")

    return criterion(evaluate)


# ── structured output ───────────────────────────────────────────────────────────────────────────


def _structure(output: Any) -> Any:
    """The output as plain data: text is read as JSON, everything else is turned into it."""
    return serde.decode(output) if isinstance(output, (str, bytes)) else serde.plain(output)


@criterion
def json_subset(output: Any, expected: Any) -> Score:
    """Every key and value of `expected` is in the output, at any depth; lists must be equal.

    The output may be a mapping, a dataclass, or JSON text.
    """
    wanted = serde.plain(expected)
    if not isinstance(wanted, dict):
        raise EvaluatorError(f"expected a mapping as `expected`, got {expected!r}")
    try:
        got = _structure(output)
    except SerializationError as error:
        return Score(0.0, reason=f"the output is not JSON: {error}")
    wrong = _missing(got, wanted, "")
    return Score(float(not wrong), reason=f"missing or wrong: {wrong}" if wrong else "")


def _missing(got: Any, wanted: Any, path: str) -> str:
    """The first place at which `wanted` is not in `got`; empty where all of it is."""
    if not isinstance(wanted, dict):
        return "" if _same(got, wanted) else path
    if not isinstance(got, dict):
        return path or "the output is no object"
    for key, value in wanted.items():
        below = f"{path}.{key}" if path else str(key)
        if key not in got:
            return below
        if wrong := _missing(got[key], value, below):
            return wrong
    return ""


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON data, in which 1 is 1.0 but is not true."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)


def json_schema(schema: Mapping[str, Any] | type[Any]) -> Criterion:
    """The output fits a JSON schema, or a Python type: `json_schema(Invoice)`.

    The output may be plain data, a dataclass, or JSON text. A schema given as a mapping needs
    the extra `schema`.
    """
    if isinstance(schema, Mapping):
        problem = _schema_checker(dict(schema))
    elif schema is None or isinstance(schema, (str, bytes, list)):
        raise UsageError(f"expected a JSON schema or a type, got {shown(schema)}")
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
            wrong = f"the output is not JSON: {error}"
        return Score(float(not wrong), reason=wrong)

    return criterion(evaluate)


def _schema_checker(schema: dict[str, Any]) -> Callable[[Any], str]:
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingExtraError("jsonschema-rs", "schema", "json_schema with a mapping") from None
    try:
        validator = jsonschema_rs.validator_for(schema, retriever=_refuse_to_fetch)
    except ValueError as error:
        raise UsageError(f"expected a JSON schema: {str(error).splitlines()[0]}") from None

    def problem(value: Any) -> str:
        serde.refuse_non_finite(value)
        error = next(validator.iter_errors(value), None)
        if error is None:
            return ""
        steps = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in error.instance_path)
        return f"{error.message} - at `${''.join(steps)}`"

    return problem


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"a schema that refers to {uri}: we fetch nothing - put it under `$defs`")


# ── text, less its accidents ────────────────────────────────────────────────────────────────────


def ignoring(evaluator: Callable[..., Any], *accidents: Accident) -> Criterion:
    """The same evaluator on texts without `"case"`, `"whitespace"`, `"punctuation"`, …

    >>> ignoring(exact_match, "case", "punctuation")("Paris!", "paris").passed
    True

    It applies to the output and to what was expected, also inside lists. Whitespace is not
    removed but made even: runs become one blank, and the ends are trimmed.
    """
    if not accidents or not set(accidents) <= set(get_args(Accident)):
        raise UsageError(
            f"expected some of {', '.join(get_args(Accident))} to ignore, got {accidents!r}"
        )
    inner = criterion(evaluator)

    def even(value: Any) -> Any:
        if value.__class__ in (list, tuple, set, frozenset):
            return value.__class__(even(item) for item in value)
        return without(value, accidents) if isinstance(value, str) else value

    def judge(context: EvalContext) -> Any:
        sample = replace(context.sample, expected=even(context.sample.expected))
        trajectory = replace(context.trajectory, output=even(context.trajectory.output))
        return inner.judge(replace(context, sample=sample, trajectory=trajectory))

    name = f"ignoring({inner.name}, {', '.join(accidents)})"
    return criterion(replace(inner, judge=judge), name=name)


# ── evaluators out of evaluators ────────────────────────────────────────────────────────────────


def all_of(*evaluators: Callable[..., Any]) -> Criterion:
    """All must pass; the value is their mean, and each stays visible as a metric."""
    return combined(evaluators, "all_of", lambda scores: fold(scores, "all_of"))


def any_of(*evaluators: Callable[..., Any]) -> Criterion:
    """One must pass; the value is the greatest, and each stays visible as a metric."""
    return combined(
        evaluators, "any_of", lambda scores: fold(scores, "any_of", value=max, passed=any)
    )


def composite(*evaluators: Callable[..., Any]) -> Criterion:
    """Like `all_of`, but a call with `context=` answers with the score of each on its own."""
    return combined(
        evaluators, "composite", lambda scores: fold(scores, "composite"), in_parts=True
    )


def weighted(*weights: tuple[Callable[..., Any], float], pass_mark: float = PASS_MARK) -> Criterion:
    """The weighted mean, passing from `pass_mark` on: `weighted((exact_match, 3), (brief, 1))`.

    With weight 0 an evaluator is tracked without counting.
    """
    for pair in weights:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UsageError(f"expected pairs (evaluator, weight), got {shown(pair)}")
    numbers = [finite(weight, "weight") for _, weight in weights]
    if any(number < 0 for number in numbers) or not any(numbers):
        raise UsageError(f"expected weights >= 0 and one above 0, got {numbers}")
    finite(pass_mark, "pass_mark")

    def combine(scores: Sequence[Score]) -> Score:
        score = fold(scores, "weighted", weights=numbers)
        return replace(score, passed=score.value >= pass_mark)

    return combined([evaluator for evaluator, _ in weights], "weighted", combine)


def negate(evaluator: Callable[..., Any]) -> Criterion:
    """Passes where the evaluator fails; the value is 1 minus its value."""
    inner = criterion(evaluator)
    name = f"not_{inner.name}"

    def combine(scores: Sequence[Score]) -> Score:
        (score,) = scores
        return Score(1.0 - score.value, not score.passed, score.reason, criterion=name)

    return combined([inner], name, combine)


def adapt(evaluator: Callable[..., Any]) -> Criterion:
    """An evaluator of the output alone, in the form that also takes a session, and ignores it."""
    return replace(criterion(evaluator), session_aware=True)
