"""Evaluators, readers and comparers on data made of few distinct items: none takes long.

Grids, boards, runs of one character and deep brackets are ordinary outputs of a model. Each of the
public functions gets them with 100,000 characters, and has a few seconds of processor time: twenty
times what it needs. What is cubic, or backtracks, needs minutes.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from weakincentives import evals
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.errors import EvaluatorError, WinkError
from weakincentives.evals import (
    EvalContext,
    Sample,
    Trajectory,
    benchmarks,
    evaluators,
    judges,
    loaders,
)
from weakincentives.evals.audit.near_duplicates import near_duplicate_groups
from weakincentives.evals.comparison import Step, align
from weakincentives.evals.evaluators import math, tool_calls
from weakincentives.internal.text_differences import got_and_expected, word_diff
from weakincentives.prompt.output import parse_output
from weakincentives.rollouts import TrajectorySession

SIZE = 100_000
SECONDS = 5.0  # of processor time


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError if the block takes more time of the processor."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _repeated(pattern: str) -> str:
    return (pattern * (SIZE // len(pattern) + 1))[:SIZE]


PATTERNS = {
    "one letter": "x",
    "one digit": "1",
    "spaces": " ",
    "lines": "\n",
    "two words": "x ",
    "a grid": "0 1 1 0\n",
    "a board": "#.@.$\n",
    "open brackets": "[",
    "open braces": "{",
    "JSON": '{"a":',
    "nested lists": "[1,",
    "parentheses": "(",
    "commas": ",",
    "numbers": "1,000.5 ",
    "signs": "-+",
    "dollars": "$",
    "backslashes": "\\",
    "boxes": "\\boxed{",
    "boxes with spaces": "\\boxed ",
    "fractions": "\\frac",
    "answers": "Answer: ",
    "the word for answer": "answer is ",
    "code fences": "```python\n",
    "articles": "a an the ",
    "accents": "e\u0301",
    "quotes": "\"'",
}
TEXTS = {
    **{name: _repeated(pattern) for name, pattern in PATTERNS.items()},
    "deep lists": "[" * (SIZE // 2) + "]" * (SIZE // 2),
    # What may follow with spaces in between, and does not.
    **{f"{mark} and spaces": mark + " " * SIZE for mark in ("```", "Answer", "\\boxed", "[1", "-")},
    **{f"{mark} and a word": mark + "x" * SIZE for mark in ("$", "{", '"', "\\")},
}
TOOLS = ("bash", "view", "edit")
SCHEMA = {"type": "array", "items": {"type": "array"}, "uniqueItems": True}


def _judged(make: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[str], Any]:
    """Return a judge whose model answers with the text."""
    return lambda text: make(ScriptedAdapter([text]), *arguments, **options)


# All public criteria, with those that the public functions return: with `expected`, unless that is
# a text like the output. A function takes the text and returns the criterion.
EVALUATORS: dict[str, tuple[Any, ...]] = {
    "adapt": (evals.adapt(evals.exact_match),),
    "all_of": (evals.all_of(evals.exact_match, evals.contains),),
    "all_tools_succeeded": (evals.all_tools_succeeded(),),
    "answer_relevance": (_judged(judges.answer_relevance),),
    "any_of": (evals.any_of(evals.exact_match, evals.contains),),
    "browsecomp": (_judged(benchmarks.browsecomp),),
    "composite": (evals.composite(evals.exact_match, evals.contains),),
    "contains": (evals.contains,),
    "context_relevance": (_judged(judges.context_relevance),),
    "correctness": (_judged(judges.correctness),),
    "cost_under": (evals.cost_under(1),),
    "criterion": (evals.criterion(lambda output, expected: output == expected),),
    "drop_f1": (benchmarks.drop_f1,),
    "environment_score": (evaluators.environment_score,),
    "exact_match": (evals.exact_match,),
    "final_number": (benchmarks.final_number, "1"),
    "finish_reason_agreement": (tool_calls.finish_reason_agreement, "stop"),
    "goal_reached": (_judged(judges.goal_reached),),
    "gpqa": (benchmarks.gpqa, "A"),
    "groundedness": (_judged(judges.groundedness),),
    "healthbench": (_judged(benchmarks.healthbench),),
    "ignoring": (
        evals.ignoring(
            evals.exact_match, "case", "whitespace", "punctuation", "accents", "articles"
        ),
    ),
    "instruction_following": (_judged(judges.instruction_following),),
    "json_schema": (evals.json_schema(SCHEMA),),
    "json_subset": (evals.json_subset, {"a": {"a": 1}}),
    "judge_panel": (lambda text: judges.judge_panel(_judged(judges.correctness)(text)),),
    "latency_under": (evals.latency_under(1),),
    "llm_judge": (_judged(evals.llm_judge, "right"),),
    "llm_rubric": (_judged(judges.llm_rubric, {"right": "Is it right?"}),),
    "malformed_call_rate": (tool_calls.malformed_call_rate(),),
    "matches": (evals.matches("{expected}"),),
    "math_equal": (math.math_equal,),
    "mgsm": (benchmarks.mgsm, "1"),
    "mmlu": (benchmarks.mmlu, "A"),
    "multiple_choice": (benchmarks.multiple_choice, "A"),
    "negate": (evals.negate(evals.exact_match),),
    "numeric": (evals.numeric(), 1),
    "one_of": (evals.one_of, ("a", "b")),
    "python_tests": (benchmarks.python_tests(timeout=0.1), {"test": "", "entry_point": "f"}),
    "refusal": (_judged(judges.refusal),),
    "safety": (_judged(judges.safety),),
    "similar": (evals.similar(),),
    "simpleqa": (_judged(benchmarks.simpleqa),),
    "slice_contains": (evals.slice_contains(str, bool),),
    "token_usage_under": (evals.token_usage_under(1),),
    "tool_call_count": (evals.tool_call_count("bash"),),
    "tool_call_f1": (tool_calls.tool_call_f1, "stop"),
    "tool_called": (evals.tool_called("bash"),),
    "tool_called_with": (evals.tool_called_with("bash", x=1),),
    "tool_choice": (_judged(judges.tool_choice),),
    "tool_not_called": (evals.tool_not_called("bash"),),
    "tool_schema_accuracy": (tool_calls.tool_schema_accuracy(),),
    "tools_called_in_order": (evals.tools_called_in_order(*TOOLS * 500, exactly=True),),
    "weighted": (evals.weighted((evals.exact_match, 1)),),
    "within_tolerance": (evals.within_tolerance(1), 1),
}
SHORTER = {"similar": 20_000}  # quadratic: 100,000 characters take three seconds
# Math-verify has 5 s for each, in a process of its own; `normalized_equal` gets them all, below.
FEWER = {"math_equal": ("dollars", "boxes", "one digit")}


def test_every_public_evaluator_is_here() -> None:
    public = {
        name
        for room in (evals, benchmarks, evaluators, judges, math, tool_calls)
        for name in getattr(room, "__all__", dir(room))
        if isinstance(found := getattr(room, name), evals.Criterion)
        or (inspect.isfunction(found) and inspect.signature(found).return_annotation == "Criterion")
    }
    assert public - {"event_rubric", "outcome_rubric"} == {*EVALUATORS}  # of what `llm_rubric` is


def scored(name: str, text: str, messages: Sequence[ChatMessage] = ()) -> None:
    text = text[: SHORTER.get(name, SIZE)]
    make, *rest = EVALUATORS[name]
    criterion = make if isinstance(make, evals.Criterion) else make(text)
    expected = rest[0] if rest else f"y{text[: len(text) // 2]}y"
    messages = messages or [ChatMessage("user", text), ChatMessage("assistant", text)]
    trajectory = Trajectory(messages, output=text)
    context = EvalContext(
        sample=Sample("s", text, expected),
        trajectory=trajectory,
        session=TrajectorySession(trajectory),
    )
    with suppress(EvaluatorError), processor_time(SECONDS):
        asyncio.run(criterion.score(context))


@pytest.mark.parametrize("name", EVALUATORS)
def test_an_evaluator_of_long_texts_is_bounded(name: str) -> None:
    for title in FEWER.get(name, TEXTS):
        scored(name, TEXTS[title])


def steps(count: int, seed: int) -> list[Step]:
    """Return the steps of an agent with three tools, of which few have the same arguments."""
    draw = random.Random(seed)
    return [
        Step("tool", name=draw.choice(TOOLS), arguments={"x": draw.randrange(50)}, result="done")
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", [name for name in EVALUATORS if "tool" in name])
def test_an_evaluator_of_long_trajectories_is_bounded(name: str) -> None:
    messages = [ChatMessage("user", "Mend it.")]
    for number, step in enumerate(steps(5_000, 1)):
        calls = [ToolCall(str(number), step.name, step.arguments)]
        messages += [
            ChatMessage("assistant", "", calls),
            ChatMessage("tool", "done", (), f"{number}"),
        ]
    scored(name, "done", messages)


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "yaml"])
def test_a_reader_is_bounded(suffix: str, tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS.values()):
        path = tmp_path / f"{number}.{suffix}"
        path.write_text(text)
        with suppress(WinkError), processor_time(SECONDS):
            list(loaders.iter_rows(path))


COMPARERS: dict[str, Callable[[str, str], Any]] = {
    "word_diff": word_diff,
    "got_and_expected": got_and_expected,
    "normalized_equal": math.normalized_equal,
    "near_duplicate_groups": lambda a, b: [*near_duplicate_groups([a, b, a])],
    "parse_output": lambda a, b: parse_output(a, dict[str, int]),
    "answer_line": lambda a, b: benchmarks.answer_line(a),
    "extract_boxed_answer": lambda a, b: math.extract_boxed_answer(a),
    "extract_code": lambda a, b: benchmarks.extract_code(a),
    "drop_metrics": lambda a, b: benchmarks.drop_metrics([a], [b]),
}


@pytest.mark.parametrize("name", COMPARERS)
def test_a_comparer_is_bounded(name: str) -> None:
    for text in TEXTS.values():
        with suppress(WinkError), processor_time(SECONDS):
            COMPARERS[name](text, f"y{text[: SIZE // 2]}y")


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_an_alignment_is_bounded(count: int) -> None:
    with processor_time(20 * count / 10_000):
        pairs = align(steps(count, 1), steps(count, 2))

    assert sum(pair.relation in ("same", "changed") for pair in pairs) > count / 3
