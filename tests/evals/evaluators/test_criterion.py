"""How evaluators are recognised by their signatures, and how verdicts become scores."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from tests.engine import TIMEOUT
from weakincentives.chat import ChatMessage
from weakincentives.errors import EvaluatorError, EvaluatorShapeError
from weakincentives.evals import (
    Criterion,
    EvalContext,
    Metric,
    Sample,
    Score,
    Trajectory,
    all_of,
    any_of,
    composite,
    criterion,
    exact_match,
    tool_called,
)
from weakincentives.evals.evaluators import is_session_aware
from weakincentives.runtime import SessionView
from weakincentives.testing import session_with

CONTEXT = EvalContext(
    sample=Sample("1", "in", "want"),
    trajectory=Trajectory(output="got"),
    session=session_with(),
    run_id="run",
)


def roles_of(values: list[Any]) -> list[str]:
    """Return the roles of the values that were passed."""
    roles = {
        id(CONTEXT.trajectory.output): "output",
        id(CONTEXT.sample.expected): "expected",
        id(CONTEXT.session): "session",
        id(CONTEXT.sample): "sample",
        id(CONTEXT.trajectory): "trajectory",
        id(CONTEXT): "context",
    }
    return [roles[id(value)] for value in values if value is not None]


def recording_evaluator(parameters: str) -> Any:
    """Return an evaluator with these parameters, and the list of the arguments of its calls."""
    names = inspect.signature(eval(f"lambda {parameters}: 0")).parameters.values()
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    roles = ", ".join(p.name for p in names if p.default in (p.empty, None) and p.kind not in stars)
    space: dict[str, Any] = {"calls": []}
    exec(f"def fn({parameters}):\n    calls.append([{roles}])\n    return True", space)
    return space["fn"], space["calls"]


@pytest.mark.parametrize(
    ("parameters", "roles", "aware"),
    [
        ("context", ["context"], True),
        ("c", ["context"], True),
        ("context, /", ["context"], True),
        ("context, limit=20", ["context"], True),
        ("c, *rest, strict=True, **more", ["context"], True),
        ("output, expected", ["output", "expected"], False),
        ("a, b", ["output", "expected"], False),
        ("a, b, /", ["output", "expected"], False),
        ("a, b, tolerance=0.1", ["output", "expected"], False),
        ("a, b, tolerance=0.1, *rest, **more", ["output", "expected"], False),
        ("a, b, *, strict=True", ["output", "expected"], False),
        ("output, expected, session", ["output", "expected", "session"], True),
        ("a, b, s", ["output", "expected", "session"], True),
        ("a, b, s, /", ["output", "expected", "session"], True),
        ("a, b, s, tolerance=0.1", ["output", "expected", "session"], True),
        ("a, b, *, session", ["output", "expected", "session"], True),
        ("a, b, session=None", ["output", "expected", "session"], True),
        ("a, b, tolerance=0.1, session=None", ["output", "expected", "session"], True),
        ("sample, output, *, context", ["sample", "output", "context"], True),
        ("s, o, *, context", ["sample", "output", "context"], True),
        ("sample, output, context", ["sample", "output", "context"], True),
        ("sample, output, *, context=None", ["sample", "output", "context"], True),
        ("output, expected, *, context=None", ["output", "expected"], False),
        ("trajectory, sample", ["trajectory", "sample"], False),
        ("trajectory, s", ["trajectory", "sample"], False),
        ("t, sample", ["trajectory", "sample"], False),
        ("trajectory, sample, weight=1.0", ["trajectory", "sample"], False),
    ],
)
def test_a_function_is_recognised_by_its_required_parameters(
    parameters: str, roles: list[str], aware: bool
) -> None:
    fn, calls = recording_evaluator(parameters)

    score = anyio.run(criterion(fn).ask, CONTEXT)

    assert score == Score(1.0, criterion=criterion(fn).name)
    assert roles_of(calls[0]) == roles
    assert is_session_aware(fn) is aware


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        "output",
        "sample",
        "a, /",
        "*, context",
        "context, *, strict",
        "*args",
        "**kwargs",
        "a, b, c, d",
        "expected, output",
        "session, output",
        "output, session",
        "sample, output",
        "sample, trajectory",
        "trajectory, sample, session",
        "trajectory, expected",
        "output, sample",
        "output, expected, context",
        "output, expected, *, context",
        "sample, output, context, /",
        "context, sample, output",
        "a, b, c, *, session",
        "a, b, c, *, context",
        "a, b, *, threshold",
        "a, *, session",
        "a, b, sample",
    ],
)
def test_another_signature_is_refused_with_the_accepted_ones(parameters: str) -> None:
    fn = eval(f"lambda {parameters}: True")

    with pytest.raises(EvaluatorShapeError) as caught:
        criterion(fn)

    for shape in (
        "(context)",
        "(output, expected)",
        "(output, expected, session)",
        "(sample, output, *, context)",
        "(trajectory, sample)",
    ):
        assert shape in str(caught.value)


@given(
    required=st.lists(st.from_regex(r"[a-z]{3}_", fullmatch=True), max_size=5, unique=True),
    optional=st.lists(st.from_regex(r"[a-z]{4}_", fullmatch=True), max_size=4, unique=True),
    keyword=st.lists(st.from_regex(r"[a-z]{5}_", fullmatch=True), max_size=2, unique=True),
)
def test_only_the_number_of_required_parameters_counts(
    required: list[str], optional: list[str], keyword: list[str]
) -> None:
    star = ["*"] if keyword else []
    parameters = [*required, *(f"{n}=0" for n in optional), *star, *(f"{n}=0" for n in keyword)]
    fn = eval(f"lambda {', '.join(parameters)}: True")

    if len(required) in (1, 2, 3):
        assert is_session_aware(fn) is (len(required) != 2)
    else:
        with pytest.raises(EvaluatorShapeError):
            criterion(fn)


def typed(t: Trajectory[Any], s: Sample[Any, Any]) -> Score:
    return Score(1.0 if (t.output, s.expected) == ("got", "want") else 0.0)


def typed_without_arguments(traj: Trajectory, case: Sample) -> bool:
    return bool(traj.output == "got" and case.expected == "want")


def typed_session_view(got: str, want: str, view: SessionView) -> bool:
    return view is CONTEXT.session


def typed_with_unknown_name(t: Trajectory[Nothing], s: Sample[Nothing, str]) -> bool:  # type: ignore[name-defined]  # noqa: F821
    return bool(t.output == "got" and s.id == "1")


def typed_context(c: EvalContext) -> bool:
    return c is CONTEXT


@pytest.mark.parametrize(
    "fn",
    [typed, typed_without_arguments, typed_session_view, typed_with_unknown_name, typed_context],
)
def test_a_parameter_is_recognised_by_its_annotation(fn: Any) -> None:
    assert anyio.run(criterion(fn).ask, CONTEXT).passed


def test_annotations_in_the_wrong_position_are_refused() -> None:
    def swapped(s: Sample[Any, Any], t: Trajectory[Any]) -> bool:
        return True

    def half(output: str, view: SessionView) -> bool:
        return True

    def text(answer: str) -> bool:
        return True

    for fn in (swapped, half, text):
        with pytest.raises(EvaluatorShapeError):
            criterion(fn)


@pytest.mark.parametrize(
    ("parameters", "advice"),
    [
        ("expected, output", r"swap its parameters: (output, expected)"),
        ("sample, trajectory", r"swap its parameters: (trajectory, sample)"),
        ("session, output, expected", r"swap its parameters: (output, expected, session)"),
        ("output", "take the context, and use `context.output`"),
        ("session", "take the context, and use `context.session`"),
        ("a, b, c, d", "give every other parameter a default"),
    ],
)
def test_a_refusal_says_what_to_change(parameters: str, advice: str) -> None:
    with pytest.raises(EvaluatorShapeError, match=re.escape(advice)):
        criterion(eval(f"lambda {parameters}: True"))


class Brief:
    def __call__(self, context: EvalContext) -> float:
        return float(len(context.output) < 20)


async def brief_async(context: EvalContext) -> Score:
    return Score(len(context.output) < 20)


def shorter_than(limit: int, context: EvalContext) -> bool:
    return len(context.output) < limit


@pytest.mark.parametrize(
    "fn",
    [Brief(), Brief().__call__, brief_async, functools.partial(shorter_than, 20)],
)
def test_an_evaluator_of_the_context_is_any_callable(fn: Any) -> None:
    both = all_of(fn, exact_match)

    assert [part.passed for part in anyio.run(both.score, CONTEXT).parts] == [True, False]
    assert criterion(fn)("short", None) == criterion(fn)(CONTEXT)
    assert criterion(fn)(context=CONTEXT).passed


def test_an_optional_context_is_passed_and_splits_the_scores() -> None:
    def two(sample, output, *, context=None):  # type: ignore[no-untyped-def]
        return Score(context is CONTEXT, criterion="a"), Score(0.0, criterion="b")

    assert criterion(two).multi_score
    assert [score.passed for score in criterion(two)(CONTEXT).parts] == [True, False]


def test_an_evaluator_of_the_context_gets_a_session_derived_from_the_trajectory() -> None:
    trajectory = Trajectory(messages=(ChatMessage("user", "hi"),), output="x")
    has_session = criterion(lambda context: context.session is not None)

    assert has_session(EvalContext(trajectory=trajectory)).passed
    assert not has_session(EvalContext()).passed


def test_a_function_that_makes_evaluators_must_be_called() -> None:
    def near(tolerance):  # type: ignore[no-untyped-def]
        return lambda output, expected: abs(output - expected) < tolerance

    with pytest.raises(EvaluatorError, match=r"call it: near\(\.\.\.\)"):
        criterion(near)(1, 1)


def test_a_users_class_called_sample_is_an_ordinary_output() -> None:
    Sample = type("Sample", (), {})

    def evaluator(a: Any, b: Any) -> bool:
        return bool((a, b) == ("got", "want"))

    evaluator.__annotations__ = {"a": Sample, "b": Sample}

    assert anyio.run(criterion(evaluator).ask, CONTEXT).passed


def test_anything_but_a_function_is_refused() -> None:
    for value in (Score, 3, None, "exact_match"):
        with pytest.raises(EvaluatorShapeError, match="expected a function as evaluator"):
            criterion(value)  # type: ignore[arg-type]
    with pytest.raises(EvaluatorShapeError, match="no signature that Python can read"):
        criterion(min)


def test_methods_partials_callables_and_builtins_can_be_evaluators() -> None:
    class Checks:
        def equal(self, output: Any, expected: Any) -> bool:
            return bool(output == expected)

        def __call__(self, output: Any, expected: Any) -> bool:
            return True

    def near(output: float, expected: float, tolerance: float) -> bool:
        return abs(output - expected) <= tolerance

    passed_by_name = {
        criterion(fn).name: criterion(fn)(2, 2).passed
        for fn in (Checks().equal, Checks(), functools.partial(near, tolerance=1), operator.eq)
    }
    assert passed_by_name == {"equal": True, "Checks": True, "near": True, "eq": True}


def test_a_criterion_is_named_after_its_function_or_its_factory() -> None:
    def shorter_than(length: int) -> Any:
        def evaluate(output: str, expected: str) -> bool:
            return len(output) < length

        return evaluate

    assert criterion(shorter_than(3)).name == "shorter_than"
    assert criterion(lambda a, b: True).name == "lambda"
    assert criterion(shorter_than(3), name="brief").name == "brief"
    assert criterion(exact_match, name="same").name == "same"
    assert criterion(exact_match, name="same")("a", "a").criterion == "same"
    assert criterion(exact_match) is exact_match
    assert exact_match.__doc__ == "Pass if the output equals the expected one."


@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        (True, Score(1.0, True, criterion="c")),
        (False, Score(0.0, False, "returned False", criterion="c")),
        (0.25, Score(0.25, False, "returned 0.25", criterion="c")),
        (1, Score(1.0, True, criterion="c")),
        (-3, Score(-3.0, False, "returned -3", criterion="c")),
        (Score(0.5), Score(0.5, criterion="c")),
        (Score(0.5, criterion="own"), Score(0.5, criterion="own")),
    ],
)
def test_a_verdict_becomes_a_score(verdict: Any, score: Score) -> None:
    assert criterion(lambda o, e: verdict, name="c")(None, None) == score


def test_a_tuple_of_scores_is_combined_into_one() -> None:
    def judge(sample: Sample, output: str, *, context: EvalContext) -> tuple[Score, ...]:
        return Score(1.0, criterion="right"), Score(0.0, criterion="brief", reason="long")

    score = criterion(judge)("y", None)

    assert (score.value, score.passed, score.reason) == (0.5, False, "brief: long")
    assert [(m.name, m.value, m.weight) for m in score.metrics] == [
        ("right", 1.0, 1.0),
        ("brief", 0.0, 1.0),
    ]


def test_an_evaluator_with_a_context_can_return_several_scores() -> None:
    def judge(sample: Sample, output: str, *, context: EvalContext) -> tuple[Score, ...]:
        return Score(1.0, criterion="right"), Score(0.0, criterion="brief")

    sample, context = Sample("1", "x", "y"), EvalContext()

    own_scores = criterion(judge)(sample, "y", context=context)
    combined = composite(exact_match, judge)(sample, "y", context=context)
    assert [score.criterion for score in own_scores] == ["right", "brief"]
    assert [score.criterion for score in combined] == ["exact_match", "right", "brief"]


@pytest.mark.parametrize(
    "verdict", [None, "yes", (), [1.0], [Score(1.0), True], {"score": 1}, float("nan"), object()]
)
def test_an_invalid_verdict_is_an_evaluator_error(verdict: Any) -> None:
    with pytest.raises(EvaluatorError, match="evaluator `odd`") as caught:
        criterion(lambda o, e: verdict, name="odd")(None, None)
    assert "raised" not in str(caught.value)


def test_an_evaluator_that_raises_is_named_in_the_error() -> None:
    def crash(output: str, expected: str) -> Score:
        raise KeyError("answer")

    async def crash_async(output: str, expected: str) -> Score:
        raise KeyError("answer")

    for fn in (crash, crash_async):
        with pytest.raises(EvaluatorError, match=rf"evaluator `{fn.__name__}` raised KeyError"):
            all_of(exact_match, fn)("a", "a")


def test_a_missing_session_is_an_error_of_an_evaluator_that_needs_it() -> None:
    needs_session = criterion(lambda output, expected, session: True, name="needs")
    optional = criterion(lambda output, expected, session=None: session is None, name="optional")

    with pytest.raises(EvaluatorError, match="evaluator `needs` needs a session"):
        needs_session("a", "b")
    assert optional("a", "b").passed


# ── async ───────────────────────────────────────────────────────────────────────────────────────


async def equal_async(output: str, expected: str) -> bool:
    await anyio.lowlevel.checkpoint()
    return output == expected


@pytest.mark.anyio
async def test_async_evaluators_are_awaited() -> None:
    assert (await criterion(equal_async).ask(CONTEXT)).passed is False
    assert (await criterion(lambda o, e: equal_async(o, o)).ask(CONTEXT)).passed is True


@pytest.mark.anyio
async def test_async_evaluators_run_concurrently() -> None:
    started = [anyio.Event(), anyio.Event()]

    def waits_for_other(index: int) -> Any:
        async def evaluate(output: str, expected: str) -> bool:
            started[index].set()
            await started[1 - index].wait()
            return True

        return evaluate

    with anyio.fail_after(TIMEOUT):
        assert (
            await all_of(waits_for_other(0), exact_match, waits_for_other(1)).ask(CONTEXT)
        ).value == 2 / 3


@pytest.mark.anyio
async def test_cancellation_propagates_through_a_combination() -> None:
    async def forever(output: str, expected: str) -> bool:
        await anyio.sleep_forever()
        return True

    with anyio.move_on_after(0.01) as scope:
        await all_of(forever, equal_async).ask(CONTEXT)

    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_sync_functions_that_return_awaitables_can_be_combined() -> None:
    combined = all_of(exact_match, lambda o, e: equal_async(o, e), exact_match)

    assert [part.passed for part in (await combined.ask(CONTEXT)).parts] == [False] * 3
    assert all_of(equal_async, exact_match)("a", "a").passed  # works inside a running event loop


def test_an_async_evaluator_can_be_called_synchronously() -> None:
    assert criterion(equal_async)("a", "a").passed
    assert criterion(lambda o, e: equal_async(o, e))("a", "a").passed
    assert any_of(equal_async, exact_match)("a", "b").passed is False


# ── direct calls ────────────────────────────────────────────────────────────────────────────────


def test_a_criterion_can_be_called_with_any_accepted_signature() -> None:
    sample = Sample("1", "x", "hello")

    assert exact_match("hello", "hello").passed
    assert exact_match(output="hello", expected="world").passed is False
    assert exact_match(sample, "hello", context=EvalContext(run_id="t"))[0].passed
    assert exact_match(sample=sample, output="hello", context=EvalContext())[0].passed
    assert exact_match(Trajectory(output="hello"), sample).passed
    assert exact_match(trajectory=Trajectory(output="hello"), sample=sample).passed


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c("a"),
        lambda c: c("a", "b", None, "d"),
        lambda c: c("a", expectd="b"),
        lambda c: c(Sample("1", "x"), context=EvalContext()),
    ],
)
def test_a_call_with_other_arguments_is_refused_with_the_accepted_ones(call: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a call as \("):
        call(exact_match)


def test_likely_mistakes_get_a_hint() -> None:
    with pytest.raises(EvaluatorShapeError, match=r"unpack it: all_of\(\*evaluators\)"):
        all_of([exact_match])  # type: ignore[arg-type]
    with pytest.raises(EvaluatorShapeError, match=r"so call it: tool_called\(\.\.\.\)"):
        all_of(tool_called)
    assert repr(exact_match) == "<criterion exact_match>"


def test_a_renamed_criterion_keeps_its_parts_and_stays_async() -> None:
    pair = criterion(composite(exact_match, lambda o, e: 0.25), name="pair")
    renamed = criterion(criterion(equal_async), name="waits")

    scores = pair(Sample("1", "x", "a"), "a", context=EvalContext())
    assert [score.criterion for score in scores] == ["exact_match", "lambda"]
    assert renamed("a", "a").criterion == "waits"


def test_composite_returns_each_criterion_separately() -> None:
    sample, context = Sample("1", "x", "hello"), EvalContext()
    both = (exact_match, criterion(lambda o, e: 0.25, name="quarter"))

    assert [s.criterion for s in composite(*both)(sample, "hello", context=context)] == [
        "exact_match",
        "quarter",
    ]
    assert [s.criterion for s in all_of(*both)(sample, "hello", context=context)] == ["all_of"]
    assert composite(*both)("hello", "hello") == Score(
        0.625,
        False,
        metrics=[
            Metric("exact_match", 1.0, 1.0, {"passed": True}),
            Metric("quarter", 0.25, 1.0, {"passed": False, "reason": "returned 0.25"}),
        ],
        reason="quarter: returned 0.25",
        criterion="composite",
    )


@pytest.mark.parametrize("fn", [lambda t, s: t.messages[-1], lambda t, s: s.ground_truth])
def test_a_score_function_that_is_not_recognised_gets_a_hint(fn: Any) -> None:
    async def later(t: Any, s: Any) -> Any:
        return fn(t, s)

    for evaluator in (fn, later):
        with pytest.raises(EvaluatorError, match="name its parameters `trajectory` and `sample`"):
            criterion(evaluator)("4", "4")


def test_other_attribute_errors_get_no_hint() -> None:
    for evaluator in (
        lambda output, expected: output.upperr(),
        lambda trajectory, sample: trajectory.output.messages,
    ):
        with pytest.raises(EvaluatorError, match=r"has no attribute '(upperr|messages)'$"):
            criterion(evaluator)(Trajectory(output="4"), Sample("1", "2+2?"))


def test_a_runtime_error_in_a_custom_criterion_is_raised_unchanged() -> None:
    async def broken(context: EvalContext) -> Score:
        raise RuntimeError("out of paper")

    with pytest.raises(RuntimeError, match="out of paper"):
        Criterion("broken", broken, is_async=True)("a", "b")


def test_a_custom_criterion_can_be_combined() -> None:
    always = Criterion("always", lambda context: Score(1.0, criterion="always"))

    assert all_of(always, exact_match)("a", "a").passed
